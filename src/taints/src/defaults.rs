//! What the API server fills in: the time of device taints, and the tolerations that every pod gets.

use jiff::Timestamp;

use crate::taint::{Effect, Taint};
use crate::toleration::{Operator, Toleration};

/// How long `not-ready` and `unreachable` are tolerated by default, in seconds (`--default-not-ready-toleration-seconds`).
pub const OUTAGE_SECONDS: i64 = 300;

const OUTAGE_KEYS: [&str; 2] = ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"];

/// The time that the server stores for a device's or a rule's taint: that of the writer, or `now`, in whole seconds, where there
/// is none.
#[must_use]
pub fn time_added(taint: &Taint, now: Timestamp) -> Timestamp {
    taint.time_added.unwrap_or_else(|| Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// The time that the server stores when a DeviceTaintRule is changed: a change of the effect alone moves it to `now`, so that
/// tolerations count from the change.
#[must_use]
pub fn time_added_on_update(old: &Taint, new: &Taint, now: Timestamp) -> Timestamp {
    let restamped = Taint { time_added: None, ..new.clone() };
    let moved = old.effect != new.effect && old.time_added == new.time_added;
    time_added(if moved { &restamped } else { new }, now)
}

/// The tolerations that the admission plugin DefaultTolerationSeconds adds to a pod, at the end of its list.
///
/// It looks only at key and effect: a toleration that can never match still counts as the pod's own decision.
#[must_use]
pub fn outage_tolerations(tolerations: &[Toleration]) -> Vec<Toleration> {
    let decided = |key: &str| {
        tolerations.iter().any(|toleration| {
            (toleration.key.is_empty() || toleration.key == key)
                && toleration.effect.as_ref().is_none_or(|effect| *effect == Effect::NoExecute)
        })
    };
    let missing = OUTAGE_KEYS.into_iter().filter(|key| !decided(key));
    let added = missing.map(|key| Toleration {
        key: key.to_owned(),
        operator: Operator::Exists,
        value: String::new(),
        effect: Some(Effect::NoExecute),
        toleration_seconds: Some(OUTAGE_SECONDS),
    });
    added.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn taint(effect: Effect, added: Option<i64>) -> Taint {
        let time_added = added.map(|second| Timestamp::from_second(second).unwrap());
        Taint { key: "k".into(), value: String::new(), effect, time_added }
    }

    #[test]
    fn only_a_change_of_the_effect_moves_the_time() {
        let now = Timestamp::from_millisecond(160_900).unwrap();
        let old = taint(Effect::None, Some(100));
        let update = |new: &Taint| time_added_on_update(&old, new, now).as_millisecond();
        assert_eq!(update(&taint(Effect::NoExecute, Some(100))), 160_000);
        assert_eq!(update(&taint(Effect::NoExecute, Some(90))), 90_000);
        assert_eq!(update(&taint(Effect::None, Some(100))), 100_000);
        assert_eq!(update(&taint(Effect::None, None)), 160_000);
    }

    #[test]
    fn a_pod_that_says_nothing_of_outages_tolerates_them_for_five_minutes() {
        assert_eq!(outage_tolerations(&[]).len(), 2);
        let own = Toleration { key: OUTAGE_KEYS[0].into(), effect: Some(Effect::NoExecute), ..Toleration::default() };
        let added = outage_tolerations(&[own]);
        assert_eq!(added.iter().map(|toleration| toleration.key.as_str()).collect::<Vec<_>>(), [OUTAGE_KEYS[1]]);
        let all = Toleration { operator: Operator::Exists, ..Toleration::default() };
        assert_eq!(outage_tolerations(&[all]), []);
        let soft = Toleration { effect: Some(Effect::NoSchedule), operator: Operator::Exists, ..Toleration::default() };
        assert_eq!(outage_tolerations(&[soft]).len(), 2);
    }
}
