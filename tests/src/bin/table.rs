//! Runs the table of scenarios on a real Kubernetes that `cargo xtask kube up` started. `cargo xtask kube test` calls it.
//!
//! Exit codes: 0 every scenario that a real cluster can run passed; 1 one failed; 2 a flag does not parse.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use scenarios::lab::{RealCluster, Site};
use scenarios::run;
use scenarios::stage::Scenario;
use tokio::time::Instant;

/// The table of scenarios on a real Kubernetes.
#[derive(Debug, Parser)]
struct Arguments {
    /// The cluster.json of the cluster.
    #[arg(long, value_name = "FILE")]
    cluster: PathBuf,
    /// Only these scenarios.
    names: Vec<String>,
}

/// How the scenarios went.
#[derive(Debug, Default)]
struct Tally {
    passed: usize,
    failed: usize,
    not_here: usize,
}

fn main() -> ExitCode {
    match table(&Arguments::parse()) {
        Ok(Tally { failed: 0, .. }) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            writeln!(std::io::stderr(), "error: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

fn table(arguments: &Arguments) -> Result<Tally> {
    let site = Site::Real(RealCluster::read(&arguments.cluster)?);
    let wanted = wanted(&arguments.names)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let mut tally = Tally::default();
    for scenario in wanted {
        runtime.block_on(one(scenario, &site, &mut tally))?;
    }
    let Tally { passed, failed, not_here } = &tally;
    say(&format!("{passed} passed, {failed} failed, {not_here} not run here"))?;
    Ok(tally)
}

fn wanted(names: &[String]) -> Result<Vec<&'static Scenario>> {
    let all = scenarios::table();
    for name in names {
        let known = || all.iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
        ensure!(all.iter().any(|scenario| scenario.name == name), "no scenario {name}; there are {}", known());
    }
    Ok(all.iter().filter(|scenario| names.is_empty() || names.iter().any(|name| name == scenario.name)).collect())
}

async fn one(scenario: &'static Scenario, site: &Site, tally: &mut Tally) -> Result<()> {
    let name = scenario.name;
    if let Some(reason) = scenario.only_small {
        tally.not_here += 1;
        return say(&format!("scenario {name} ... not run here: {reason}"));
    }
    let began = Instant::now();
    let ended = match run::scenario(scenario, site, |_| {}).await {
        Ok(stage) => stage.close().await.context("cleaning up"),
        Err(error) => Err(error),
    };
    let seconds = began.elapsed().as_secs_f64();
    match ended {
        Ok(()) => {
            tally.passed += 1;
            say(&format!("scenario {name} ... ok ({seconds:.1} s)"))
        }
        Err(error) => {
            tally.failed += 1;
            say(&format!("scenario {name} ... FAILED ({seconds:.1} s)\n{error:#}"))
        }
    }
}

fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}
