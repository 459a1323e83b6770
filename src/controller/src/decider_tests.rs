use super::*;
use crate::testkit;
use cluster::wire::{ClaimWire, NodeWire, PodWire, RuleWire, SliceWire, Wire, decode};
use serde_json::{Value, json};
use taints::plan::Mode;

fn at(second: i64) -> Timestamp {
    testkit::START.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(second)
}

fn change<W: Wire>(object: Value) -> Notice {
    Notice::Change(Box::new(W::applied(decode::<W>(object).unwrap())))
}

/// A decider that has been told the objects, but not that this is all.
fn told(modes: Modes) -> Decider {
    let mut decider = Decider::new(Arc::default(), FirstSeen::default(), modes, Settings::default());
    let mut pod = testkit::pod("train", Some("c"));
    pod["metadata"]["uid"] = json!("uid-ml/train");
    pod["metadata"]["resourceVersion"] = json!("7");
    for notice in [
        change::<NodeWire>(testkit::node(None)),
        change::<SliceWire>(testkit::slice(&["gpu-0"])),
        change::<ClaimWire>(testkit::claim("c", "gpu-0", &testkit::tolerates(Some(10)), &["train"])),
        change::<PodWire>(pod),
        change::<RuleWire>(testkit::rule("broken", "gpu-0")),
    ] {
        decider.take(notice, at(0));
    }
    decider
}

fn sync(decider: &mut Decider, kinds: &[Kind], now: Timestamp) {
    kinds.iter().for_each(|kind| decider.take(Notice::Synced(*kind), now));
}

const ENFORCE: Modes = Modes { device: Mode::Enforce, node: Mode::Observe };

#[test]
fn nothing_is_planned_before_every_kind_is_known() {
    let mut decider = told(ENFORCE);
    sync(&mut decider, &[Kind::Node, Kind::Pod, Kind::Claim, Kind::Slice, Kind::Mark], at(1));
    assert!(decider.decide(at(60)).actions.is_empty() && decider.wake().is_none());
    sync(&mut decider, &[Kind::Rule], at(61));
    let actions = decider.decide(at(61)).actions;
    let [Action::Evict(departure)] = actions.as_slice() else { panic!("{actions:?}") };
    assert_eq!((departure.resource_version.as_str(), departure.deadline), ("7", at(10)));
}

#[test]
fn a_server_without_rules_is_a_whole_picture_too() {
    let mut decider = told(ENFORCE);
    sync(&mut decider, &[Kind::Node, Kind::Pod, Kind::Claim, Kind::Slice, Kind::Mark], at(1));
    decider.take(Notice::NotServed(Kind::Rule), at(1));
    assert_eq!(decider.decide(at(60)).actions.len(), 1);
}

#[test]
fn a_watch_that_fails_stops_the_clock_until_it_is_whole_again() {
    let mut decider = told(ENFORCE);
    sync(&mut decider, &Kind::ALL, at(1));
    assert!(decider.decide(at(1)).actions.is_empty());
    assert_eq!(decider.wake(), Some(at(10)));
    decider.take(Notice::Failed { kind: Kind::Rule, problem: "cut".to_owned() }, at(5));
    assert!(decider.decide(at(20)).actions.is_empty() && decider.wake().is_none());
    decider.take(Notice::Change(Box::new(Change::RuleGone("broken".to_owned()))), at(21));
    sync(&mut decider, &[Kind::Rule], at(21));
    let actions = decider.decide(at(21)).actions;
    assert!(matches!(actions.as_slice(), [Action::Cancel { .. }]), "{actions:?}");
}

#[test]
fn a_node_taint_that_may_have_come_back_unseen_counts_from_its_last_change() {
    let tainted = |changed: &str| {
        let mut node = testkit::node(Some("example.com/maintenance"));
        node["metadata"]["managedFields"] =
            json!([{"manager": "kubectl", "time": changed, "fieldsV1": {"f:spec": {"f:taints": {}}}}]);
        change::<NodeWire>(node)
    };
    let since = |decider: &Decider| {
        let taint = decider.fleet.read().node("n1").unwrap().taints[0].clone();
        let uid = decider.fleet.read().node("n1").unwrap().uid.clone();
        decider.seen.since(&uid, &taint)
    };
    let mut decider = told(ENFORCE);
    decider.take(tainted("2026-11-01T10:00:01Z"), at(1));
    sync(&mut decider, &Kind::ALL, at(1));
    decider.take(tainted("2026-11-01T10:00:05Z"), at(5));
    assert_eq!(since(&decider), Some(at(1)), "it was watched all the time");
    decider.take(Notice::Failed { kind: Kind::Node, problem: "410".to_owned() }, at(6));
    decider.take(tainted("2026-11-01T10:00:20Z"), at(30));
    sync(&mut decider, &[Kind::Node], at(30));
    assert_eq!(since(&decider), Some(at(20)));
}

#[test]
fn an_observed_source_makes_nobody_leave() {
    let mut decider = told(Modes::default());
    sync(&mut decider, &Kind::ALL, at(1));
    let actions = decider.decide(at(10)).actions;
    assert!(matches!(actions.as_slice(), [Action::Tell(_)]), "{actions:?}");
    assert!(decider.decide(at(600)).actions.is_empty());
}

#[test]
fn an_eviction_to_come_is_told_once_for_each_deadline() {
    let mut decider = told(ENFORCE);
    sync(&mut decider, &Kind::ALL, at(1));
    let coming = decider.decide(at(1)).coming;
    assert_eq!(coming.iter().map(|departure| departure.deadline).collect::<Vec<_>>(), [at(10)]);
    let tolerate =
        |seconds| change::<ClaimWire>(testkit::claim("c", "gpu-0", &testkit::tolerates(Some(seconds)), &["train"]));
    decider.take(tolerate(10), at(2));
    assert!(decider.decide(at(2)).coming.is_empty(), "the same deadline");
    decider.take(tolerate(30), at(3));
    assert_eq!(decider.decide(at(3)).coming[0].deadline, at(30));
    decider.take(tolerate(0), at(4));
    assert!(decider.decide(at(4)).coming.is_empty(), "it leaves at once, and the eviction tells it");
    let mut observed = told(Modes::default());
    sync(&mut observed, &Kind::ALL, at(1));
    assert!(observed.decide(at(1)).coming.is_empty(), "nobody is evicted");
}

#[test]
fn first_observations_are_to_be_stored_when_they_change_and_only_then() {
    let mut decider = told(ENFORCE);
    assert!(decider.to_store().is_none());
    decider.take(change::<NodeWire>(testkit::node(Some("example.com/maintenance"))), at(3));
    assert!(decider.to_store().is_some());
    decider.take(change::<NodeWire>(testkit::node(Some("example.com/maintenance"))), at(4));
    assert!(decider.to_store().is_none());
    decider.take(Notice::Change(Box::new(Change::NodeGone("n1".to_owned()))), at(5));
    assert!(decider.to_store().is_some());
}

#[test]
fn what_was_stored_of_nodes_that_are_gone_is_forgotten_after_a_whole_list() {
    let mut before = told(ENFORCE);
    let mut gone = testkit::node(Some("k"));
    gone["metadata"]["uid"] = json!("gone");
    before.take(change::<NodeWire>(gone), at(1));
    let stored = before.to_store().unwrap();
    let mut after = Decider::new(Arc::default(), stored, ENFORCE, Settings::default());
    after.take(change::<NodeWire>(testkit::node(None)), at(2));
    assert!(after.to_store().is_none());
    sync(&mut after, &[Kind::Node], at(3));
    assert_eq!(after.to_store(), Some(FirstSeen::default()));
}

#[test]
fn marks_end_in_every_mode_once_rules_are_known() {
    let mut decider = told(Modes::default());
    decider.take(change::<RuleWire>(testkit::mark("dt-1", "2026-11-01T10:00:30Z")), at(1));
    assert!(decider.decide(at(40)).expired.is_empty());
    sync(&mut decider, &[Kind::Rule], at(40));
    assert_eq!(decider.wake(), Some(at(30)));
    let expired = decider.decide(at(40)).expired;
    assert_eq!(expired[0].name, "dt-1");
    decider.report(&Report::MarkFailed(expired[0].clone()), at(41));
    assert_eq!(decider.wake(), Some(at(51)));
    decider.take(Notice::Change(Box::new(Change::RuleGone("dt-1".to_owned()))), at(45));
    assert!(decider.decide(at(60)).expired.is_empty());
}

#[test]
fn what_could_not_be_queued_is_tried_again() {
    let mut decider = told(ENFORCE);
    sync(&mut decider, &Kind::ALL, at(1));
    let Some(Action::Evict(departure)) = decider.decide(at(10)).actions.pop() else { panic!("nothing to evict") };
    assert!(decider.decide(at(11)).actions.is_empty());
    decider.dropped(&departure, at(11));
    assert_eq!(decider.decide(at(15)).actions.len(), 1);
}

#[test]
fn a_deadline_that_is_only_observed_is_told_once_and_again_when_it_moves_or_goes() {
    let mut decider = told(Modes { device: Mode::Observe, node: Mode::Observe });
    sync(&mut decider, &Kind::ALL, at(1));
    let deadlines = |decision: &Decision| -> Vec<Option<Timestamp>> {
        let of = |one: &Observed| match one {
            Observed::Leaves(departure) => Some(departure.deadline),
            Observed::Stays { .. } => None,
        };
        decision.observed.iter().map(of).collect()
    };
    assert_eq!(deadlines(&decider.decide(at(1))), [Some(at(10))]);
    let claim = |seconds| change::<ClaimWire>(testkit::claim("c", "gpu-0", &testkit::tolerates(seconds), &["train"]));
    decider.take(claim(Some(10)), at(2));
    assert!(deadlines(&decider.decide(at(2))).is_empty(), "no news");
    decider.take(claim(Some(20)), at(3));
    let decision = decider.decide(at(3));
    assert!(decision.coming.is_empty(), "nobody is told of an eviction that will not be ours");
    assert_eq!(deadlines(&decision), [Some(at(20))]);
    decider.take(claim(None), at(4));
    assert_eq!(deadlines(&decider.decide(at(4))), [None], "it would stay");
    decider.take(claim(None), at(5));
    assert!(deadlines(&decider.decide(at(5))).is_empty(), "and that is no news");
}
