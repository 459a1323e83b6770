//! Which devices a request may get, with a reason for each that it may not (resource/v1 `DeviceRequest`, structured allocator).
//!
//! In come the candidates of a [`Fleet`](crate::fleet::Fleet) in their order, the requests of one claim, a function that
//! evaluates selectors and one that says who has a device already. Out comes an [`Outcome`]. Only devices of a complete pool's
//! newest generation are given; every `NoSchedule` and `NoExecute` taint, of slices and of rules, must be tolerated by the
//! request. Shares of a device (consumable capacity) and counters are not modelled.

mod search;
mod text;

#[cfg(test)]
mod tests;

use crate::fleet::PoolProblem;
use crate::matching::NearMiss;
use crate::object::{Device, DeviceId, Key};
use crate::taint::Taint;
use crate::toleration::Toleration;
use crate::verdict::Origin;

pub use search::{Selector, Taken, allocate, tally};

/// One request of a claim: the alternatives in order of preference. `exactly` has one, `firstAvailable` several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The request's name.
    pub name: String,
    /// What would do, the best first.
    pub alternatives: Vec<Alternative>,
}

/// One way to satisfy a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Alternative {
    /// The sub-request's name under `firstAvailable`; absent for `exactly`.
    pub name: Option<String>,
    /// How many devices.
    pub amount: Amount,
    /// What is tolerated. All of it is copied into each result.
    pub tolerations: Vec<Toleration>,
    /// Whether it is for administration: a device may then be in use already. Taints hold all the same.
    pub admin_access: bool,
}

/// How many devices are asked for (resource/v1 `DeviceAllocationMode`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// This many (`ExactCount`).
    Exact(usize),
    /// Every device that the selectors match (`All`); at least one, and each of them must be free and tolerated.
    All,
}

/// Devices that must agree: every device of the named requests has the same value of an attribute (`matchAttribute`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Constraint {
    /// The requests, `main` or `main/sub`; empty stands for all.
    pub requests: Vec<String>,
    /// The attribute's qualified name.
    pub attribute: String,
}

/// A device that may be given, as [`Fleet::candidates`](crate::fleet::Fleet::candidates) lists it.
#[derive(Clone, Debug)]
pub struct Candidate<'a> {
    /// Its name.
    pub id: DeviceId,
    /// The device as its slice describes it.
    pub device: &'a Device,
    /// All taints that count, those of the slice first, then those of rules.
    pub taints: Vec<(&'a Taint, Origin)>,
    /// Why its pool is not allocated from, if so.
    pub problem: Option<PoolProblem>,
    /// Whether the node in question can use it.
    pub reachable: bool,
}

/// What was decided for a claim's requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// The devices to give, in the order of the requests; or why nothing is given.
    pub picks: Result<Vec<Pick>, Failure>,
    /// What each request (`main` or `main/sub`) can have of each candidate, in the candidates' order.
    pub answers: Vec<Answer>,
}

/// A device that is given to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// `main`, or `main/sub` for an alternative of `firstAvailable`.
    pub request: String,
    /// The device.
    pub device: DeviceId,
    /// What the request tolerates, to be stored in the allocation result.
    pub tolerations: Vec<Toleration>,
    /// Whether it is for administration.
    pub admin_access: bool,
}

/// Why a claim gets nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The request cannot have as many devices as it needs.
    TooFew {
        /// The request.
        request: String,
        /// How many it needs.
        needed: usize,
        /// How many it may have.
        available: usize,
    },
    /// The request asks for all devices, and one of them cannot be had.
    NotAll {
        /// The request.
        request: String,
        /// The device; absent when no device matches at all.
        device: Option<DeviceId>,
    },
    /// A selector could not be evaluated, so that nobody knows what the request may have.
    Selector {
        /// The request.
        request: String,
        /// The device on which it failed.
        device: DeviceId,
        /// What the evaluation said.
        message: String,
    },
    /// Each request could be satisfied alone, but not all together under the constraints.
    Together,
    /// No combination was found within the number of steps that one allocation may take.
    TooComplex,
}

/// What one request can have of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// `main`, or `main/sub`.
    pub request: String,
    /// The device.
    pub device: DeviceId,
    /// Why it may not have it; absent when it may.
    pub denied: Option<Denied>,
}

/// Why a request may not have a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Denied {
    /// The node cannot use it.
    WrongNode,
    /// Its pool is not allocated from now.
    Pool(PoolProblem),
    /// The selectors do not match it.
    Selector,
    /// The selectors could not be evaluated on it.
    SelectorError(String),
    /// It has a taint that the request does not tolerate.
    Untolerated {
        /// The taint.
        taint: Taint,
        /// Which object carries it.
        origin: Origin,
        /// The toleration that was probably meant.
        nearest: Option<Box<NearMiss>>,
    },
    /// A claim has it; absent when the one who has it is not known by name.
    Taken(Option<Key>),
}
