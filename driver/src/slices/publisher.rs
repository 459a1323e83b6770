//! The task that keeps the API server's slices equal to what is wanted, whatever anybody does to them.
//!
//! ```text
//!  wanted (watch channel, newest wins) ─┐
//!  watch of our own slices ─────────────┼─► mirror ─► plan ─► writes, one at a time ─► published (watch channel)
//!  wait after a failure ────────────────┘                       └─ any failure: read all again, wait longer, without end
//! ```
//!
//! The first write of a change goes out at once. What is wanted anew while a write is under way waits for it, and only the newest
//! wish is written then.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{FutureExt, Stream, StreamExt};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::api::{Heard, News, SliceApi, SliceError};
use super::backoff::{Backoff, RepairPace, seed_of};
use super::limits::Limits;
use super::mirror::{Mirror, StoredTaints};
use super::model::{Device, Pool};
use super::pack::pack;
use super::plan::{Step, Stored};
use super::support::{TaintSupport, Turn};
use super::validate::{Problem, valid};
use crate::metrics::SliceMetrics;

/// Plans in a row without a pause. Two are enough for any state of ours; more means that somebody else writes as well.
const MAX_ROUNDS: usize = 6;

/// Waits after failures. The longest bounds how late a taint is after the API server came back.
const FIRST_WAIT: Duration = Duration::from_millis(50);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How often a failure that goes on is logged.
const REMIND: Duration = Duration::from_secs(60);
/// A watch that the server closes sooner is a failure.
const SHORT_WATCH: Duration = Duration::from_secs(1);

/// What people should know of a server that does not store device taints.
pub const TAINTS_OFF: &str = "the API server does not store device taints: turn on its feature gate DRADeviceTaints, which is on by default from \
    Kubernetes 1.36 on. Until then faults keep no work away from a device; they show in the device health of pods (allocatedResourcesStatus) and in the \
    metrics of gpu-driver";

/// How the published state stands to the wanted one.
#[derive(Clone, Debug, Default)]
pub struct Published {
    /// Since when something wanted is not on the server; `None` when all of it is.
    pub unpublished_since: Option<Instant>,
    /// Whether anything was ever published.
    pub ever: bool,
    /// Why it is not, if it was tried: with what to do next.
    pub error: Option<String>,
    /// The server does not store device taints: its feature gate `DRADeviceTaints` is off.
    pub taints_off: bool,
    /// Taints that are wanted and that it does not store.
    pub dropped_taints: usize,
    /// What local validation left out.
    pub problems: Vec<Problem>,
    /// What the server accepts, once it was asked.
    pub limits: Option<Limits>,
    /// The taints of each device as the server holds them, with the moments that its clock gave them.
    pub taints: Arc<BTreeMap<String, StoredTaints>>,
}

/// The publisher. Owns every ResourceSlice of its driver on its node.
pub struct Publisher {
    api: SliceApi,
    wanted: watch::Receiver<Option<Pool>>,
    published: watch::Sender<Published>,
    metrics: SliceMetrics,
    mirror: Mirror,
    /// From which the slices are watched on.
    version: String,
    server: Option<ServerFacts>,
    backoff: Backoff,
    /// After failures of the watch, which say nothing about writes.
    watching: Backoff,
    repairs: RepairPace,
    /// Whether the server stores taints.
    support: TaintSupport,
    /// How many other parts the server left out, as it was logged last.
    told_dropped: usize,
    /// The failure that was logged last, and when.
    told: Option<(String, Instant)>,
}

/// What a write needs to know of the cluster.
#[derive(Clone, Debug)]
struct ServerFacts {
    node_uid: String,
    limits: Limits,
}

type NewsStream = Pin<Box<dyn Stream<Item = Result<Heard, SliceError>> + Send>>;

impl Publisher {
    /// A publisher of what `wanted` holds; `None` there means "not known yet", and nothing is written.
    #[must_use]
    pub fn new(
        api: SliceApi,
        wanted: watch::Receiver<Option<Pool>>,
        published: watch::Sender<Published>,
        metrics: SliceMetrics,
    ) -> Self {
        let owner = api.owner().clone();
        let seed = seed_of(&owner.node);
        Self {
            mirror: Mirror::new(&owner.node),
            api,
            wanted,
            published,
            metrics,
            version: String::new(),
            server: None,
            backoff: Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed),
            watching: Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed),
            repairs: RepairPace::new(),
            support: TaintSupport::new(Instant::now(), seed),
            told_dropped: 0,
            told: None,
        }
    }

    /// Publishes until `stop`. Slices stay when it ends: a restart of the agent must not take them away.
    pub async fn run(mut self, stop: CancellationToken) {
        let mut stale_before = false;
        while let Err(error) = self.follow(&stop).await {
            let at_once = error.is_stale() && !stale_before;
            stale_before = error.is_stale();
            let wait = self.failed(&error, at_once);
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
                // A server whose watches fail may still take writes.
                changed = self.wanted.changed(), if error.is_of_watch() => if changed.is_err() { return },
            }
        }
    }

    /// Reads everything, then writes what is left to write whenever something changes. Ends with the first failure, with `stop`,
    /// or when nobody wants anything any more. Writes that were begun are finished: a pool should not stay half written.
    async fn follow(&mut self, stop: &CancellationToken) -> Result<(), SliceError> {
        let mut news = tokio::select! {
            () = stop.cancelled() => return Ok(()),
            news = self.read_all() => news?,
        };
        let mut opened = Instant::now();
        self.converge().await?;
        loop {
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                changed = self.wanted.changed() => match changed {
                    Ok(()) => self.converge().await?,
                    Err(_) => return Ok(()),
                },
                answer = self.support.asked(&self.api) => self.answered(answer).await?,
                event = news.next() => match event {
                    Some(event) => self.heard(event?, &mut news).await?,
                    // Servers close a watch after a while; a server that does so at once is not to be asked in a loop.
                    None if opened.elapsed() < SHORT_WATCH => return Err(SliceError::Closed),
                    None => {
                        opened = Instant::now();
                        self.watching.reset();
                        news = Box::pin(self.api.watch(&self.version).await?);
                    }
                },
            }
        }
    }

    /// The slices that are there, and the facts of the cluster if they are not known: all asked at the same time.
    async fn read_all(&mut self) -> Result<NewsStream, SliceError> {
        let (listed, facts) = tokio::join!(self.api.list(), server_facts(&self.api, self.server.clone()));
        let (slices, version) = listed?;
        self.know(facts?);
        self.mirror.replace(slices);
        self.support.reconnected(Instant::now());
        self.tell_taints();
        let news = self.api.watch(&version).await?;
        self.version = version;
        Ok(Box::pin(news))
    }

    /// Takes in whether the server stores taints. No answer is no reason not to publish.
    async fn answered(&mut self, answer: Result<bool, SliceError>) -> Result<(), SliceError> {
        if let Err(error) = &answer {
            tracing::debug!(%error, "cannot tell whether the API server stores device taints, asking again later");
        }
        let turn = self.support.answered(answer.ok(), Instant::now());
        self.turned(turn);
        if turn == Some(Turn::On) { self.converge().await } else { Ok(()) }
    }

    /// Takes in an event and every other that has arrived already, and puts right what somebody else changed.
    async fn heard(&mut self, event: Heard, news: &mut NewsStream) -> Result<(), SliceError> {
        let changed = self.take(event) | self.take_arrived(news)?;
        if !changed || self.steps_left().is_empty() {
            return Ok(());
        }
        self.metrics.repairs.inc();
        tracing::info!(node = %self.api.owner().node, "{}", why_again(&self.mirror));
        let due = self.repairs.due(Instant::now());
        self.tell(|published| published.unpublished_since = published.unpublished_since.or(Some(Instant::now())));
        tokio::select! {
            () = tokio::time::sleep_until(due) => {}
            // A new wish does not wait for the repair of the old one.
            _ = self.wanted.changed() => {}
        }
        self.take_arrived(news)?;
        self.converge().await
    }

    /// Takes in the events that have arrived, without waiting for more. Returns whether any changed something.
    fn take_arrived(&mut self, news: &mut NewsStream) -> Result<bool, SliceError> {
        let mut changed = false;
        while let Some(Some(event)) = news.next().now_or_never() {
            changed |= self.take(event?);
        }
        Ok(changed)
    }

    fn take(&mut self, heard: Heard) -> bool {
        self.version = heard.version;
        match heard.news {
            News::There(slice) => self.mirror.observe(*slice),
            News::Gone { name, uid } => {
                // With the node the slices go too, and a new node has another UID.
                self.server = None;
                self.mirror.forget(&name, &uid)
            }
            News::Nothing => false,
        }
    }

    /// Plans and writes until nothing is left.
    async fn converge(&mut self) -> Result<(), SliceError> {
        for _ in 0..MAX_ROUNDS {
            if self.wanted.borrow_and_update().is_none() {
                return Ok(());
            }
            let steps = self.steps_left();
            if steps.is_empty() {
                self.succeeded();
                return Ok(());
            }
            self.tell(|published| published.unpublished_since = published.unpublished_since.or(Some(Instant::now())));
            let facts = server_facts(&self.api, self.server.take()).await?;
            self.know(facts.clone());
            let slices = self.slices(facts.limits);
            for step in steps {
                self.write(step, &slices, &facts).await?;
            }
        }
        // Whoever wants something else all the time gets it written in the next turn.
        if self.wanted.has_changed().unwrap_or(true) { Ok(()) } else { Err(SliceError::Unsettled) }
    }

    fn steps_left(&self) -> Vec<Step> {
        let limits = self.server.as_ref().map_or(Limits::CURRENT, |facts| facts.limits);
        if self.wanted.borrow().is_none() { Vec::new() } else { self.mirror.plan(&self.slices(limits)) }
    }

    /// What is wanted, as slices that the server accepts, with the moments of taints that it gave before.
    fn slices(&self, limits: Limits) -> Vec<Vec<Device>> {
        let wanted = self.wanted.borrow().clone().unwrap_or_default();
        let (pool, problems) = valid(&wanted, &limits);
        self.tell_problems(problems);
        self.mirror.with_times(pack(&pool, limits.devices))
    }

    async fn write(&mut self, step: Step, slices: &[Vec<Device>], facts: &ServerFacts) -> Result<(), SliceError> {
        match step {
            Step::Delete { name, uid, resource_version } => {
                self.metrics.writes.with(&[("verb", "delete")]).inc();
                self.api.delete(&name, &uid, &resource_version).await?;
                self.mirror.forget(&name, &uid);
            }
            Step::Update { name, resource_version, index, pool } => {
                self.metrics.writes.with(&[("verb", "patch")]).inc();
                let sent = slices[index].clone();
                let answer = self.api.update(&name, &resource_version, pool, sent.clone()).await?;
                self.wrote(index, sent, answer);
            }
            Step::Create { index, pool } => {
                self.metrics.writes.with(&[("verb", "create")]).inc();
                let sent = slices[index].clone();
                let answer = self.api.create(&facts.node_uid, index, pool, sent.clone()).await?;
                self.wrote(index, sent, answer);
            }
        }
        self.tell_taints();
        Ok(())
    }

    /// Takes in what the server made of a write.
    fn wrote(&mut self, index: usize, sent: Vec<Device>, answer: Stored) {
        let taints = sent.iter().map(|device| device.taints.len()).sum();
        let dropped = self.mirror.wrote(index, sent, answer);
        let turn = self.support.wrote(taints, dropped.taints, Instant::now());
        self.turned(turn);
        if dropped.others != self.told_dropped && dropped.others > 0 {
            tracing::warn!(
                fields = dropped.others,
                "the API server left out parts of a ResourceSlice; a feature gate of it may be off"
            );
        }
        self.told_dropped = dropped.others;
    }

    fn turned(&mut self, turn: Option<Turn>) {
        match turn {
            Some(Turn::Off) => tracing::warn!("{TAINTS_OFF}"),
            Some(Turn::On) => {
                tracing::info!("the API server stores device taints by now: publishing them");
                self.mirror.doubt();
                // It may accept more than before, too.
                self.server = None;
            }
            None => return,
        }
        let off = self.support.is_off();
        self.metrics.taints_off.set(i64::from(off));
        self.tell(|published| published.taints_off = off);
    }

    fn succeeded(&mut self) {
        self.backoff.reset();
        self.told = None;
        self.metrics.unpublished.set(0);
        let dropped = self.mirror.dropped_taints();
        self.metrics.dropped_taints.set(i64::try_from(dropped).unwrap_or(i64::MAX));
        self.tell(|published| {
            published.unpublished_since = None;
            published.ever = true;
            published.error = None;
            published.dropped_taints = dropped;
        });
    }

    /// Counts and tells a failure, and returns how long to wait.
    fn failed(&mut self, error: &SliceError, at_once: bool) -> Duration {
        let backoff = if error.is_of_watch() { &mut self.watching } else { &mut self.backoff };
        let wait = if at_once { Duration::ZERO } else { backoff.after_failure() };
        if error.is_of_watch() && self.wanted.borrow().is_some() && self.steps_left().is_empty() {
            tracing::info!(%error, ?wait, "reading the ResourceSlices of this node again");
            return wait;
        }
        if !error.is_stale() {
            self.server = None;
        }
        self.metrics.failures.inc();
        self.metrics.unpublished.set(1);
        let text = error.to_string();
        self.log_failure(&text, wait);
        self.tell(|published| {
            published.unpublished_since = published.unpublished_since.or(Some(Instant::now()));
            published.error = Some(text);
        });
        wait
    }

    /// A failure that goes on is told once a minute.
    fn log_failure(&mut self, error: &str, wait: Duration) {
        let told = self.told.as_ref().is_some_and(|(text, at)| text == error && at.elapsed() < REMIND);
        if told {
            tracing::debug!(%error, ?wait, "slices not published, trying again");
        } else {
            tracing::warn!(%error, ?wait, "slices not published, trying again");
            self.told = Some((error.to_owned(), Instant::now()));
        }
    }

    fn know(&mut self, facts: ServerFacts) {
        let limits = Some(facts.limits);
        self.published.send_if_modified(|published| std::mem::replace(&mut published.limits, limits) != limits);
        self.server = Some(facts);
    }

    fn tell(&self, change: impl FnOnce(&mut Published)) {
        self.published.send_modify(change);
    }

    fn tell_taints(&self) {
        let taints = self.mirror.taints();
        self.published.send_if_modified(|published| {
            let news = *published.taints != taints;
            if news {
                published.taints = Arc::new(taints);
            }
            news
        });
    }

    fn tell_problems(&self, problems: Vec<Problem>) {
        self.published.send_if_modified(|published| {
            let news = published.problems != problems;
            if news {
                for problem in &problems {
                    tracing::warn!(%problem, "left out of the published slices");
                }
                published.problems = problems;
            }
            news
        });
    }
}

/// Why slices are written although nothing else is wanted than before.
fn why_again(mirror: &Mirror) -> &'static str {
    if mirror.is_empty() {
        "the ResourceSlices of this node are gone: kubelet removes them when it starts, and when the driver was away for a while; publishing \
         them again"
    } else {
        "the ResourceSlices of this node were changed by somebody else; putting them right"
    }
}

async fn server_facts(api: &SliceApi, known: Option<ServerFacts>) -> Result<ServerFacts, SliceError> {
    if let Some(known) = known {
        return Ok(known);
    }
    let (node_uid, limits) = tokio::join!(api.node_uid(), api.limits());
    Ok(ServerFacts { node_uid: node_uid?, limits: limits? })
}

#[cfg(test)]
mod tests;
