//! The verdict over one pod: it may stay, or it leaves at a time, for reasons. It joins the pod's node and every device of every
//! claim that the pod holds; the earliest deadline wins and all reasons are kept.
//!
//! [`judge`] reads the [`Fleet`](crate::fleet::Fleet) and the [`FirstSeen`] observations and nothing else: no clock. A deadline
//! may lie in the past (the pod is late) or in the future; acting on it is the business of [`plan`](crate::plan).
//!
//! Only *evicting* taints count: `NoExecute`, and `NoSchedule` where its rule or the operator's [`Settings`] call it careful.

mod judge;
mod seen;
mod text;

#[cfg(test)]
mod tests;

use std::str::FromStr;

use jiff::Timestamp;

pub use judge::{judge, tolerates_for_ever};
pub use seen::FirstSeen;

use crate::matching::NearMiss;
use crate::object::{DeviceId, Key};
use crate::taint::Taint;
use crate::toleration::Toleration;

/// What the operator decides about judging.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether `Gt` and `Lt` match (gate `TaintTolerationComparisonOperators`). On by default: where the gate is off, the API
    /// server refuses pods that use them.
    pub comparison_operators: bool,
    /// Whether a claim may be reserved for a pod group. On by default.
    pub pod_groups: bool,
    /// `NoSchedule` taints that evict.
    pub careful: Vec<Careful>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { comparison_operators: true, pod_groups: true, careful: Vec::new() }
    }
}

impl Settings {
    /// Whether a `NoSchedule` taint evicts by these settings.
    #[must_use]
    pub fn is_careful(&self, taint: &Taint) -> bool {
        self.careful.iter().any(|careful| careful.covers(taint))
    }
}

/// A taint, by key and perhaps value, whose `NoSchedule` effect evicts. kube-controller-manager leaves such taints alone, so that
/// budgets, pace and breaker really hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Careful {
    /// The taint's key.
    pub key: String,
    /// The taint's value; absent stands for every value.
    pub value: Option<String>,
}

impl Careful {
    fn covers(&self, taint: &Taint) -> bool {
        self.key == taint.key && self.value.as_ref().is_none_or(|value| *value == taint.value)
    }
}

/// A careful taint that is not written as `key` or `key=value`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} names no taint: write it as key or key=value, such as devicetaint.dev/maintenance")]
pub struct CarefulError(String);

impl FromStr for Careful {
    type Err = CarefulError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (key, value) = match text.split_once('=') {
            Some((key, value)) => (key, Some(value)),
            None => (text, None),
        };
        let fine = crate::validate::is_label_key(key) && value.is_none_or(crate::validate::is_label_value);
        if fine {
            Ok(Self { key: key.to_owned(), value: value.map(str::to_owned) })
        } else {
            Err(CarefulError(text.to_owned()))
        }
    }
}

/// What was decided about one pod, at the state of the fleet when it was judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// Which pod.
    pub pod: Key,
    /// Its UID: an eviction carries it.
    pub uid: String,
    /// The version that was judged: an eviction carries it.
    pub resource_version: String,
    /// When it leaves: the earliest deadline of its reasons, perhaps in the past. Absent when it may stay, or is spared.
    pub leave_at: Option<Timestamp>,
    /// Why it leaves: every evicting taint that is not tolerated for ever, the earliest deadline first.
    pub reasons: Vec<Reason>,
    /// The evicting taints that it tolerates for ever.
    pub tolerated: Vec<Reason>,
    /// What is not known and could change the verdict. A countdown that ran before is held, not cancelled.
    pub held: Vec<Held>,
    /// What a person should know about how this verdict came to be.
    pub warnings: Vec<Warning>,
    /// Set when the pod is left alone whatever its reasons say.
    pub spared: Option<Spared>,
}

/// Why a pod is left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spared {
    /// It has ended.
    Finished,
    /// It was asked to end already.
    Terminating,
}

/// One evicting taint and what the pod makes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reason {
    /// What is tainted.
    pub subject: Subject,
    /// The taint, as it was written.
    pub taint: Taint,
    /// Which object carries the taint.
    pub origin: Origin,
    /// Whether the pod puts up with it.
    pub tolerance: Tolerance,
    /// From when the seconds count; for a device that is the taint's `timeAdded`.
    pub since: Option<Timestamp>,
    /// When this taint alone would make the pod leave. Absent when it is tolerated for ever.
    pub deadline: Option<Timestamp>,
}

impl Reason {
    /// Whether it is the node's reason or a device's.
    #[must_use]
    pub const fn source(&self) -> Source {
        match self.subject {
            Subject::Node { .. } => Source::Node,
            Subject::Device { .. } => Source::Device,
        }
    }
}

/// Where a reason comes from: each source has a mode of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// A taint of a node.
    Node,
    /// A taint of a device.
    Device,
}

/// What is tainted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Subject {
    /// The pod's node.
    Node {
        /// Its name.
        name: String,
    },
    /// A device of a claim that the pod holds.
    Device {
        /// The device.
        id: DeviceId,
        /// The claim.
        claim: Key,
        /// The request of the claim that the device was allocated for.
        request: String,
    },
}

/// Which object carries a taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The node itself.
    Node,
    /// The ResourceSlice of this name: the driver's own taint.
    Slice {
        /// The object's name.
        name: String,
    },
    /// The DeviceMark of this name: an administrator's taint, which the driver put into its slice.
    Mark {
        /// The object's name.
        name: String,
        /// Whether the mark asks for careful eviction.
        careful: bool,
        /// Who made it, where its author says so.
        by: Option<String>,
        /// Why, in that person's words.
        note: Option<String>,
    },
    /// The DeviceTaintRule of this name: an administrator's taint.
    Rule {
        /// The object's name.
        name: String,
        /// The object's UID.
        uid: String,
        /// Whether the rule asks for careful eviction.
        careful: bool,
        /// Who made it, where its author says so.
        by: Option<String>,
        /// Why, in that person's words.
        note: Option<String>,
    },
}

/// What a pod makes of an evicting taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tolerance {
    /// Tolerated as long as it stands.
    Forever {
        /// By this toleration.
        by: Toleration,
    },
    /// Tolerated for a time.
    For {
        /// By this toleration.
        by: Toleration,
        /// For so long, never negative.
        seconds: i64,
    },
    /// Not tolerated.
    No {
        /// The toleration that was probably meant, where one has the taint's key.
        nearest: Option<NearMiss>,
    },
}

/// Something unknown that could change a verdict: it never makes a pod leave, and never lets a countdown lapse.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Held {
    /// What is tainted, or may be.
    pub subject: Subject,
    /// What is not known.
    pub why: HeldWhy,
}

impl Held {
    /// Whether a reason that was known before may still stand, for all that is known now.
    #[must_use]
    pub fn covers(&self, reason: &Reason) -> bool {
        let open = match (&self.why, &reason.origin) {
            (HeldWhy::NotListed, Origin::Slice { .. } | Origin::Mark { .. }) => true,
            (HeldWhy::IdentityUnknown { rule }, Origin::Rule { name, .. }) => rule == name,
            (HeldWhy::NoTime { taint }, _) => taint.same_as(&reason.taint),
            (HeldWhy::NotListed | HeldWhy::IdentityUnknown { .. }, _) => false,
        };
        open && self.subject == reason.subject
    }
}

/// What is not known about a device or a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeldWhy {
    /// No slice of the pool's newest generation lists the device: its driver's taints are unknown.
    NotListed,
    /// A rule names the hardware that it is for, and it is not known which hardware the device's name means now.
    IdentityUnknown {
        /// The rule's name.
        rule: String,
    },
    /// The taint has no time, and nobody observed it yet.
    NoTime {
        /// The taint.
        taint: Taint,
    },
}

/// What a person should know about how a verdict came to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// The allocation result carries no tolerations: those of the claim's request were used. Schedulers of Kubernetes 1.33 and
    /// 1.34 lose the copy (kubernetes/kubernetes#134434), and kube-controller-manager evicts such a pod.
    FromRequest {
        /// The claim.
        claim: Key,
        /// The request.
        request: String,
        /// The device.
        device: DeviceId,
    },
    /// The result's tolerations differ from those of the request; those of the result count.
    ResultDiffers {
        /// The claim.
        claim: Key,
        /// The request.
        request: String,
        /// The device.
        device: DeviceId,
    },
    /// A toleration without an effect lets the taint be ignored, as the API says; kube-controller-manager evicts here.
    EmptyEffect {
        /// The device.
        device: DeviceId,
        /// The toleration. Its seconds, if any, are ignored.
        toleration: Toleration,
    },
    /// A rule was made for another card than the one that has the device's name now: not acted on. The scheduler still applies
    /// it, by name.
    TargetChanged {
        /// The rule's name.
        rule: String,
        /// The device.
        device: DeviceId,
    },
    /// The claim is reserved for something that is neither a pod nor a pod group: who else uses the device is not known.
    UnresolvedConsumer {
        /// The claim.
        claim: Key,
        /// The API group and resource, as `group/resource`.
        resource: String,
        /// The consumer's name.
        name: String,
    },
}
