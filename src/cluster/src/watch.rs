//! One watch a kind, all into one bounded channel of [`Notice`]s.
//!
//! A watch never gives up: after an error it waits, longer each time, and lists anew. Between an error and the end of the next
//! list its kind is not synced, and who decides must not act on what may be stale. kube's watcher does the protocol (pages,
//! bookmarks, resuming, 410); `relist` turns what it says into exact changes.

use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use kube::core::ApiResource;
use kube::runtime::watcher;
use kube::{Api, Client};
use taints::fleet::Change;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::call::{CallError, chain};
use crate::connect::WATCH_SECONDS;
use crate::kind::Kind;
use crate::mark;
use crate::relist::{Known, Step};
use crate::wire::{ClaimWire, Guarded, MarkWire, NodeWire, PodWire, RuleWire, SliceWire, Wire};

/// Small pages: a page is in memory as a whole, and pods can be large.
const PAGE: u32 = 50;

/// The first and the longest wait after an error.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

/// After so long a kind of ours that is not there is looked for again: somebody may have installed it.
const LOOK_AGAIN: Duration = Duration::from_secs(30);

/// A watch that lived so long was well: the next error begins with the shortest wait again.
const STEADY: Duration = Duration::from_secs(30);

/// What a watch tells.
#[derive(Clone, Debug)]
pub enum Notice {
    /// An object changed.
    Change(Box<Change>),
    /// Everything of the kind that there is has been told.
    Synced(Kind),
    /// The watch failed and will begin anew; what was told may be stale until it is synced again.
    Failed {
        /// The kind.
        kind: Kind,
        /// What happened.
        problem: String,
    },
    /// The server does not serve the kind: there is none of it, and what was told of it is gone.
    NotServed(Kind),
    /// An object could not be understood and was left out.
    Malformed(Kind),
}

/// Watches one kind until the receiver is gone.
pub async fn run(kind: Kind, client: Client, resource: ApiResource, notices: mpsc::Sender<Notice>) {
    let source = Source { client, resource, fields: None };
    match kind {
        Kind::Node => forever::<NodeWire>(source, notices).await,
        Kind::Pod => forever::<PodWire>(source, notices).await,
        Kind::Claim => forever::<ClaimWire>(source, notices).await,
        Kind::Slice => forever::<SliceWire>(source, notices).await,
        Kind::Rule => forever::<RuleWire>(source, notices).await,
        Kind::Mark => forever::<MarkWire>(source, notices).await,
    }
}

/// Watches the DeviceMarks for the devices of one pool of a driver, until the receiver is gone. The server selects them, so that each
/// node hears of its own only.
pub async fn marks_of(driver: &str, pool: &str, client: Client, notices: mpsc::Sender<Notice>) {
    let fields = format!("spec.deviceSelector.driver={driver},spec.deviceSelector.pool={pool}");
    forever::<MarkWire>(Source { client, resource: mark::resource(), fields: Some(fields) }, notices).await;
}

/// What is watched.
struct Source {
    client: Client,
    resource: ApiResource,
    /// Only objects whose fields are so.
    fields: Option<String>,
}

/// The receiver is gone: nobody is interested any more.
struct Closed;

/// How following ended.
enum Ended {
    /// Something failed.
    Failed(String),
    /// The server does not serve the kind.
    NotServed,
}

async fn forever<W: Wire>(source: Source, notices: mpsc::Sender<Notice>) {
    let mut known = Known::default();
    let mut wait = WAIT.0;
    let mut absent = false;
    loop {
        let began = Instant::now();
        let Ok(ended) = follow::<W>(&source, &mut known, &notices).await else { return };
        let pause = match ended {
            Ended::NotServed => {
                if !std::mem::replace(&mut absent, true) {
                    tracing::info!(kind = %W::KIND, "the API server does not serve this kind; it is looked for again now and then");
                }
                if not_served::<W>(&mut known, &notices).await.is_err() {
                    return;
                }
                LOOK_AGAIN
            }
            Ended::Failed(problem) => {
                absent = false;
                tracing::warn!(kind = %W::KIND, problem, "watch failed; it begins anew");
                if notices.send(Notice::Failed { kind: W::KIND, problem }).await.is_err() {
                    return;
                }
                if began.elapsed() >= STEADY {
                    wait = WAIT.0;
                }
                let pause = wait;
                wait = (wait * 2).min(WAIT.1);
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Objects of a kind that is not there are gone with it.
async fn not_served<W: Wire>(known: &mut Known, notices: &mpsc::Sender<Notice>) -> Result<(), Closed> {
    tell::<W>(known.none::<W>(), notices).await?;
    notices.send(Notice::NotServed(W::KIND)).await.map_err(|_| Closed)
}

/// Lists and watches until something fails, and says what did.
async fn follow<W: Wire>(source: &Source, known: &mut Known, notices: &mpsc::Sender<Notice>) -> Result<Ended, Closed> {
    let api: Api<Guarded<W>> = Api::all_with(source.client.clone(), &source.resource);
    let config = watcher::Config { field_selector: source.fields.clone(), ..watcher::Config::default() };
    let config = config.page_size(PAGE).timeout(WATCH_SECONDS);
    let mut events = pin!(watcher::watcher(api, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => tell::<W>(known.step(event), notices).await?,
            Err(error) if W::KIND.may_be_absent() && is_absence(&error) => return Ok(Ended::NotServed),
            Err(error) => return Ok(Ended::Failed(words(error))),
        }
    }
    Ok(Ended::Failed("the watch ended".to_owned()))
}

/// What failed, for people: what a server answers is said as everywhere, and without the whole Status.
fn words(error: watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error) => format!("cannot list: {}", CallError::from(error)),
        watcher::Error::WatchStartFailed(error) => format!("cannot watch: {}", CallError::from(error)),
        watcher::Error::WatchError(status) => format!("the watch broke: {}", CallError::Status(status)),
        other => chain(&other),
    }
}

fn is_absence(error: &watcher::Error) -> bool {
    match error {
        watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status)) => status.code == 404,
        _ => false,
    }
}

async fn tell<W: Wire>(step: Step, notices: &mpsc::Sender<Notice>) -> Result<(), Closed> {
    for change in step.changes {
        notices.send(Notice::Change(Box::new(change))).await.map_err(|_| Closed)?;
    }
    if let Some(malformed) = step.malformed {
        tracing::warn!(kind = %malformed.kind, object = malformed.name, problem = malformed.problem, "object left out");
        notices.send(Notice::Malformed(W::KIND)).await.map_err(|_| Closed)?;
    }
    if step.synced {
        notices.send(Notice::Synced(W::KIND)).await.map_err(|_| Closed)?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "watch_tests.rs"]
mod tests;
