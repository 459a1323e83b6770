//! Which node taints a pod tolerates: one toleration against one taint, and the three questions that Kubernetes asks of many:
//! may the scheduler place the pod, how much does it dislike to, does the kubelet admit it.
//!
//! The rules are those of core/v1 `Toleration.ToleratesTaint` and of the TaintToleration scheduler plugin; the numeric operators
//! are KEP-5471, whose code compares the taint's value with the toleration's (`Gt`: the taint's is greater).

use crate::matching::{self, Mismatch, NearMiss};
use crate::taint::{Effect, Taint};
use crate::toleration::{Operator, Toleration};

/// Whether a toleration matches a node taint. Its `tolerationSeconds` never matter here.
///
/// `comparison_operators` is the cluster's gate `TaintTolerationComparisonOperators`: off, `Gt` and `Lt` match nothing.
#[must_use]
pub fn tolerates(toleration: &Toleration, taint: &Taint, comparison_operators: bool) -> bool {
    check(toleration, taint, comparison_operators).is_ok()
}

/// Like [`tolerates`], with the first field that disagreed.
///
/// # Errors
///
/// The first field, in the order effect, key, operator, value, in which the two disagree.
pub fn check(toleration: &Toleration, taint: &Taint, comparison_operators: bool) -> Result<(), Mismatch> {
    if let Some(answer) = matching::check_common(toleration, taint) {
        return answer;
    }
    let numeric = matches!(toleration.operator, Operator::Gt | Operator::Lt);
    if !numeric {
        return Err(Mismatch::Operator);
    }
    if !comparison_operators {
        return Err(Mismatch::OperatorOff);
    }
    let have = canonical_int(&taint.value).ok_or(Mismatch::TaintNotNumber)?;
    let bound = canonical_int(&toleration.value).ok_or(Mismatch::TolerationNotNumber)?;
    let agrees = if toleration.operator == Operator::Gt { have > bound } else { have < bound };
    if agrees { Ok(()) } else { Err(Mismatch::Value) }
}

/// The first toleration in the pod's order that matches the taint: for node taints that one decides, not the best one.
#[must_use]
pub fn first_match<'a>(
    tolerations: &'a [Toleration],
    taint: &Taint,
    comparison_operators: bool,
) -> Option<&'a Toleration> {
    tolerations.iter().find(|toleration| tolerates(toleration, taint, comparison_operators))
}

/// The toleration that came nearest to matching, for an explanation.
#[must_use]
pub fn nearest_miss(tolerations: &[Toleration], taint: &Taint, comparison_operators: bool) -> Option<NearMiss> {
    matching::nearest(tolerations, taint, |toleration, taint| check(toleration, taint, comparison_operators))
}

/// The scheduler's filter: the first taint, in the node's order, that keeps a new pod away. `None`: the pod may be placed.
///
/// `NoSchedule` and `NoExecute` count; each must be tolerated by some toleration, for however short a time.
#[must_use]
pub fn first_untolerated<'a>(
    taints: &'a [Taint],
    tolerations: &[Toleration],
    comparison_operators: bool,
) -> Option<&'a Taint> {
    taints
        .iter()
        .filter(|taint| taint.effect.blocks_new_work())
        .find(|taint| first_match(tolerations, taint, comparison_operators).is_none())
}

/// The scheduler's score before it is normalised: how many `PreferNoSchedule` taints the pod does not tolerate. Fewer is better.
#[must_use]
pub fn intolerable_soft(taints: &[Taint], tolerations: &[Toleration], comparison_operators: bool) -> usize {
    taints
        .iter()
        .filter(|taint| taint.effect == Effect::PreferNoSchedule)
        .filter(|taint| first_match(tolerations, taint, comparison_operators).is_none())
        .count()
}

/// Whether the kubelet admits a pod that is bound to the node: every `NoExecute` taint must be tolerated, except by a static pod.
#[must_use]
pub fn kubelet_admits(
    taints: &[Taint],
    tolerations: &[Toleration],
    static_pod: bool,
    comparison_operators: bool,
) -> bool {
    static_pod
        || taints
            .iter()
            .filter(|taint| taint.effect == Effect::NoExecute)
            .all(|taint| first_match(tolerations, taint, comparison_operators).is_some())
}

/// A 64-bit integer in canonical decimal form: `0`, or an optional `-` and digits that do not begin with zero.
///
/// `i64::from_str` alone also takes `+5`, `007` and `-0`, which Kubernetes does not.
#[must_use]
pub fn canonical_int(text: &str) -> Option<i64> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let canonical = text == "0" || (!digits.starts_with('0') && digits.bytes().all(|byte| byte.is_ascii_digit()));
    if canonical { text.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(text: &str) -> Taint {
        let (pair, effect) = text.rsplit_once(':').unwrap();
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        Taint { key: key.into(), value: value.into(), effect: effect.into(), time_added: None }
    }

    fn toleration(key: &str, operator: &str, value: &str, effect: &str) -> Toleration {
        Toleration {
            key: key.into(),
            operator: operator.to_owned().into(),
            value: value.into(),
            effect: (!effect.is_empty()).then(|| effect.into()),
            toleration_seconds: None,
        }
    }

    #[test]
    fn canonical_integers_are_accepted_and_others_are_not() {
        for (text, value) in [("0", 0), ("7", 7), ("-7", -7), ("900", 900), ("9223372036854775807", i64::MAX)] {
            assert_eq!(canonical_int(text), Some(value), "{text}");
        }
        assert_eq!(canonical_int("-9223372036854775808"), Some(i64::MIN));
        let refused = [
            "0900",
            "00",
            "-0",
            "-07",
            "+5",
            " 5",
            "5 ",
            "5\n",
            "",
            "-",
            "--5",
            "5.0",
            "1e3",
            "0x10",
            "1_000",
            "٣",
            "abc",
            "9223372036854775808",
            "-9223372036854775809",
        ];
        for text in refused {
            assert_eq!(canonical_int(text), None, "{text:?}");
        }
    }

    #[test]
    fn greater_means_that_the_taint_is_greater() {
        let taint = taint("sla=950:NoSchedule");
        assert!(tolerates(&toleration("sla", "Gt", "900", "NoSchedule"), &taint, true));
        assert!(!tolerates(&toleration("sla", "Gt", "950", "NoSchedule"), &taint, true));
        assert!(tolerates(&toleration("sla", "Lt", "1000", ""), &taint, true));
        assert_eq!(check(&toleration("sla", "Lt", "1000", ""), &taint, false), Err(Mismatch::OperatorOff));
        assert_eq!(check(&toleration("sla", "Lt", "01000", ""), &taint, true), Err(Mismatch::TolerationNotNumber));
    }

    #[test]
    fn an_empty_key_matches_every_key_even_with_equal() {
        let taint = taint("a=x:NoExecute");
        assert!(tolerates(&toleration("", "", "x", ""), &taint, true));
        assert!(!tolerates(&toleration("", "", "y", ""), &taint, true));
    }

    #[test]
    fn the_filter_names_the_first_taint_that_is_not_tolerated() {
        let taints = [taint("soft:PreferNoSchedule"), taint("pool=a:NoSchedule"), taint("owner=kim:NoExecute")];
        let tolerations = [toleration("pool", "Exists", "", "NoSchedule")];
        assert_eq!(first_untolerated(&taints, &tolerations, true), Some(&taints[2]));
        assert_eq!(intolerable_soft(&taints, &tolerations, true), 1);
        assert!(!kubelet_admits(&taints, &tolerations, false, true));
        assert!(kubelet_admits(&taints, &tolerations, true, true));
    }

    #[test]
    fn the_nearest_miss_is_the_toleration_that_was_meant() {
        let tolerations = [
            toleration("other", "Exists", "", ""),
            toleration("pool", "Equal", "a", "NoSchedule"),
            toleration("pool", "Equal", "b", "NoExecute"),
        ];
        let miss = nearest_miss(&tolerations, &taint("pool=a:NoExecute"), true).unwrap();
        assert_eq!((miss.toleration, miss.mismatch), (tolerations[2].clone(), Mismatch::Value));
        assert_eq!(nearest_miss(&tolerations[..1], &taint("pool=a:NoExecute"), true), None);
    }
}
