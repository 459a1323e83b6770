//! From verdicts to actions: who is evicted now, and when to look again.
//!
//! [`Planner::update`] takes each new verdict, [`Planner::plan`] says what is due at a moment, the edge does it and reports back
//! with [`Planner::evicted`] or [`Planner::failed`]. The planner remembers what is under way, so that a pod is asked to leave
//! once, and what failed, so that nothing is forgotten. Deadlines stand in an ordered queue: a plan costs what is due, not what
//! is known.

mod entry;
mod planner;

#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;

use jiff::{SignedDuration, Timestamp};

pub use planner::{Counts, Planner};

use crate::object::Key;
use crate::verdict::{Reason, Source};

/// What the controller does about the taints of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Tell, once for each pod, and leave the eviction to others.
    #[default]
    Observe,
    /// Evict.
    Enforce,
}

/// The mode of each source. A reason whose source is observed never makes a pod leave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Modes {
    /// For taints of devices.
    pub device: Mode,
    /// For taints of nodes.
    pub node: Mode,
}

impl Modes {
    /// The mode of a source.
    #[must_use]
    pub const fn of(&self, source: Source) -> Mode {
        match source {
            Source::Node => self.node,
            Source::Device => self.device,
        }
    }
}

/// What the edge is to do now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Evict the pod, with its UID and version as preconditions. Report back with [`Planner::evicted`] or [`Planner::failed`].
    Evict(Departure),
    /// Only say that the pod's time is over: the source of the reason is observed. Nothing is reported back.
    Tell(Departure),
    /// A countdown ended before its time, and the pod stays: say so.
    Cancel {
        /// Which pod.
        pod: Key,
        /// Its UID.
        uid: String,
        /// Whether the countdown was the node's or a device's.
        source: Source,
    },
}

/// A pod whose time is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Departure {
    /// Which pod.
    pub pod: Key,
    /// Its UID.
    pub uid: String,
    /// The version that was judged.
    pub resource_version: String,
    /// The deadline that has passed.
    pub deadline: Timestamp,
    /// All reasons of the verdict, the earliest deadline first.
    pub reasons: Vec<Reason>,
}

/// Why an eviction did not happen, and so when to try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAfter {
    /// The server answered with an error: try again after a delay that doubles, from a second to a minute.
    Error,
    /// The server did not answer, so the eviction may have been accepted: try again as after an error. When the pod turns out to
    /// be leaving, [`Planner::left`] hands it out.
    Unanswered,
    /// A disruption budget allows none now (429): try again after the given time, or ten seconds, and after a minute at the
    /// latest; this is not an error and does not make later delays longer.
    Budget(Option<SignedDuration>),
    /// The pod changed since it was judged (409): look again. The attempt is made with the version that the next verdict brings,
    /// or after a second with the same one if nothing newer arrives.
    Changed,
}
