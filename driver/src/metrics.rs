//! What `/metrics` tells. Names begin with `gpu_driver_`; labels have few values, all known when this was compiled or read
//! from the policy.

use std::fmt;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Label names and values of one series.
type Labels = Vec<(&'static str, String)>;

/// Counters that differ by labels.
#[derive(Clone, Debug, Default)]
pub struct Counters(Family<Labels, Counter>);

/// Gauges that differ by labels.
#[derive(Clone, Debug, Default)]
pub struct Gauges(Family<Labels, Gauge>);

impl Counters {
    /// The counter with these labels.
    pub fn with(&self, labels: &[(&'static str, &str)]) -> Counter {
        self.0.get_or_create_owned(&own(labels))
    }
}

impl Gauges {
    /// The gauge with these labels.
    pub fn with(&self, labels: &[(&'static str, &str)]) -> Gauge {
        self.0.get_or_create_owned(&own(labels))
    }

    /// Sets exactly these: a series that is not among them vanishes.
    pub fn replace<'a>(&self, series: impl IntoIterator<Item = (Vec<(&'static str, &'a str)>, i64)>) {
        self.0.clear();
        for (labels, value) in series {
            self.with(&labels).set(value);
        }
    }
}

fn own(labels: &[(&'static str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| (*name, (*value).to_owned())).collect()
}

/// Publishing slices.
#[derive(Clone, Debug, Default)]
pub struct SliceMetrics {
    /// Writes sent, by `verb`.
    pub writes: Counters,
    /// Tries to publish that failed.
    pub failures: Counter,
    /// Times that a foreign change was put right.
    pub repairs: Counter,
    /// 1 while something wanted is not on the server after a failure.
    pub unpublished: Gauge,
    /// 1 while the server does not store device taints.
    pub taints_off: Gauge,
    /// Taints that are wanted and that the server does not store.
    pub dropped_taints: Gauge,
}

/// Preparing claims.
#[derive(Clone, Debug)]
pub struct ClaimMetrics {
    /// Seconds that one claim took to prepare, failed ones too.
    pub prepare_seconds: Histogram,
    /// Claims prepared or unprepared, by `operation` and `outcome`.
    pub operations: Counters,
    /// Claims with a checkpoint now.
    pub prepared: Gauge,
    /// Checkpoint files that could not be read and were set aside.
    pub quarantined: Counter,
}

impl Default for ClaimMetrics {
    fn default() -> Self {
        let buckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0, 20.0];
        Self {
            prepare_seconds: Histogram::new(buckets),
            operations: Counters::default(),
            prepared: Gauge::default(),
            quarantined: Counter::default(),
        }
    }
}

/// Being kubelet's plugin.
#[derive(Clone, Debug, Default)]
pub struct PluginMetrics {
    /// 1 once kubelet said that the driver is registered.
    pub registered: Gauge,
    /// Answers of kubelet to a registration, by `outcome`.
    pub registrations: Counters,
    /// Health streams open now.
    pub health_streams: Gauge,
    /// Sockets that somebody removed and that were made again.
    pub sockets_restored: Counter,
}

/// Health of the cards.
#[derive(Clone, Debug, Default)]
pub struct HealthMetrics {
    /// Open findings, by `key`.
    pub findings: Gauges,
    /// Taints wanted now, by `key` and `effect`.
    pub taints: Gauges,
    /// Marks of people, by `standing`.
    pub marks: Gauges,
    /// Devices published now.
    pub devices: Gauge,
    /// 1 for the `state` that NVML is in.
    pub nvml: Gauges,
    /// News from NVML, by `kind`.
    pub signals: Counters,
    /// Calls into NVML that did not return in time.
    pub hung_calls: Counter,
    /// Signals lost because the queue was full.
    pub dropped_signals: Counter,
    /// Tries to save findings or cards that failed.
    pub save_failures: Counter,
}

/// Other owners of the cards.
#[derive(Clone, Debug, Default)]
pub struct OwnerMetrics {
    /// Cards that somebody else offers too, `by` the kind of owner.
    pub contested: Gauges,
    /// Looks for other owners that failed.
    pub failures: Counter,
}

/// All metrics of the agent.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
    /// Publishing slices.
    pub slices: SliceMetrics,
    /// Preparing claims.
    pub claims: ClaimMetrics,
    /// Being kubelet's plugin.
    pub plugin: PluginMetrics,
    /// Health of the cards.
    pub health: HealthMetrics,
    /// Other owners of the cards.
    pub owner: OwnerMetrics,
}

impl Metrics {
    /// All metrics, at zero.
    #[must_use]
    pub fn new() -> Self {
        let mut all = Self {
            registry: Registry::with_prefix("gpu_driver"),
            slices: SliceMetrics::default(),
            claims: ClaimMetrics::default(),
            plugin: PluginMetrics::default(),
            health: HealthMetrics::default(),
            owner: OwnerMetrics::default(),
        };
        all.register_slices();
        all.register_claims();
        all.register_plugin();
        all.register_health();
        all.register_owner();
        all
    }

    /// All metrics in OpenMetrics text.
    ///
    /// # Errors
    /// When formatting fails, which an out-of-memory condition only can cause.
    pub fn encode(&self) -> Result<String, fmt::Error> {
        let mut text = String::new();
        encode(&mut text, &self.registry)?;
        Ok(text)
    }

    fn register_slices(&mut self) {
        let (registry, slices) = (&mut self.registry, self.slices.clone());
        registry.register("slice_writes", "Writes of ResourceSlices sent", slices.writes.0);
        registry.register("slice_publish_failures", "Tries to publish that failed", slices.failures);
        registry.register("slice_repairs", "Foreign changes of our slices that were put right", slices.repairs);
        registry.register("slice_unpublished", "1 while something wanted is not on the server", slices.unpublished);
        registry.register("device_taints_off", "1 while the server stores no device taints", slices.taints_off);
        registry.register("slice_dropped_taints", "Taints that the server does not store", slices.dropped_taints);
    }

    fn register_claims(&mut self) {
        let (registry, claims) = (&mut self.registry, self.claims.clone());
        registry.register("claim_prepare_seconds", "Time to prepare one claim", claims.prepare_seconds);
        registry.register("claim_operations", "Claims prepared or unprepared", claims.operations.0);
        registry.register("claims_prepared", "Claims with a checkpoint", claims.prepared);
        registry.register("claim_checkpoints_quarantined", "Unreadable checkpoint files set aside", claims.quarantined);
    }

    fn register_plugin(&mut self) {
        let (registry, plugin) = (&mut self.registry, self.plugin.clone());
        registry.register("plugin_registered", "1 once kubelet registered the driver", plugin.registered);
        registry.register("plugin_registrations", "Answers of kubelet to a registration", plugin.registrations.0);
        registry.register("plugin_health_streams", "Health streams open", plugin.health_streams);
        registry.register("plugin_sockets_restored", "Removed sockets made again", plugin.sockets_restored);
    }

    fn register_owner(&mut self) {
        let (registry, owner) = (&mut self.registry, self.owner.clone());
        registry.register("contested_cards", "Cards that another owner offers too", owner.contested.0);
        registry.register("other_owner_look_failures", "Looks for other owners that failed", owner.failures);
    }

    fn register_health(&mut self) {
        let (registry, health) = (&mut self.registry, self.health.clone());
        registry.register("findings", "Open findings", health.findings.0);
        registry.register("taints", "Taints wanted on devices", health.taints.0);
        registry.register("marks", "Marks of people for devices of this node", health.marks.0);
        registry.register("devices", "Devices published", health.devices);
        registry.register("nvml_state", "1 for the state that NVML is in", health.nvml.0);
        registry.register("nvml_signals", "News from NVML", health.signals.0);
        registry.register("nvml_hung_calls", "NVML calls that did not return in time", health.hung_calls);
        registry.register("nvml_dropped_signals", "Signals lost because the queue was full", health.dropped_signals);
        registry.register("state_save_failures", "Failed writes of the state directory", health.save_failures);
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::Metrics;

    #[test]
    fn series_that_are_no_longer_true_vanish() {
        let metrics = Metrics::new();
        metrics.slices.writes.with(&[("verb", "patch")]).inc();
        metrics.health.taints.replace([(vec![("key", "xid"), ("effect", "NoSchedule")], 2)]);
        let text = metrics.encode().unwrap();
        assert!(text.contains("gpu_driver_slice_writes_total{verb=\"patch\"} 1"), "{text}");
        assert!(text.contains("gpu_driver_taints{key=\"xid\",effect=\"NoSchedule\"} 2"), "{text}");
        metrics.health.taints.replace([]);
        assert!(!metrics.encode().unwrap().contains("key=\"xid\""));
    }
}
