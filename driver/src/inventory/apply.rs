//! How a look by NVML, checked with sysfs, changes the cards.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::card::{Card, Standing};
use super::change::{Changes, InventoryEvent};
use super::sysfs::SysfsView;
use super::{Identity, Inventory, NvmlState};
use crate::nvml::{CallError, Code, GpuReading, PciAddress, Presence, Scan, Signal, SignalKind, Snapshot};

impl Inventory {
    /// A look at all cards. What answers is learnt; of what does not, the last identity stays.
    pub(super) fn apply_scan(&mut self, scan: &Scan, sysfs: Option<&SysfsView>, now: Timestamp, changes: &mut Changes) {
        let mut seen = BTreeSet::new();
        for reading in &scan.gpus {
            seen.insert(reading.pci);
            self.learn(reading, sysfs, now, changes);
        }
        // A bus that does not list the cards that answer is not the bus of this machine: it proves nothing.
        let sysfs = sysfs.filter(|view| scan.gpus.iter().all(|gpu| view.cards.contains_key(&gpu.pci)));
        for entry in &scan.missing {
            // The same address may be told twice: what answered wins.
            if seen.insert(entry.pci) {
                self.unanswered(entry.pci, &entry.error, sysfs, now, changes);
            }
        }
        self.attribute(scan, sysfs, &mut seen, now, changes);
        if scan.count.is_ok() {
            self.unlisted(&seen, sysfs, now, changes);
            self.remove_gone(sysfs, now, changes);
        }
    }

    /// A card answered.
    fn learn(&mut self, reading: &GpuReading, sysfs: Option<&SysfsView>, now: Timestamp, changes: &mut Changes) {
        let identity = Identity { uuid: Some(reading.uuid.clone()), serial: reading.serial.clone() };
        let known = self.cards.contains_key(&reading.pci);
        let emptied = self.emptied.remove(&reading.pci).unwrap_or_default();
        let card = self.cards.entry(reading.pci).or_insert_with(|| Card::new(reading.pci, emptied, now));
        let before = card.clone();
        if !known {
            changes.events.push(InventoryEvent::Appeared { pci: reading.pci, uuid: identity.uuid.clone() });
        }
        match &card.identity.uuid {
            Some(old) if *old != reading.uuid => {
                let (from, to) = (old.clone(), reading.uuid.clone());
                changes.events.push(InventoryEvent::Swapped { pci: reading.pci, from, to });
                *card = Card { identity, ..Card::new(reading.pci, card.generation, now) };
            }
            _ => {
                let serial = identity.serial.or_else(|| card.identity.serial.take());
                card.identity = Identity { uuid: identity.uuid, serial };
            }
        }
        card.facts.learn(reading, sysfs.and_then(|view| view.cards.get(&reading.pci)));
        if known && before.facts.partitions != card.facts.partitions {
            let partitions = card.facts.partitions.len();
            changes.events.push(InventoryEvent::Partitioned { pci: reading.pci, partitions });
        }
        changes.persist |= !known || *card != before;
        self.stand(reading.pci, Standing::Present, changes);
    }

    /// A known address gave an error instead of a card.
    fn unanswered(
        &mut self,
        pci: PciAddress,
        error: &CallError,
        sysfs: Option<&SysfsView>,
        now: Timestamp,
        changes: &mut Changes,
    ) {
        let standing = match error.code {
            Code::GPU_IS_LOST => Standing::Lost(error.to_string()),
            Code::NOT_FOUND => not_listed(pci, sysfs, now),
            // It answers; what it says is a matter of health, not of presence.
            Code::RESET_REQUIRED => Standing::Present,
            _ => Standing::Unreadable(error.to_string()),
        };
        if let Entry::Vacant(place) = self.cards.entry(pci) {
            place.insert(Card::new(pci, self.emptied.remove(&pci).unwrap_or_default(), now));
            changes.persist = true;
            changes.events.push(InventoryEvent::Appeared { pci, uuid: None });
        }
        self.stand(pci, standing, changes);
    }

    /// Cards that NVML counts but cannot open. By their address where it is told, or where a known address gave an error too;
    /// else by what sysfs lists with the NVIDIA driver and nobody answers for, if the numbers agree. Otherwise nobody is blamed.
    fn attribute(
        &mut self,
        scan: &Scan,
        sysfs: Option<&SysfsView>,
        seen: &mut BTreeSet<PciAddress>,
        now: Timestamp,
        changes: &mut Changes,
    ) {
        // An address that NVML does not know is none of those that it counts.
        let mut told = scan.missing.iter().filter(|entry| entry.error.code != Code::NOT_FOUND).count();
        let mut nowhere = Vec::new();
        for entry in &scan.unidentified {
            match entry.pci {
                Some(pci) if seen.insert(pci) => self.unanswered(pci, &entry.error, sysfs, now, changes),
                Some(_) => told = told.saturating_sub(1),
                None => nowhere.push(&entry.error),
            }
        }
        let unexplained = nowhere.len().saturating_sub(told);
        // Which index is which card cannot be told: "lost" is believed only where every index says so.
        let doubt = nowhere.iter().find(|error| error.code != Code::GPU_IS_LOST).or(nowhere.first());
        let Some(error) = doubt.filter(|_| unexplained > 0) else { return };
        let candidates = silent(sysfs, seen);
        if candidates.len() == unexplained {
            for pci in candidates {
                seen.insert(pci);
                self.unanswered(pci, error, sysfs, now, changes);
            }
        } else {
            let why = error.to_string();
            changes.events.push(InventoryEvent::Unattributed { cards: unexplained, why });
        }
    }

    /// Known cards that a working NVML did not mention at all.
    fn unlisted(
        &mut self,
        seen: &BTreeSet<PciAddress>,
        sysfs: Option<&SysfsView>,
        now: Timestamp,
        changes: &mut Changes,
    ) {
        let silent: Vec<PciAddress> = self.cards.keys().filter(|pci| !seen.contains(pci)).copied().collect();
        for pci in silent {
            self.stand(pci, not_listed(pci, sysfs, now), changes);
        }
    }

    /// Sets a card's standing and tells when it begins or ceases to answer.
    fn stand(&mut self, pci: PciAddress, standing: Standing, changes: &mut Changes) {
        let Some(card) = self.cards.get_mut(&pci) else { return };
        let absent = |standing: &Standing| matches!(standing, Standing::Lost(_) | Standing::Gone(_));
        match (absent(&card.standing), absent(&standing)) {
            (false, true) => {
                let uuid = card.identity.uuid.clone();
                changes.events.push(InventoryEvent::Lost { pci, uuid, why: why(&standing) });
            }
            (true, false) if standing == Standing::Present => changes.events.push(InventoryEvent::Returned { pci }),
            _ => {}
        }
        card.standing = match (&card.standing, standing) {
            // The time from which it is gone is the first such look.
            (Standing::Gone(since), Standing::Gone(_)) => Standing::Gone(*since),
            (_, standing) => standing,
        };
    }

    /// Removes cards that stayed gone, if the bus still does not list them and NVML still works.
    pub(super) fn remove_gone(&mut self, sysfs: Option<&SysfsView>, now: Timestamp, changes: &mut Changes) {
        let (Some(view), NvmlState::Open) = (sysfs, &self.nvml) else { return };
        if !lists_present(view, &self.cards) {
            return;
        }
        let grace = self.removal_grace;
        let over = |card: &Card| match card.standing {
            Standing::Gone(since) => now.duration_since(since) >= grace && !view.cards.contains_key(&card.pci),
            _ => false,
        };
        let gone: Vec<PciAddress> = self.cards.values().filter(|card| over(card)).map(|card| card.pci).collect();
        for pci in gone {
            let Some(card) = self.cards.remove(&pci) else { continue };
            self.emptied.insert(pci, card.generation);
            let uuid = card.identity.uuid;
            changes.persist = true;
            changes.events.push(InventoryEvent::Removed { pci, uuid });
        }
    }

    /// News of one card: whether it answers, and its minor number, which a driver reload may change.
    pub(super) fn apply_signal(&mut self, signal: &Signal, changes: &mut Changes) {
        let SignalKind::Snapshot(snapshot) = &signal.kind else { return };
        let Some(card) = self.cards.get(&signal.pci) else { return };
        if signal.uuid.is_some() && signal.uuid != card.identity.uuid {
            return;
        }
        match &snapshot.presence {
            Presence::Answering => {
                self.learn_minor(signal.pci, snapshot, changes);
                self.stand(signal.pci, Standing::Present, changes);
            }
            Presence::ResetRequired => self.stand(signal.pci, Standing::Present, changes),
            Presence::Lost => self.stand(signal.pci, Standing::Lost("NVML answers GPU_IS_LOST".to_owned()), changes),
            // Only a look at all cards, checked with sysfs, says that one is gone.
            Presence::Absent => {
                let why = "NVML knows no GPU at this address".to_owned();
                self.stand(signal.pci, Standing::Lost(why), changes);
            }
            Presence::OtherCard { uuid } => {
                let why = format!("another card, {uuid}, answers at this address");
                self.stand(signal.pci, Standing::Lost(why), changes);
            }
            Presence::Unreadable(code) => {
                self.stand(signal.pci, Standing::Unreadable(format!("NVML answers {code}")), changes);
            }
        }
    }

    fn learn_minor(&mut self, pci: PciAddress, snapshot: &Snapshot, changes: &mut Changes) {
        let (Some(card), Some(minor)) = (self.cards.get_mut(&pci), snapshot.minor.get()) else { return };
        changes.persist |= card.facts.minor != Some(minor);
        card.facts.minor = Some(minor);
    }
}

/// The standing of a card that a working NVML does not list. Still on the bus: drained, or held by another driver. Not on
/// the bus: gone. Bus not readable: it may still be there.
fn not_listed(pci: PciAddress, sysfs: Option<&SysfsView>, now: Timestamp) -> Standing {
    let Some(view) = sysfs else {
        return Standing::Lost("NVML does not list it, and sysfs could not be asked".to_owned());
    };
    match view.cards.get(&pci) {
        None => Standing::Gone(now),
        Some(card) => match card.driver.as_deref().filter(|driver| *driver != "nvidia") {
            Some(driver) => Standing::Lost(format!("NVML does not list it; the kernel driver {driver} holds it")),
            None => Standing::Lost("NVML does not list it, the PCI bus does".to_owned()),
        },
    }
}

/// Whether the bus lists every card that answers.
fn lists_present(view: &SysfsView, cards: &BTreeMap<PciAddress, Card>) -> bool {
    cards.values().filter(|card| card.is_present()).all(|card| view.cards.contains_key(&card.pci))
}

/// Cards that the bus lists under the NVIDIA driver, or under none that it tells, and that nobody has answered for.
fn silent(sysfs: Option<&SysfsView>, seen: &BTreeSet<PciAddress>) -> Vec<PciAddress> {
    let Some(view) = sysfs else { return Vec::new() };
    let ours = |driver: Option<&str>| driver.is_none_or(|driver| driver == "nvidia");
    let cards = view.cards.iter().filter(|(pci, card)| !seen.contains(pci) && ours(card.driver.as_deref()));
    cards.map(|(pci, _)| *pci).collect()
}

fn why(standing: &Standing) -> String {
    match standing {
        Standing::Lost(why) | Standing::Unreadable(why) => why.clone(),
        Standing::Gone(_) => "neither NVML nor sysfs lists it".to_owned(),
        Standing::Present | Standing::Unconfirmed => String::new(),
    }
}
