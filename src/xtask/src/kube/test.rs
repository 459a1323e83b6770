//! `cargo xtask kube test`: the table of scenarios on a real cluster, which is started for it and stopped again.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::interrupt::Interrupt;
use super::layout::RunDir;
use super::record::Cluster;
use super::version::Version;
use super::{DownArgs, ScenariosFailed, UpArgs, build, down, further, images, process, up};
use crate::image::{self, Profile};

/// Exit code of the table where a scenario failed. Every other one but 0 says that the table could not be run.
const FAILED: i32 = 1;

/// Options of `cargo xtask kube test`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct TestArgs {
    /// Version of Kubernetes: 1.34, 1.35, 1.36 or 1.37, with or without the patch
    #[arg(long, default_value_t)]
    version: Version,
    /// Start the version as it comes: no feature gate, no API version that is off by default
    #[arg(long, conflicts_with = "on")]
    stock: bool,
    /// Run on the cluster in this folder, which `cargo xtask kube up` started, and leave it running
    #[arg(long, value_name = "DIR")]
    on: Option<PathBuf>,
    /// The agent of the real node and the controller as helm installs them, from images that are made for it
    #[arg(long)]
    installed: bool,
    /// Beside kube-controller-manager's own evictor of device taints: who is evicted when is compared, and told
    #[arg(long, conflicts_with = "installed")]
    upstream: bool,
    /// Only these scenarios
    #[arg(value_name = "NAME")]
    names: Vec<String>,
}

pub(super) fn run(args: &TestArgs) -> Result<()> {
    // First: what does not compile needs no cluster.
    let program = build_table()?;
    if let Some(folder) = &args.on {
        let run = RunDir::new(folder)?;
        further::ensure_none(&run)?;
        return table(table_command(&program, &run), &run, args, &Interrupt::listen()?);
    }
    build::ensure(args.version)?;
    // From here on a signal stops the cluster before it ends us.
    let interrupt = Interrupt::listen()?;
    let own = OwnCluster { version: args.version, stock: args.stock, upstream_evictor: args.upstream, purpose: "test" };
    own.with(
        |()| false,
        |run| {
            let mut command = table_command(&program, run);
            process::mark(&mut command, run);
            table(command, run, args, &interrupt)
        },
    )
}

/// A cluster that is started for one use, and stopped whatever comes out of it.
#[derive(Clone, Copy)]
pub(super) struct OwnCluster<'a> {
    pub(super) version: Version,
    pub(super) stock: bool,
    /// Whether kube-controller-manager evicts for device taints itself.
    pub(super) upstream_evictor: bool,
    /// Part of its folder's name.
    pub(super) purpose: &'a str,
}

impl OwnCluster<'_> {
    /// Starts it, uses it, stops it. Its logs stay where `worth_logs` says so of what came out, and where the use failed.
    pub(super) fn with<T>(self, worth_logs: fn(&T) -> bool, use_it: impl FnOnce(&RunDir) -> Result<T>) -> Result<T> {
        let folder = PathBuf::from(format!("/tmp/dtk-{}-{}", self.purpose, std::process::id()));
        let run = RunDir::new(&folder)?;
        up::run(&UpArgs {
            version: self.version,
            run: folder.clone(),
            port: None,
            nodes: 1,
            upstream_evictor: self.upstream_evictor,
            stock: self.stock,
        })?;
        let used = use_it(&run);
        let keep_logs = used.as_ref().map_or(true, worth_logs);
        let stopped = down::run(&DownArgs { run: folder, keep_logs });
        let used = used?;
        stopped.map(|()| used)
    }
}

/// Compiles the scenarios, with the features that the programs under test are built with too, and gives the program.
pub(super) fn build_table() -> Result<PathBuf> {
    let built = crate::build(&["--workspace", "--bin", "table"])?;
    built.into_iter().find(|path| path.ends_with("table")).context("cargo built no table")
}

fn table(mut command: Command, run: &RunDir, args: &TestArgs, interrupt: &Interrupt) -> Result<()> {
    if args.installed {
        give_images(run)?;
        command.arg("--installed");
    }
    if args.upstream {
        command.arg("--notes");
    }
    let status = interrupt.attend(command.args(&args.names))?;
    judge(status.code(), &run.path("logs"))
}

/// What the exit code of the table means.
fn judge(code: Option<i32>, logs: &Path) -> Result<()> {
    let logs = format!("the cluster's logs are in {}", logs.display());
    match code {
        Some(0) => Ok(()),
        Some(FAILED) => Err(ScenariosFailed(format!("not all scenarios passed; {logs}")).into()),
        Some(code) => bail!("the scenarios could not be run, they ended with code {code}; {logs}"),
        None => bail!("the scenarios were ended by a signal; {logs}"),
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_scenario_is_not_a_cluster_that_did_not_come_up() {
        let judged = |code| judge(code, Path::new("/tmp/x/logs"));
        judged(Some(0)).unwrap();
        for (code, failed) in [(Some(1), true), (Some(2), false), (Some(101), false), (None, false)] {
            let error = judged(code).unwrap_err();
            assert_eq!(error.is::<ScenariosFailed>(), failed, "{code:?}");
            assert!(error.to_string().contains("/tmp/x/logs"), "{error}");
        }
    }
}
