//! The fleet against a naive one: plain lists, scanned for every question. Random changes must leave both of one mind, and what
//! a change did not touch must not have changed.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::arbitrary::{arrival, at, change, claim, identity, rule_for, slice, text};
use super::{Change, Fleet};
use crate::object::*;
use crate::verdict::{FirstSeen, HeldWhy, Settings, Verdict, judge};
use crate::{Effect, Taint, Toleration};

#[derive(Default)]
struct Naive {
    nodes: BTreeMap<String, Node>,
    slices: BTreeMap<String, (Slice, bool)>,
    rules: BTreeMap<String, Rule>,
    marks: BTreeMap<String, Rule>,
    claims: BTreeMap<Key, Claim>,
    pods: BTreeMap<Key, Pod>,
}

impl Naive {
    fn apply(&mut self, change: Change) {
        match change {
            Change::Node(node) => drop(self.nodes.insert(node.name.clone(), node)),
            Change::NodeGone(name) => drop(self.nodes.remove(&name)),
            Change::Slice(slice) => self.set_slice(slice),
            Change::SliceGone(name) => drop(self.slices.remove(&name)),
            Change::Rule(rule) => drop(self.rules.insert(rule.name.clone(), rule)),
            Change::RuleGone(name) => drop(self.rules.remove(&name)),
            Change::Mark(mark) => drop(self.marks.insert(mark.name.clone(), mark)),
            Change::MarkGone(name) => drop(self.marks.remove(&name)),
            Change::Claim(claim) => drop(self.claims.insert(claim.key.clone(), claim)),
            Change::ClaimGone(key) => drop(self.claims.remove(&key)),
            Change::Pod(pod) => drop(self.pods.insert(pod.key.clone(), pod)),
            Change::PodGone(key) => drop(self.pods.remove(&key)),
        }
    }

    fn set_slice(&mut self, slice: Slice) {
        let home = |slice: &Slice| (slice.driver.clone(), slice.pool.clone(), slice.uid.clone());
        let old = self.slices.remove(&slice.name).filter(|(old, _)| home(old) == home(&slice));
        let raised = old.as_ref().is_some_and(|(old, _)| old.generation < slice.generation);
        let before = |a: &Slice, b: &Slice| a.created.zip(b.created).map(|(a, b)| a <= b);
        let mut stale = old.as_ref().is_some_and(|(_, stale)| *stale) && !raised;
        for (other, other_stale) in self.slices.values_mut() {
            if (&other.driver, &other.pool) != (&slice.driver, &slice.pool) {
                continue;
            }
            if other.generation > slice.generation {
                stale |= raised || (old.is_none() && before(&slice, other) == Some(true));
            }
            if other.generation < slice.generation && (old.is_none() || raised) {
                *other_stale |= raised || before(other, &slice) != Some(false);
            }
        }
        self.slices.insert(slice.name.clone(), (slice, stale));
    }

    fn current(&self, id: &DeviceId) -> Vec<&Slice> {
        let of_pool = || {
            let counted = self.slices.values().filter(|(_, stale)| !stale).map(|(slice, _)| slice);
            counted.filter(|slice| slice.driver == id.driver && slice.pool == id.pool)
        };
        let newest = of_pool().map(|slice| slice.generation).max();
        of_pool().filter(|slice| Some(slice.generation) == newest).collect()
    }

    fn device(&self, id: &DeviceId) -> Option<&Device> {
        self.current(id).into_iter().flat_map(|slice| &slice.devices).find(|device| device.name == id.device)
    }

    fn holds(pod: &Pod, claim: &Claim) -> bool {
        let by_owner = |kind| match (kind, &claim.controller) {
            (ClaimRefKind::Named, _) => true,
            (_, None) => false,
            (ClaimRefKind::Template, Some(owner)) => {
                owner.uid == pod.uid || (owner.kind == "PodGroup" && Some(&owner.name) == pod.pod_group.as_ref())
            }
            (ClaimRefKind::ExtendedResource, Some(owner)) => owner.uid == pod.uid,
        };
        let refers = pod.key.namespace == claim.key.namespace
            && pod.claims.iter().any(|r| r.claim.as_ref() == Some(&claim.key.name) && by_owner(r.kind));
        let reserved = claim.reserved_for.iter().any(|consumer| match consumer.resource.as_str() {
            "pods" => consumer.uid == pod.uid,
            "podgroups" => Some(&consumer.name) == pod.pod_group.as_ref(),
            _ => false,
        });
        pod.node.is_some() && claim.results.is_some() && refers && reserved
    }

    /// Every deadline of a pod, and how many unlisted devices it holds.
    fn deadlines(&self, pod: &Pod) -> (Vec<Timestamp>, usize) {
        let mut deadlines = Vec::new();
        let mut unlisted = 0;
        let node = pod.node.as_ref().and_then(|name| self.nodes.get(name));
        for taint in node.iter().flat_map(|node| &node.taints).filter(|taint| taint.effect == Effect::NoExecute) {
            let first = pod.tolerations.iter().find(|toleration| crate::node::tolerates(toleration, taint, true));
            let seconds = match first {
                None => Some(0),
                Some(toleration) => toleration.toleration_seconds,
            };
            let since = taint.time_added.unwrap().max(pod.bound_at.unwrap());
            deadlines.extend(seconds.map(|seconds| since + SignedDuration::from_secs(seconds.max(0))));
        }
        for claim in self.claims.values().filter(|claim| Self::holds(pod, claim)) {
            for result in claim.results.iter().flatten() {
                let device = self.device(&result.id);
                unlisted += usize::from(device.is_none());
                let own = device
                    .into_iter()
                    .flat_map(|device| device.taints.iter().map(|taint| (taint, self.is_careful(&result.id, taint))));
                let rules = self
                    .rules
                    .values()
                    .filter(|rule| rule.selector.as_ref().is_some_and(|selector| selector.matches(&result.id)));
                for (taint, careful) in own.chain(rules.map(|rule| (&rule.taint, rule.careful))) {
                    deadlines.extend(Self::device_deadline(claim, result, taint, careful));
                }
            }
        }
        deadlines.sort();
        (deadlines, unlisted)
    }

    /// Whether the first mark that stands for a taint of a slice asks for care; a driver that follows no marks has none of them in its slices.
    fn is_careful(&self, id: &DeviceId, taint: &Taint) -> bool {
        let lists = |slice: &&&Slice| slice.devices.iter().any(|device| device.name == id.device);
        if !self.current(id).iter().find(lists).is_some_and(|slice| slice.follows_marks) {
            return false;
        }
        let selects = |mark: &&Rule| mark.selector.as_ref().is_some_and(|selector| selector.matches(id));
        let same = |mark: &&Rule| mark.taint.same_as(taint) && mark.taint.value == taint.value;
        self.marks.values().filter(selects).find(same).is_some_and(|mark| mark.careful)
    }

    fn device_deadline(claim: &Claim, result: &Allocated, taint: &Taint, careful: bool) -> Option<Timestamp> {
        let evicts = taint.effect == Effect::NoExecute || (careful && taint.effect == Effect::NoSchedule);
        if !evicts {
            return None;
        }
        let judged = Taint { effect: Effect::NoExecute, ..taint.clone() };
        let copied = result.tolerations.clone().unwrap_or_default();
        let asked = claim.requests.get(&result.request).cloned().unwrap_or_default();
        let counting = if copied.is_empty() { asked } else { copied };
        let matching: Vec<&Toleration> = counting.iter().filter(|t| crate::device::tolerates(t, &judged)).collect();
        if matching.iter().any(|t| t.effect.is_none() || t.toleration_seconds.is_none()) {
            return None;
        }
        let seconds = matching.iter().filter_map(|t| t.toleration_seconds).min().unwrap_or(0);
        Some(taint.time_added.unwrap() + SignedDuration::from_secs(seconds.max(0)))
    }
}

fn verdicts(fleet: &Fleet, naive: &Naive, seen: &FirstSeen) -> BTreeMap<Key, Verdict> {
    let settings = Settings::default();
    naive.pods.keys().map(|key| (key.clone(), judge(fleet, key, seen, &settings).unwrap())).collect()
}

/// A node taint counts from its own time in the naive fleet, so each state is seen as if for the first time.
fn seen_of(naive: &Naive) -> FirstSeen {
    let mut seen = FirstSeen::default();
    for node in naive.nodes.values() {
        seen.observe(node, Timestamp::MAX);
    }
    seen
}

fn agree(fleet: &Fleet, naive: &Naive) -> Result<(), TestCaseError> {
    for (key, verdict) in verdicts(fleet, naive, &seen_of(naive)) {
        let pod = &naive.pods[&key];
        let (deadlines, unlisted) = naive.deadlines(pod);
        let reasons: Vec<Timestamp> = verdict.reasons.iter().filter_map(|reason| reason.deadline).collect();
        prop_assert_eq!(&reasons, &deadlines, "{}", verdict);
        let missing = verdict.held.iter().filter(|held| held.why == HeldWhy::NotListed).count();
        prop_assert_eq!(missing, unlisted, "{}", verdict);
        let spared = pod.phase.is_finished() || pod.deleted_at.is_some();
        prop_assert_eq!(verdict.leave_at, deadlines.first().copied().filter(|_| !spared));
    }
    for claim in naive.claims.values() {
        let holders: Vec<&Key> = fleet.holders(&claim.key).into_iter().map(|pod| &pod.key).collect();
        let naive: Vec<&Key> = naive.pods.values().filter(|pod| Naive::holds(pod, claim)).map(|pod| &pod.key).collect();
        prop_assert_eq!(holders, naive);
    }
    Ok(())
}

/// Applies changes to both fleets, compares them after each, and looks whether verdicts changed only for pods that were touched.
fn run(changes: Vec<Change>, compare: bool) -> Result<(), TestCaseError> {
    let (mut fleet, mut naive) = (Fleet::default(), Naive::default());
    for change in changes {
        let before = verdicts(&fleet, &naive, &seen_of(&naive));
        naive.apply(change.clone());
        let touched = fleet.apply(change);
        if compare {
            agree(&fleet, &naive)?;
        }
        for (key, verdict) in verdicts(&fleet, &naive, &seen_of(&naive)) {
            prop_assert!(touched.contains(&key) || before.get(&key) == Some(&verdict), "{key} changed untouched");
        }
        for key in before.keys().filter(|key| !naive.pods.contains_key(*key)) {
            prop_assert!(touched.contains(key), "{key} went untouched");
        }
    }
    Ok(())
}

/// A pod that holds both devices of the first pool, so that whatever happens there matters.
fn a_holder() -> Vec<Change> {
    let key = Key::new("ns0", "c0");
    let result = |device: &str| Allocated {
        id: DeviceId { driver: "d0".into(), pool: "p0".into(), device: device.into() },
        request: "r0".into(),
        tolerations: None,
        admin_access: false,
        share_id: None,
    };
    let consumer = Consumer { api_group: String::new(), resource: "pods".into(), name: "w0".into(), uid: "u0".into() };
    let claim = Claim {
        key,
        results: Some(vec![result("g0"), result("g1")]),
        reserved_for: vec![consumer],
        ..Claim::default()
    };
    let pod = Pod {
        key: Key::new("ns0", "w0"),
        uid: "u0".into(),
        node: Some("n0".into()),
        bound_at: Some(at(0)),
        claims: vec![ClaimRef { claim: Some("c0".into()), kind: ClaimRefKind::Named }],
        ..Pod::default()
    };
    vec![Change::Claim(claim), Change::Pod(pod)]
}

fn slice_change() -> impl Strategy<Value = Change> {
    prop_oneof![
        4 => slice(&["d0"], &["p0", "p0", "p0", "p1"]).prop_map(Change::Slice),
        1 => text(&["s0", "s1", "s2"]).prop_map(Change::SliceGone),
    ]
}

proptest! {
    #[test]
    fn after_any_changes_both_are_of_one_mind(changes in prop::collection::vec(change(), 1..60)) {
        run(changes, true)?;
    }

    #[test]
    fn after_any_changes_of_slices_both_are_of_one_mind(changes in prop::collection::vec(slice_change(), 1..40)) {
        run(a_holder().into_iter().chain(changes).collect(), true)?;
    }

    #[test]
    fn what_a_name_means_changes_nothing_untouched(
        changes in prop::collection::vec(
            prop_oneof![
                3 => slice_change(),
                1 => rule_for(identity()).prop_map(Change::Rule),
                1 => claim().prop_map(Change::Claim),
            ],
            1..40,
        ),
    ) {
        run(a_holder().into_iter().chain(changes).collect(), false)?;
    }

    #[test]
    fn order_and_repetition_make_no_difference(
        (first, second) in prop::collection::vec(
            prop_oneof![4 => arrival(), 1 => rule_for(identity()).prop_map(Change::Rule)],
            1..25,
        )
            .prop_map(once)
            .prop_flat_map(|changes| (Just(changes.clone()).prop_shuffle(), Just(changes).prop_shuffle())),
        repeated in prop::collection::vec(any::<prop::sample::Index>(), 0..5),
    ) {
        let (mut one, mut two, mut naive) = (Fleet::default(), Fleet::default(), Naive::default());
        for change in &first {
            one.apply(change.clone());
            naive.apply(change.clone());
        }
        for change in &second {
            two.apply(change.clone());
        }
        for index in repeated {
            let touched = two.apply(index.get(&second).clone());
            prop_assert!(touched.is_empty(), "a repetition touched {touched:?}");
        }
        let seen = seen_of(&naive);
        prop_assert_eq!(verdicts(&one, &naive, &seen), verdicts(&two, &naive, &seen));
    }

    #[test]
    fn nothing_is_left_of_objects_that_are_gone(changes in prop::collection::vec(arrival(), 1..30)) {
        let mut fleet = Fleet::default();
        for change in &changes {
            fleet.apply(change.clone());
        }
        for change in changes {
            fleet.apply(match change {
                Change::Node(node) => Change::NodeGone(node.name),
                Change::Slice(slice) => Change::SliceGone(slice.name),
                Change::Rule(rule) => Change::RuleGone(rule.name),
                Change::Mark(mark) => Change::MarkGone(mark.name),
                Change::Claim(claim) => Change::ClaimGone(claim.key),
                Change::Pod(pod) => Change::PodGone(pod.key),
                gone => gone,
            });
        }
        prop_assert_eq!(format!("{fleet:?}"), format!("{:?}", Fleet::default()));
    }
}

/// Each object once, the last version of each.
fn once(changes: Vec<Change>) -> Vec<Change> {
    let name = |change: &Change| match change {
        Change::Node(node) => format!("node {}", node.name),
        Change::Slice(slice) => format!("slice {}", slice.name),
        Change::Rule(rule) => format!("rule {}", rule.name),
        Change::Mark(mark) => format!("mark {}", mark.name),
        Change::Claim(claim) => format!("claim {}", claim.key),
        Change::Pod(pod) => format!("pod {}", pod.key),
        other => format!("{other:?}"),
    };
    let by_name: BTreeMap<String, Change> = changes.into_iter().map(|change| (name(&change), change)).collect();
    by_name.into_values().collect()
}
