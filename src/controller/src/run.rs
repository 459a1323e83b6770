//! The wiring: which tasks there are, and what happens when one ends.

use std::io::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster::{ConnectError, ConnectOptions, connect};
use kube::Client;
use parking_lot::RwLock;
use taints::fleet::Fleet;
use taints::verdict::FirstSeen;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::act::Actor;
use crate::args::Args;
use crate::clock::Clock;
use crate::decide::{Channels, Deciding};
use crate::decider::Decider;
use crate::follow::Following;
use crate::health::Health;
use crate::http::{self, HttpError, Shared};
use crate::metrics::Metrics;
use crate::store::{self, StoreError};
use crate::strangers::Strangers;
use crate::tell;

/// Room between watches and who decides.
const NOTICES: usize = 1024;
/// Room between who decides and who acts. What does not fit is tried again a second later.
const JOBS: usize = 1024;
/// Room for what came of it.
const REPORTS: usize = 1024;
/// Room for events.
const EVENTS: usize = 1024;

/// How long the tasks may take to end when told to.
const FAREWELL: Duration = Duration::from_secs(12);

/// Why the controller did not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// No client.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// No state directory.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No HTTP server.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A task that lives as long as the process ended.
    #[error("the {task} task ended: {problem}")]
    Dead {
        /// Which.
        task: &'static str,
        /// How.
        problem: String,
    },
}

impl RunError {
    /// Whether the command line, or a file that it names, is at fault: trying again does not help.
    #[must_use]
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::Connect(_) | Self::Store(_))
    }
}

/// Runs the controller until `stop`, or until something ends that must not.
///
/// # Errors
/// When it cannot start, or a task dies.
pub async fn run(args: &Args, clock: Clock, out: &mut impl Write, stop: CancellationToken) -> Result<(), RunError> {
    let seen = args.state_dir.as_deref().map(store::load).transpose()?;
    if seen.is_none() {
        tracing::warn!("no --state-dir: countdowns of taints without a time begin anew after a restart");
    }
    let client = connect(&ConnectOptions {
        kubeconfig: args.kubeconfig.clone(),
        context: None,
        user_agent: concat!("device-taint-controller/", env!("CARGO_PKG_VERSION")).to_owned(),
    })
    .await?;
    let shared = Shared { health: Health::default(), metrics: Metrics::default() };
    let listener = http::bind(args.listen, out).await?;
    let mut tasks = Tasks { set: JoinSet::new(), stop };
    let serve = http::serve(listener, shared.clone(), tasks.stop.clone());
    tasks.spawn("HTTP", async { serve.await.map_err(|error| error.to_string()) });
    spawn_flow(&mut tasks, args, client, clock, &shared, seen);
    tasks.wait().await
}

/// The flow of a decision: watches, who decides, who acts, who tells, and the disk.
fn spawn_flow(tasks: &mut Tasks, args: &Args, client: Client, clock: Clock, shared: &Shared, seen: Option<FirstSeen>) {
    let (notices, notices_in) = mpsc::channel(NOTICES);
    let (jobs, jobs_in) = mpsc::channel(JOBS);
    let (reports, reports_in) = mpsc::channel(REPORTS);
    let (events, events_in) = mpsc::channel(EVENTS);
    let (rules, rules_in) = watch::channel(None);
    let first = seen.unwrap_or_default();
    let (states, states_in) = watch::channel(first.clone());
    let fleet = Arc::new(RwLock::new(Fleet::default()));
    let (health, metrics) = (shared.health.clone(), shared.metrics.clone());

    let following = Following { client: client.clone(), health: health.clone(), notices, rules };
    tasks.spawn("watching", following.run(tasks.stop.clone()));
    let actor = Actor {
        client: client.clone(),
        fleet: fleet.clone(),
        rules: rules_in,
        clock: clock.clone(),
        metrics: metrics.clone(),
        events: events.clone(),
        reports,
    };
    tasks.run("acting", |stop| actor.run(jobs_in, stop));
    tasks.run("telling", |_| tell::run(client, events_in, clock.clone(), metrics.clone()));
    keep_state(tasks, args.state_dir.clone(), states_in, &metrics);
    let decider = Decider::new(fleet, first, args.modes(), args.settings());
    let deciding = Deciding { decider, modes: args.modes(), clock, health, metrics, strangers: Strangers::default() };
    let channels = Channels { notices: notices_in, reports: reports_in, jobs, events, states };
    tasks.run("deciding", |stop| deciding.run(channels, stop));
}

fn keep_state(tasks: &mut Tasks, directory: Option<PathBuf>, states: watch::Receiver<FirstSeen>, metrics: &Metrics) {
    if let Some(directory) = directory {
        let metrics = metrics.clone();
        tasks.run("storing", |stop| store::run(directory, states, metrics, stop));
    }
}

/// How a task ended: its name, and what was wrong.
type Ended = (&'static str, Result<(), String>);

/// The tasks of the process, which end together.
struct Tasks {
    set: JoinSet<Ended>,
    stop: CancellationToken,
}

impl Tasks {
    fn spawn(&mut self, name: &'static str, task: impl Future<Output = Result<(), String>> + Send + 'static) {
        self.set.spawn(async move { (name, task.await) });
    }

    fn run<F>(&mut self, name: &'static str, task: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let task = task(self.stop.clone());
        self.spawn(name, async move {
            task.await;
            Ok(())
        });
    }

    /// Waits for the word to stop, or for the first task that ends without it.
    async fn wait(mut self) -> Result<(), RunError> {
        let first = tokio::select! {
            () = self.stop.cancelled() => None,
            ended = self.set.join_next() => ended,
        };
        let asked = self.stop.is_cancelled();
        self.stop.cancel();
        if tokio::time::timeout(FAREWELL, async { while self.set.join_next().await.is_some() {} }).await.is_err() {
            tracing::warn!("some tasks did not end in time and are dropped");
        }
        match first {
            Some(ended) if !asked => Err(dead(ended)),
            _ => Ok(()),
        }
    }
}

fn dead(ended: Result<Ended, JoinError>) -> RunError {
    match ended {
        Ok((task, result)) => {
            RunError::Dead { task, problem: result.err().unwrap_or_else(|| "without being told to".to_owned()) }
        }
        Err(error) => RunError::Dead { task: "unknown", problem: error.to_string() },
    }
}

#[cfg(test)]
#[path = "run_tests.rs"]
mod tests;
