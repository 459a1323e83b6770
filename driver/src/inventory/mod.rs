//! What devices this node has, and which piece of hardware each name means.
//!
//! In flow the NVML room's [`Update`]s and what sysfs lists ([`SysfsView`]); out come [`Device`]s, ready to be published and
//! prepared, and [`Changes`]. A card that was seen once stays, with its last identity, however NVML or its neighbours fare:
//! only a look by a working NVML that does not know the card, while sysfs does not list it either, takes it away, and only
//! after it was gone for [`Inventory::removal_grace`]. Names come from PCI addresses and never move.

mod apply;
mod attributes;
mod card;
mod change;
mod device;
mod name;
mod sysfs;
#[cfg(test)]
pub(crate) mod testkit;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

pub use attributes::{Attribute, cut, memory_quantity, semver_of};
pub use card::{Card, CardFacts, Identity, Partition, Standing};
pub use change::{Changes, InventoryEvent};
pub use device::{Device, DeviceKind};
pub use name::{gpu_name, mig_name};
pub use sysfs::{SysfsCard, SysfsError, SysfsView, read as read_sysfs};

use crate::nvml::{PciAddress, Update, Versions};

/// A card that neither NVML nor sysfs lists is removed after this time: a reset over the bus takes it away for seconds.
pub const REMOVAL_GRACE: SignedDuration = SignedDuration::from_secs(30);

/// Versions of driver and CUDA as they were last told.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SeenVersions {
    /// Kernel driver, as NVML writes it.
    pub driver: Option<String>,
    /// The newest CUDA that the driver supports, `major.minor`.
    pub cuda: Option<String>,
}

/// Whether NVML answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NvmlState {
    /// Not tried yet.
    Unopened,
    /// It answers.
    Open,
    /// It could not be opened, and why.
    Unavailable(String),
    /// Its handles were let go on request.
    Released,
}

/// What survives a restart of the agent: cards with their last identity.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InventoryRecord {
    /// Last told versions.
    #[serde(default)]
    pub versions: SeenVersions,
    /// Every card, by address.
    #[serde(default)]
    pub cards: Vec<Card>,
    /// The generation of the last card at addresses that are empty now.
    #[serde(default)]
    pub emptied: BTreeMap<PciAddress, u64>,
}

/// All cards of the node and the devices that they are.
#[derive(Clone, Debug, PartialEq)]
pub struct Inventory {
    cards: BTreeMap<PciAddress, Card>,
    emptied: BTreeMap<PciAddress, u64>,
    devices: Vec<Device>,
    versions: SeenVersions,
    nvml: NvmlState,
    removal_grace: SignedDuration,
}

impl Default for Inventory {
    fn default() -> Self {
        Self::restore(InventoryRecord::default())
    }
}

impl Inventory {
    /// The inventory as it was saved. No card is confirmed until NVML was heard.
    #[must_use]
    pub fn restore(record: InventoryRecord) -> Self {
        let cards = record.cards.into_iter().map(|card| (card.pci, card.unconfirmed())).collect();
        let mut inventory = Self {
            cards,
            emptied: record.emptied,
            devices: Vec::new(),
            versions: record.versions,
            nvml: NvmlState::Unopened,
            removal_grace: REMOVAL_GRACE,
        };
        inventory.rebuild();
        inventory
    }

    /// Another time after which a card that is gone everywhere is removed.
    #[must_use]
    pub fn removal_grace(mut self, grace: SignedDuration) -> Self {
        self.removal_grace = grace;
        self
    }

    /// What to save.
    #[must_use]
    pub fn record(&self) -> InventoryRecord {
        InventoryRecord {
            versions: self.versions.clone(),
            cards: self.cards.values().cloned().collect(),
            emptied: self.emptied.clone(),
        }
    }

    /// Takes in what the NVML room told. `sysfs` is what the bus lists at this moment, `None` where it could not be read:
    /// then nothing is removed. Give every update here before [`crate::health::Health::observe`].
    pub fn apply(&mut self, update: &Update, sysfs: Option<&SysfsView>, now: Timestamp) -> Changes {
        let mut changes = Changes::default();
        match update {
            Update::Opened { versions, scan } => {
                self.learn_versions(versions, &mut changes);
                self.nvml = NvmlState::Open;
                self.apply_scan(scan, sysfs, now, &mut changes);
            }
            Update::Discovered { scan } => {
                self.nvml = NvmlState::Open;
                self.apply_scan(scan, sysfs, now, &mut changes);
            }
            Update::Unavailable { error, .. } => {
                self.nvml = NvmlState::Unavailable(error.to_string());
                self.unconfirm_all();
            }
            Update::Released { .. } => self.nvml = NvmlState::Released,
            Update::Signal(signal) => self.apply_signal(signal, &mut changes),
        }
        self.finish(changes)
    }

    /// Lets time pass: removes cards whose grace is over. Call it about as often as NVML is polled.
    pub fn tick(&mut self, sysfs: Option<&SysfsView>, now: Timestamp) -> Changes {
        let mut changes = Changes::default();
        self.remove_gone(sysfs, now, &mut changes);
        self.finish(changes)
    }

    /// Every device that is published: cards by address, a partitioned card as its partitions.
    pub fn devices(&self) -> impl Iterator<Item = &Device> {
        self.devices.iter()
    }

    /// The device of this name, published or not: a partitioned card itself is none.
    #[must_use]
    pub fn device(&self, name: &str) -> Option<&Device> {
        self.devices.iter().find(|device| device.name == name)
    }

    /// The devices that sit on the card at this address.
    pub fn devices_of(&self, pci: PciAddress) -> impl Iterator<Item = &Device> {
        self.devices.iter().filter(move |device| device.pci == pci)
    }

    /// Every card, by address.
    pub fn cards(&self) -> impl Iterator<Item = &Card> {
        self.cards.values()
    }

    /// The card at this address.
    #[must_use]
    pub fn card(&self, pci: PciAddress) -> Option<&Card> {
        self.cards.get(&pci)
    }

    /// Addresses of all known cards; the NVML room asks about each, listed or not.
    #[must_use]
    pub fn addresses(&self) -> Vec<PciAddress> {
        self.cards.keys().copied().collect()
    }

    /// Whether NVML answers.
    #[must_use]
    pub fn nvml(&self) -> &NvmlState {
        &self.nvml
    }

    /// Last told versions.
    #[must_use]
    pub fn versions(&self) -> &SeenVersions {
        &self.versions
    }

    /// A version that is not told now keeps its last value: a lost library must not change attributes.
    fn learn_versions(&mut self, versions: &Versions, changes: &mut Changes) {
        let seen = SeenVersions {
            driver: versions.driver.clone().or_else(|| self.versions.driver.clone()),
            cuda: versions.cuda.map(|cuda| cuda.to_string()).or_else(|| self.versions.cuda.clone()),
        };
        changes.persist |= seen != self.versions;
        self.versions = seen;
    }

    fn unconfirm_all(&mut self) {
        for card in self.cards.values_mut() {
            if card.standing == Standing::Present {
                card.standing = Standing::Unconfirmed;
            }
        }
    }

    /// Rebuilds the devices and tells whether what is published of them differs.
    fn finish(&mut self, mut changes: Changes) -> Changes {
        let before = std::mem::take(&mut self.devices);
        self.rebuild();
        changes.devices_changed = !device::same_published(&before, &self.devices);
        changes
    }

    fn rebuild(&mut self) {
        self.devices = self.cards.values().flat_map(|card| device::devices_of(card, &self.versions)).collect();
    }
}
