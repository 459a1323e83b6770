//! The NVML room: the only place of the agent that touches NVML, and the only one that may use `unsafe`.
//!
//! Everything that leaves it is plain data ([`Update`], [`Scan`], [`GpuReading`], [`Snapshot`]); no handle does.
//!
//! ```text
//!  libnvidia-ml.so.1 ── Session (open, identify, snapshot) ──┐
//!                                                            │   one std thread and one event set a GPU
//!  Supervisor task ──┬─ opens, retries, scans at a slow pace ─┼─ Monitor 0000:3b:00.0 ─┐
//!                    ├─ watchdog over every call's deadline   ├─ Monitor 0000:86:00.0 ─┤
//!                    └─ release / reopen / look               └─ ...                   │
//!                               └────────── Update ──────────────── Update::Signal ────┴──► one bounded channel
//! ```
//!
//! - A GPU is looked up by its PCI address, never by UUID or serial: those look-ups fail for all while any GPU is lost.
//! - A call may hang in a wedged driver. It then holds up only the thread of its own GPU; the watchdog tells of it.
//! - No library, no driver, a wrong version: told as [`Update::Unavailable`] and tried again without end.
//! - [`Supervisor::release`] lets every handle go (a GPU reset needs that), [`Supervisor::reopen`] takes them back.

//!
//! ```no_run
//! # async fn example() {
//! use gpu_driver::nvml::{Config, SignalKind, Supervisor, Update};
//!
//! let (nvml, mut updates) = Supervisor::spawn(Config::new("libnvidia-ml.so.1"));
//! while let Some(update) = updates.recv().await {
//!     match update {
//!         Update::Opened { scan, .. } | Update::Discovered { scan } => println!("{} GPUs", scan.gpus.len()),
//!         Update::Unavailable { error, retry_in, .. } => println!("{error}; next try in {retry_in:?}"),
//!         Update::Signal(signal) if matches!(signal.kind, SignalKind::Event(_)) => nvml.look(signal.pci),
//!         Update::Signal(_) | Update::Released { .. } => {}
//!     }
//! }
//! nvml.stop().await;
//! # }
//! ```

mod address;
mod config;
mod error;
mod health;
mod identify;
mod monitor;
mod outbox;
mod pulse;
mod raw;
mod reading;
mod scan;
mod signal;
mod snapshot;
mod supervisor;
#[cfg(test)]
mod tests;
mod types;

pub use address::{ParsePciAddressError, PciAddress};
pub use config::{Config, Known, Timing};
pub use error::OpenError;
pub use reading::{CallError, Code, Reading};
pub use signal::{Event, Signal, SignalKind, Update};
pub use snapshot::{Ecc, Fabric, Pcie, Presence, Process, RemappedRows, RepairPending, Snapshot, Thermal};
pub use supervisor::Supervisor;
pub use types::{
    ComputeCapability, CudaVersion, GpuReading, MigMode, MigReading, MigState, Missing, Scan, Unidentified, Versions,
};
