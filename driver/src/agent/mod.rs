//! The agent as a whole: its long-lived tasks and what flows between them.
//!
//! ```text
//!  NVML room ──(bounded queue of Updates)──► watcher ──(watch: Pool)────► publisher ──► API server
//!                                              │  ▲                          │
//!                                              │  └──(watch: Published)──────┘ moments that the server gave to taints
//!                                              ├─────(watch: Devices)─────► claims ◄── plugin ◄── kubelet
//!                                              ├─────(watch: Report)──────► plugin (health streams)
//!                                              └─────(watch: Memory)──────► saver ──► state directory
//!  looker ───(watch: Others)─► watcher: cards with another owner         notices ◄──(bounded queue)── watcher: events on the Node
//!  API server ──► marks of people ──(watch: Marks)──► watcher
//!  sweep: claims that are gone        keep: what claims need on disk        http: /metrics /healthz /readyz        signals: SIGTERM, SIGINT
//! ```
//!
//! Watch channels hold the newest state only: nobody works off old news. All tasks run in one set under one token; when one ends
//! before it was told to, the process ends, so that nothing runs on blind. The order of the end: an agent that stands by is let on
//! first ([`post`]), then kubelet's plugin goes (it lets calls finish), while everything that calls need still runs; then the rest.

pub mod core;
mod lock;
mod post;
mod remembered;
mod saver;
mod start;
mod telling;
#[cfg(test)]
mod tests;
mod watcher;

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::claims::{self, CheckpointError};
use crate::config::Config;
use crate::http::HttpError;
use crate::notices;
use crate::plugin::{ServeError, leftovers};
use crate::policy::PolicyError;
use crate::state::StateError;

use lock::Lock;
pub use lock::LockError;

/// Why the agent ended.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The policy is not valid.
    #[error(transparent)]
    Policy(#[from] PolicyError),
    /// A file that a flag names cannot be read.
    #[error("cannot read {}: {source}; check {flag}", path.display())]
    File {
        /// The flag.
        flag: &'static str,
        /// The file.
        path: std::path::PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is no API server to talk to.
    #[error(transparent)]
    Connect(#[from] cluster::connect::ConnectError),
    /// The state directory cannot be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The state directory cannot be used.
    #[error(transparent)]
    State(#[from] StateError),
    /// The checkpoints cannot be used.
    #[error(transparent)]
    Checkpoints(#[from] CheckpointError),
    /// The HTTP server could not begin.
    #[error(transparent)]
    Http(#[from] HttpError),
    /// A server of kubelet's sockets broke.
    #[error(transparent)]
    Serve(#[from] ServeError),
    /// A task ended on its own.
    #[error("the task {0} ended by itself; this is a defect, please report it with the log")]
    TaskEnded(&'static str),
}

impl AgentError {
    /// 2 for what the operator wrote, 1 for everything else.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Policy(_) | Self::File { .. } | Self::Connect(_) => 2,
            _ => 1,
        }
    }
}

type Tasks = JoinSet<Result<&'static str, AgentError>>;

/// Runs the agent until `stop`. `instance` tells this process from every other one that served the node before; it becomes part of socket names.
/// `listening` is told the address of the HTTP server before anything else begins.
///
/// # Errors
/// When something that the operator gave cannot be used, or a task breaks.
pub async fn run(
    config: Config,
    instance: &str,
    listening: impl FnOnce(SocketAddr),
    stop: CancellationToken,
) -> Result<(), AgentError> {
    let start::Front { web, listener, back } = start::front(&config, listening).await?;
    let mut tasks: Tasks = JoinSet::new();
    // Everything but the plugin stops only after it: calls that are finished need the rest.
    let rest = CancellationToken::new();
    let token = rest.clone();
    tasks.spawn(async move {
        crate::http::serve(listener, web, token).await;
        Ok("http")
    });
    let post = tokio::select! {
        () = stop.cancelled() => return Ok(()),
        post = back.post(&config) => post?,
    };
    serve_kubelet(&back, &config, instance, post, (&mut tasks, &stop, &rest));
    let (lock, broken) = match begin(back, &config, &stop).await {
        Ok(Some((lock, prepared))) => {
            spawn(prepared, &mut tasks, &rest);
            (Some(lock), Ok(()))
        }
        Ok(None) => (None, Ok(())),
        Err(error) => {
            stop.cancel();
            (None, Err(error))
        }
    };
    let result = finish(tasks, &stop, &rest).await;
    drop(lock);
    broken.and(result)
}

/// Waits for the state directory and reads it. Nothing when told to end before that.
async fn begin(
    back: start::Back,
    config: &Config,
    stop: &CancellationToken,
) -> Result<Option<(Lock, start::Prepared)>, AgentError> {
    let lock = tokio::select! {
        () = stop.cancelled() => return Ok(None),
        lock = back.lock(config) => lock?,
    };
    Ok(Some((lock, back.prepare(config)?)))
}

/// Starts what kubelet calls. Its end is the end of all.
fn serve_kubelet(
    back: &start::Back,
    config: &Config,
    instance: &str,
    post: post::Post,
    (tasks, stop, rest): (&mut Tasks, &CancellationToken, &CancellationToken),
) {
    let (plugin, seen) = back.plugin(config, instance);
    let (stop, last, retire) = (stop.clone(), rest.clone(), CancellationToken::new());
    let (paths, root, driver) = (plugin.paths.clone(), config.kubelet_root.clone(), config.driver_name.clone());
    tasks.spawn(async move {
        leftovers::remove(&paths, &root, &driver).await;
        let keep = async {
            post.keep(seen, stop, retire.clone()).await;
            std::future::pending().await
        };
        let served = tokio::select! {
            served = plugin.run(retire.clone()) => served,
            never = keep => never,
        };
        last.cancel();
        Ok(served.map(|()| "plugin")?)
    });
}

/// Starts every other task.
fn spawn(prepared: start::Prepared, tasks: &mut Tasks, rest: &CancellationToken) {
    let start::Prepared { watcher, publisher, saver, claims, marks, disk, look, looker, notices } = prepared;
    let token = rest.clone();
    tasks.spawn(async move {
        watcher.run(token).await;
        Ok("watcher")
    });
    let token = rest.clone();
    tasks.spawn(async move {
        publisher.run(token).await;
        Ok("publisher")
    });
    let token = rest.clone();
    tasks.spawn(async move {
        looker.run(token).await;
        Ok("looker")
    });
    let ((api, notices), token) = (notices, rest.clone());
    tasks.spawn(async move {
        notices::run(api, notices, watcher::now, token).await;
        Ok("notices")
    });
    let token = rest.clone();
    tasks.spawn(async move {
        marks.run(token).await;
        Ok("marks")
    });
    tasks.spawn(async move {
        saver.run().await;
        Ok("saver")
    });
    let (kept, token) = (claims.clone(), rest.clone());
    tasks.spawn(async move {
        claims::keep::run(kept, disk, look, token).await;
        Ok("keep")
    });
    let token = rest.clone();
    tasks.spawn(async move {
        claims::sweep::run(claims, token).await;
        Ok("sweep")
    });
}

/// Waits for all tasks. One that fails, or ends before the end was asked for, ends all.
async fn finish(mut tasks: Tasks, stop: &CancellationToken, rest: &CancellationToken) -> Result<(), AgentError> {
    let mut result = Ok(());
    while let Some(ended) = tasks.join_next().await {
        let early = !stop.is_cancelled();
        let outcome = match ended {
            Ok(Ok(name)) if early => Err(AgentError::TaskEnded(name)),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(error),
            // A panic was already told by its hook, on standard error.
            Err(_) => Err(AgentError::TaskEnded("that panicked")),
        };
        if let Err(error) = outcome {
            stop.cancel();
            rest.cancel();
            if result.is_ok() {
                result = Err(error);
            }
        }
    }
    result
}

/// Shares a value in a watch channel, and wakes its readers only when it differs.
fn share<T: PartialEq>(channel: &tokio::sync::watch::Sender<Option<Arc<T>>>, value: T) {
    channel.send_if_modified(|held| {
        let news = held.as_deref() != Some(&value);
        if news {
            *held = Some(Arc::new(value));
        }
        news
    });
}
