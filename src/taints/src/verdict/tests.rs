//! Verdicts by example: the joint one, careful taints, hardware, lost tolerations, time, and the words for people.

use jiff::Timestamp;

use super::*;
use crate::fleet::{Change, Fleet};
use crate::object::{
    Allocated, Claim, ClaimRef, ClaimRefKind, Consumer, Device, Identity, Node, Phase, Pod, Rule, Selector, Slice,
};
use crate::{Effect, Operator};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn taint(key: &str, effect: Effect, second: Option<i64>) -> Taint {
    Taint { key: key.into(), value: "v".into(), effect, time_added: second.map(at) }
}

fn tolerates(key: &str, effect: Option<Effect>, seconds: Option<i64>) -> Toleration {
    Toleration {
        key: key.into(),
        operator: Operator::Exists,
        value: String::new(),
        effect,
        toleration_seconds: seconds,
    }
}

fn id() -> DeviceId {
    DeviceId { driver: "d".into(), pool: "n".into(), device: "g0".into() }
}

/// One pod on one node with one claim for one device.
struct World {
    fleet: Fleet,
    seen: FirstSeen,
    settings: Settings,
    node: Node,
    slice: Slice,
    claim: Claim,
    pod: Pod,
}

impl World {
    fn new() -> Self {
        let consumer =
            Consumer { api_group: String::new(), resource: "pods".into(), name: "w".into(), uid: "u".into() };
        let result =
            Allocated { id: id(), request: "r".into(), tolerations: None, admin_access: false, share_id: None };
        Self {
            fleet: Fleet::default(),
            seen: FirstSeen::default(),
            settings: Settings::default(),
            node: Node { name: "n".into(), uid: "un".into(), ..Node::default() },
            slice: Slice {
                name: "s".into(),
                driver: "d".into(),
                pool: "n".into(),
                generation: 1,
                slice_count: 1,
                devices: vec![Device { name: "g0".into(), ..Device::default() }],
                follows_marks: true,
                ..Slice::default()
            },
            claim: Claim {
                key: Key::new("ns", "c"),
                results: Some(vec![result]),
                reserved_for: vec![consumer],
                ..Claim::default()
            },
            pod: Pod {
                key: Key::new("ns", "w"),
                uid: "u".into(),
                resource_version: "7".into(),
                node: Some("n".into()),
                bound_at: Some(at(10)),
                phase: Phase::Running,
                claims: vec![ClaimRef { claim: Some("c".into()), kind: ClaimRefKind::Named }],
                ..Pod::default()
            },
        }
    }

    fn node_taint(mut self, taint: Taint) -> Self {
        self.node.taints.push(taint);
        self
    }

    fn device_taint(mut self, taint: Taint) -> Self {
        self.slice.devices[0].taints.push(taint);
        self
    }

    fn pod_tolerates(mut self, tolerations: &[Toleration]) -> Self {
        self.pod.tolerations = tolerations.to_vec();
        self
    }

    fn result_tolerates(mut self, tolerations: &[Toleration]) -> Self {
        self.claim.results.as_mut().unwrap()[0].tolerations = Some(tolerations.to_vec());
        self
    }

    fn request_tolerates(mut self, tolerations: &[Toleration]) -> Self {
        self.claim.requests.insert("r".into(), tolerations.to_vec());
        self
    }

    fn rule(mut self, rule: Rule) -> Self {
        self.seen.observe_rule(&rule, at(50));
        self.fleet.apply(Change::Rule(rule));
        self
    }

    /// Everything is seen at second 50.
    fn judge(mut self) -> Verdict {
        self.seen.observe(&self.node, at(50));
        self.seen.observe_slice(&self.slice, at(50));
        self.fleet.apply(Change::Node(self.node));
        self.fleet.apply(Change::Slice(self.slice));
        self.fleet.apply(Change::Claim(self.claim));
        self.fleet.apply(Change::Pod(self.pod));
        judge(&self.fleet, &Key::new("ns", "w"), &self.seen, &self.settings).unwrap()
    }

    fn leaves_at(self) -> Option<i64> {
        self.judge().leave_at.map(Timestamp::as_second)
    }
}

fn rule(taint: Taint) -> Rule {
    Rule {
        name: "maintenance".into(),
        uid: "ur".into(),
        selector: Some(Selector::default()),
        taint,
        careful: false,
        identity: Identity::default(),
        expires_at: None,
        managed: false,
        reason: None,
        by: None,
    }
}

const NO_EXECUTE: Option<Effect> = Some(Effect::NoExecute);

#[test]
fn the_earliest_deadline_wins_and_every_reason_is_kept() {
    let verdict = World::new()
        .node_taint(taint("node", Effect::NoExecute, Some(20)))
        .device_taint(taint("gpu", Effect::NoExecute, Some(30)))
        .rule(rule(taint("rule", Effect::NoExecute, Some(40))))
        .pod_tolerates(&[tolerates("node", NO_EXECUTE, Some(100))])
        .result_tolerates(&[tolerates("gpu", NO_EXECUTE, Some(60)), tolerates("rule", NO_EXECUTE, Some(55))])
        .judge();
    assert_eq!(verdict.leave_at, Some(at(90)));
    let deadlines: Vec<_> = verdict.reasons.iter().map(|reason| (reason.taint.key.as_str(), reason.deadline)).collect();
    assert_eq!(deadlines, [("gpu", Some(at(90))), ("rule", Some(at(95))), ("node", Some(at(120)))]);
}

#[test]
fn a_countdown_of_the_node_never_begins_before_the_binding() {
    let world = World::new().node_taint(taint("a", Effect::NoExecute, Some(-1000)));
    assert_eq!(world.pod_tolerates(&[tolerates("a", NO_EXECUTE, Some(60))]).leaves_at(), Some(70));
}

#[test]
fn a_node_taint_without_a_time_counts_from_its_first_sight() {
    let world = World::new().node_taint(taint("a", Effect::NoExecute, None));
    assert_eq!(world.pod_tolerates(&[tolerates("a", NO_EXECUTE, Some(60))]).leaves_at(), Some(110));
}

#[test]
fn a_device_taint_without_a_time_counts_from_its_first_sight_too() {
    assert_eq!(World::new().device_taint(taint("a", Effect::NoExecute, None)).leaves_at(), Some(50));
    assert_eq!(World::new().rule(rule(taint("a", Effect::NoExecute, None))).leaves_at(), Some(50));
}

#[test]
fn a_taint_that_nobody_saw_begin_is_held() {
    let mut world = World::new().node_taint(taint("a", Effect::NoExecute, None));
    for change in [Change::Node(world.node), Change::Pod(world.pod)] {
        world.fleet.apply(change);
    }
    let verdict = judge(&world.fleet, &Key::new("ns", "w"), &world.seen, &world.settings).unwrap();
    assert_eq!(verdict.leave_at, None);
    assert!(matches!(verdict.held[0].why, HeldWhy::NoTime { .. }));
}

#[test]
fn on_a_node_the_first_toleration_decides_and_on_a_device_the_best() {
    let both = [tolerates("a", NO_EXECUTE, Some(60)), tolerates("", None, None)];
    let node = World::new().node_taint(taint("a", Effect::NoExecute, Some(20)));
    assert_eq!(node.pod_tolerates(&both).leaves_at(), Some(80));
    let device = World::new().device_taint(taint("a", Effect::NoExecute, Some(20)));
    assert_eq!(device.result_tolerates(&both).leaves_at(), None);
    let two = [tolerates("a", NO_EXECUTE, Some(60)), tolerates("a", NO_EXECUTE, Some(40))];
    let device = World::new().device_taint(taint("a", Effect::NoExecute, Some(20)));
    assert_eq!(device.result_tolerates(&two).leaves_at(), Some(60));
}

#[test]
fn without_an_effect_seconds_are_ignored_and_a_person_is_told() {
    let verdict = World::new()
        .device_taint(taint("a", Effect::NoExecute, Some(20)))
        .result_tolerates(&[tolerates("a", None, Some(30))])
        .judge();
    assert_eq!((verdict.leave_at, verdict.tolerated.len()), (None, 1));
    assert!(matches!(verdict.warnings[..], [Warning::EmptyEffect { .. }]));
}

#[test]
fn seconds_saturate_at_the_end_of_time() {
    let verdict = World::new()
        .device_taint(taint("a", Effect::NoExecute, Some(20)))
        .result_tolerates(&[tolerates("a", NO_EXECUTE, Some(i64::MAX))])
        .judge();
    assert_eq!(verdict.leave_at, Some(Timestamp::MAX));
}

#[test]
fn no_schedule_evicts_only_where_it_is_called_careful() {
    let soft = || taint("a", Effect::NoSchedule, Some(20));
    assert_eq!(World::new().device_taint(soft()).leaves_at(), None);
    assert_eq!(World::new().rule(rule(soft())).leaves_at(), None);
    assert_eq!(World::new().rule(Rule { careful: true, ..rule(soft()) }).leaves_at(), Some(20));

    let settings = |text: &str| Settings { careful: vec![text.parse().unwrap()], ..Settings::default() };
    let world = |text: &str| World { settings: settings(text), ..World::new().device_taint(soft()) };
    assert_eq!(world("a").leaves_at(), Some(20));
    assert_eq!(world("a=v").leaves_at(), Some(20));
    assert_eq!(world("a=other").leaves_at(), None);
    let node = World { settings: settings("a"), ..World::new().node_taint(soft()) };
    assert_eq!(node.leaves_at(), Some(20));
}

#[test]
fn a_careful_taint_is_judged_by_tolerations_of_no_execute() {
    let careful = || Rule { careful: true, ..rule(taint("a", Effect::NoSchedule, Some(20))) };
    let of = |effect, seconds| World::new().rule(careful()).result_tolerates(&[tolerates("a", effect, seconds)]);
    assert_eq!(of(Some(Effect::NoSchedule), None).leaves_at(), Some(20));
    assert_eq!(of(NO_EXECUTE, Some(30)).leaves_at(), Some(50));
    assert_eq!(of(NO_EXECUTE, None).leaves_at(), None);
}

#[test]
fn a_mark_says_who_wished_a_taint_of_the_slice_and_whether_with_care() {
    let soft = || taint("a", Effect::NoSchedule, Some(20));
    let mark = || Rule { careful: true, by: Some("ada".into()), reason: Some("a fan".into()), ..rule(soft()) };
    let with = |mark: Rule| {
        let mut world = World::new().device_taint(soft());
        world.fleet.apply(Change::Mark(mark));
        world.judge()
    };
    let verdict = with(mark());
    assert_eq!(verdict.leave_at, Some(at(20)));
    let origin = verdict.reasons[0].origin.to_string();
    assert_eq!(origin, format!("by DeviceMark {} of ada: \"a fan\"", mark().name));
    assert_eq!(with(Rule { careful: false, ..mark() }).leave_at, None);
    let other_value = Rule { taint: Taint { value: "other".into(), ..soft() }, ..mark() };
    assert_eq!(with(other_value).leave_at, None);
    let mut foreign = World::new().device_taint(soft());
    foreign.slice.follows_marks = false;
    foreign.fleet.apply(Change::Mark(mark()));
    assert_eq!(foreign.judge().leave_at, None, "the taint is the driver's own");
    let of_another_card = Rule { identity: Identity { uuid: Some("GPU-x".into()), serial: None }, ..mark() };
    assert_eq!(with(of_another_card).leave_at, None);
}

#[test]
fn a_mark_that_no_slice_shows_taints_nothing() {
    let mut world = World::new();
    world.fleet.apply(Change::Mark(rule(taint("a", Effect::NoExecute, Some(20)))));
    let verdict = world.judge();
    assert_eq!((verdict.leave_at, verdict.reasons.len()), (None, 0));
}

#[test]
fn what_is_not_a_careful_taint_is_refused() {
    for text in ["", "=v", "a=b=c", "a b", "a=-"] {
        assert!(text.parse::<Careful>().is_err(), "{text:?}");
    }
}

#[test]
fn tolerations_that_a_scheduler_lost_are_taken_from_the_request() {
    let tainted = || World::new().device_taint(taint("a", Effect::NoExecute, Some(20)));
    let asked = [tolerates("a", NO_EXECUTE, None)];
    for lost in [tainted(), tainted().result_tolerates(&[])] {
        let verdict = lost.request_tolerates(&asked).judge();
        assert_eq!(verdict.leave_at, None);
        assert!(matches!(verdict.warnings[..], [Warning::FromRequest { .. }]));
    }
    let both = tainted().request_tolerates(&asked).result_tolerates(&[tolerates("a", NO_EXECUTE, Some(5))]).judge();
    assert_eq!(both.leave_at, Some(at(25)));
    assert!(matches!(both.warnings[..], [Warning::ResultDiffers { .. }]));
}

#[test]
fn a_device_that_no_slice_lists_is_held_and_rules_act_all_the_same() {
    let mut world = World::new();
    world.slice.devices.clear();
    let verdict = world.rule(rule(taint("a", Effect::NoExecute, Some(20)))).judge();
    assert_eq!(verdict.leave_at, Some(at(20)));
    assert_eq!(verdict.held[0].why, HeldWhy::NotListed);
}

#[test]
fn a_rule_for_another_card_is_told_of_and_one_for_an_unknown_card_is_held() {
    let for_card = |uuid: &str| Rule {
        identity: Identity { uuid: Some(uuid.into()), serial: None },
        ..rule(taint("a", Effect::NoExecute, Some(20)))
    };
    let card = |uuid: Option<&str>| {
        let mut world = World::new();
        world.slice.devices[0].identity.uuid = uuid.map(str::to_owned);
        world
    };
    assert_eq!(card(Some("GPU-aa")).rule(for_card("GPU-aa")).leaves_at(), Some(20));
    let other = card(Some("GPU-cc")).rule(for_card("GPU-aa")).judge();
    assert_eq!(other.leave_at, None);
    assert!(matches!(other.warnings[..], [Warning::TargetChanged { .. }]));
    let unknown = card(None).rule(for_card("GPU-aa")).judge();
    assert_eq!(unknown.leave_at, None);
    assert!(matches!(unknown.held[0].why, HeldWhy::IdentityUnknown { .. }));
}

#[test]
fn finished_and_ending_pods_are_spared_and_their_reasons_are_still_told() {
    let tainted = || World::new().device_taint(taint("a", Effect::NoExecute, Some(20)));
    let mut finished = tainted();
    finished.pod.phase = Phase::Succeeded;
    let mut ending = tainted();
    ending.pod.deleted_at = Some(at(30));
    for (world, spared) in [(finished, Spared::Finished), (ending, Spared::Terminating)] {
        let verdict = world.judge();
        assert_eq!((verdict.leave_at, verdict.spared), (None, Some(spared)));
        assert_eq!(verdict.reasons.len(), 1);
    }
}

#[test]
fn a_group_counts_only_while_groups_are_on() {
    let grouped = || {
        let mut world = World::new().device_taint(taint("a", Effect::NoExecute, Some(20)));
        world.pod.pod_group = Some("gang".into());
        world.claim.reserved_for[0] = Consumer {
            api_group: "scheduling.k8s.io".into(),
            resource: "podgroups".into(),
            name: "gang".into(),
            uid: "g".into(),
        };
        world
    };
    assert_eq!(grouped().leaves_at(), Some(20));
    let off = World { settings: Settings { pod_groups: false, ..Settings::default() }, ..grouped() };
    assert_eq!(off.leaves_at(), None);
}

#[test]
fn a_verdict_reads_as_one_line_and_one_for_each_reason() {
    let verdict = World::new()
        .node_taint(taint("node", Effect::NoExecute, Some(20)))
        .device_taint(taint("gpu", Effect::NoExecute, Some(30)))
        .rule(rule(taint("rule", Effect::NoExecute, Some(40))))
        .pod_tolerates(&[tolerates("node", NO_EXECUTE, Some(100))])
        .result_tolerates(&[tolerates("gpu", Some(Effect::NoSchedule), None), tolerates("rule", NO_EXECUTE, None)])
        .judge();
    insta::assert_snapshot!(verdict, @r"
    pod ns/w leaves at 1970-01-01T00:00:30Z
      device d/n/g0 (claim ns/c, request r) has taint gpu=v:NoExecute (by the driver in ResourceSlice s), not tolerated (toleration gpu:NoSchedule has another effect), leaves at 1970-01-01T00:00:30Z
      node n has taint node=v:NoExecute, tolerated for 100s by node:NoExecute, leaves at 1970-01-01T00:02:00Z
      device d/n/g0 (claim ns/c, request r) has taint rule=v:NoExecute (by DeviceTaintRule maintenance), tolerated by rule:NoExecute
    ");
}

#[test]
fn a_reason_says_who_made_the_mark_and_why_on_one_line() {
    let told = |by: Option<&str>, reason: Option<&str>| {
        let mark = Rule {
            by: by.map(str::to_owned),
            reason: reason.map(str::to_owned),
            ..rule(taint("k", Effect::NoExecute, Some(20)))
        };
        World::new().rule(mark).judge().reasons[0].to_string()
    };
    insta::assert_snapshot!(told(Some("ada"), Some("replace\na fan")), @r#"device d/n/g0 (claim ns/c, request r) has taint k=v:NoExecute (by DeviceTaintRule maintenance of ada: "replace a fan"), not tolerated (the claim has no toleration for this key), leaves at 1970-01-01T00:00:20Z"#);
    assert!(told(Some("ada"), None).contains("(by DeviceTaintRule maintenance of ada), "));
    assert!(told(None, Some("fan")).contains("(by DeviceTaintRule maintenance: \"fan\"), "));
    assert!(told(None, Some(&"x".repeat(5000))).len() < 400);
}

#[test]
fn times_have_whole_seconds_and_no_reason_repeats_its_own() {
    let since = "1970-01-01T00:00:20.987654321Z".parse().unwrap();
    let exact = Taint { time_added: Some(since), ..taint("k", Effect::NoExecute, None) };
    let verdict = World::new().device_taint(exact).result_tolerates(&[tolerates("k", NO_EXECUTE, Some(-5))]).judge();
    let text = verdict.to_string();
    assert!(text.contains("tolerated for 0s by k:NoExecute, leaves at 1970-01-01T00:00:20Z"), "{text}");
    assert!(!text.contains(".98"), "{text}");
}
