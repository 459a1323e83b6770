//! A small world in which things meet often: few names, so that random objects concern each other.

use jiff::Timestamp;
use proptest::prelude::*;

use super::Change;
use crate::object::*;
use crate::{Effect, Operator, Taint, Toleration};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn pick<T: Clone + std::fmt::Debug + 'static>(of: &[T]) -> impl Strategy<Value = T> + use<T> {
    prop::sample::select(of.to_vec())
}

pub(super) fn text(of: &[&'static str]) -> impl Strategy<Value = String> + use<> {
    pick(of).prop_map(str::to_owned)
}

fn toleration() -> impl Strategy<Value = Toleration> {
    let effect = pick(&[None, Some(Effect::NoExecute), Some(Effect::NoSchedule)]);
    let seconds = pick(&[None, Some(0), Some(5), Some(20), Some(-3)]);
    (text(&["", "a", "b"]), effect, seconds).prop_map(|(key, effect, toleration_seconds)| Toleration {
        key,
        operator: Operator::Exists,
        value: String::new(),
        effect,
        toleration_seconds,
    })
}

fn tolerations() -> impl Strategy<Value = Vec<Toleration>> {
    prop::collection::vec(toleration(), 0..3)
}

pub(super) fn taint() -> impl Strategy<Value = Taint> {
    let effect = pick(&[Effect::NoExecute, Effect::NoExecute, Effect::NoSchedule, Effect::None]);
    (text(&["a", "b"]), effect, 0..50_i64).prop_map(|(key, effect, second)| Taint {
        key,
        value: String::new(),
        effect,
        time_added: Some(at(second)),
    })
}

pub(super) fn node() -> impl Strategy<Value = Node> {
    (text(&["n0", "n1"]), prop::collection::vec(taint(), 0..2)).prop_map(|(name, mut taints)| {
        taints.dedup_by(|a, b| a.same_as(b));
        Node { uid: format!("uid-{name}"), name, taints, ..Node::default() }
    })
}

pub(super) fn identity() -> impl Strategy<Value = Identity> {
    prop::option::of(text(&["GPU-a", "GPU-b"])).prop_map(|uuid| Identity { uuid, serial: None })
}

pub(super) fn slice(drivers: &[&'static str], pools: &[&'static str]) -> impl Strategy<Value = Slice> + use<> {
    let device = (text(&["g0", "g1"]), prop::collection::vec(taint(), 0..2), identity());
    let devices = prop::collection::vec(device, 0..3);
    let home = (text(&["s0", "s1", "s2"]), text(drivers), text(pools));
    let age = (1..4_i64, prop::option::of(0..9_i64), text(&["x", "y"]));
    (home, age, devices, any::<bool>()).prop_map(|(home, (generation, created, uid), devices, follows_marks)| {
        let (name, driver, pool) = home;
        Slice {
            uid: format!("{name}-{uid}"),
            name,
            created: created.map(at),
            driver,
            pool,
            generation,
            slice_count: 1,
            devices: devices
                .into_iter()
                .map(|(name, taints, identity)| Device { name, taints, identity, ..Device::default() })
                .collect(),
            follows_marks,
            ..Slice::default()
        }
    })
}

/// A rule that names no hardware: the naive fleet knows none.
pub(super) fn rule() -> impl Strategy<Value = Rule> {
    rule_for(Just(Identity::default()))
}

pub(super) fn rule_for(identity: impl Strategy<Value = Identity>) -> impl Strategy<Value = Rule> {
    let some = |of: &[&'static str]| prop::option::of(text(of));
    let selector = (some(&["d0", "d1"]), some(&["p0", "p1"]), some(&["g0", "g1"]));
    let selector = prop::option::weighted(0.9, selector);
    let parts = (text(&["r0", "r1"]), selector, taint(), any::<bool>(), identity);
    parts.prop_map(|(name, selector, taint, careful, identity)| Rule {
        uid: format!("uid-{name}"),
        name,
        selector: selector.map(|(driver, pool, device)| Selector { driver, pool, device }),
        taint,
        careful,
        identity,
        expires_at: None,
        managed: false,
        reason: None,
        by: None,
    })
}

pub(super) fn claim_key() -> impl Strategy<Value = Key> {
    (text(&["ns0", "ns1"]), text(&["c0", "c1"])).prop_map(|(namespace, name)| Key { namespace, name })
}

pub(super) fn pod_key() -> impl Strategy<Value = Key> {
    (text(&["ns0", "ns1"]), text(&["w0", "w1"])).prop_map(|(namespace, name)| Key { namespace, name })
}

fn pod_uid() -> impl Strategy<Value = String> {
    text(&["u0", "u1", "u2"])
}

fn result() -> impl Strategy<Value = Allocated> {
    let id = (text(&["d0", "d1"]), text(&["p0", "p1"]), text(&["g0", "g1"]));
    (id, text(&["r0", "r1"]), prop::option::of(tolerations())).prop_map(
        |((driver, pool, device), request, tolerations)| Allocated {
            id: DeviceId { driver, pool, device },
            request,
            tolerations,
            admin_access: false,
            share_id: None,
        },
    )
}

pub(super) fn claim() -> impl Strategy<Value = Claim> {
    let consumer = prop_oneof![
        4 => pod_uid().prop_map(|uid| ("", "pods", String::new(), uid)),
        1 => text(&["gang"]).prop_map(|name| ("scheduling.k8s.io", "podgroups", name, String::new())),
        1 => text(&["job"]).prop_map(|name| ("batch", "jobs", name, String::new())),
    ];
    let owner = prop_oneof![
        2 => pod_uid().prop_map(|uid| Owner { kind: "Pod".into(), name: String::new(), uid }),
        1 => Just(Owner { kind: "PodGroup".into(), name: "gang".into(), uid: "g".into() }),
    ];
    let results = prop::option::weighted(0.9, prop::collection::vec(result(), 0..3));
    let parts =
        (claim_key(), prop::option::of(owner), prop::collection::btree_map(text(&["r0", "r1"]), tolerations(), 0..2));
    (parts, results, prop::collection::vec(consumer, 0..3)).prop_map(
        |((key, controller, requests), results, consumers)| {
            let consumer = |(group, resource, name, uid): (&str, &str, String, String)| Consumer {
                api_group: group.into(),
                resource: resource.into(),
                name,
                uid,
            };
            let reserved_for = consumers.into_iter().map(consumer).collect();
            Claim { uid: String::new(), key, controller, requests, results, reserved_for }
        },
    )
}

pub(super) fn pod() -> impl Strategy<Value = Pod> {
    let kind = pick(&[ClaimRefKind::Named, ClaimRefKind::Template, ClaimRefKind::ExtendedResource]);
    let reference = (prop::option::weighted(0.9, text(&["c0", "c1"])), kind);
    let claims = prop::collection::vec(reference.prop_map(|(claim, kind)| ClaimRef { claim, kind }), 0..3);
    let node = prop::option::weighted(0.8, text(&["n0", "n1"]));
    let end = (pick(&[Phase::Running, Phase::Running, Phase::Succeeded]), prop::option::weighted(0.1, Just(at(1))));
    let group = prop::option::of(text(&["gang"]));
    (pod_key(), pod_uid(), node, tolerations(), claims, group, end, 0..30_i64).prop_map(
        |(key, uid, node, tolerations, claims, pod_group, (phase, deleted_at), bound)| Pod {
            key,
            uid,
            resource_version: bound.to_string(),
            node,
            bound_at: Some(at(bound)),
            phase,
            deleted_at,
            tolerations,
            claims,
            pod_group,
            ..Pod::default()
        },
    )
}

pub(super) fn arrival() -> impl Strategy<Value = Change> {
    prop_oneof![
        1 => node().prop_map(Change::Node),
        3 => slice(&["d0", "d1"], &["p0", "p1"]).prop_map(Change::Slice),
        2 => rule().prop_map(Change::Rule),
        1 => rule().prop_map(Change::Mark),
        3 => claim().prop_map(Change::Claim),
        3 => pod().prop_map(Change::Pod),
    ]
}

pub(super) fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        12 => arrival(),
        1 => text(&["n0", "n1"]).prop_map(Change::NodeGone),
        2 => text(&["s0", "s1", "s2"]).prop_map(Change::SliceGone),
        1 => text(&["r0", "r1"]).prop_map(Change::RuleGone),
        1 => text(&["r0", "r1"]).prop_map(Change::MarkGone),
        1 => claim_key().prop_map(Change::ClaimGone),
        1 => pod_key().prop_map(Change::PodGone),
    ]
}
