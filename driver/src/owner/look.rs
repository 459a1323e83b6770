//! The task that looks at the own Node and at the slices of other drivers on it. The only place of `owner` that talks to the API server.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cluster::call::{CallError, within};
use cluster::connect::WATCH_SECONDS;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::Client;
use kube::api::{Api, DynamicObject, ListParams, WatchEvent, WatchParams};
use kube::core::{ApiResource, ResourceExt};
use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::Others;
use super::offer::{self, Offer};
use super::standing::Standing;
use crate::metrics::OwnerMetrics;
use crate::slices::Owner;
use crate::slices::backoff::{Backoff, seed_of};

/// One call. The first publish waits for it: longer than a healthy server needs.
const CALL: Duration = Duration::from_secs(3);
/// Waits after failures.
const FIRST_WAIT: Duration = Duration::from_millis(250);
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// Before the first list came: a pool that waits for it should not wait for long once the server is back.
const LONGEST_FIRST_WAIT: Duration = Duration::from_secs(2);
/// Tries of the first look that may fail before nothing waits for it any more.
const PATIENCE: u32 = 3;
/// A watch that the server closes sooner is a failure.
const SHORT_WATCH: Duration = Duration::from_secs(1);
/// News that wait to be taken in.
const QUEUE: usize = 16;

/// The task.
pub struct Looker {
    /// The API server.
    pub client: Client,
    /// Our driver and node.
    pub ours: Owner,
    /// How long another owner counts that is gone.
    pub grace: Duration,
    /// What counted when the agent ended.
    pub remembered: BTreeSet<Offer>,
    /// Whether to look at all.
    pub look: bool,
    /// What is known; `None` until the first look ended, well or not.
    pub others: watch::Sender<Option<Others>>,
    /// Counters.
    pub metrics: OwnerMetrics,
}

/// What is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Node,
    Slices,
}

/// What a look brought.
#[derive(Debug)]
enum News {
    /// All that is offered there.
    Offers(BTreeSet<Offer>),
    /// A watch is open: what was told is true from now on.
    Works,
    /// It cannot be read.
    Failed {
        /// Why.
        why: String,
        /// How much patience that costs.
        cost: u32,
    },
}

#[derive(Debug, thiserror::Error)]
enum LookError {
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("the API server closes the watch at once")]
    Closed,
}

impl LookError {
    /// How much of the patience it costs. Who is refused will hear nothing else soon; where there is no connection nothing can be published either, and
    /// what is offered has to be known when it is back.
    fn cost(&self) -> u32 {
        match self {
            Self::Call(CallError::Transport(_)) => 0,
            Self::Call(error) if !error.is_transient() => PATIENCE,
            Self::Call(_) | Self::Closed => 1,
        }
    }
}

/// What both looks brought so far.
#[derive(Default)]
struct Collected {
    offers: BTreeMap<Source, BTreeSet<Offer>>,
    failed: BTreeMap<Source, String>,
    spent: BTreeMap<Source, u32>,
}

impl Looker {
    /// Looks until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        if !self.look {
            self.others.send_replace(Some(Others { settled: true, ..Others::default() }));
            stop.cancelled().await;
            return;
        }
        let (tell, news) = mpsc::channel(QUEUE);
        let (node, slices) = (self.node(tell.clone()), self.slices(tell));
        tokio::select! {
            () = stop.cancelled() => {}
            () = node.follow() => {}
            () = slices.follow() => {}
            () = self.collect(news) => {}
        }
    }

    fn node(&self, tell: mpsc::Sender<(Source, News)>) -> Look<impl Fn(&Value) -> BTreeSet<Offer> + use<>> {
        Look {
            api: Api::all_with(self.client.clone(), &ApiResource::erase::<Node>(&())),
            fields: format!("metadata.name={}", self.ours.node),
            source: Source::Node,
            offers: offer::of_node,
            tell,
            seed: seed_of(&self.ours.node),
        }
    }

    fn slices(&self, tell: mpsc::Sender<(Source, News)>) -> Look<impl Fn(&Value) -> BTreeSet<Offer> + use<>> {
        let ours = self.ours.driver.clone();
        Look {
            api: Api::all_with(self.client.clone(), &ApiResource::erase::<ResourceSlice>(&())),
            fields: format!("spec.driver!={},spec.nodeName={}", self.ours.driver, self.ours.node),
            source: Source::Slices,
            offers: move |slice: &Value| offer::of_slice(slice, &ours),
            tell,
            seed: seed_of(&self.ours.node).wrapping_add(1),
        }
    }

    /// Joins what both looks bring, and shares it when it differs.
    async fn collect(&self, mut news: mpsc::Receiver<(Source, News)>) {
        let (mut collected, mut standing) = (Collected::default(), Standing::new(self.grace));
        loop {
            let due = standing.due();
            tokio::select! {
                told = news.recv() => match told {
                    Some((source, news)) => self.take(&mut collected, source, news),
                    None => return,
                },
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            }
            let now = Instant::now();
            standing.observe(&collected.there(&self.remembered), now);
            if collected.looked() {
                let (unreadable, settled) = (collected.unreadable(), collected.settled());
                let others = Some(Others { offers: standing.counting(now), unreadable, settled });
                self.others.send_if_modified(|held| std::mem::replace(held, others.clone()) != others);
            }
        }
    }

    fn take(&self, collected: &mut Collected, source: Source, news: News) {
        match news {
            News::Offers(offers) => drop(collected.offers.insert(source, offers)),
            News::Works => drop(collected.failed.remove(&source)),
            News::Failed { why, cost } => {
                let spent = collected.spent.entry(source).or_default();
                *spent = spent.saturating_add(cost);
                self.metrics.failures.inc();
                tracing::debug!(?source, error = %why, "cannot look for other owners, trying again");
                collected.failed.insert(source, why);
            }
        }
    }
}

impl Collected {
    /// What is offered. What was remembered is, until both lists came: nothing else is known of it, and its grace begins then.
    fn there(&self, remembered: &BTreeSet<Offer>) -> BTreeSet<Offer> {
        let listed = [Source::Node, Source::Slices].iter().all(|source| self.offers.contains_key(source));
        let waiting = if listed { None } else { Some(remembered) };
        self.offers.values().chain(waiting).flatten().cloned().collect()
    }

    /// Whether no look is waited for any more.
    fn settled(&self) -> bool {
        let in_vain = |source| self.spent.get(&source).is_some_and(|spent| *spent >= PATIENCE);
        [Source::Node, Source::Slices].into_iter().all(|source| self.offers.contains_key(&source) || in_vain(source))
    }

    /// Whether each look ended once, well or not.
    fn looked(&self) -> bool {
        let ended = |source| self.offers.contains_key(&source) || self.failed.contains_key(&source);
        ended(Source::Node) && ended(Source::Slices)
    }

    fn unreadable(&self) -> Option<String> {
        let part = |(source, why): (&Source, &String)| match source {
            Source::Node => format!("cannot read this Node: {why}"),
            Source::Slices => format!("cannot read the ResourceSlices of other drivers on this node: {why}"),
        };
        (!self.failed.is_empty()).then(|| self.failed.iter().map(part).collect::<Vec<_>>().join("; "))
    }
}

/// A list and then a watch, for ever.
struct Look<F> {
    api: Api<DynamicObject>,
    fields: String,
    source: Source,
    /// What an object offers.
    offers: F,
    tell: mpsc::Sender<(Source, News)>,
    seed: u64,
}

impl<F: Fn(&Value) -> BTreeSet<Offer>> Look<F> {
    /// Ends only when nobody listens.
    async fn follow(self) {
        let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, self.seed);
        let mut listed = false;
        while !self.tell.is_closed() {
            let began = Instant::now();
            let Err(error) = self.read(&mut listed).await else { return };
            if began.elapsed() > LONGEST_WAIT {
                backoff.reset();
            }
            self.say(News::Failed { why: error.to_string(), cost: error.cost() }).await;
            let longest = if listed { LONGEST_WAIT } else { LONGEST_FIRST_WAIT };
            tokio::time::sleep(backoff.after_failure().min(longest)).await;
        }
    }

    async fn read(&self, listed: &mut bool) -> Result<(), LookError> {
        let list = within(CALL, self.api.list(&ListParams::default().fields(&self.fields))).await?;
        let mut version = list.metadata.resource_version.unwrap_or_default();
        let mut known: BTreeMap<String, BTreeSet<Offer>> = BTreeMap::new();
        for object in &list.items {
            known.insert(object.name_any(), (self.offers)(&object.data));
        }
        self.share(&known).await;
        *listed = true;
        while !self.tell.is_closed() {
            let opened = Instant::now();
            self.watch(&mut known, &mut version).await?;
            if opened.elapsed() < SHORT_WATCH {
                return Err(LookError::Closed);
            }
        }
        Ok(())
    }

    /// Follows until the server closes the watch.
    async fn watch(
        &self,
        known: &mut BTreeMap<String, BTreeSet<Offer>>,
        version: &mut String,
    ) -> Result<(), LookError> {
        let params = WatchParams::default().fields(&self.fields).timeout(WATCH_SECONDS);
        let mut events = within(CALL, self.api.watch(&params, version)).await?.boxed();
        self.say(News::Works).await;
        while let Some(event) = events.next().await {
            let changed = match event.map_err(CallError::from)? {
                WatchEvent::Added(object) | WatchEvent::Modified(object) => {
                    *version = object.resource_version().unwrap_or_default();
                    let offers = (self.offers)(&object.data);
                    known.insert(object.name_any(), offers.clone()) != Some(offers)
                }
                WatchEvent::Deleted(object) => {
                    *version = object.resource_version().unwrap_or_default();
                    known.remove(&object.name_any()).is_some()
                }
                WatchEvent::Bookmark(bookmark) => {
                    *version = bookmark.metadata.resource_version;
                    false
                }
                WatchEvent::Error(status) => return Err(CallError::Status(status).into()),
            };
            if changed {
                self.share(known).await;
            }
        }
        Ok(())
    }

    async fn share(&self, known: &BTreeMap<String, BTreeSet<Offer>>) {
        self.say(News::Offers(known.values().flatten().cloned().collect())).await;
    }

    async fn say(&self, news: News) {
        // Nobody listens any more when the agent ends.
        self.tell.send((self.source, news)).await.ok();
    }
}

#[cfg(test)]
mod tests;
