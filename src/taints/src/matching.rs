//! What matching of tolerations has in common for nodes and devices: the reason of a miss, and which miss is the nearest.
//!
//! A yes or no is enough for a machine. A person wants to know which field disagreed on the toleration that was meant.

use std::fmt;

use crate::taint::Taint;
use crate::toleration::{Operator, Toleration};

/// Why a toleration does not match a taint: the first field that disagrees.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mismatch {
    /// The effects differ.
    Effect,
    /// The keys differ.
    Key,
    /// The operator is unknown, or is not one for devices.
    Operator,
    /// `Gt` and `Lt` are switched off in this cluster (feature gate `TaintTolerationComparisonOperators`).
    OperatorOff,
    /// The operator compares numbers and the taint's value is not a canonical 64-bit integer.
    TaintNotNumber,
    /// The operator compares numbers and the toleration's value is not a canonical 64-bit integer.
    TolerationNotNumber,
    /// The values do not compare as the operator asks.
    Value,
}

/// The toleration that came closest to matching, and the field in which it failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NearMiss {
    /// The toleration.
    pub toleration: Toleration,
    /// What disagreed.
    pub mismatch: Mismatch,
}

impl fmt::Display for NearMiss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let why = match self.mismatch {
            Mismatch::Effect => "has another effect",
            Mismatch::Key => "has another key",
            Mismatch::Operator => "has an operator that matches nothing here",
            Mismatch::OperatorOff => "compares numbers, which this cluster has switched off",
            Mismatch::TaintNotNumber => "compares numbers, and the taint's value is not one",
            Mismatch::TolerationNotNumber => "compares numbers, and its own value is not one",
            Mismatch::Value => "does not accept the taint's value",
        };
        write!(f, "toleration {} {why}", self.toleration)
    }
}

/// The toleration among `tolerations` that came nearest to `taint`, by `check`; `None` where none has the taint's key.
pub(crate) fn nearest(
    tolerations: &[Toleration],
    taint: &Taint,
    check: impl Fn(&Toleration, &Taint) -> Result<(), Mismatch>,
) -> Option<NearMiss> {
    tolerations
        .iter()
        .filter(|toleration| key_agrees(toleration, taint))
        .filter_map(|toleration| check(toleration, taint).err().map(|mismatch| (toleration, mismatch)))
        // Later fields are looked at later: the greater the mismatch, the more agreed before it.
        .max_by(|a, b| a.1.cmp(&b.1).then_with(|| b.0.key.is_empty().cmp(&a.0.key.is_empty())))
        .map(|(toleration, mismatch)| NearMiss { toleration: toleration.clone(), mismatch })
}

/// An empty key stands for every key, whatever the operator.
pub(crate) fn key_agrees(toleration: &Toleration, taint: &Taint) -> bool {
    toleration.key.is_empty() || toleration.key == taint.key
}

/// The part that nodes and devices share: effect and key, then `Equal` and `Exists`. `None` leaves the operator to the caller.
pub(crate) fn check_common(toleration: &Toleration, taint: &Taint) -> Option<Result<(), Mismatch>> {
    if toleration.effect.as_ref().is_some_and(|effect| *effect != taint.effect) {
        return Some(Err(Mismatch::Effect));
    }
    if !key_agrees(toleration, taint) {
        return Some(Err(Mismatch::Key));
    }
    match toleration.operator {
        Operator::Exists => Some(Ok(())),
        Operator::Equal if toleration.value == taint.value => Some(Ok(())),
        Operator::Equal => Some(Err(Mismatch::Value)),
        Operator::Gt | Operator::Lt | Operator::Other(_) => None,
    }
}
