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

use crate::call::chain;
use crate::connect::WATCH_SECONDS;
use crate::kind::Kind;
use crate::relist::{Known, Step};
use crate::wire::{ClaimWire, Guarded, NodeWire, PodWire, RuleWire, SliceWire, Wire};

/// Small pages: a page is in memory as a whole, and pods can be large.
const PAGE: u32 = 50;

/// The first and the longest wait after an error.
const WAIT: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(10));

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
    /// The server does not serve the kind: there is none of it.
    NotServed(Kind),
    /// An object could not be understood and was left out.
    Malformed(Kind),
}

/// Watches one kind until the receiver is gone.
pub async fn run(kind: Kind, client: Client, resource: ApiResource, notices: mpsc::Sender<Notice>) {
    match kind {
        Kind::Node => forever::<NodeWire>(client, resource, notices).await,
        Kind::Pod => forever::<PodWire>(client, resource, notices).await,
        Kind::Claim => forever::<ClaimWire>(client, resource, notices).await,
        Kind::Slice => forever::<SliceWire>(client, resource, notices).await,
        Kind::Rule => forever::<RuleWire>(client, resource, notices).await,
    }
}

/// The receiver is gone: nobody is interested any more.
struct Closed;

async fn forever<W: Wire>(client: Client, resource: ApiResource, notices: mpsc::Sender<Notice>) {
    let mut known = Known::default();
    let mut wait = WAIT.0;
    loop {
        let began = Instant::now();
        let Ok(problem) = follow::<W>(&client, &resource, &mut known, &notices).await else { return };
        tracing::warn!(kind = %W::KIND, problem, "watch failed; it begins anew");
        if notices.send(Notice::Failed { kind: W::KIND, problem }).await.is_err() {
            return;
        }
        if began.elapsed() >= STEADY {
            wait = WAIT.0;
        }
        tokio::time::sleep(wait).await;
        wait = (wait * 2).min(WAIT.1);
    }
}

/// Lists and watches until something fails, and says what did.
async fn follow<W: Wire>(
    client: &Client,
    resource: &ApiResource,
    known: &mut Known,
    notices: &mpsc::Sender<Notice>,
) -> Result<String, Closed> {
    let api: Api<Guarded<W>> = Api::all_with(client.clone(), resource);
    let config = watcher::Config::default().page_size(PAGE).timeout(WATCH_SECONDS);
    let mut events = pin!(watcher::watcher(api, config));
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => tell::<W>(known.step(event), notices).await?,
            Err(error) => return Ok(chain(&error)),
        }
    }
    Ok("the watch ended".to_owned())
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
