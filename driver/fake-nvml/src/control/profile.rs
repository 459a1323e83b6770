//! What the cards are that the library can play. "Like" such a card: numbers that a program can see, nothing more.

use serde::{Deserialize, Serialize};

use super::{Ecc, Fabric, Health, Pcie, RemappedRows, Repair, RowHistogram, Thermal};

/// A kind of card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Profile {
    /// Turing, 16 GB, page retirement, no MIG, no recovery action.
    T4,
    /// Ampere, 80 GB, MIG, row remapping.
    A100,
    /// Hopper, 80 GB, MIG, fabric.
    H100,
    /// Blackwell, 180 GB, MIG, fabric.
    B200,
}

/// The identity of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Product {
    /// Product name.
    pub name: &'static str,
    /// NVML's brand number.
    pub brand: u32,
    /// NVML's architecture number.
    pub architecture: u32,
    /// CUDA compute capability.
    pub compute_capability: (i32, i32),
    /// Memory in bytes.
    pub memory_bytes: u64,
    /// PCI device and vendor id, as NVML gives them.
    pub pci_device_id: u32,
    /// PCI subsystem id.
    pub pci_subsystem_id: u32,
    /// Board part number, of our own making.
    pub board_part: &'static str,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// MIG profiles; none for a card without MIG.
    pub mig_profiles: &'static [MigProfile],
    /// Event types that can be registered.
    pub supported_events: u64,
}

/// A MIG profile of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigProfile {
    /// `1g.10gb`.
    pub name: &'static str,
    /// NVML's index of the profile (`NVML_GPU_INSTANCE_PROFILE_*`).
    pub index: u32,
    /// The id by which an instance names its profile.
    pub id: u32,
    /// Compute slices.
    pub slices: u32,
    /// Memory slices of a placement.
    pub size: u32,
    /// First memory slices that a placement may have.
    pub starts: &'static [u32],
    /// Memory in MiB.
    pub memory_mib: u64,
}

impl MigProfile {
    const fn new(
        name: &'static str,
        (index, id): (u32, u32),
        (slices, size): (u32, u32),
        starts: &'static [u32],
        memory_mib: u64,
    ) -> Self {
        Self { name, index, id, slices, size, starts, memory_mib }
    }
}

/// ECC errors, performance state, XID, clocks: what any data-centre card has had for long.
const CLASSIC_EVENTS: u64 = 0x1f;
/// What drivers of branch 565 and newer add: error storms, retirement, poison, unavailable, recovery action, and MIG changes.
const MODERN_EVENTS: u64 = CLASSIC_EVENTS | 0x100 | 0xfe00;

const ONE: &[u32] = &[0, 1, 2, 3, 4, 5, 6];
const TWO: &[u32] = &[0, 2, 4];
const DOUBLE: &[u32] = &[0, 2, 4, 6];
const HALF: &[u32] = &[0, 4];
const FIRST: &[u32] = &[0];

const EIGHTY_GB: &[MigProfile] = &[
    MigProfile::new("1g.10gb", (0, 19), (1, 1), ONE, 9_728),
    MigProfile::new("1g.20gb", (9, 15), (1, 2), DOUBLE, 19_968),
    MigProfile::new("2g.20gb", (1, 14), (2, 2), TWO, 19_968),
    MigProfile::new("3g.40gb", (2, 9), (3, 4), HALF, 40_320),
    MigProfile::new("4g.40gb", (3, 5), (4, 4), FIRST, 40_320),
    MigProfile::new("7g.80gb", (4, 0), (7, 8), FIRST, 80_896),
];

const B200_MIG: &[MigProfile] = &[
    MigProfile::new("1g.23gb", (0, 19), (1, 1), ONE, 22_528),
    MigProfile::new("1g.45gb", (9, 15), (1, 2), DOUBLE, 45_056),
    MigProfile::new("2g.45gb", (1, 14), (2, 2), TWO, 45_056),
    MigProfile::new("3g.90gb", (2, 9), (3, 4), HALF, 91_136),
    MigProfile::new("4g.90gb", (3, 5), (4, 4), FIRST, 91_136),
    MigProfile::new("7g.180gb", (4, 0), (7, 8), FIRST, 182_272),
];

const T4: Product = Product {
    name: "Tesla T4",
    brand: 2,
    architecture: 6,
    compute_capability: (7, 5),
    memory_bytes: 16_106_127_360,
    pci_device_id: 0x1eb8_10de,
    pci_subsystem_id: 0x12a2_10de,
    board_part: "900-FAKE-T400-000",
    multiprocessors: 40,
    mig_profiles: &[],
    supported_events: CLASSIC_EVENTS,
};

const A100: Product = Product {
    name: "NVIDIA A100-SXM4-80GB",
    brand: 14,
    architecture: 7,
    compute_capability: (8, 0),
    memory_bytes: 85_899_345_920,
    pci_device_id: 0x20b2_10de,
    pci_subsystem_id: 0x1463_10de,
    board_part: "692-FAKE-A100-080",
    multiprocessors: 108,
    mig_profiles: EIGHTY_GB,
    supported_events: MODERN_EVENTS,
};

const H100: Product = Product {
    name: "NVIDIA H100 80GB HBM3",
    brand: 14,
    architecture: 9,
    compute_capability: (9, 0),
    memory_bytes: 85_520_809_984,
    pci_device_id: 0x2330_10de,
    pci_subsystem_id: 0x16c1_10de,
    board_part: "692-FAKE-H100-080",
    multiprocessors: 132,
    mig_profiles: EIGHTY_GB,
    supported_events: MODERN_EVENTS,
};

const B200: Product = Product {
    name: "NVIDIA B200",
    brand: 14,
    architecture: 10,
    compute_capability: (10, 0),
    memory_bytes: 192_265_846_784,
    pci_device_id: 0x2901_10de,
    pci_subsystem_id: 0x1999_10de,
    board_part: "692-FAKE-B200-180",
    multiprocessors: 148,
    mig_profiles: B200_MIG,
    supported_events: MODERN_EVENTS,
};

impl Profile {
    /// Every profile.
    pub const ALL: [Self; 4] = [Self::T4, Self::A100, Self::H100, Self::B200];

    /// Its name in the control file.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::T4 => "t4",
            Self::A100 => "a100",
            Self::H100 => "h100",
            Self::B200 => "b200",
        }
    }

    /// What a program sees of the card.
    #[must_use]
    pub fn product(self) -> &'static Product {
        match self {
            Self::T4 => &T4,
            Self::A100 => &A100,
            Self::H100 => &H100,
            Self::B200 => &B200,
        }
    }

    /// The values of a healthy card.
    #[must_use]
    pub fn healthy(self) -> Health {
        let common = Health {
            ecc: Some(Ecc::default()),
            thermal: Some(Thermal::default()),
            pcie: Some(self.pcie()),
            energy_mj: Some(1_000_000),
            persistence: Some(true),
            inforom_corrupt: Some(false),
            processes: Some(Vec::new()),
            ..Health::default()
        };
        if self == Self::T4 {
            return Health { retired_pages_pending: Some(false), ..common };
        }
        Health {
            recovery_action: Some(0),
            remapped_rows: Some(RemappedRows::default()),
            row_histogram: Some(RowHistogram { max: 640, ..RowHistogram::default() }),
            sram_threshold_exceeded: Some(false),
            repair: Some(Repair::default()),
            nvlinks: Some(vec![true; if self == Self::A100 { 12 } else { 18 }]),
            fabric: (self != Self::A100).then(Fabric::default),
            ..common
        }
    }

    fn pcie(self) -> Pcie {
        let generation = match self {
            Self::T4 => 3,
            Self::A100 => 4,
            Self::H100 => 5,
            Self::B200 => 6,
        };
        Pcie { generation, max_generation: generation, ..Pcie::default() }
    }
}
