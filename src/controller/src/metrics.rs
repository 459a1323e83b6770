//! What is counted. Labels are few and fixed: never a pod's or a device's name.

use std::sync::Arc;

use cluster::Kind;
use prometheus_client::encoding::{EncodeLabelSet, text};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// What came of something.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct OutcomeLabel {
    outcome: &'static str,
}

/// A watched kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct KindLabel {
    kind: &'static str,
}

/// A bounded queue inside the controller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct QueueLabel {
    queue: &'static str,
}

/// All metrics. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Metrics {
    registry: Arc<Registry>,
    evictions: Family<OutcomeLabel, Counter>,
    lateness: Histogram,
    /// Pods that will leave at a time, unless something changes.
    pub pods_pending: Gauge,
    /// Evictions that were asked for and not answered yet.
    pub evictions_in_flight: Gauge,
    /// Pods whose time was over while the source of the reason is only observed.
    pub told: Counter,
    /// Countdowns that ended before their time.
    pub cancelled: Counter,
    /// Claims that are reserved for something we cannot follow.
    pub unknown_consumers: Gauge,
    marks_expired: Family<OutcomeLabel, Counter>,
    events: Family<OutcomeLabel, Counter>,
    watch_errors: Family<KindLabel, Counter>,
    malformed: Family<KindLabel, Counter>,
    synced: Family<KindLabel, Gauge>,
    dropped: Family<QueueLabel, Counter>,
    /// Writes of the state directory that failed.
    pub state_errors: Counter,
}

impl Default for Metrics {
    fn default() -> Self {
        let mut all = Self {
            registry: Arc::new(Registry::default()),
            evictions: Family::default(),
            lateness: Histogram::new([0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 600.0]),
            pods_pending: Gauge::default(),
            evictions_in_flight: Gauge::default(),
            told: Counter::default(),
            cancelled: Counter::default(),
            unknown_consumers: Gauge::default(),
            marks_expired: Family::default(),
            events: Family::default(),
            watch_errors: Family::default(),
            malformed: Family::default(),
            synced: Family::default(),
            dropped: Family::default(),
            state_errors: Counter::default(),
        };
        all.registry = Arc::new(all.register());
        all
    }
}

impl Metrics {
    fn register(&self) -> Registry {
        let mut r = Registry::with_prefix("device_taint");
        r.register("evictions", "Evictions that were tried, by what came of it", self.evictions.clone());
        r.register("eviction_lateness_seconds", "From a deadline to the accepted eviction", self.lateness.clone());
        r.register("pods_pending", "Pods that will leave at a time", self.pods_pending.clone());
        r.register("evictions_in_flight", "Evictions without an answer yet", self.evictions_in_flight.clone());
        r.register("told", "Pods that would have been evicted, were their reason's source enforced", self.told.clone());
        r.register("cancelled", "Countdowns that ended before their time", self.cancelled.clone());
        r.register(
            "claims_of_unknown_consumers",
            "Claims that are reserved for something that is neither a pod nor a pod group",
            self.unknown_consumers.clone(),
        );
        r.register("marks_expired", "Deletions of marks whose time had come", self.marks_expired.clone());
        r.register("events", "Events for people", self.events.clone());
        r.register("watch_errors", "Watches that failed and began anew", self.watch_errors.clone());
        r.register(
            "malformed_objects",
            "Objects that could not be understood and were left out",
            self.malformed.clone(),
        );
        r.register("synced", "Whether everything of a kind is known", self.synced.clone());
        r.register("decision_queue_dropped", "What a full queue did not take; it is tried again", self.dropped.clone());
        r.register("state_write_errors", "Writes of the state directory that failed", self.state_errors.clone());
        r
    }

    /// An eviction was tried.
    pub fn eviction(&self, outcome: &'static str) {
        self.evictions.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// An eviction was accepted so many seconds after its deadline.
    pub fn late(&self, seconds: f64) {
        self.lateness.observe(seconds.max(0.0));
    }

    /// A mark's deletion was tried.
    pub fn mark_expired(&self, outcome: &'static str) {
        self.marks_expired.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// An event was written, or not.
    pub fn event(&self, outcome: &'static str) {
        self.events.get_or_create(&OutcomeLabel { outcome }).inc();
    }

    /// A watch failed.
    pub fn watch_error(&self, kind: Kind) {
        self.watch_errors.get_or_create(&KindLabel { kind: kind.plural() }).inc();
    }

    /// An object could not be understood.
    pub fn malformed(&self, kind: Kind) {
        self.malformed.get_or_create(&KindLabel { kind: kind.plural() }).inc();
    }

    /// Whether everything of a kind is known.
    pub fn synced(&self, kind: Kind, is: bool) {
        self.synced.get_or_create(&KindLabel { kind: kind.plural() }).set(i64::from(is));
    }

    /// A full queue did not take something.
    pub fn dropped(&self, queue: &'static str) {
        self.dropped.get_or_create(&QueueLabel { queue }).inc();
    }

    /// Everything in the OpenMetrics text format.
    #[must_use]
    pub fn text(&self) -> String {
        let mut out = String::new();
        // Writing to a String cannot fail.
        text::encode(&mut out, &self.registry).ok();
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_documented() {
        let metrics = Metrics::default();
        metrics.eviction("accepted");
        metrics.clone().watch_error(Kind::Pod);
        metrics.dropped("evictions");
        metrics.pods_pending.set(3);
        let text = metrics.text();
        for line in [
            "device_taint_evictions_total{outcome=\"accepted\"} 1",
            "device_taint_watch_errors_total{kind=\"pods\"} 1",
            "device_taint_decision_queue_dropped_total{queue=\"evictions\"} 1",
            "device_taint_pods_pending 3",
        ] {
            assert!(text.contains(line), "{line} is not in\n{text}");
        }
    }
}
