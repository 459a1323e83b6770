//! What discovery reads of a machine and of each GPU: plain data, owned, without a borrow of the library.

use std::fmt;

use super::{CallError, PciAddress};

/// Versions that NVML tells. A part that it does not tell is absent and never fails discovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Versions {
    /// Kernel driver, such as `580.95.05`.
    pub driver: Option<String>,
    /// The library, such as `13.580.95.05`.
    pub nvml: Option<String>,
    /// The newest CUDA that the driver supports.
    pub cuda: Option<CudaVersion>,
}

/// A CUDA version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct CudaVersion {
    /// `13` of 13.0.
    pub major: u32,
    /// `0` of 13.0.
    pub minor: u32,
}

impl fmt::Display for CudaVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// The feature level of a GPU, such as 9.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ComputeCapability {
    /// `9` of 9.0.
    pub major: u32,
    /// `0` of 9.0.
    pub minor: u32,
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// One GPU as discovery found it. Only address and UUID must be known: whatever else a card or an old library cannot
/// tell is `None`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GpuReading {
    /// NVML's index at this moment. It may change with every reboot or removal: for messages only.
    pub index: u32,
    /// Where the card sits.
    pub pci: PciAddress,
    /// `GPU-...`: which card it is.
    pub uuid: String,
    /// The board's serial number.
    pub serial: Option<String>,
    /// `N` of `/dev/nvidiaN`; may change with a driver reload.
    pub minor: Option<u32>,
    /// Product name, such as `NVIDIA H100 80GB HBM3`.
    pub name: Option<String>,
    /// Brand, such as `Nvidia` or `Tesla`, in the spelling that NVIDIA's own DRA driver publishes.
    pub brand: Option<String>,
    /// Architecture, such as `Hopper`; `None` for one that is newer than this program.
    pub architecture: Option<String>,
    /// CUDA compute capability.
    pub compute_capability: Option<ComputeCapability>,
    /// All memory of the card, in bytes, with what the driver reserves.
    pub memory_bytes: Option<u64>,
    /// NUMA node of the *GPU's own memory*, which only coherent cards have. Not the node of the PCI slot: that is in sysfs.
    pub numa: Option<u32>,
    /// Board part number.
    pub board_part: Option<String>,
    /// Board id: GPUs of one board share it.
    pub board_id: Option<u32>,
    /// Partitioning.
    pub mig: MigState,
}

/// Whether a GPU is partitioned, and into what.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MigState {
    /// The mode; `None` where the card has none.
    pub mode: Option<MigMode>,
    /// The partitions that exist, ordered by start and compute instance. Empty unless the current mode is on.
    pub instances: Vec<MigReading>,
    /// Partitions that exist but could not be read, with why. They are not published, and not forgotten either.
    pub unread: Vec<CallError>,
}

impl MigState {
    /// Whether the card is partitioned now: it cannot be used as a whole then.
    #[must_use]
    pub fn is_on(&self) -> bool {
        self.mode.is_some_and(|mode| mode.current)
    }
}

/// MIG mode of a GPU. Different values mean that a reset is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MigMode {
    /// Now.
    pub current: bool,
    /// After the next reset.
    pub pending: bool,
}

/// One MIG device: a compute instance of a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MigReading {
    /// `MIG-...`.
    pub uuid: String,
    /// GPU instance id: what events carry.
    pub gpu_instance: u32,
    /// Compute instance id within the GPU instance.
    pub compute_instance: u32,
    /// Profile as in the product name, such as `1g.10gb` or `1c.3g.40gb`; `None` if the card does not tell.
    pub profile: Option<String>,
    /// First memory slice of the GPU instance's placement; `None` if the card does not tell.
    pub start: Option<u32>,
    /// Number of memory slices of the placement.
    pub size: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
    /// Multiprocessors.
    pub multiprocessors: Option<u32>,
}

/// A look at every GPU of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scan {
    /// How many GPUs NVML counts; it counts lost ones too, and may disagree with what can be opened.
    pub count: Result<u32, CallError>,
    /// The GPUs that answered, by address. One that NVML does not list but that answers at a known address is here too.
    pub gpus: Vec<GpuReading>,
    /// Indices that did not answer. Such a GPU has no UUID now: which card it is, only its last known address can tell.
    pub unidentified: Vec<Unidentified>,
    /// Known addresses at which no GPU answered, and what NVML says of each. Only `NOT_FOUND` says that there is none:
    /// `GPU_IS_LOST` is a card out of reach, `TIMEOUT` one that hangs, and any other code is not known to be either.
    pub missing: Vec<Missing>,
}

/// An index below the count that could not be identified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unidentified {
    /// NVML's index.
    pub index: u32,
    /// Its address, if at least that could be read.
    pub pci: Option<PciAddress>,
    /// What went wrong.
    pub error: CallError,
}

/// A known address without an answering GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missing {
    /// Where a GPU was seen before.
    pub pci: PciAddress,
    /// `GPU_IS_LOST`: it sits there but is out of reach. `NOT_FOUND`: the driver knows no GPU there.
    pub error: CallError,
}
