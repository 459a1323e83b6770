//! `cargo xtask kube test`: the table of scenarios on a real cluster, which is started for it and stopped again.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::layout::RunDir;
use super::version::Version;
use super::{DownArgs, UpArgs, down, say, up};

/// Options of `cargo xtask kube test`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TestArgs {
    /// Version of Kubernetes: 1.34, 1.35, 1.36 or 1.37, with or without the patch
    #[arg(long, default_value_t)]
    version: Version,
    /// Run on the cluster in this folder, which `cargo xtask kube up` started, and leave it running
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,
    /// Only these scenarios
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(super) fn run(args: &TestArgs) -> Result<()> {
    // First: what does not compile needs no cluster.
    build_table()?;
    match &args.on {
        Some(folder) => table(&RunDir::new(folder)?, &args.names),
        None => on_a_cluster_of_its_own(args),
    }
}

/// The cluster is stopped whatever comes out; its logs stay where a scenario failed.
fn on_a_cluster_of_its_own(args: &TestArgs) -> Result<()> {
    let folder = PathBuf::from(format!("/tmp/dtk-test-{}", std::process::id()));
    let run = RunDir::new(&folder)?;
    up::run(&UpArgs { version: args.version, run: folder.clone(), port: None, upstream_evictor: false, stock: false })?;
    let tested = table(&run, &args.names);
    let keep_logs = tested.is_err();
    let stopped = down::run(&DownArgs { run: folder, keep_logs });
    tested.and(stopped)
}

/// Compiles the scenarios.
pub(super) fn build_table() -> Result<()> {
    let status =
        crate::cargo(&["build", "--package", "scenarios", "--bin", "table"]).status().context("cannot run cargo")?;
    if status.success() { Ok(()) } else { bail!("the scenarios do not build: {status}") }
}

fn table(run: &RunDir, names: &[String]) -> Result<()> {
    let status = table_command(run).args(names).status().context("cannot run cargo")?;
    if status.success() {
        return Ok(());
    }
    say(&format!("the cluster's logs are in {}", run.path("logs").display()));
    bail!("not all scenarios passed: {status}")
}

/// Runs the table on the cluster of a run folder.
pub(super) fn table_command(run: &RunDir) -> Command {
    let mut command = crate::cargo(&["run", "--quiet", "--package", "scenarios", "--bin", "table", "--", "--cluster"]);
    command.arg(run.path("cluster.json"));
    command
}
