//! Which device taints a request tolerates (resource/v1 `DeviceToleration`, KEP-5055).
//!
//! One toleration matches one taint as for nodes, without the numeric operators. Which effects matter is the caller's question:
//! an allocation looks at `NoSchedule` and `NoExecute`, an eviction at `NoExecute`; `None` and unknown effects do nothing.

use crate::matching::{self, Mismatch, NearMiss};
use crate::taint::Taint;
use crate::toleration::Toleration;

/// Whether a toleration matches a device taint. Its `tolerationSeconds` never matter here.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint) -> bool {
    check(toleration, taint).is_ok()
}

/// Like [`tolerates`], with the first field that disagreed.
///
/// # Errors
///
/// The first field, in the order effect, key, operator, value, in which the two disagree.
pub fn check(toleration: &Toleration, taint: &Taint) -> Result<(), Mismatch> {
    matching::check_common(toleration, taint).unwrap_or(Err(Mismatch::Operator))
}

/// The first taint, in the given order, that keeps a device from a request. Each taint is looked at alone: a toleration of
/// `NoExecute` does not cover a `NoSchedule` taint of the same key.
pub fn first_untolerated<'a>(
    taints: impl IntoIterator<Item = &'a Taint>,
    tolerations: &[Toleration],
) -> Option<&'a Taint> {
    taints
        .into_iter()
        .filter(|taint| taint.effect.blocks_new_work())
        .find(|taint| !tolerations.iter().any(|toleration| tolerates(toleration, taint)))
}

/// The toleration that came nearest to matching, for an explanation.
#[must_use]
pub fn nearest_miss(tolerations: &[Toleration], taint: &Taint) -> Option<NearMiss> {
    matching::nearest(tolerations, taint, check)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::taint::Effect;
    use crate::toleration::Operator;

    fn taint(effect: Effect) -> Taint {
        Taint { key: "example.test/hot".into(), value: "85".into(), effect, time_added: None }
    }

    fn exists(effect: Option<Effect>) -> Toleration {
        Toleration { key: "example.test/hot".into(), operator: Operator::Exists, effect, ..Toleration::default() }
    }

    #[test]
    fn numeric_operators_are_not_for_devices() {
        let gt = Toleration { operator: Operator::Gt, value: "80".into(), ..exists(None) };
        assert_eq!(check(&gt, &taint(Effect::NoSchedule)), Err(Mismatch::Operator));
    }

    #[test]
    fn a_toleration_of_no_execute_does_not_cover_no_schedule() {
        let taints = [taint(Effect::NoExecute), taint(Effect::NoSchedule)];
        let tolerations = [exists(Some(Effect::NoExecute))];
        assert_eq!(first_untolerated(&taints, &tolerations), Some(&taints[1]));
        assert_eq!(first_untolerated(&taints, &[exists(None)]), None);
    }

    #[test]
    fn none_and_unknown_effects_keep_nobody_away() {
        let taints = [taint(Effect::None), taint(Effect::from("DrainSlowly"))];
        assert_eq!(first_untolerated(&taints, &[]), None);
    }
}
