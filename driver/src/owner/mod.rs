//! One owner a GPU: who else offers the cards of this node.
//!
//! ```text
//!  own Node (allocatable) ────────┐
//!                                 ├─ look ─► offers ─► standing ─(watch: Others)─► Core: contested cards are neither published nor prepared
//!  slices of others for this node ┘                                                  └─► log, metric, readiness, event
//! ```
//!
//! Everything but [`look`] is pure. Two watches are held: of the own Node alone, and of the slices of this node that are not ours. Slices of the whole
//! cluster (`allNodes`, `nodeSelector`) are not looked at: they are for devices that a network reaches, a PCI address in them says nothing of this node,
//! and every agent would have to watch all of them.

pub mod contest;
pub mod look;
pub mod offer;
pub mod standing;

use std::collections::BTreeSet;

pub use contest::{Contested, FLAG, announced, owner_of, told};
pub use look::Looker;
pub use offer::{Offer, Owner, Which};

/// What is known of other owners.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Others {
    /// What they offer.
    pub offers: BTreeSet<Offer>,
    /// Why that cannot be told in full. Unknown is not bad: what was seen before counts on, and nothing else is held back.
    pub unreadable: Option<String>,
    /// Whether the first look is over: it ended, or failed in a way that will not pass soon. Before, nothing is published.
    pub settled: bool,
}
