//! From what NVML says to taints: signals open and close findings, and the taints of a device are made of its open findings.
//!
//! ```text
//! Update ─► observe ─► findings of each card (by identity) ─► desired_taints ─► slices
//! clock  ─► tick    ─┘        │            intents of people ─┘      │
//!                             ├─► device_health (KEP-4680), explain  └◄─ adopt_time: the API server's stamps
//!                             └─► record ─► state directory ─► restore
//! ```
//!
//! Taints follow from the set of open findings of the moment, never from the last event. Unknown is neither bad nor good: what
//! could not be read opens no isolating finding and closes none. A finding belongs to a piece of hardware, not to a name.

mod card;
mod change;
mod clearing;
mod finding;
mod intent;
mod looks;
mod report;
mod reset;
mod taint_set;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use card::CardHealth;
use card::{Moment, Seen};
pub use change::{Changes, FindingEvent, FindingEventKind};
pub use finding::{Cleared, Finding, FindingId, History, Scope, Source};
pub use intent::{Intent, IntentStanding};
pub use report::{DeviceHealth, HealthState};
pub use reset::Baseline;
pub use taint_set::{Limits, Stamp};

use crate::inventory::{Card, Inventory, Standing};
use crate::nvml::{CallError, Code, Event, OpenError, Signal, SignalKind, Update};
use crate::policy::Policy;

/// Findings of hardware that left the node are forgotten after this time.
const DEPARTED_KEPT: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What does not change while the agent runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthConfig {
    /// Domain of the taint keys, the driver's name.
    pub domain: String,
    /// The boot id of the node, empty where it cannot be read.
    pub boot_id: String,
    /// How long a recovery action must read "none" where no reset was seen.
    pub quiet_period: SignedDuration,
    /// A card without news for longer is unmonitored. Twice the poll interval, and a little, is a good value.
    pub stale_after: SignedDuration,
}

/// What survives a restart of the agent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct HealthRecord {
    /// Cards with findings or history.
    pub cards: Vec<CardHealth>,
    /// When the API server says that each taint was added.
    pub stamps: Vec<Stamp>,
}

/// Counts for metrics; they only grow.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// XID events by code; codes beyond the first 256 share the entry of `u64::MAX`.
    pub xids: BTreeMap<u64, u64>,
    /// Events that named a partition which does not exist, and so counted for the whole card.
    pub unattributed: u64,
    /// Signals of cards that are not known, or not the ones that the name means now.
    pub foreign: u64,
    /// Signals that were lost on the way here.
    pub dropped: u64,
    /// Findings for which a card had no room.
    pub overflowed: u64,
}

/// The health of every card.
#[derive(Clone, Debug, PartialEq)]
pub struct Health {
    config: HealthConfig,
    cards: BTreeMap<String, CardHealth>,
    stamps: BTreeMap<taint_set::StampKey, Timestamp>,
    counters: Counters,
    started: Timestamp,
}

impl Health {
    /// Health as it was saved, judged by today's policy. Without a record, every card begins without findings.
    #[must_use]
    pub fn restore(config: HealthConfig, record: HealthRecord, policy: &Policy, now: Timestamp) -> Self {
        let cards = record.cards.into_iter().map(|card| (card.key.clone(), card.restored(policy))).collect();
        let stamps = record.stamps.into_iter().map(Stamp::into_entry).collect();
        Self { config, cards, stamps, counters: Counters::default(), started: now }
    }

    /// What to save. Call it after [`Health::desired_taints`], which forgets the stamps of taints that went.
    #[must_use]
    pub fn record(&self) -> HealthRecord {
        let worth = |card: &&CardHealth| card.findings().next().is_some() || card.history().next().is_some();
        HealthRecord {
            cards: self.cards.values().filter(worth).cloned().collect(),
            stamps: self.stamps.iter().map(Stamp::from_entry).collect(),
        }
    }

    /// Takes in what the NVML room told, after the inventory did.
    pub fn observe(&mut self, update: &Update, inventory: &Inventory, policy: &Policy, now: Timestamp) -> Changes {
        let mut changes = Changes::default();
        self.follow(inventory, now);
        match update {
            Update::Opened { .. } => {
                self.each(inventory, policy, now, &mut changes, |_, card, moment, changes| {
                    card.end("driver", None, moment, changes);
                    for value in INIT_UNKNOWN.iter().chain(&["released"]) {
                        card.end("unmonitored", Some(value), moment, changes);
                    }
                });
                self.standings(inventory, policy, now, &mut changes);
            }
            Update::Discovered { .. } => self.standings(inventory, policy, now, &mut changes),
            Update::Unavailable { error, .. } => {
                let (key, value) = unavailable(error);
                let evidence = error.to_string();
                self.each(inventory, policy, now, &mut changes, |_, card, moment, changes| {
                    if key == "driver" {
                        // The driver answers, if only with an error: one reason stands, and it is no longer unknown.
                        card.only("driver", value, changes);
                        INIT_UNKNOWN.iter().for_each(|value| card.end("unmonitored", Some(value), moment, changes));
                    }
                    card.state(&Seen::state(key, value, evidence.as_str()), moment, changes);
                });
            }
            Update::Released { .. } => {
                self.each(inventory, policy, now, &mut changes, |_, card, moment, changes| {
                    let evidence = "the agent let go of NVML on request";
                    card.state(&Seen::state("unmonitored", "released", evidence), moment, changes);
                });
            }
            Update::Signal(signal) => self.signal(signal, inventory, policy, now, &mut changes),
        }
        self.counters.overflowed += changes.overflowed;
        changes
    }

    /// Lets time pass: timers run out, silent monitors show. Call it at least as often as NVML is polled.
    pub fn tick(&mut self, inventory: &Inventory, policy: &Policy, now: Timestamp) -> Changes {
        let mut changes = Changes::default();
        self.follow(inventory, now);
        let (started, stale_after) = (self.started, self.config.stale_after);
        self.each(inventory, policy, now, &mut changes, |_, card, moment, changes| {
            let last = card.last_report.unwrap_or(started).max(started);
            if now.duration_since(last) > stale_after && !card.is_blind() {
                let evidence = format!("no reading for more than {stale_after:#}");
                card.state(&Seen::state("unmonitored", "stale", evidence), moment, changes);
            }
            card.tick(moment, changes);
        });
        let before = self.cards.len();
        self.cards.retain(|_, card| now.duration_since(card.last_known) <= DEPARTED_KEPT);
        changes.persist |= self.cards.len() != before;
        changes
    }

    /// A person says that the findings under a key of this device's card are dealt with; the only exit of `manual` rows.
    pub fn acknowledge(&mut self, inventory: &Inventory, device: &str, key: &str, by: &str, now: Timestamp) -> Changes {
        let mut changes = Changes::default();
        let card = inventory.device(device).and_then(|device| inventory.card(device.pci)).map(Card::key);
        if let Some(card) = card.and_then(|key| self.cards.get_mut(&key)) {
            card.acknowledge(key, by, now, &mut changes);
        }
        changes
    }

    /// The health of the card at a device's place.
    #[must_use]
    pub fn card_of(&self, inventory: &Inventory, device: &str) -> Option<&CardHealth> {
        let card = inventory.card(inventory.device(device)?.pci)?;
        self.cards.get(&card.key())
    }

    /// Counts for metrics.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Gives every card of the inventory its entry. A card that tells its UUID for the first time takes over what was found
    /// at its address while it was nameless.
    fn follow(&mut self, inventory: &Inventory, now: Timestamp) {
        for card in inventory.cards() {
            let key = card.key();
            if !self.cards.contains_key(&key) {
                let nameless = self.cards.remove(&format!("pci:{}", card.pci));
                let mut entry = nameless.unwrap_or_else(|| CardHealth::new(key.clone(), card.pci, now));
                entry.key.clone_from(&key);
                self.cards.insert(key.clone(), entry);
            }
            if let Some(entry) = self.cards.get_mut(&key) {
                entry.pci = card.pci;
                entry.last_known = now;
                if entry.product != card.product() {
                    card.product().clone_into(&mut entry.product);
                }
            }
        }
    }

    fn each(
        &mut self,
        inventory: &Inventory,
        policy: &Policy,
        now: Timestamp,
        changes: &mut Changes,
        act: impl Fn(&Card, &mut CardHealth, &Moment<'_>, &mut Changes),
    ) {
        let moment = moment(&self.config, policy, now);
        for card in inventory.cards() {
            if let Some(health) = self.cards.get_mut(&card.key()) {
                act(card, health, &moment, changes);
            }
        }
    }

    /// What a look at all cards says about each.
    fn standings(&mut self, inventory: &Inventory, policy: &Policy, now: Timestamp, changes: &mut Changes) {
        self.each(inventory, policy, now, changes, |card, health, moment, changes| {
            let gone = "neither NVML nor sysfs lists it";
            match &card.standing {
                Standing::Present => {
                    health.end("lost", None, moment, changes);
                    for value in ["unreadable", "undiscovered"] {
                        health.end("unmonitored", Some(value), moment, changes);
                    }
                }
                Standing::Lost(why) => health.state(&Seen::state("lost", "", why.as_str()), moment, changes),
                Standing::Gone(_) => health.state(&Seen::state("lost", "", gone), moment, changes),
                Standing::Unreadable(why) => {
                    health.state(&Seen::state("unmonitored", "unreadable", why.as_str()), moment, changes);
                }
                Standing::Unconfirmed => {}
            }
            if card.identity.uuid.is_none() && !card.is_present() {
                let evidence = "it has not answered since the agent first saw its address";
                health.state(&Seen::state("unmonitored", "undiscovered", evidence), moment, changes);
            }
        });
    }

    /// News of one card. News of a card that the inventory no longer means by this address is not for the one that it means.
    fn signal(
        &mut self,
        signal: &Signal,
        inventory: &Inventory,
        policy: &Policy,
        now: Timestamp,
        changes: &mut Changes,
    ) {
        if let SignalKind::Dropped { count } = signal.kind {
            self.counters.dropped += count;
        }
        let card = inventory.card(signal.pci);
        let Some(card) = card.filter(|card| signal.uuid.is_none() || signal.uuid == card.identity.uuid) else {
            self.counters.foreign += 1;
            return;
        };
        let moment = moment(&self.config, policy, now);
        let Some(health) = self.cards.get_mut(&card.key()) else { return };
        match &signal.kind {
            SignalKind::Snapshot(snapshot) => health.snapshot(snapshot, &moment, changes),
            SignalKind::Event(event) => {
                if let Some(code) = event.xid() {
                    let (scope, attributed) = scope_of(event, card);
                    self.counters.count_xid(code);
                    self.counters.unattributed += u64::from(!attributed);
                    health.xid(code, scope, &moment, changes);
                }
            }
            SignalKind::Watching { .. } => watched(health, &moment, changes),
            SignalKind::NotWatching { error } => unwatched(health, error, &moment, changes),
            SignalKind::Hung { function, .. } => {
                let seen = Seen::state("unmonitored", "hung", format!("{function} has not returned"));
                health.state(&seen, &moment, changes);
            }
            SignalKind::Unhung { .. } => health.end("unmonitored", Some("hung"), &moment, changes),
            SignalKind::Dropped { .. } => {}
        }
    }
}

impl Counters {
    /// Bounded, for a broken driver may raise any number.
    fn count_xid(&mut self, code: u64) {
        let room = self.xids.len() < 256 || self.xids.contains_key(&code);
        *self.xids.entry(if room { code } else { u64::MAX }).or_default() += 1;
    }
}

/// Values of `unmonitored` while it is not known whether the driver works.
const INIT_UNKNOWN: [&str; 2] = ["init-failed", "init-hung"];

/// Values of `unmonitored` while events do not arrive; the card is still polled.
const NOT_WATCHED: [&str; 3] = ["no-events", "no-permission", "register-failed"];

fn watched(health: &mut CardHealth, moment: &Moment<'_>, changes: &mut Changes) {
    for value in NOT_WATCHED {
        health.end("unmonitored", Some(value), moment, changes);
    }
}

fn unwatched(health: &mut CardHealth, error: &CallError, moment: &Moment<'_>, changes: &mut Changes) {
    let value = match error.code {
        // A lost card cannot be watched; that it is lost says it better.
        Code::GPU_IS_LOST | Code::RESET_REQUIRED => return,
        Code::NO_PERMISSION => "no-permission",
        code if code.means_not_supported() => "no-events",
        _ => "register-failed",
    };
    health.state(&Seen::state("unmonitored", value, error.to_string()), moment, changes);
}

fn moment<'a>(config: &'a HealthConfig, policy: &'a Policy, now: Timestamp) -> Moment<'a> {
    Moment { now, boot_id: &config.boot_id, quiet_period: config.quiet_period, stale_after: config.stale_after, policy }
}

/// What a card whose NVML cannot be opened shows. A call that hangs, or that this process may not make, leaves the driver
/// unknown: that informs and isolates nothing.
fn unavailable(error: &OpenError) -> (&'static str, &'static str) {
    match error {
        OpenError::NoLibrary { .. } | OpenError::Unusable { .. } => ("driver", "no-library"),
        OpenError::NotLoaded => ("driver", "not-loaded"),
        OpenError::VersionMismatch => ("driver", "version-mismatch"),
        OpenError::Failed { code: Code::NO_PERMISSION } => ("unmonitored", "init-failed"),
        OpenError::Failed { .. } => ("driver", "init-failed"),
        OpenError::Unanswered { .. } => ("unmonitored", "init-hung"),
    }
}

/// What an event is about, and whether the partition that it names exists. Only a partitioned card has partitions: on any
/// other the ids mean nothing.
fn scope_of(event: &Event, card: &Card) -> (Scope, bool) {
    let Some(gpu_instance) = event.gpu_instance.filter(|_| card.facts.mig) else { return (Scope::Card, true) };
    let matches = |partition: &&crate::inventory::Partition| {
        partition.gpu_instance == gpu_instance
            && event.compute_instance.is_none_or(|compute| partition.compute_instance == compute)
    };
    match card.facts.partitions.iter().find(matches) {
        Some(_) => (Scope::Partition { gpu_instance, compute_instance: event.compute_instance }, true),
        None => (Scope::Card, false),
    }
}
