//! Signals in, taints out: the field reports, the ways out, the limits.

mod clearing;
mod limits;
mod orders;
mod reports;

use std::collections::BTreeMap;
use std::sync::OnceLock;

use jiff::{SignedDuration, Timestamp};
use taints::Taint;

use super::{Changes, Health, HealthConfig, HealthRecord, Intent, Limits};
use crate::inventory::testkit::{at, bus, gpu, healthy, opened, read};
use crate::inventory::{Inventory, SysfsView};
use crate::nvml::{GpuReading, Update};
use crate::policy::Policy;

/// Ten minutes, a third of the default that the agent's flag has.
const QUIET: i64 = 600;

/// The rooms as the agent wires them.
pub(super) struct Node {
    pub(super) inventory: Inventory,
    pub(super) health: Health,
    pub(super) policy: Policy,
    pub(super) bus: SysfsView,
    pub(super) boot_id: String,
}

impl Node {
    /// Healthy cards, each read once.
    pub(super) fn of(gpus: Vec<GpuReading>) -> Self {
        let mut node = Self::bare(shipped());
        let count = u8::try_from(gpus.len()).unwrap();
        node.bus = bus(0..count);
        node.see(&opened(gpus), 0);
        for n in 0..count {
            node.see(&read(n, healthy()), 0);
        }
        node
    }

    pub(super) fn with(cards: u8) -> Self {
        Self::of((0..cards).map(gpu).collect())
    }

    /// Healthy cards under the shipped policy with this file on top.
    pub(super) fn under(policy: &str, cards: u8) -> Self {
        let mut node = Self::with(cards);
        node.policy = shipped().with_file("policy.yaml", policy).unwrap();
        node
    }

    pub(super) fn bare(policy: Policy) -> Self {
        let boot_id = "boot-1".to_owned();
        let health = Health::restore(config(&boot_id), HealthRecord::default(), &policy, at(0));
        Self { inventory: Inventory::default(), health, policy, bus: SysfsView::default(), boot_id }
    }

    pub(super) fn see(&mut self, update: &Update, seconds: i64) -> Changes {
        self.inventory.apply(update, Some(&self.bus), at(seconds));
        self.health.observe(update, &self.inventory, &self.policy, at(seconds))
    }

    pub(super) fn tick(&mut self, seconds: i64) -> Changes {
        self.inventory.tick(Some(&self.bus), at(seconds));
        self.health.tick(&self.inventory, &self.policy, at(seconds))
    }

    /// Reads a healthy card every 15 s, as the agent does, from one moment to another.
    pub(super) fn poll(&mut self, n: u8, from: i64, to: i64) {
        for seconds in (from..=to).step_by(15) {
            self.see(&read(n, healthy()), seconds);
            self.tick(seconds);
        }
    }

    /// The agent stops and starts again, perhaps in another boot; nothing was read yet.
    pub(super) fn restart(&mut self, boot_id: &str, seconds: i64) {
        let json = serde_json::to_string(&self.health.record()).unwrap();
        let record: HealthRecord = serde_json::from_str(&json).unwrap();
        boot_id.clone_into(&mut self.boot_id);
        self.inventory = Inventory::restore(self.inventory.record());
        self.health = Health::restore(config(boot_id), record, &self.policy, at(seconds));
    }

    pub(super) fn sets(&mut self, intents: &[Intent], limits: &Limits) -> BTreeMap<String, Vec<Taint>> {
        self.health.desired_taints(&self.inventory, intents, limits)
    }

    /// Every taint of every device as `device key=value:Effect`, without the domain.
    pub(super) fn taints(&mut self) -> Vec<String> {
        let sets = self.sets(&[], &Limits::default());
        let line = |device: &String, taint: &Taint| {
            format!("{device} {}", taint.to_string().replace("gpu.devicetaint.dev/", ""))
        };
        sets.iter().flat_map(|(device, taints)| taints.iter().map(move |taint| line(device, taint))).collect()
    }

    /// The taints of card `n`, without its name.
    pub(super) fn taints_of(&mut self, n: u8) -> Vec<String> {
        let name = crate::inventory::testkit::name(n);
        let own =
            |line: String| line.strip_prefix(&name).and_then(|rest| rest.strip_prefix(' ')).map(ToOwned::to_owned);
        self.taints().into_iter().filter_map(own).collect()
    }

    pub(super) fn explain(&self, device: &str) -> String {
        self.health.explain(&self.inventory, device).unwrap()
    }
}

/// The shipped policy, read once for all tests.
pub(super) fn shipped() -> Policy {
    static SHIPPED: OnceLock<Policy> = OnceLock::new();
    SHIPPED.get_or_init(|| Policy::default_table().unwrap()).clone()
}

pub(super) fn config(boot_id: &str) -> HealthConfig {
    HealthConfig {
        domain: "gpu.devicetaint.dev".into(),
        boot_id: boot_id.into(),
        quiet_period: SignedDuration::from_secs(QUIET),
        stale_after: SignedDuration::from_secs(35),
    }
}

/// The time that the API server stamped on a device's taints.
pub(super) fn time_added(node: &mut Node, device: &str) -> Vec<Option<Timestamp>> {
    node.sets(&[], &Limits::default())[device].iter().map(|taint| taint.time_added).collect()
}

/// The API server stored a taint of the device with this time.
pub(super) fn stamp(
    node: &mut Node,
    device: &str,
    key: &str,
    value: &str,
    effect: taints::Effect,
    seconds: i64,
) -> bool {
    let key = format!("gpu.devicetaint.dev/{key}");
    let taint = Taint { key, value: value.to_owned(), effect, time_added: Some(at(seconds)) };
    node.health.adopt_time(&node.inventory, device, &taint)
}
