//! What we read of each kind: slim structs for serde, and their way into [`taints::object`].
//!
//! Unknown fields are skipped, so that a later Kubernetes does no harm; absent, `null` and empty are kept apart where the API
//! gives them a different meaning. An object that cannot be understood becomes an error with its name in it, and never a guess.

mod claim;
mod guarded;
mod mark;
mod meta;
mod node;
mod pod;
mod rule;
mod slice;

pub use claim::ClaimWire;
pub use guarded::{Guarded, Malformed, decode};
pub use mark::MarkWire;
pub use node::NodeWire;
pub use pod::PodWire;
pub use rule::RuleWire;
pub use slice::SliceWire;

use taints::fleet::Change;
use taints::object::Key;

use crate::kind::Kind;

/// A slim struct of one kind, and what the rules make of it.
pub trait Wire: serde::de::DeserializeOwned + Send + 'static {
    /// The kind.
    const KIND: Kind;
    /// The object that rules read.
    type Object: Clone + std::fmt::Debug + Send + 'static;

    /// The object that rules read.
    ///
    /// # Errors
    /// A sentence about the field that cannot be understood.
    fn into_object(self) -> Result<Self::Object, String>;

    /// The change that the object, as it is now, is to the fleet.
    fn applied(object: Self::Object) -> Change;

    /// The change that the end of the object of this name is to the fleet.
    fn gone(key: Key) -> Change;
}

#[cfg(test)]
mod tests;
