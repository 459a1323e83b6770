//! The deciding task: it alone owns the [`Decider`], reads the clock, and hands out work. It never waits for what it hands out.

use std::time::Duration;

use cluster::event::Event;
use cluster::watch::Notice;
use jiff::Timestamp;
use taints::object::{Consumer, Key};
use taints::plan::{Action, Departure, Mode, Modes};
use taints::verdict::{FirstSeen, Source};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::act::Job;
use crate::clock::Clock;
use crate::decider::{Decider, Decision, Report};
use crate::expiry::Expired;
use crate::health::Health;
use crate::metrics::Metrics;
use crate::notice::Observed;
use crate::say;
use crate::strangers::Strangers;

/// So many notices or reports are taken before the next decision.
const BATCH: usize = 256;

/// It comes by at least so often, also because the wall clock may jump.
const TICK: Duration = Duration::from_secs(5);

/// The other ends of the deciding task's channels.
#[derive(Debug)]
pub struct Channels {
    /// From the watches.
    pub notices: mpsc::Receiver<Notice>,
    /// From those who act.
    pub reports: mpsc::Receiver<Report>,
    /// To those who act.
    pub jobs: mpsc::Sender<Job>,
    /// To those who tell.
    pub events: mpsc::Sender<Event>,
    /// To the disk.
    pub states: watch::Sender<FirstSeen>,
}

/// What the deciding task has beside its channels.
#[derive(Debug)]
pub struct Deciding {
    /// What is known.
    pub decider: Decider,
    /// What is done about the taints of each source.
    pub modes: Modes,
    /// The time.
    pub clock: Clock,
    /// What to tell those who ask.
    pub health: Health,
    /// What is counted.
    pub metrics: Metrics,
    /// Who uses devices and cannot be found.
    pub strangers: Strangers,
}

impl Deciding {
    /// Decides until told to stop, or until nobody has anything to tell any more.
    pub async fn run(mut self, mut channels: Channels, stop: CancellationToken) {
        let (mut notices, mut reports) = (Vec::new(), Vec::new());
        self.publish(&channels);
        while !channels.jobs.is_closed() {
            tokio::select! {
                () = stop.cancelled() => return,
                taken = channels.notices.recv_many(&mut notices, BATCH) => if taken == 0 { return },
                taken = channels.reports.recv_many(&mut reports, BATCH) => if taken == 0 { return },
                () = tokio::time::sleep(self.rest()) => {}
            }
            let now = self.clock.now();
            for notice in notices.drain(..) {
                self.count(&notice);
                self.decider.take(notice, now);
            }
            reports.drain(..).for_each(|report| self.decider.report(&report, now));
            let decision = self.decider.decide(now);
            self.hand_out(decision, &channels, now);
            self.publish(&channels);
        }
    }

    fn rest(&self) -> Duration {
        let until = |wake: Timestamp| Duration::try_from(wake.duration_since(self.clock.now())).unwrap_or_default();
        self.decider.wake().map_or(TICK, |wake| until(wake).min(TICK))
    }

    fn count(&mut self, notice: &Notice) {
        match notice {
            Notice::Failed { kind, .. } => self.metrics.watch_error(*kind),
            Notice::Malformed(kind) => self.metrics.malformed(*kind),
            Notice::Change(change) => {
                for (claim, Consumer { api_group, resource, name, .. }) in self.strangers.take(change) {
                    tracing::warn!(%claim, consumer = format!("{resource}.{api_group}/{name}"),
                        "the claim is reserved for something that is neither a pod nor a pod group; who uses its devices \
                         by it is not known, and is not evicted");
                }
            }
            Notice::Synced(_) | Notice::NotServed(_) => {}
        }
    }

    fn publish(&mut self, channels: &Channels) {
        if let Some(seen) = self.decider.to_store() {
            channels.states.send_replace(seen);
        }
        let counts = self.decider.counts();
        self.metrics.pods_pending.set(i64::try_from(counts.counting).unwrap_or(i64::MAX));
        self.metrics.unknown_consumers.set(i64::try_from(self.strangers.claims()).unwrap_or(i64::MAX));
        for (kind, sync) in self.decider.sync().iter() {
            self.metrics.synced(kind, sync.is_settled());
        }
        self.health.beat(self.decider.sync());
    }

    fn hand_out(&mut self, decision: Decision, channels: &Channels, now: Timestamp) {
        decision.observed.iter().for_each(observe);
        for action in decision.actions {
            match action {
                Action::Evict(departure) => self.evict(departure, channels, now),
                Action::Tell(departure) => self.tell(&departure),
                Action::Cancel { pod, uid, source } => self.cancel(pod, uid, source, channels),
            }
        }
        for departure in decision.coming {
            self.event(say::counting_down(&departure), channels);
        }
        for departure in decision.left {
            self.left(&departure, channels);
        }
        for expired in decision.expired {
            self.expire(expired, channels, now);
        }
    }

    fn evict(&mut self, departure: Departure, channels: &Channels, now: Timestamp) {
        if let Err(error) = channels.jobs.try_send(Job::Evict(departure)) {
            self.metrics.dropped("evictions");
            if let Job::Evict(departure) = error.into_inner() {
                self.decider.dropped(&departure, now);
            }
        }
    }

    fn expire(&mut self, expired: Expired, channels: &Channels, now: Timestamp) {
        if channels.jobs.try_send(Job::Expire(expired.clone())).is_err() {
            self.metrics.dropped("marks");
            self.decider.report(&Report::MarkFailed(expired), now);
        }
    }

    fn tell(&self, departure: &Departure) {
        self.metrics.told.inc();
        let reasons = say::reasons(departure);
        tracing::info!(pod = %departure.pod, uid = departure.uid, deadline = %departure.deadline, reasons,
            "would be evicted, but the source of the reason is only observed");
    }

    /// An eviction whose answer was lost was accepted after all.
    fn left(&self, departure: &Departure, channels: &Channels) {
        self.metrics.eviction("accepted");
        let reasons = say::reasons(departure);
        tracing::info!(pod = %departure.pod, uid = departure.uid, deadline = %departure.deadline, reasons,
            "evicted, though the answer was lost");
        self.event(say::marking(departure), channels);
    }

    fn cancel(&self, pod: Key, uid: String, source: Source, channels: &Channels) {
        self.metrics.cancelled.inc();
        tracing::info!(%pod, uid, "countdown ended before its time, the pod stays");
        if self.modes.of(source) == Mode::Enforce {
            self.event(say::cancelling(pod, uid, source), channels);
        }
    }

    fn event(&self, event: Event, channels: &Channels) {
        if channels.events.try_send(event).is_err() {
            self.metrics.dropped("events");
        }
    }
}

/// What we would do, for who compares it with what another evictor does.
fn observe(observed: &Observed) {
    match observed {
        Observed::Leaves(departure) => {
            let reasons = say::reasons(departure);
            tracing::info!(pod = %departure.pod, uid = departure.uid, deadline = %departure.deadline, reasons,
                "would leave at its deadline; the source of the reason is only observed");
        }
        Observed::Stays { pod, uid } => {
            tracing::info!(%pod, uid, "would stay after all; the source of the reason is only observed");
        }
    }
}
