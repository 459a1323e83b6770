//! `cargo xtask measure [GROUP]`: figures of the programs in release, one JSON object a line.

use anyhow::{Context, Result, bail};

/// Builds the measuring program in release and runs it; its lines are on stdout, cargo's progress on stderr.
///
/// # Errors
/// When it does not build, or a figure could not be taken.
pub(crate) fn run(group: Option<&str>) -> Result<()> {
    let mut command = crate::cargo(&["run", "--release", "--package", "scenarios", "--bin", "measure", "--"]);
    let status = command.args(group).status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("measuring ended with {status}") }
}
