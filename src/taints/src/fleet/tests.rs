//! Look-ups and links, by example. Whether the indexes are right is the business of the naive fleet.

use jiff::Timestamp;

use super::*;
use crate::object::{Allocated, ClaimRef, ClaimRefKind, Consumer, Device, DeviceId, Identity, Owner};
use crate::{Effect, Taint};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn id(device: &str) -> DeviceId {
    DeviceId { driver: "d".into(), pool: "p".into(), device: device.into() }
}

fn slice(name: &str, generation: i64, devices: &[(&str, Option<&str>)]) -> Slice {
    let device = |(name, uuid): &(&str, Option<&str>)| Device {
        name: (*name).to_owned(),
        identity: Identity { uuid: uuid.map(str::to_owned), serial: None },
        ..Device::default()
    };
    Slice {
        name: name.into(),
        uid: format!("uid-{name}"),
        driver: "d".into(),
        pool: "p".into(),
        generation,
        slice_count: 1,
        devices: devices.iter().map(device).collect(),
        ..Slice::default()
    }
}

fn rule(name: &str, selector: Option<Selector>, uuid: Option<&str>) -> Rule {
    Rule {
        name: name.into(),
        uid: format!("uid-{name}"),
        selector,
        taint: Taint { key: "k".into(), value: String::new(), effect: Effect::NoExecute, time_added: Some(at(0)) },
        careful: false,
        identity: Identity { uuid: uuid.map(str::to_owned), serial: None },
        expires_at: None,
        managed: false,
        reason: None,
        by: None,
    }
}

fn claim(devices: &[&str], reserved_for: Vec<Consumer>) -> Claim {
    let result = |device: &&str| Allocated {
        id: id(device),
        request: "r".into(),
        tolerations: None,
        admin_access: false,
        share_id: None,
    };
    Claim {
        key: Key::new("ns", "c"),
        results: Some(devices.iter().map(result).collect()),
        reserved_for,
        ..Claim::default()
    }
}

fn for_pod(name: &str, uid: &str) -> Consumer {
    Consumer { api_group: String::new(), resource: "pods".into(), name: name.into(), uid: uid.into() }
}

fn pod(name: &str, uid: &str, kind: ClaimRefKind) -> Pod {
    Pod {
        key: Key::new("ns", name),
        uid: uid.into(),
        node: Some("n".into()),
        claims: vec![ClaimRef { claim: Some("c".into()), kind }],
        ..Pod::default()
    }
}

fn fleet(changes: Vec<Change>) -> Fleet {
    let mut fleet = Fleet::default();
    for change in changes {
        fleet.apply(change);
    }
    fleet
}

fn standing(fleet: &Fleet, device: &str) -> Option<Standing> {
    fleet.rules_on(&id(device)).first().map(|on| on.standing)
}

#[test]
fn an_empty_selector_is_every_device_and_none_is_no_device() {
    let every = Some(Selector::default());
    let fleet = fleet(vec![Change::Rule(rule("every", every, None)), Change::Rule(rule("none", None, None))]);
    let names: Vec<&str> = fleet.rules_on(&id("g0")).iter().map(|on| on.rule.name.as_str()).collect();
    assert_eq!(names, ["every"]);
}

#[test]
fn an_empty_name_selects_nothing() {
    let selector = Selector { driver: Some(String::new()), ..Selector::default() };
    assert!(fleet(vec![Change::Rule(rule("r", Some(selector), None))]).rules_on(&id("g0")).is_empty());
}

#[test]
fn a_rule_for_one_card_is_not_acted_on_when_another_has_its_name() {
    let selector = Selector { device: Some("g0".into()), ..Selector::default() };
    let mut fleet = fleet(vec![Change::Rule(rule("r", Some(selector), Some("GPU-aa")))]);
    assert_eq!(standing(&fleet, "g0"), Some(Standing::Unknown));

    fleet.apply(Change::Slice(slice("s", 1, &[("g0", Some("GPU-aa"))])));
    assert_eq!(standing(&fleet, "g0"), Some(Standing::Applies));
    fleet.apply(Change::Slice(slice("s", 2, &[("g1", None)])));
    assert_eq!(standing(&fleet, "g0"), Some(Standing::Applies), "last seen as the same card");

    fleet.apply(Change::Slice(slice("s", 3, &[("g0", Some("GPU-cc"))])));
    assert_eq!(standing(&fleet, "g0"), Some(Standing::TargetChanged));
    fleet.apply(Change::Slice(slice("s", 4, &[("g1", None)])));
    assert_eq!(standing(&fleet, "g0"), Some(Standing::Unknown), "not listed: held, not told off");
}

#[test]
fn a_slice_that_was_outdated_once_stays_so() {
    let mut fleet =
        fleet(vec![Change::Slice(slice("old", 1, &[("g0", None)])), Change::Slice(slice("new", 2, &[("g0", None)]))]);
    assert_eq!(fleet.pool("d", "p").map(|state| (state.generation, state.outdated)), Some((Some(2), 1)));
    fleet.apply(Change::SliceGone("new".into()));
    assert!(fleet.device(&id("g0")).is_none());
    assert!(fleet.devices("d", "p").is_empty());
    fleet.apply(Change::Slice(slice("again", 1, &[("g0", None)])));
    assert_eq!(fleet.device(&id("g0")).map(|listed| listed.slice.name.as_str()), Some("again"));
}

#[test]
fn creation_times_say_which_of_two_in_a_list_came_later() {
    let made =
        |name, generation, second| Slice { created: Some(at(second)), ..slice(name, generation, &[("g0", None)]) };
    for order in [["high", "low"], ["low", "high"]] {
        for (low_made, expected) in [(5, None), (50, Some("low"))] {
            let change = |name| match name {
                "high" => Change::Slice(made("high", 7, 10)),
                _ => Change::Slice(made("low", 1, low_made)),
            };
            let mut fleet = fleet(order.into_iter().map(change).collect());
            fleet.apply(Change::SliceGone("high".into()));
            let listed = fleet.device(&id("g0")).map(|listed| listed.slice.name.as_str());
            assert_eq!(listed, expected, "{order:?}, low made at {low_made}");
        }
    }
}

#[test]
fn a_pool_says_what_keeps_it_from_being_allocated_from() {
    let half = Slice { slice_count: 2, ..slice("s", 1, &[("g0", None)]) };
    let twice = slice("s", 2, &[("g0", None), ("g0", None)]);
    let mut fleet = fleet(vec![Change::Slice(half)]);
    let problem = |fleet: &Fleet| fleet.pool("d", "p").and_then(|state| state.problem);
    assert_eq!(problem(&fleet), Some(PoolProblem::Incomplete { have: 1, expected: 2 }));
    fleet.apply(Change::Slice(twice));
    assert_eq!(problem(&fleet), Some(PoolProblem::Duplicate { device: "g0".into() }));
    fleet.apply(Change::Slice(slice("s", 3, &[("g0", None)])));
    assert_eq!(problem(&fleet), None);
}

#[test]
fn a_link_on_one_side_only_is_not_holding() {
    let group = Consumer {
        api_group: "scheduling.k8s.io".into(),
        resource: "podgroups".into(),
        name: "gang".into(),
        uid: "g1".into(),
    };
    let reserved = vec![for_pod("a", "ua"), for_pod("left", "ul"), for_pod("older", "u0"), group];
    let in_gang = Pod { pod_group: Some("gang".into()), ..pod("member", "um", ClaimRefKind::Named) };
    let fleet = fleet(vec![
        Change::Claim(claim(&["g0"], reserved)),
        Change::Pod(pod("a", "ua", ClaimRefKind::Named)),
        Change::Pod(pod("waits", "uw", ClaimRefKind::Named)),
        Change::Pod(Pod { claims: Vec::new(), ..pod("left", "ul", ClaimRefKind::Named) }),
        Change::Pod(pod("older", "u1", ClaimRefKind::Named)),
        Change::Pod(in_gang),
    ]);
    let links: Vec<(String, Link)> =
        fleet.links(&Key::new("ns", "c")).into_iter().map(|(key, link)| (key.name, link)).collect();
    let expected = [
        ("a", Link::Holds(Via::Pod)),
        ("left", Link::Not(NotHolding::NotReferenced)),
        ("member", Link::Holds(Via::Group)),
        ("older", Link::Not(NotHolding::Gone)),
        ("older", Link::Not(NotHolding::NotReserved)),
        ("waits", Link::Not(NotHolding::NotReserved)),
    ];
    assert_eq!(links, expected.map(|(name, link)| (name.to_owned(), link)));
    let holders: Vec<&str> = fleet.holders(&Key::new("ns", "c")).into_iter().map(|pod| pod.key.name.as_str()).collect();
    assert_eq!(holders, ["a", "member"]);
}

#[test]
fn a_claim_made_for_a_pod_must_belong_to_it() {
    let owned = |uid: &str| Claim {
        controller: Some(Owner { kind: "Pod".into(), name: "a".into(), uid: uid.into() }),
        ..claim(&["g0"], vec![for_pod("a", "ua")])
    };
    for kind in [ClaimRefKind::Template, ClaimRefKind::ExtendedResource] {
        assert_eq!(Fleet::link(&pod("a", "ua", kind), &owned("ua")), Link::Holds(Via::Pod));
        assert_eq!(Fleet::link(&pod("a", "ua", kind), &owned("zz")), Link::Not(NotHolding::NotOwner));
    }
    assert_eq!(Fleet::link(&pod("a", "ua", ClaimRefKind::Named), &owned("zz")), Link::Holds(Via::Pod));
    let unbound = Pod { node: None, ..pod("a", "ua", ClaimRefKind::Named) };
    assert_eq!(Fleet::link(&unbound, &owned("ua")), Link::Not(NotHolding::NotBound));
    let free = Claim { results: None, ..owned("ua") };
    assert_eq!(Fleet::link(&pod("a", "ua", ClaimRefKind::Named), &free), Link::Not(NotHolding::NotAllocated));
}

#[test]
fn a_change_touches_only_those_that_it_concerns() {
    let mut fleet = fleet(vec![
        Change::Slice(slice("s", 1, &[("g0", None), ("g1", None)])),
        Change::Claim(claim(&["g0"], vec![for_pod("a", "ua")])),
        Change::Pod(pod("a", "ua", ClaimRefKind::Named)),
        Change::Pod(Pod { claims: Vec::new(), ..pod("b", "ub", ClaimRefKind::Named) }),
    ]);
    let taint = rule("r", None, None).taint;
    let mut tainted = slice("s", 1, &[("g0", None), ("g1", None)]);
    tainted.devices[1].taints = vec![taint.clone()];
    assert!(fleet.apply(Change::Slice(tainted.clone())).is_empty(), "nobody has g1");
    tainted.devices[0].taints = vec![taint];
    assert_eq!(fleet.apply(Change::Slice(tainted)), Touched::from([Key::new("ns", "a")]));
    let elsewhere = Selector { pool: Some("other".into()), ..Selector::default() };
    assert!(fleet.apply(Change::Rule(rule("r", Some(elsewhere), None))).is_empty());
    let labelled = Node { name: "n".into(), uid: "u".into(), ..Node::default() };
    assert_eq!(fleet.apply(Change::Node(labelled.clone())).len(), 2);
    let again = Node { labels: [("a".to_owned(), "b".to_owned())].into(), ..labelled };
    assert!(fleet.apply(Change::Node(again)).is_empty(), "labels do not matter");
}

#[test]
fn administration_does_not_take_a_device() {
    let mut admin = claim(&["g0"], Vec::new());
    for result in admin.results.iter_mut().flatten() {
        result.admin_access = true;
    }
    let mut fleet = fleet(vec![Change::Claim(admin)]);
    assert_eq!(fleet.users(&id("g0")).count(), 1);
    assert!(fleet.taken_by(&id("g0")).is_none());
    fleet.apply(Change::Claim(claim(&["g0"], Vec::new())));
    assert!(fleet.taken_by(&id("g0")).is_some());
}

#[test]
fn consumers_of_an_unknown_kind_are_named() {
    let job = Consumer { api_group: "batch".into(), resource: "jobs".into(), name: "j".into(), uid: "1".into() };
    let claim = claim(&["g0"], vec![for_pod("a", "ua"), job.clone()]);
    assert_eq!(Fleet::unresolved(&claim).collect::<Vec<_>>(), [&job]);
}
