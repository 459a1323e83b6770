//! A card: the hardware at one PCI address, as it was last seen.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::attributes::semver_of;
use super::sysfs::SysfsCard;
use crate::nvml::{GpuReading, MigReading, PciAddress};

/// Which piece of hardware a card is.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Identity {
    /// `GPU-...`; `None` for a card that never answered.
    pub uuid: Option<String>,
    /// Serial number of the board, where it has one.
    pub serial: Option<String>,
}

/// Whether a card answers.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum Standing {
    /// It answered at the last look.
    Present,
    /// Nobody has looked since the agent started, or NVML itself is out of reach.
    #[default]
    Unconfirmed,
    /// The last look could not tell, and why. Neither good nor bad.
    Unreadable(String),
    /// It does not answer, and what says so.
    Lost(String),
    /// NVML does not know it and sysfs does not list it, since then. It is removed when it stays so.
    Gone(Timestamp),
}

/// A card with its last known facts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Card {
    /// Where it is.
    pub pci: PciAddress,
    /// Which it is.
    #[serde(default)]
    pub identity: Identity,
    /// Counts the cards that were seen at this address, from 1. A claim that was prepared under another number is for other hardware.
    #[serde(default = "first_generation")]
    pub generation: u64,
    /// When this card was first seen here.
    pub first_seen: Timestamp,
    /// What discovery read of it.
    #[serde(default)]
    pub facts: CardFacts,
    /// Whether it answers. Not saved: after a restart nobody has looked.
    #[serde(skip)]
    pub standing: Standing,
}

fn first_generation() -> u64 {
    1
}

/// What discovery read of a card. A value that is not told at one look keeps its last one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CardFacts {
    /// `N` of `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// Product name.
    pub product: Option<String>,
    /// Brand.
    pub brand: Option<String>,
    /// Architecture.
    pub architecture: Option<String>,
    /// CUDA compute capability, `major.minor`.
    pub compute_capability: Option<String>,
    /// All memory, in bytes.
    pub memory_bytes: Option<u64>,
    /// PCIe root complex.
    pub pcie_root: Option<String>,
    /// NUMA node of the slot.
    pub numa_node: Option<u32>,
    /// The card is partitioned now.
    pub mig: bool,
    /// Its partitions, ordered by start and compute instance.
    pub partitions: Vec<Partition>,
}

/// A MIG device as it was last seen.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Partition {
    /// `MIG-...`.
    pub uuid: String,
    /// GPU instance id.
    pub gpu_instance: u32,
    /// Compute instance id.
    pub compute_instance: u32,
    /// Profile, such as `1g.10gb`.
    pub profile: String,
    /// First memory slice.
    pub start: u32,
    /// Memory in bytes.
    #[serde(default)]
    pub memory_bytes: Option<u64>,
    /// Multiprocessors.
    #[serde(default)]
    pub multiprocessors: Option<u32>,
}

impl From<&MigReading> for Partition {
    fn from(reading: &MigReading) -> Self {
        Self {
            uuid: reading.uuid.clone(),
            gpu_instance: reading.gpu_instance,
            compute_instance: reading.compute_instance,
            profile: reading.profile.clone().unwrap_or_default(),
            // An old library does not tell the placement. The instance id keeps names apart until it does.
            start: reading.start.unwrap_or(reading.gpu_instance),
            memory_bytes: reading.memory_bytes,
            multiprocessors: reading.multiprocessors,
        }
    }
}

impl CardFacts {
    /// Takes in a new reading. `None` never erases what is known.
    pub(super) fn learn(&mut self, reading: &GpuReading, sysfs: Option<&SysfsCard>) {
        fn keep<T: Clone>(known: &mut Option<T>, told: Option<T>) {
            if told.is_some() {
                *known = told;
            }
        }
        keep(&mut self.minor, reading.minor);
        keep(&mut self.product, reading.name.clone());
        keep(&mut self.brand, reading.brand.clone());
        keep(&mut self.architecture, reading.architecture.clone());
        keep(&mut self.compute_capability, reading.compute_capability.map(|capability| capability.to_string()));
        keep(&mut self.memory_bytes, reading.memory_bytes);
        keep(&mut self.pcie_root, sysfs.and_then(|card| card.pcie_root.clone()));
        keep(&mut self.numa_node, sysfs.and_then(|card| card.numa_node));
        self.learn_partitions(reading);
    }

    /// Partitions that exist but cannot be read now stay as they were.
    fn learn_partitions(&mut self, reading: &GpuReading) {
        let mut partitions: Vec<Partition> = reading.mig.instances.iter().map(Partition::from).collect();
        if reading.mig.is_on() && !reading.mig.unread.is_empty() {
            let unseen = self.partitions.iter().filter(|old| !partitions.iter().any(|new| new.same_place(old)));
            let kept: Vec<Partition> = unseen.take(reading.mig.unread.len()).cloned().collect();
            partitions.extend(kept);
        }
        partitions.sort_by_key(|partition| (partition.start, partition.gpu_instance, partition.compute_instance));
        self.mig = reading.mig.is_on();
        self.partitions = partitions;
    }

    /// The compute capability as a version attribute's value.
    #[must_use]
    pub fn capability_version(&self) -> Option<String> {
        self.compute_capability.as_deref().and_then(semver_of)
    }
}

impl Partition {
    fn same_place(&self, other: &Self) -> bool {
        (self.gpu_instance, self.compute_instance) == (other.gpu_instance, other.compute_instance)
    }
}

impl Card {
    /// A card that has not been seen before, at an address where the last one had the generation `before`, 0 for none.
    pub(super) fn new(pci: PciAddress, before: u64, now: Timestamp) -> Self {
        Self {
            pci,
            identity: Identity::default(),
            generation: before.saturating_add(1),
            first_seen: now,
            facts: CardFacts::default(),
            standing: Standing::Unconfirmed,
        }
    }

    pub(super) fn unconfirmed(mut self) -> Self {
        self.standing = Standing::Unconfirmed;
        self
    }

    /// The name under which findings about this hardware are kept: its UUID, or its address while that is all that is known.
    #[must_use]
    pub fn key(&self) -> String {
        self.identity.uuid.clone().unwrap_or_else(|| format!("pci:{}", self.pci))
    }

    /// The product name, empty where it is not known.
    #[must_use]
    pub fn product(&self) -> &str {
        self.facts.product.as_deref().unwrap_or_default()
    }

    /// Whether it answered at the last look.
    #[must_use]
    pub fn is_present(&self) -> bool {
        self.standing == Standing::Present
    }
}
