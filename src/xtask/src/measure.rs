//! `cargo xtask measure [GROUP]`: figures of the programs in release, one JSON object a line.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Builds the measuring program in release and runs it; its lines are on stdout, cargo's progress on stderr.
///
/// # Errors
/// When it does not build, or a figure could not be taken.
pub(crate) fn run(group: Option<&str>) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.current_dir(crate::repository_root());
    command.args(["run", "--release", "--package", "scenarios", "--bin", "measure", "--"]).args(group);
    let status = command.status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("measuring ended with {status}") }
}
