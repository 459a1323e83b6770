//! What this node offers, as ResourceSlices.
//!
//! ```text
//!  Pool (cards, devices, taints) ─ validate ─ pack ─► wanted slices ─┐
//!                                                                   ├─ plan ─► writes ─► what the server made of them
//!  slices that are there (list, watch, answers) ─► mirror ───────────┘                     └─► mirror, moments of taints
//! ```
//!
//! Everything but [`api`], [`publisher`] and one call of [`support`] is pure. The rules come from the ResourceSlice controller of Kubernetes'
//! `dynamic-resource-allocation` library and from KEP-5055 (device taints).

pub mod api;
pub mod backoff;
pub mod limits;
pub mod mirror;
pub mod model;
pub mod pack;
pub mod plan;
pub mod publisher;
pub mod support;
pub mod validate;

pub use api::{Owner, SliceApi, SliceError};
pub use limits::Limits;
pub use mirror::StoredTaints;
pub use model::{Attribute, Capacity, Card, Device, Pool};
pub use publisher::{Published, Publisher};
pub use validate::Problem;
