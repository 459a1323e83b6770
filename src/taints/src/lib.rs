//! The rules of taints and tolerations, for nodes and for devices. Pure: no Kubernetes client, no clock, no randomness, no I/O.
//!
//! What flows through: [`object`]s go into the [`fleet`], out comes the set of touched pods; [`verdict`] judges one pod over
//! its node and all devices of its claims; [`plan`] turns verdicts into actions for a moment in time. Time and first
//! observations are arguments everywhere. [`alloc`] answers which devices a request may get, and why each other may not.

pub mod alloc;
pub mod defaults;
pub mod device;
pub mod fleet;
pub mod matching;
pub mod node;
pub mod object;
pub mod plan;
pub mod preview;
pub mod syntax;
pub mod taint;
pub mod toleration;
pub mod validate;
pub mod verdict;

pub use taint::{Effect, Taint};
pub use toleration::{Operator, Toleration};
