//! Who uses which device of which node: objects in, the set of touched pods out.
//!
//! [`Fleet::apply`] takes one [`Change`] of a watched object and answers with the pods whose verdict it may alter; what it costs
//! depends on what it touches, not on the size of the fleet. The order in which objects arrive, and how often, makes no
//! difference. Each subject has its own index: nodes, [`pool`](self) slices, [`rules`](self), and the links between claims and pods.

mod link;
mod lookup;
mod pool;
mod rules;

#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap};

pub use link::{Link, NotHolding, Via};
pub use lookup::{Listed, RuleOn, Standing};
pub use pool::{PoolProblem, PoolState};

use crate::object::{Claim, Key, Node, Pod, Rule, Slice};

/// The pods whose verdict a change may alter, in order.
pub type Touched = BTreeSet<Key>;

/// One object as it is now, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node as it is now.
    Node(Node),
    /// The node of this name is gone.
    NodeGone(String),
    /// A ResourceSlice as it is now.
    Slice(Slice),
    /// The ResourceSlice of this name is gone.
    SliceGone(String),
    /// A DeviceTaintRule as it is now.
    Rule(Rule),
    /// The DeviceTaintRule of this name is gone.
    RuleGone(String),
    /// A ResourceClaim as it is now.
    Claim(Claim),
    /// The claim is gone.
    ClaimGone(Key),
    /// A pod as it is now.
    Pod(Pod),
    /// The pod is gone.
    PodGone(Key),
}
