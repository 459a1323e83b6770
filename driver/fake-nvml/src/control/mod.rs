//! The control file: types to write it, and to read it with a message that names file, line and field.
//!
//! The same types serve the library, which reads them, and tests and the demo, which write them:
//!
//! ```
//! use nvidia_ml::control::{Control, Event};
//!
//! let mut control = Control::eight_h100s(1);
//! let card = control.gpu_mut("0000:3b:00.0").expect("one of the eight");
//! card.lost = true;
//! card.events.push(Event::xid("fell-off", 79));
//! let folder = tempfile::tempdir()?;
//! control.write_atomically(&folder.path().join("control.json"))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod check;
mod file;
mod gpu;
mod health;
mod profile;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

pub use file::ControlError;
pub(crate) use gpu::derived_uuid;
pub use gpu::{Event, Fault, Gpu, Mig, MigInstance, Pci};
pub use health::{Ecc, Fabric, Health, Pcie, Process, RemappedRows, Repair, RowHistogram, Thermal};
pub use profile::{MigProfile, Product, Profile};

/// A machine as the library shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Control {
    /// Version of the kernel driver. From 580.82 on, fields 251 to 255 are numbered 269 to 273.
    pub driver_version: String,
    /// Version of the library.
    pub nvml_version: String,
    /// CUDA version as NVML encodes it: 13000 is 13.0.
    pub cuda_version: i32,
    /// What `nvmlDeviceGetCount_v2` answers; the number of GPUs that are not absent if not given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub count: Option<u32>,
    /// A file to which every call is appended, one JSON object a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log: Option<PathBuf>,
    /// As the real library: an event that is in the file before a set is registered for its GPU is never delivered.
    /// Off, it is delivered as soon as a set is registered.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub drop_missed_events: bool,
    /// Faults of functions that are about no single GPU, such as `nvmlInit_v2` or `nvmlDeviceGetCount_v2`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
    /// The GPUs, in NVML's order.
    pub gpus: Vec<Gpu>,
}

impl Default for Control {
    fn default() -> Self {
        Self {
            driver_version: "580.95.05".to_owned(),
            nvml_version: "13.580.95.05".to_owned(),
            cuda_version: 13_000,
            count: None,
            log: None,
            drop_missed_events: false,
            faults: Vec::new(),
            gpus: Vec::new(),
        }
    }
}

/// Where the eight GPUs of a usual server sit.
const EIGHT_SLOTS: [&str; 8] = [
    "0000:1b:00.0",
    "0000:3b:00.0",
    "0000:4e:00.0",
    "0000:5d:00.0",
    "0000:97:00.0",
    "0000:ac:00.0",
    "0000:ca:00.0",
    "0000:db:00.0",
];

impl Control {
    /// A server with eight H100-like GPUs. Another `node_seed` gives other UUIDs and serials, the same one the same.
    #[must_use]
    pub fn eight_h100s(node_seed: u64) -> Self {
        Self::server(Profile::H100, 8, node_seed)
    }

    /// A server with up to eight GPUs of one kind, at the addresses of a usual server.
    #[must_use]
    pub fn server(profile: Profile, gpus: usize, node_seed: u64) -> Self {
        let gpus = EIGHT_SLOTS.iter().take(gpus).map(|slot| Gpu::seeded(profile, slot, node_seed)).collect();
        Self { gpus, ..Self::default() }
    }

    /// The GPU at a PCI address.
    #[must_use]
    pub fn gpu(&self, pci: &str) -> Option<&Gpu> {
        let wanted = Pci::parse(pci)?;
        self.gpus.iter().find(|gpu| gpu.pci == wanted)
    }

    /// The GPU at a PCI address, to change it.
    pub fn gpu_mut(&mut self, pci: &str) -> Option<&mut Gpu> {
        let wanted = Pci::parse(pci)?;
        self.gpus.iter_mut().find(|gpu| gpu.pci == wanted)
    }

    /// Makes `nvmlInit_v2` answer `code`: 9 is "driver not loaded", 18 "library and driver do not match".
    #[must_use]
    pub fn with_init_error(mut self, code: u32) -> Self {
        self.faults.push(Fault::error("nvmlInit_v2", code));
        self
    }
}

#[cfg(test)]
mod tests;
