//! Preparing claims for pods, and undoing it.
//!
//! ```text
//!  kubelet ─► plugin ─► Claims::prepare ─► API server: the claim ─► decide (pure) ─► checkpoint, CDI spec ─► devices and CDI ids
//!                  └──► Claims::unprepare ─► CDI spec and checkpoint removed
//!  inventory ─► Devices (a snapshot) ─┘
//! ```
//!
//! Each claim fails alone. A claim's calls are done one after the other; its devices belong to it until it is unprepared.

pub mod checkpoint;
pub mod decide;
pub mod error;
pub mod hardware;
pub mod keep;
pub mod locks;
pub mod record;
pub mod reserve;
pub mod service;
pub mod sweep;
pub mod wire;

pub use checkpoint::{CheckpointError, Checkpoints};
pub use decide::Scope;
pub use error::ClaimError;
pub use hardware::{Condition, Devices, Hardware, Identity};
pub use record::PreparedDevice;
pub use service::{ClaimRef, Claims, ClaimsConfig, DiskTrial, Prepared};
