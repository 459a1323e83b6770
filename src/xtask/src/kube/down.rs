//! `cargo xtask kube down`: stops a cluster and removes what it left. Where there is nothing, it says so and is content.

use anyhow::{Result, ensure};

use super::layout::RunDir;
use super::sweep::{Keep, sweep};
use super::{DownArgs, process, say};

pub(super) fn run(args: &DownArgs) -> Result<()> {
    ensure!(rustix::process::geteuid().is_root(), "a real cluster is root's: run it with sudo");
    let run = RunDir::new(&args.run)?;
    let root = run.root().display();
    if !run.root().exists() {
        // Somebody may have removed the folder of a cluster that runs.
        sweep(&run, Keep::Nothing)?;
        say(&format!("no cluster is in {root}"));
        return Ok(());
    }
    let _lock = run.lock()?;
    // Of a cluster that runs, somebody may have removed most of the folder.
    let is_ours = run.is_marked() || !process::marked(&run)?.is_empty();
    ensure!(is_ours, "{root} is not a run folder: `cargo xtask kube up` did not make it");
    if args.keep_logs {
        sweep(&run, Keep::Logs)?;
        say(&format!("stopped; the logs are in {}", run.path("logs").display()));
        return Ok(());
    }
    sweep(&run, Keep::Nothing)?;
    run.remove()?;
    say(&format!("stopped, and {root} is removed"));
    Ok(())
}
