//! What a look at the node changed.

use std::fmt;

use crate::nvml::PciAddress;

/// What changed in the inventory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// Names, attributes or capacity of the published devices differ: publish.
    pub devices_changed: bool,
    /// The record differs: save it.
    pub persist: bool,
    /// For logs and metrics, in order.
    pub events: Vec<InventoryEvent>,
}

/// One thing that happened to a card.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InventoryEvent {
    /// A card is seen for the first time.
    Appeared {
        /// Where.
        pci: PciAddress,
        /// Which; `None` where it does not answer and was never seen to.
        uuid: Option<String>,
    },
    /// A card no longer answers. It stays published.
    Lost {
        /// Where.
        pci: PciAddress,
        /// Which.
        uuid: Option<String>,
        /// What says so.
        why: String,
    },
    /// A card that did not answer answers again.
    Returned {
        /// Where.
        pci: PciAddress,
    },
    /// Another card sits at a known address.
    Swapped {
        /// Where.
        pci: PciAddress,
        /// The card that was there.
        from: String,
        /// The card that is there.
        to: String,
    },
    /// The card's partitions differ.
    Partitioned {
        /// Where.
        pci: PciAddress,
        /// How many there are now; 0 where the card is whole, or partitioned into nothing.
        partitions: usize,
    },
    /// The card is gone for NVML and for sysfs, and is no longer published.
    Removed {
        /// Where.
        pci: PciAddress,
        /// Which.
        uuid: Option<String>,
    },
    /// NVML counts cards that answer nowhere, and which ones cannot be told: no card is blamed.
    Unattributed {
        /// How many.
        cards: usize,
        /// What NVML said of the first.
        why: String,
    },
}

impl fmt::Display for InventoryEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let named = |uuid: &Option<String>| uuid.clone().unwrap_or_else(|| "a card that never answered".to_owned());
        match self {
            Self::Appeared { pci, uuid } => write!(f, "GPU at {pci} appeared: {}", named(uuid)),
            Self::Lost { pci, uuid, why } => {
                write!(f, "GPU at {pci} ({}) does not answer: {why}; it stays published", named(uuid))
            }
            Self::Returned { pci } => write!(f, "GPU at {pci} answers again"),
            Self::Swapped { pci, from, to } => {
                write!(
                    f,
                    "GPU at {pci} is another card: {to} sits where {from} was; claims of the old card are refused"
                )
            }
            Self::Partitioned { pci, partitions } => write!(f, "GPU at {pci} has {partitions} partitions now"),
            Self::Removed { pci, uuid } => {
                write!(f, "GPU at {pci} ({}) is removed: neither NVML nor sysfs lists it", named(uuid))
            }
            Self::Unattributed { cards, why } => {
                write!(f, "NVML counts {cards} GPUs that do not answer, and not which: {why}; none is tainted for it")
            }
        }
    }
}
