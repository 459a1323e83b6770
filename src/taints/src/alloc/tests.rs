//! Allocations by example, each with the reason for what is not given.

use super::*;
use crate::fleet::{Change, Fleet};
use crate::object::{Attribute, Rule, Selector as RuleSelector, Slice};
use crate::{Effect, Operator};

fn taint(effect: Effect) -> Taint {
    Taint { key: "k".into(), value: String::new(), effect, time_added: None }
}

fn device(name: &str, numa: i64) -> Device {
    let attributes = [("d/numa".to_owned(), Attribute::Int(numa))].into();
    Device { name: name.into(), attributes, ..Device::default() }
}

fn fleet(devices: Vec<Device>) -> Fleet {
    let mut fleet = Fleet::default();
    fleet.apply(Change::Slice(Slice {
        name: "s".into(),
        driver: "d".into(),
        pool: "n".into(),
        generation: 1,
        slice_count: 1,
        node_name: Some("n".into()),
        devices,
        ..Slice::default()
    }));
    fleet
}

fn request(name: &str, amount: Amount) -> Request {
    let only = Alternative { name: None, amount, tolerations: Vec::new(), admin_access: false };
    Request { name: name.into(), alternatives: vec![only] }
}

fn nobody(_: &DeviceId) -> Option<Key> {
    None
}

fn any(_: &str, _: &Candidate<'_>) -> Result<bool, String> {
    Ok(true)
}

fn given(outcome: &Outcome) -> Result<Vec<(&str, &str)>, &Failure> {
    let picks = outcome.picks.as_ref()?;
    Ok(picks.iter().map(|pick| (pick.request.as_str(), pick.device.device.as_str())).collect())
}

fn denied(outcome: &Outcome, device: &str) -> Option<Denied> {
    outcome.answers.iter().find(|answer| answer.device.device == device).and_then(|answer| answer.denied.clone())
}

#[test]
fn a_tainted_device_is_passed_over_with_its_reason() {
    let tainted = Device { taints: vec![taint(Effect::NoSchedule)], ..device("g0", 0) };
    let fleet = fleet(vec![tainted, device("g1", 0)]);
    let outcome = allocate(&[request("r", Amount::Exact(1))], &[], &fleet.candidates(Some("n")), &mut any, &nobody);
    assert_eq!(given(&outcome), Ok(vec![("r", "g1")]));
    assert!(matches!(denied(&outcome, "g0"), Some(Denied::Untolerated { origin: Origin::Slice { .. }, .. })));
}

#[test]
fn a_rule_keeps_a_device_away_and_says_its_name() {
    let mut fleet = fleet(vec![device("g0", 0)]);
    fleet.apply(Change::Rule(Rule {
        name: "maintenance".into(),
        uid: "u".into(),
        selector: Some(RuleSelector::default()),
        taint: taint(Effect::NoExecute),
        careful: false,
        identity: crate::object::Identity::default(),
        expires_at: None,
        managed: false,
        reason: None,
        by: None,
    }));
    let mut wish = request("r", Amount::Exact(1));
    let outcome = allocate(&[wish.clone()], &[], &fleet.candidates(None), &mut any, &nobody);
    let text = outcome.answers[0].to_string();
    insta::assert_snapshot!(text, @"request r, device d/n/g0: taint k:NoExecute (by DeviceTaintRule maintenance) is not tolerated");
    assert_eq!(outcome.picks, Err(Failure::TooFew { request: "r".into(), needed: 1, available: 0 }));

    let tolerated = Toleration { operator: Operator::Exists, ..Toleration::default() };
    wish.alternatives[0].tolerations = vec![tolerated.clone()];
    let outcome = allocate(&[wish], &[], &fleet.candidates(None), &mut any, &nobody);
    assert_eq!(outcome.picks.unwrap()[0].tolerations, [tolerated]);
}

#[test]
fn a_device_in_use_is_only_for_administration() {
    let fleet = fleet(vec![device("g0", 0)]);
    let taken = |_: &DeviceId| Some(Key::new("ns", "c"));
    let mut wish = request("r", Amount::Exact(1));
    let outcome = allocate(&[wish.clone()], &[], &fleet.candidates(None), &mut any, &taken);
    assert_eq!(denied(&outcome, "g0"), Some(Denied::Taken(Some(Key::new("ns", "c")))));
    wish.alternatives[0].admin_access = true;
    let outcome = allocate(&[wish], &[], &fleet.candidates(None), &mut any, &taken);
    assert_eq!(given(&outcome), Ok(vec![("r", "g0")]));
}

#[test]
fn other_nodes_and_incomplete_pools_give_nothing() {
    let mut fleet = fleet(vec![device("g0", 0)]);
    let wish = [request("r", Amount::Exact(1))];
    let outcome = allocate(&wish, &[], &fleet.candidates(Some("m")), &mut any, &nobody);
    assert_eq!(denied(&outcome, "g0"), Some(Denied::WrongNode));
    let half = Slice { slice_count: 2, ..fleet.slice("s").cloned().unwrap() };
    fleet.apply(Change::Slice(half));
    let outcome = allocate(&wish, &[], &fleet.candidates(Some("n")), &mut any, &nobody);
    assert_eq!(denied(&outcome, "g0"), Some(Denied::Pool(PoolProblem::Incomplete { have: 1, expected: 2 })));
}

#[test]
fn all_means_every_device_that_matches() {
    let tainted = Device { taints: vec![taint(Effect::NoSchedule)], ..device("g1", 1) };
    let fleet = fleet(vec![device("g0", 0), tainted, device("g2", 0)]);
    let wish = [request("r", Amount::All)];
    let outcome = allocate(&wish, &[], &fleet.candidates(None), &mut any, &nobody);
    let Err(Failure::NotAll { device: Some(missing), .. }) = &outcome.picks else { panic!("{outcome:?}") };
    assert_eq!(missing.device, "g1");
    let mut even = |_: &str, candidate: &Candidate<'_>| Ok(candidate.id.device != "g1");
    let outcome = allocate(&wish, &[], &fleet.candidates(None), &mut even, &nobody);
    assert_eq!(given(&outcome), Ok(vec![("r", "g0"), ("r", "g2")]));
    let mut none = |_: &str, _: &Candidate<'_>| Ok(false);
    let outcome = allocate(&wish, &[], &fleet.candidates(None), &mut none, &nobody);
    assert_eq!(outcome.picks, Err(Failure::NotAll { request: "r".into(), device: None }));
}

#[test]
fn a_selector_that_fails_stops_a_request_that_is_not_satisfied_before() {
    let fleet = fleet(vec![device("g0", 0), device("g1", 0)]);
    let mut fails = |_: &str, candidate: &Candidate<'_>| match candidate.id.device.as_str() {
        "g0" => Ok(true),
        _ => Err("no such key: uuid".to_owned()),
    };
    let candidates = fleet.candidates(None);
    let one = allocate(&[request("r", Amount::Exact(1))], &[], &candidates, &mut fails, &nobody);
    assert_eq!(given(&one), Ok(vec![("r", "g0")]));
    let two = allocate(&[request("r", Amount::Exact(2))], &[], &candidates, &mut fails, &nobody);
    assert!(matches!(two.picks, Err(Failure::Selector { .. })));
}

#[test]
fn an_earlier_request_leaves_a_later_one_what_it_needs() {
    let fleet = fleet(vec![device("g0", 0), device("g1", 0)]);
    let mut picky = |request: &str, candidate: &Candidate<'_>| Ok(request == "any" || candidate.id.device == "g0");
    let wishes = [request("any", Amount::Exact(1)), request("g0", Amount::Exact(1))];
    let outcome = allocate(&wishes, &[], &fleet.candidates(None), &mut picky, &nobody);
    assert_eq!(given(&outcome), Ok(vec![("any", "g1"), ("g0", "g0")]));
}

#[test]
fn the_first_alternative_that_can_be_had_is_taken() {
    let fleet = fleet(vec![device("g0", 0), device("g1", 0)]);
    let sub = |name: &str, count| Alternative {
        name: Some(name.into()),
        amount: Amount::Exact(count),
        tolerations: Vec::new(),
        admin_access: false,
    };
    let wish = Request { name: "r".into(), alternatives: vec![sub("four", 4), sub("two", 2)] };
    let outcome = allocate(&[wish], &[], &fleet.candidates(None), &mut any, &nobody);
    assert_eq!(given(&outcome), Ok(vec![("r/two", "g0"), ("r/two", "g1")]));
}

#[test]
fn a_constraint_keeps_devices_together() {
    let fleet = fleet(vec![device("g0", 0), device("g1", 1), device("g2", 1)]);
    let together = Constraint { requests: Vec::new(), attribute: "d/numa".into() };
    let wishes = [request("a", Amount::Exact(1)), request("b", Amount::Exact(1))];
    let outcome = allocate(&wishes, std::slice::from_ref(&together), &fleet.candidates(None), &mut any, &nobody);
    assert_eq!(given(&outcome), Ok(vec![("a", "g1"), ("b", "g2")]));
    let three = [request("a", Amount::Exact(3))];
    let outcome = allocate(&three, &[together], &fleet.candidates(None), &mut any, &nobody);
    assert_eq!(outcome.picks, Err(Failure::Together));
}

#[test]
fn a_search_without_end_is_given_up() {
    let fleet = fleet((0..40).map(|number| device(&format!("g{number}"), number)).collect());
    let together = Constraint { requests: Vec::new(), attribute: "d/absent".into() };
    let wishes: Vec<Request> = (0..40).map(|number| request(&format!("r{number}"), Amount::Exact(1))).collect();
    let outcome = allocate(&wishes, &[together], &fleet.candidates(None), &mut any, &nobody);
    assert_eq!(outcome.picks, Err(Failure::Together), "nobody has the attribute");
    let last = Constraint { requests: vec!["r39".into()], attribute: "d/absent".into() };
    let outcome = allocate(&wishes, &[last], &fleet.candidates(None), &mut any, &nobody);
    assert_eq!(outcome.picks, Err(Failure::TooComplex));
}

#[test]
fn denials_are_counted_for_a_line_of_explanation() {
    let tainted = |name| Device { taints: vec![taint(Effect::NoSchedule)], ..device(name, 0) };
    let fleet = fleet(vec![tainted("g0"), tainted("g1"), device("g2", 0)]);
    let taken = |id: &DeviceId| (id.device == "g2").then(Key::default);
    let outcome = allocate(&[request("r", Amount::Exact(1))], &[], &fleet.candidates(None), &mut any, &taken);
    let lines: Vec<String> =
        tally(&outcome.answers, "r").into_iter().map(|(why, count)| format!("{count} {why}")).collect();
    assert_eq!(
        lines,
        ["2 taint k:NoSchedule (by the driver in ResourceSlice s) is not tolerated", "1 another claim has it"]
    );
}
