//! Runs the table of scenarios on a real Kubernetes that `cargo xtask kube up` started, or on small clusters. `cargo xtask kube test` calls it.
//!
//! Exit codes: 0 every scenario that this cluster can run passed; 1 one failed; 2 a flag does not parse, or the cluster does not answer; 130 and 143 when
//! SIGINT or SIGTERM came: what was started is ended then, and what is left in a real cluster is cleaned by the next run.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result};
use clap::Parser;
use scenarios::lab::{RealCluster, Site};
use scenarios::needs::{Offer, unmet};
use scenarios::run::{self, Heard};
use scenarios::signals;
use scenarios::stage::Scenario;
use serde::Serialize;
use tokio::time::Instant;

/// The table of scenarios on a real Kubernetes.
#[derive(Debug, Parser)]
struct Arguments {
    /// The cluster.json of a real cluster. Without it each scenario gets a small cluster of its own.
    #[arg(long, value_name = "FILE")]
    cluster: Option<PathBuf>,
    /// The agent of the real node and the controller as helm installs them: in pods, with their own accounts. Their images must be there
    #[arg(long, requires = "cluster")]
    installed: bool,
    /// Also prints what the steps tell.
    #[arg(long)]
    notes: bool,
    /// Also writes the outcomes into this file, one JSON object a line.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Only these scenarios.
    #[arg(value_name = "NAME", value_parser = scenarios::scenarios::named)]
    named: Vec<&'static Scenario>,
}

/// How one scenario went.
#[derive(Debug, Serialize)]
struct Outcome {
    scenario: &'static str,
    outcome: &'static str,
    /// Why it was not run here, or what broke, in one line.
    #[serde(skip_serializing_if = "String::is_empty")]
    reason: String,
    seconds: f64,
}

/// How long tasks that cannot be dropped may take to end.
const FAREWELL: Duration = Duration::from_secs(5);

const PASSED: &str = "ok";
const FAILED: &str = "failed";
const NOT_HERE: &str = "not run here";

fn main() -> ExitCode {
    let ended = Arguments::parse().run();
    match ended {
        Ok(code) => code,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            writeln!(std::io::stderr(), "error: {error:#}").ok();
            ExitCode::from(2)
        }
    }
}

impl Arguments {
    fn run(&self) -> Result<ExitCode> {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
        let ended = runtime.block_on(async {
            tokio::select! {
                passed = table(self) => passed.map(|passed| if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE }),
                // The table is dropped, and with it the lab: its programs end.
                signal = signals::asked_to_end() => signal.map(|signal| {
                    writeln!(std::io::stderr(), "ended by {}", signal.name()).ok();
                    ExitCode::from(signal.exit_code())
                }),
            }
        });
        // A build that was begun would be waited for without end.
        runtime.shutdown_timeout(FAREWELL);
        ended
    }
}

/// Whether none failed.
async fn table(arguments: &Arguments) -> Result<bool> {
    let mut cluster = arguments.cluster.as_deref().map(RealCluster::read).transpose()?;
    if let Some(cluster) = &mut cluster {
        cluster.installed = arguments.installed;
    }
    let site = cluster.clone().map_or(Site::Small, |cluster| Site::Real(Box::new(cluster)));
    let outcomes = outcomes(arguments, &site).await;
    if let Some(cluster) = cluster.filter(|cluster| cluster.installed) {
        cluster.uninstall().await?;
    }
    let outcomes = outcomes?;
    let count = |wanted: &str| outcomes.iter().filter(|outcome| outcome.outcome == wanted).count();
    say(&format!("{} passed, {} failed, {} not run here", count(PASSED), count(FAILED), count(NOT_HERE)))?;
    if let Some(file) = &arguments.report {
        let lines = outcomes.iter().map(serde_json::to_string).collect::<Result<Vec<_>, _>>()?;
        std::fs::write(file, lines.join("\n") + "\n").with_context(|| format!("cannot write {}", file.display()))?;
    }
    Ok(count(FAILED) == 0)
}

async fn outcomes(arguments: &Arguments, site: &Site) -> Result<Vec<Outcome>> {
    let offer = site.offer().await?;
    let mut outcomes = Vec::new();
    for scenario in wanted(&arguments.named) {
        outcomes.push(one(scenario, site, &offer, arguments.notes).await?);
    }
    Ok(outcomes)
}

/// The rows to run, in the order of the table; all where none is named.
fn wanted(named: &[&'static Scenario]) -> impl Iterator<Item = &'static Scenario> {
    let is_named = |scenario: &Scenario| named.is_empty() || named.iter().any(|one| one.name == scenario.name);
    scenarios::table().iter().filter(move |scenario| is_named(scenario))
}

async fn one(scenario: &'static Scenario, site: &Site, offer: &Offer, tell: bool) -> Result<Outcome> {
    let name = scenario.name;
    if let Some(reason) = unmet(scenario.needs, offer) {
        say(&format!("scenario {name} ... {NOT_HERE}: {reason}"))?;
        return Ok(Outcome { scenario: name, outcome: NOT_HERE, reason: reason.to_owned(), seconds: 0.0 });
    }
    let began = Instant::now();
    let mut notes = Vec::new();
    let note = |heard: Heard<'_>| {
        if let Heard::Ended(told, _) = heard {
            notes.extend(told.iter().cloned());
        }
    };
    let ended = match run::scenario(scenario, site, note).await {
        Ok(stage) => stage.close().await.context("cleaning up"),
        Err(error) => Err(error),
    };
    let seconds = began.elapsed().as_secs_f64();
    notes.iter().filter(|_| tell).try_for_each(|note| say(note))?;
    let Err(error) = ended else {
        say(&format!("scenario {name} ... {PASSED} ({seconds:.1} s)"))?;
        return Ok(Outcome { scenario: name, outcome: PASSED, reason: String::new(), seconds });
    };
    let error = format!("{error:#}");
    say(&format!("scenario {name} ... FAILED ({seconds:.1} s)\n{error}"))?;
    let reason = error.lines().next().unwrap_or_default().to_owned();
    Ok(Outcome { scenario: name, outcome: FAILED, reason, seconds })
}

fn say(text: &str) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{text}")?;
    Ok(out.flush()?)
}
