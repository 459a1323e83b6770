//! `cargo xtask kube test`: the table of scenarios on a real cluster, which is started for it and stopped again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::layout::RunDir;
use super::record::Cluster;
use super::version::Version;
use super::{DownArgs, UpArgs, down, images, say, up};
use crate::image::{self, Profile};

/// Options of `cargo xtask kube test`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TestArgs {
    /// Version of Kubernetes: 1.34, 1.35, 1.36 or 1.37, with or without the patch
    #[arg(long, default_value_t)]
    version: Version,
    /// Run on the cluster in this folder, which `cargo xtask kube up` started, and leave it running
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,
    /// The agent of the real node and the controller as helm installs them, from images that are made for it
    #[arg(long)]
    installed: bool,
    /// Only these scenarios
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(super) fn run(args: &TestArgs) -> Result<()> {
    // First: what does not compile needs no cluster.
    let program = build_table()?;
    match &args.on {
        Some(folder) => table(&program, &RunDir::new(folder)?, args),
        None => on_a_cluster_of_its_own(&program, args),
    }
}

/// The cluster is stopped whatever comes out; its logs stay where a scenario failed.
fn on_a_cluster_of_its_own(program: &Path, args: &TestArgs) -> Result<()> {
    let folder = PathBuf::from(format!("/tmp/dtk-test-{}", std::process::id()));
    let run = RunDir::new(&folder)?;
    up::run(&UpArgs { version: args.version, run: folder.clone(), port: None, upstream_evictor: false, stock: false })?;
    let tested = table(program, &run, args);
    let keep_logs = tested.is_err();
    let stopped = down::run(&DownArgs { run: folder, keep_logs });
    tested.and(stopped)
}

/// Compiles the scenarios, with the features that the programs under test are built with too, and gives the program.
pub(super) fn build_table() -> Result<PathBuf> {
    let built = crate::build(&["--workspace", "--bin", "table"])?;
    built.into_iter().find(|path| path.ends_with("table")).context("cargo built no table")
}

fn table(program: &Path, run: &RunDir, args: &TestArgs) -> Result<()> {
    let mut command = table_command(program, run);
    if args.installed {
        give_images(run)?;
        command.arg("--installed");
    }
    let status = command.args(&args.names).status().context("cannot run the scenarios")?;
    if status.success() {
        return Ok(());
    }
    say(&format!("the cluster's logs are in {}", run.path("logs").display()));
    bail!("not all scenarios passed: {status}")
}

/// Gives the cluster the images of the programs as they are now: by the same names, whatever it had before.
fn give_images(run: &RunDir) -> Result<()> {
    let cluster = Cluster::read(run)?.with_context(|| format!("no cluster runs in {}", run.root().display()))?;
    let folder = tempfile::tempdir().context("make a folder for the images")?;
    for image in image::make(folder.path(), Profile::Debug)? {
        images::import_one(run, &cluster.ctr, &image.file)?;
    }
    Ok(())
}

/// Runs the table on the cluster of a run folder.
pub(super) fn table_command(program: &Path, run: &RunDir) -> Command {
    let mut command = Command::new(program);
    command.arg("--cluster").arg(run.path("cluster.json"));
    command
}
