//! What a rule would do if it evicted, before it does: the dry run behind a DeviceTaintRule of effect `None`.

use std::collections::BTreeSet;

use crate::Taint;
use crate::fleet::{Fleet, Link, Standing, Via};
use crate::object::{Claim, Key, Pod, Rule, Selector};
use crate::taint::Effect;
use crate::verdict::{self, Settings};

/// What a rule selects and whom it would make leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// How many devices of newest generations it selects.
    pub published: usize,
    /// How many allocated devices it selects, listed or not: one for each claim's result.
    pub allocated: usize,
    /// Of those: how many it would not be acted on, since their name means another card, or one that is not known.
    pub not_acted_on: usize,
    /// The pods that would leave, at once or in time.
    pub leaving: BTreeSet<Key>,
    /// The pods that hold a selected device and would stay: they tolerate the taint for ever, have ended or are ending.
    pub staying: BTreeSet<Key>,
}

impl Preview {
    /// In how many namespaces pods would leave.
    #[must_use]
    pub fn namespaces(&self) -> usize {
        self.leaving.iter().map(|key| &key.namespace).collect::<BTreeSet<_>>().len()
    }
}

/// What a rule would do with effect `NoExecute`, at the state of the fleet, whether the fleet knows the rule or not. It looks at
/// every pool and claim once.
#[must_use]
pub fn preview(fleet: &Fleet, rule: &Rule, settings: &Settings) -> Preview {
    let mut preview = Preview::default();
    let Some(selector) = &rule.selector else { return preview };
    let listed = fleet.pools().flat_map(|(driver, pool, _)| fleet.devices(driver, pool));
    preview.published = listed.filter(|listed| selector.matches(&listed.id())).count();
    for claim in fleet.claims() {
        preview.add_claim(fleet, rule, selector, claim, settings);
    }
    preview.staying.retain(|pod| !preview.leaving.contains(pod));
    preview
}

impl Preview {
    fn add_claim(&mut self, fleet: &Fleet, rule: &Rule, selector: &Selector, claim: &Claim, settings: &Settings) {
        let judged = Taint { effect: Effect::NoExecute, ..rule.taint.clone() };
        for result in claim.results.iter().flatten().filter(|result| selector.matches(&result.id)) {
            self.allocated += 1;
            if fleet.standing(rule, &result.id) != Standing::Applies {
                self.not_acted_on += 1;
                continue;
            }
            let stays = verdict::tolerates_for_ever(claim, result, &judged);
            for pod in fleet.holders(&claim.key).into_iter().filter(|pod| counts(pod, claim, settings)) {
                let spared = pod.phase.is_finished() || pod.deleted_at.is_some();
                let list = if stays || spared { &mut self.staying } else { &mut self.leaving };
                list.insert(pod.key.clone());
            }
        }
    }
}

fn counts(pod: &Pod, claim: &Claim, settings: &Settings) -> bool {
    settings.pod_groups || Fleet::link(pod, claim) == Link::Holds(Via::Pod)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fleet::Change;
    use crate::object::{Allocated, ClaimRef, ClaimRefKind, Consumer, Device, DeviceId, Identity, Phase, Slice};
    use crate::{Operator, Toleration};

    /// A pod with a claim of the same name for one device.
    fn user(name: &str, device: &str, tolerations: Vec<Toleration>, phase: Phase) -> [Change; 2] {
        let id = DeviceId { driver: "d".into(), pool: "n".into(), device: device.into() };
        let result =
            Allocated { id, request: "r".into(), tolerations: Some(tolerations), admin_access: false, share_id: None };
        let consumer =
            Consumer { api_group: String::new(), resource: "pods".into(), name: name.into(), uid: name.into() };
        let claim = Claim {
            key: Key::new("ns", name),
            results: Some(vec![result]),
            reserved_for: vec![consumer],
            ..Claim::default()
        };
        let pod = Pod {
            key: Key::new("ns", name),
            uid: name.into(),
            node: Some("n".into()),
            phase,
            claims: vec![ClaimRef { claim: Some(name.into()), kind: ClaimRefKind::Named }],
            ..Pod::default()
        };
        [Change::Claim(claim), Change::Pod(pod)]
    }

    fn rule(selector: Option<Selector>, uuid: Option<&str>) -> Rule {
        Rule {
            name: "r".into(),
            uid: "u".into(),
            selector,
            taint: Taint { key: "k".into(), value: String::new(), effect: Effect::None, time_added: None },
            careful: false,
            identity: Identity { uuid: uuid.map(str::to_owned), serial: None },
            expires_at: None,
            managed: false,
            reason: None,
            by: None,
        }
    }

    fn fleet() -> Fleet {
        let ever = Toleration { operator: Operator::Exists, ..Toleration::default() };
        let brief = Toleration { effect: Some(Effect::NoExecute), toleration_seconds: Some(9), ..ever.clone() };
        let device = |name: &str| Device {
            name: name.into(),
            identity: Identity { uuid: Some(format!("GPU-{name}")), serial: None },
            ..Device::default()
        };
        let slice = Slice {
            name: "s".into(),
            driver: "d".into(),
            pool: "n".into(),
            generation: 1,
            slice_count: 1,
            devices: vec![device("g0"), device("g1")],
            ..Slice::default()
        };
        let users = [
            user("plain", "g0", Vec::new(), Phase::Running),
            user("brief", "g1", vec![brief], Phase::Running),
            user("ever", "g1", vec![ever], Phase::Running),
            user("done", "g1", Vec::new(), Phase::Succeeded),
            user("missing", "g9", Vec::new(), Phase::Running),
        ];
        let mut fleet = Fleet::default();
        for change in users.into_iter().flatten().chain([Change::Slice(slice)]) {
            fleet.apply(change);
        }
        fleet
    }

    fn names(pods: &BTreeSet<Key>) -> Vec<&str> {
        pods.iter().map(|key| key.name.as_str()).collect()
    }

    #[test]
    fn pods_leave_that_do_not_tolerate_the_taint_for_ever() {
        let preview = preview(&fleet(), &rule(Some(Selector::default()), None), &Settings::default());
        assert_eq!((preview.published, preview.allocated, preview.namespaces()), (2, 5, 1));
        assert_eq!(names(&preview.leaving), ["brief", "missing", "plain"]);
        assert_eq!(names(&preview.staying), ["done", "ever"]);
    }

    #[test]
    fn a_rule_without_a_selector_does_nothing() {
        assert_eq!(preview(&fleet(), &rule(None, None), &Settings::default()), Preview::default());
    }

    #[test]
    fn a_rule_for_one_card_leaves_other_cards_alone() {
        let preview = preview(&fleet(), &rule(Some(Selector::default()), Some("GPU-g0")), &Settings::default());
        assert_eq!((preview.allocated, preview.not_acted_on), (5, 4));
        assert_eq!(names(&preview.leaving), ["plain"]);
    }
}
