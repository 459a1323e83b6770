//! The task around [`Core`]: takes news from the NVML room, lets time pass, and shares what follows with the other tasks.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior};
use tokio_util::sync::CancellationToken;

use super::core::{Core, Outcome, View};
use super::remembered::Remembered;
use super::share;
use super::telling::{Contests, TaintsOff, tell};
use crate::claims::Devices;
use crate::http_checks::Level;
use crate::inventory::{Inventory, NvmlState, SysfsError, SysfsView, read_sysfs};
use crate::marks::Marks;
use crate::metrics::HealthMetrics;
use crate::nvml::{Known, SignalKind, Supervisor, Update};
use crate::owner::Others;
use crate::plugin::health::Report;
use crate::slices::{Limits, Pool, Published};
use crate::state::Memory;

/// How often time passes for findings.
const TICK: Duration = Duration::from_secs(1);
/// News taken in before what follows is shared.
const BATCH: usize = 256;
/// Listing the PCI bus takes milliseconds; a kernel in trouble must not hold up the news of all cards.
const SYSFS: Duration = Duration::from_secs(2);
/// How long the first readings of all cards may take after NVML was opened. A card that hangs must not hold up the others for long; but one that is
/// bad and was only not read yet, on a busy machine, would be offered without its taint.
const FIRST_READINGS: Duration = Duration::from_secs(3);
/// How long the NVML room may take to let everything go at the end. A hung call would hold it up for longer; it ends with the process.
const RELEASE: Duration = Duration::from_secs(3);

/// Told where a working NVML lists nothing and nothing was seen before.
const NO_GPUS: &str = "NVML works and lists no GPU; the pool is empty. Check lspci and the driver's kernel log, or keep the agent off this node";

/// Where the watcher's findings go.
pub(super) struct Outputs {
    /// To the publisher.
    pub(super) wanted: watch::Sender<Option<Pool>>,
    /// To claims.
    pub(super) devices: watch::Sender<Option<Arc<Devices>>>,
    /// To health streams.
    pub(super) report: watch::Sender<Arc<Report>>,
    /// To the saver.
    pub(super) memory: watch::Sender<Memory>,
    /// To readiness.
    pub(super) nvml: watch::Sender<Level>,
    /// To liveness.
    pub(super) heartbeat: watch::Sender<Instant>,
}

/// The task around [`Core`].
pub(super) struct Watcher {
    pub(super) core: Core,
    pub(super) supervisor: Supervisor,
    pub(super) updates: mpsc::Receiver<Update>,
    /// The cards that the NVML room was last told of.
    pub(super) known: Vec<Known>,
    pub(super) published: watch::Receiver<Published>,
    /// What others offer; `None` until somebody looked, well or not.
    pub(super) others: watch::Receiver<Option<Others>>,
    /// Of that, what the core has taken in: what is published is never older than what is decided by.
    pub(super) heeded: Option<Others>,
    pub(super) contests: Contests,
    pub(super) taints_off: TaintsOff,
    /// The marks of people for devices of this node.
    pub(super) marks: watch::Receiver<Marks>,
    /// Until when they are waited for before the first publish.
    pub(super) marks_by: Instant,
    pub(super) outputs: Outputs,
    pub(super) metrics: HealthMetrics,
    pub(super) sysfs_root: PathBuf,
    pub(super) sysfs_interval: Duration,
    /// Something changed that is not shared yet.
    pub(super) unshared: bool,
    /// Which cards are on disk.
    pub(super) remembered: Remembered,
    /// Until when the first readings after an opening are waited for.
    pub(super) read_by: Instant,
    /// A look at the PCI bus that has not ended yet.
    pub(super) sysfs_look: Option<JoinHandle<Result<SysfsView, SysfsError>>>,
}

impl Watcher {
    /// Works until `stop`.
    pub(super) async fn run(mut self, stop: CancellationToken) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut sysfs = tokio::time::interval(self.sysfs_interval);
        sysfs.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                update = self.updates.recv() => match update {
                    Some(update) => self.heard(update).await,
                    None => break,
                },
                changed = self.published.changed() => match changed {
                    Ok(()) => self.adopt().await,
                    Err(_) => break,
                },
                changed = self.others.changed() => match changed {
                    Ok(()) => self.heed().await,
                    Err(_) => break,
                },
                changed = self.marks.changed() => match changed {
                    Ok(()) => self.follow_marks().await,
                    Err(_) => break,
                },
                () = tokio::time::sleep_until(self.marks_by), if !self.core.knows_marks() => {
                    tracing::warn!("marks of people are not known in time; those that are remembered stay in force");
                    let outcome = self.core.go_on_without_marks();
                    self.follow(&outcome).await;
                }
                _ = tick.tick() => self.pass(None).await,
                () = tokio::time::sleep_until(self.read_by), if self.core.heard() && !self.core.is_read() => {
                    tracing::warn!("not every GPU was read in time; publishing what is known");
                    self.core.go_on_unread();
                    self.follow(&Outcome::default()).await;
                }
                _ = sysfs.tick(), if self.core.heard() => {
                    let view = self.read_sysfs().await;
                    self.pass(view.as_ref()).await;
                }
            }
        }
        if tokio::time::timeout(RELEASE, self.supervisor.stop()).await.is_err() {
            tracing::warn!("a call into NVML hangs; ending without it");
        }
    }

    /// Takes in an update and every other that has arrived, then shares what follows once.
    async fn heard(&mut self, first: Update) {
        let mut all = self.take(first).await;
        for _ in 0..BATCH {
            let Ok(update) = self.updates.try_recv() else { break };
            all.add(self.take(update).await);
        }
        self.follow(&all).await;
    }

    async fn take(&mut self, update: Update) -> Outcome {
        self.count(&update);
        if matches!(update, Update::Opened { .. }) {
            self.read_by = Instant::now() + FIRST_READINGS;
        }
        let sysfs = match update {
            Update::Opened { .. } | Update::Discovered { .. } => self.read_sysfs().await,
            Update::Unavailable { .. } | Update::Released { .. } | Update::Signal(_) => None,
        };
        let outcome = self.core.observe(&update, sysfs.as_ref(), now());
        if !matches!(update, Update::Signal(_)) {
            self.tell_nvml(&update);
        }
        outcome
    }

    /// The moments that the server gave to our taints are remembered, and repeated from now on.
    async fn adopt(&mut self) {
        let (stored, off) = {
            let published = self.published.borrow_and_update();
            (published.taints.clone(), published.taints_off)
        };
        self.taints_off.share(off);
        let wanted = self.outputs.wanted.borrow().clone().unwrap_or_default();
        let news = self.core.adopt_times(&stored, &wanted);
        self.follow(&Outcome { changed: true, persist: news, told: Vec::new() }).await;
    }

    /// Somebody else offers our cards, or no longer does.
    async fn heed(&mut self) {
        let Some(others) = self.others.borrow_and_update().clone() else { return };
        let persist = self.core.heed(&others.offers);
        self.heeded = Some(others);
        self.follow(&Outcome { changed: true, persist, ..Outcome::default() }).await;
    }

    /// What people ask for joins the findings.
    async fn follow_marks(&mut self) {
        let Some(intents) = self.marks.borrow_and_update().intents.clone() else { return };
        let outcome = self.core.follow_marks(&intents);
        self.follow(&outcome).await;
    }

    async fn pass(&mut self, sysfs: Option<&SysfsView>) {
        self.outputs.heartbeat.send_replace(Instant::now());
        let outcome = self.core.tick(sysfs, now());
        self.follow(&outcome).await;
        if outcome.changed {
            // The last card may have been taken off the list.
            self.share_nvml();
        }
    }

    /// Shares what changed; to the publisher only once marks and other owners are settled, for which claims and health do not wait. The publisher does
    /// not wait for the disk, for it is what keeps new work away from a bad card, but for new cards.
    async fn follow(&mut self, outcome: &Outcome) {
        tell(&outcome.told);
        self.unshared |= outcome.changed || outcome.persist;
        let ready = self.unshared && self.core.is_read() && self.heeded.is_some();
        let view = ready.then(|| {
            let limits = self.published.borrow().limits.unwrap_or(Limits::CURRENT);
            self.core.view(&limits, now())
        });
        if outcome.persist {
            self.outputs.memory.send_replace(self.core.memory());
        }
        if let Some(view) = view {
            self.unshared = false;
            self.remembered.wait_for(&self.core.inventory().record()).await;
            self.share(view);
        }
    }

    fn tell_marks(&mut self, pool: &Pool) {
        tell(&self.core.mark_news(pool));
        let marks = self.core.marks_by_standing();
        self.metrics.marks.replace(marks.into_iter().map(|(standing, count)| (vec![("standing", standing)], count)));
    }

    fn share(&mut self, View { pool, devices, report, contested }: View) {
        let unreadable = self.heeded.as_ref().and_then(|others| others.unreadable.clone());
        self.contests.share(&contested, self.core.inventory().cards().count(), unreadable);
        if self.core.knows_marks() && self.heeded.as_ref().is_some_and(|others| others.settled) {
            self.want(pool);
        }
        share(&self.outputs.devices, devices);
        self.outputs.report.send_if_modified(|held| {
            let news = **held != report;
            if news {
                *held = Arc::new(report);
            }
            news
        });
    }

    /// Shares the pool with the publisher.
    fn want(&mut self, pool: Pool) {
        self.tell_marks(&pool);
        self.count_taints(&pool);
        self.outputs.wanted.send_if_modified(|held| {
            let news = held.as_ref() != Some(&pool);
            if news {
                *held = Some(pool);
            }
            news
        });
    }

    /// What the PCI bus lists; `None` where that cannot be told, or not in time. Only one look is under way at any time.
    async fn read_sysfs(&mut self) -> Option<SysfsView> {
        let root = self.sysfs_root.clone();
        let look = self.sysfs_look.get_or_insert_with(|| tokio::task::spawn_blocking(move || read_sysfs(&root)));
        let looked = tokio::time::timeout(SYSFS, look).await.ok()?;
        self.sysfs_look = None;
        match looked {
            Ok(Ok(view)) => Some(view),
            Ok(Err(error)) => {
                tracing::debug!(%error, "the PCI bus cannot be listed");
                None
            }
            Err(_) => None,
        }
    }

    fn tell_nvml(&mut self, update: &Update) {
        if let Update::Unavailable { error, attempt, retry_in } = update {
            let repeated = *self.outputs.nvml.borrow() == nvml_level(self.core.inventory()).1;
            if repeated {
                tracing::debug!(%error, attempt, ?retry_in, "NVML is still not available");
            } else {
                tracing::error!(%error, attempt, ?retry_in, "NVML is not available; cards seen before stay published");
            }
        }
        self.share_nvml();
        self.tell_known();
    }

    fn share_nvml(&self) {
        let (state, level) = nvml_level(self.core.inventory());
        self.metrics.nvml.replace([(vec![("state", state)], 1)]);
        let news = self.outputs.nvml.send_if_modified(|held| std::mem::replace(held, level.clone()) != level);
        if news && state == "no-gpus" {
            tracing::warn!("{NO_GPUS}");
        }
    }

    /// Tells the NVML room which cards to look for, when that is something else than before: each time it looks at once.
    fn tell_known(&mut self) {
        let cards = self.core.inventory().cards();
        let known: Vec<_> = cards.map(|card| Known { pci: card.pci, uuid: card.identity.uuid.clone() }).collect();
        if known != self.known {
            self.known.clone_from(&known);
            self.supervisor.know(known);
        }
    }

    fn count(&self, update: &Update) {
        let kind = match update {
            Update::Opened { .. } => "opened",
            Update::Unavailable { .. } => "unavailable",
            Update::Discovered { .. } => "discovered",
            Update::Released { .. } => "released",
            Update::Signal(signal) => match &signal.kind {
                SignalKind::Event(_) => "event",
                SignalKind::Snapshot(_) => "snapshot",
                SignalKind::Watching { .. } => "watching",
                SignalKind::NotWatching { .. } => "not_watching",
                SignalKind::Hung { .. } => {
                    self.metrics.hung_calls.inc();
                    "hung"
                }
                SignalKind::Unhung { .. } => "unhung",
                SignalKind::Dropped { count } => {
                    self.metrics.dropped_signals.inc_by(*count);
                    "dropped"
                }
            },
        };
        self.metrics.signals.with(&[("kind", kind)]).inc();
    }

    fn count_taints(&self, pool: &Pool) {
        let devices = || pool.cards.iter().flat_map(|card| &card.devices);
        self.metrics.devices.set(i64::try_from(devices().count()).unwrap_or(i64::MAX));
        let mut taints = std::collections::BTreeMap::new();
        for taint in devices().flat_map(|device| &device.taints) {
            // The keys of people are without number, which labels must not be.
            let key = if self.core.health().is_own_key(&taint.key) { taint.key.as_str() } else { "mark" };
            *taints.entry((key, taint.effect.as_str())).or_insert(0) += 1;
        }
        self.metrics
            .taints
            .replace(taints.into_iter().map(|((key, effect), count)| (vec![("key", key), ("effect", effect)], count)));
        let findings = self.core.findings_by_key();
        self.metrics.findings.replace(findings.iter().map(|(key, count)| (vec![("key", key.as_str())], *count)));
    }
}

/// What a person should know of NVML, with a name for metrics.
fn nvml_level(inventory: &Inventory) -> (&'static str, Level) {
    let degraded = |why: &str| Level::Degraded(why.to_owned());
    match inventory.nvml() {
        NvmlState::Open if inventory.cards().next().is_none() => ("no-gpus", degraded(NO_GPUS)),
        NvmlState::Open => ("open", Level::Good),
        NvmlState::Unopened => ("unopened", degraded("not opened yet")),
        NvmlState::Unavailable(why) => ("unavailable", degraded(why)),
        NvmlState::Released => ("released", degraded("let go on request")),
    }
}

/// The wall clock of this node: for findings and their timers, never for taints.
#[expect(clippy::disallowed_methods, reason = "the edge where the agent reads the clock")]
pub(super) fn now() -> Timestamp {
    Timestamp::now()
}
