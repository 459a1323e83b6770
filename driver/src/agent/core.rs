//! What the agent knows of its cards, and what follows from it: one value that takes in news and gives out the pool to
//! publish, the devices to prepare, the report for kubelet, and what to remember. Pure: the moment is an argument.

mod marks;

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use taints::Taint;

use crate::claims::{Condition, Devices, Hardware, Identity};
use crate::health::{self, Health, HealthState};
use crate::inventory::{self, Inventory, NvmlState, Standing, SysfsView};
use crate::nvml::{PciAddress, SignalKind, Update};
use crate::owner::{self, Contested, Offer};
use crate::plugin::health::{DeviceReport, Report};
use crate::policy::Policy;
use crate::slices::{Attribute, Capacity, Card, Device, Limits, Pool, StoredTaints};
use crate::state::Memory;

use self::marks::MarksKnown;

/// Inventory and health of this node.
#[derive(Debug)]
pub struct Core {
    pool: String,
    inventory: Inventory,
    health: Health,
    policy: Policy,
    heard: bool,
    /// Cards that answered when NVML was opened and whose state was not read since.
    unread: BTreeSet<PciAddress>,
    reports: BTreeMap<String, (HealthState, String, Timestamp)>,
    /// What others offer.
    others: BTreeSet<Offer>,
    marks: MarksKnown,
}

/// What some news changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outcome {
    /// The pool, the devices or the report may differ.
    pub changed: bool,
    /// What is remembered differs.
    pub persist: bool,
    /// For the log, in order.
    pub told: Vec<News>,
}

/// Something for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct News {
    /// The words.
    pub text: String,
    /// Whether a person should look after it.
    pub is_problem: bool,
}

/// What the rest of the agent sees of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// What to publish.
    pub pool: Pool,
    /// What can be prepared.
    pub devices: Devices,
    /// What kubelet is told.
    pub report: Report,
    /// The cards that have another owner: in the inventory, and not in the pool.
    pub contested: Contested,
}

impl Outcome {
    /// Adds what further news changed.
    pub fn add(&mut self, other: Self) {
        self.changed |= other.changed;
        self.persist |= other.persist;
        self.told.extend(other.told);
    }
}

impl Core {
    /// As it was remembered. The pool's name is the node's.
    #[must_use]
    pub fn new(pool: &str, inventory: Inventory, health: Health, policy: Policy) -> Self {
        Self {
            pool: pool.to_owned(),
            inventory,
            health,
            policy,
            heard: false,
            unread: BTreeSet::new(),
            reports: BTreeMap::new(),
            others: BTreeSet::new(),
            marks: MarksKnown::default(),
        }
    }

    /// The inventory.
    #[must_use]
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The health.
    #[must_use]
    pub fn health(&self) -> &Health {
        &self.health
    }

    /// Whether NVML was heard since the start. Before, what the node has is not known, and nothing is published.
    #[must_use]
    pub fn heard(&self) -> bool {
        self.heard
    }

    /// Whether the state of every card that answered was read since NVML was opened. A card that went bad while nobody looked shows
    /// it only in its state (an XID is not told twice), so before that nothing new is published.
    #[must_use]
    pub fn is_read(&self) -> bool {
        self.heard && self.unread.is_empty()
    }

    /// Gives up on cards whose state is not read in time: one that hangs must not hold up the others.
    pub fn go_on_unread(&mut self) {
        self.unread.clear();
    }

    /// Takes in what the NVML room told. `sysfs` is what the bus lists at this moment, where it was asked.
    pub fn observe(&mut self, update: &Update, sysfs: Option<&SysfsView>, now: Timestamp) -> Outcome {
        let first = !std::mem::replace(&mut self.heard, true);
        self.note_read(update);
        let cards = self.inventory.apply(update, sysfs, now);
        let findings = self.health.observe(update, &self.inventory, &self.policy, now);
        let mut outcome = outcome(&cards, &findings);
        outcome.changed |= first || moves_everything(update);
        outcome
    }

    fn note_read(&mut self, update: &Update) {
        match update {
            Update::Opened { scan, .. } => self.unread = scan.gpus.iter().map(|gpu| gpu.pci).collect(),
            Update::Discovered { scan } => self.unread.retain(|pci| scan.gpus.iter().any(|gpu| gpu.pci == *pci)),
            Update::Unavailable { .. } | Update::Released { .. } => self.unread.clear(),
            Update::Signal(signal) => {
                if matches!(signal.kind, SignalKind::Snapshot(_) | SignalKind::Hung { .. }) {
                    self.unread.remove(&signal.pci);
                }
            }
        }
    }

    /// Lets time pass.
    pub fn tick(&mut self, sysfs: Option<&SysfsView>, now: Timestamp) -> Outcome {
        let cards = self.inventory.tick(sysfs, now);
        let findings = self.health.tick(&self.inventory, &self.policy, now);
        outcome(&cards, &findings)
    }

    /// Takes over the moments that the API server gave to taints which are wanted, on the very hardware. Returns whether that was news.
    pub fn adopt_times(&mut self, stored: &BTreeMap<String, StoredTaints>, wanted: &Pool) -> bool {
        let mut news = false;
        for device in wanted.cards.iter().flat_map(|card| &card.devices) {
            let stored = stored.get(&device.name).filter(|stored| stored.are_of(device));
            for taint in stored.into_iter().flat_map(|stored| &stored.taints) {
                if device.taints.iter().any(|t| t.same_as(taint) && t.value == taint.value) {
                    news |= self.health.adopt_time(&self.inventory, &device.name, taint);
                }
            }
        }
        news
    }

    /// Takes over what others offered when the agent ended.
    #[must_use]
    pub fn remembering_others(mut self, others: BTreeSet<Offer>) -> Self {
        self.others = others;
        self
    }

    /// Takes in what others offer. Says whether that is news.
    pub fn heed(&mut self, others: &BTreeSet<Offer>) -> bool {
        let news = self.others != *others;
        self.others.clone_from(others);
        news
    }

    /// What the rest of the agent sees now. Call it before [`Core::memory`].
    pub fn view(&mut self, limits: &Limits, now: Timestamp) -> View {
        let limits = health::Limits { max_taints: limits.taints, none_effect: limits.effect_none };
        let taints = self.health.desired_taints(&self.inventory, &self.marks.intents, &limits);
        let contested = self.contested();
        let (pool, devices) = (self.pool(&taints, &contested), self.devices(&contested));
        View { pool, devices, report: self.report(now), contested }
    }

    /// The cards that somebody else offers too, by their own marks or by those of a partition.
    fn contested(&self) -> Contested {
        let owner = |card: &inventory::Card| {
            let own = card.identity.uuid.as_deref().into_iter();
            let parts = self.inventory.devices_of(card.pci).filter_map(|device| device.uuid.as_deref());
            let uuids: Vec<&str> = own.chain(parts).collect();
            owner::owner_of(&self.others, card.pci, &uuids).map(|owner| (card.pci, owner.clone()))
        };
        self.inventory.cards().filter_map(owner).collect()
    }

    /// How many findings are open, by key.
    #[must_use]
    pub fn findings_by_key(&self) -> BTreeMap<String, i64> {
        let mut counts = BTreeMap::new();
        let first = |card: &inventory::Card| self.inventory.devices_of(card.pci).next();
        let devices = self.inventory.cards().filter_map(first);
        let cards = devices.filter_map(|device| self.health.card_of(&self.inventory, &device.name));
        for finding in cards.flat_map(health::CardHealth::findings) {
            *counts.entry(finding.id.key.clone()).or_insert(0) += 1;
        }
        counts
    }

    /// What to remember.
    #[must_use]
    pub fn memory(&self) -> Memory {
        Memory {
            inventory: self.inventory.record(),
            health: self.health.record(),
            marks: self.marks.intents.clone(),
            others: self.others.clone(),
        }
    }

    fn pool(&self, taints: &BTreeMap<String, Vec<Taint>>, contested: &Contested) -> Pool {
        let device = |device: &inventory::Device| Device {
            name: device.name.clone(),
            attributes: device.attributes.iter().map(|(name, value)| (name.clone(), attribute(value))).collect(),
            capacity: device
                .capacity
                .iter()
                .map(|(name, value)| (name.clone(), Capacity { value: value.clone() }))
                .collect(),
            taints: taints.get(&device.name).cloned().unwrap_or_default(),
        };
        let card = |card: &inventory::Card| Card { devices: self.inventory.devices_of(card.pci).map(device).collect() };
        let offered = self.inventory.cards().filter(|card| !contested.contains_key(&card.pci));
        Pool { cards: offered.map(card).filter(|card| !card.devices.is_empty()).collect() }
    }

    fn devices(&self, contested: &Contested) -> Devices {
        let hardware = |device: &inventory::Device| Hardware {
            identity: Identity {
                uuid: device.uuid.clone(),
                serial: device.serial.clone(),
                pci: device.pci.to_string(),
            },
            minor: device.minor,
            condition: self.condition(device),
            other_owner: contested.get(&device.pci).map(ToString::to_string),
        };
        Devices(self.inventory.devices().map(|device| (device.name.clone(), hardware(device))).collect())
    }

    fn condition(&self, device: &inventory::Device) -> Condition {
        match self.inventory.card(device.pci).map(|card| &card.standing) {
            Some(Standing::Present) => Condition::Ready,
            Some(Standing::Unconfirmed) | None => Condition::Unknown(match self.inventory.nvml() {
                NvmlState::Unavailable(why) => why.clone(),
                NvmlState::Released => "NVML was let go on request".to_owned(),
                NvmlState::Unopened | NvmlState::Open => "its card has not been read yet".to_owned(),
            }),
            Some(Standing::Unreadable(why)) => Condition::Unknown(why.clone()),
            Some(Standing::Lost(why)) => Condition::Lost(why.clone()),
            Some(Standing::Gone(_)) => Condition::Lost("neither NVML nor sysfs lists its card".to_owned()),
        }
    }

    fn report(&mut self, now: Timestamp) -> Report {
        let mut reports = BTreeMap::new();
        let mut devices = Vec::new();
        for device in self.health.device_health(&self.inventory) {
            let since = match self.reports.get(&device.name) {
                Some((state, message, since)) if (*state, message) == (device.state, &device.message) => *since,
                _ => now,
            };
            reports.insert(device.name.clone(), (device.state, device.message.clone(), since));
            devices.push(DeviceReport {
                device: device.name,
                state: device.state,
                message: device.message,
                updated: since,
            });
        }
        self.reports = reports;
        Report { pool: self.pool.clone(), devices }
    }
}

fn outcome(cards: &inventory::Changes, findings: &health::Changes) -> Outcome {
    let of_cards = cards.events.iter().map(|event| News { text: event.to_string(), is_problem: false });
    let of_findings =
        findings.events.iter().map(|event| News { text: event.to_string(), is_problem: event.isolates() });
    Outcome {
        changed: cards.devices_changed || findings.taints_changed || !cards.events.is_empty(),
        persist: cards.persist || findings.persist,
        told: of_cards.chain(of_findings).collect(),
    }
}

/// Whether the update changes what can be prepared, or how devices are, without any card or finding having changed.
fn moves_everything(update: &Update) -> bool {
    !matches!(update, Update::Signal(_))
}

fn attribute(value: &inventory::Attribute) -> Attribute {
    match value {
        inventory::Attribute::String(text) => Attribute::String(text.clone()),
        inventory::Attribute::Int(number) => Attribute::Int(*number),
        inventory::Attribute::Bool(truth) => Attribute::Bool(*truth),
        inventory::Attribute::Version(text) => Attribute::Version(text.clone()),
    }
}

#[cfg(test)]
mod tests;
