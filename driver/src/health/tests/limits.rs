//! Intents, the limits of the API, and times.

use taints::{Effect, Taint};

use super::{Node, stamp, time_added};
use crate::health::{Intent, IntentStanding, Limits};
use crate::inventory::testkit::{absent, asking, at, gpu, healthy, name, opened, read, scan, uuid, xid};
use crate::nvml::{Presence, Reading, Update};

fn intent(uuid: Option<String>) -> Intent {
    let taint = Taint {
        key: "devicetaint.dev/maintenance".into(),
        value: "planned".into(),
        effect: Effect::NoExecute,
        time_added: Some(at(-50)),
    };
    Intent { mark: "dt-1".into(), device: name(0), uuid, serial: None, taint }
}

/// A card with everything wrong at once.
fn wreck() -> Node {
    let mut node = Node::with(1);
    let mut snapshot = asking(2);
    snapshot.remapped_rows.failed = Reading::Value(true);
    snapshot.pcie.width = Reading::Value(8);
    node.see(&xid(0, 79), 0);
    node.see(&read(0, snapshot), 1);
    node.see(&read(0, absent(Presence::Lost)), 2);
    node
}

#[test]
fn an_intent_joins_the_findings_and_keeps_its_time() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    let sets = node.sets(&[intent(Some(uuid(0)))], &Limits::default());
    let lines: Vec<String> = sets[&name(0)].iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["devicetaint.dev/maintenance=planned:NoExecute", "gpu.devicetaint.dev/xid=79:NoSchedule"]);
    assert_eq!(sets[&name(0)][0].time_added, Some(at(-50)));
}

#[test]
fn an_intent_without_a_time_gets_the_servers_stamp() {
    let mut node = Node::with(1);
    let mut untimed = intent(None);
    untimed.taint.time_added = None;
    let wanted = node.sets(std::slice::from_ref(&untimed), &Limits::default())[&name(0)].clone();
    assert_eq!(wanted[0].time_added, None);
    node.health.adopt_time(&node.inventory, &name(0), &Taint { time_added: Some(at(7)), ..wanted[0].clone() });
    assert_eq!(node.sets(&[untimed], &Limits::default())[&name(0)][0].time_added, Some(at(7)));
}

#[test]
fn an_intent_for_other_hardware_is_not_followed() {
    let mut node = Node::with(1);
    assert_eq!(node.sets(&[intent(Some("GPU-other".into()))], &Limits::default())[&name(0)], []);
    assert_eq!(node.sets(&[intent(None)], &Limits::default())[&name(0)].len(), 1);
}

#[test]
fn each_intent_says_how_it_stands() {
    let node = Node::with(1);
    let with = |change: &dyn Fn(&mut Intent)| {
        let mut intent = intent(None);
        change(&mut intent);
        node.health.intent_standings(&node.inventory, &[intent])[0]
    };
    let serial = node.inventory.device(&name(0)).unwrap().serial.clone();
    assert!(serial.is_some(), "the card of this test has a serial number");
    assert_eq!(with(&|_| ()), IntentStanding::Followed);
    assert_eq!(with(&|intent| intent.uuid = Some("GPU-x".into())), IntentStanding::OtherCard);
    assert_eq!(with(&|intent| intent.serial = Some("other".into())), IntentStanding::OtherCard);
    assert_eq!(with(&|intent| intent.serial.clone_from(&serial)), IntentStanding::Followed);
    assert_eq!(with(&|intent| intent.device = name(7)), IntentStanding::NoDevice);
    assert_eq!(with(&|intent| intent.taint.key = "gpu.devicetaint.dev/lost".into()), IntentStanding::DriversKey);
}

#[test]
fn of_two_intents_for_one_taint_the_older_one_is_followed() {
    let mut node = Node::with(1);
    let mut younger = intent(None);
    younger.mark = "a".into();
    younger.taint.value = "other".into();
    younger.taint.time_added = Some(at(-10));
    let both = [younger, intent(None)];
    let standings = node.health.intent_standings(&node.inventory, &both);
    assert_eq!(standings, [IntentStanding::Repeated, IntentStanding::Followed]);
    assert_eq!(node.sets(&both, &Limits::default())[&name(0)].len(), 1);
}

#[test]
fn an_intent_has_room_before_any_finding() {
    let mut node = wreck();
    let mut soft = intent(None);
    soft.taint.effect = Effect::NoSchedule;
    let set = node.sets(&[soft.clone()], &Limits { max_taints: 2, none_effect: true })[&name(0)].clone();
    let lines: Vec<String> = set.iter().map(ToString::to_string).collect();
    assert_eq!(lines, ["devicetaint.dev/maintenance=planned:NoSchedule", "gpu.devicetaint.dev/multiple:NoSchedule"]);
}

#[test]
fn what_has_no_room_is_folded_into_one_that_is_as_strong() {
    let mut node = wreck();
    let limits = Limits { max_taints: 4, none_effect: true };
    let lines: Vec<String> = node.sets(&[], &limits)[&name(0)].iter().map(ToString::to_string).collect();
    let domain = "gpu.devicetaint.dev";
    let expected = [
        format!("{domain}/lost:NoSchedule"),
        format!("{domain}/recovery=node-reboot:NoSchedule"),
        format!("{domain}/memory=remap-failed:NoSchedule"),
        format!("{domain}/multiple:NoSchedule"),
    ];
    assert_eq!(lines, expected);
    assert_eq!(node.sets(&[], &Limits { max_taints: 5, none_effect: true })[&name(0)].len(), 5);
}

#[test]
fn an_old_server_gets_no_informative_taints() {
    let mut node = wreck();
    let limits = Limits { max_taints: 4, none_effect: false };
    let set = &node.sets(&[], &limits)[&name(0)];
    assert_eq!(set.len(), 4);
    assert!(set.iter().all(|taint| taint.effect == Effect::NoSchedule));
    assert_eq!(set[3].key, "gpu.devicetaint.dev/xid");
}

#[test]
fn a_stamp_stays_while_the_taint_does_and_no_longer() {
    let mut node = Node::with(1);
    let adopt = |node: &mut Node, seconds| stamp(node, &name(0), "lost", "", Effect::NoSchedule, seconds);
    node.see(&read(0, absent(Presence::Lost)), 0);
    assert_eq!(time_added(&mut node, &name(0)), [None]);
    assert!(adopt(&mut node, 1));
    assert!(!adopt(&mut node, 1));
    node.see(&xid(0, 79), 5);
    assert_eq!(time_added(&mut node, &name(0)), [Some(at(1)), None]);
    node.see(&read(0, healthy()), 10);
    time_added(&mut node, &name(0));
    node.see(&read(0, absent(Presence::Lost)), 20);
    assert_eq!(time_added(&mut node, &name(0))[0], None);
}

#[test]
fn what_an_old_server_does_not_show_keeps_its_stamp() {
    let mut node = Node::with(1);
    node.see(&xid(0, 69), 0);
    stamp(&mut node, &name(0), "xid", "69", Effect::None, 1);
    node.sets(&[], &Limits { max_taints: 4, none_effect: false });
    assert_eq!(time_added(&mut node, &name(0)), [Some(at(1))]);
}

#[test]
fn news_of_other_hardware_is_counted_and_changes_nothing() {
    let mut node = Node::with(1);
    let mut update = xid(0, 79);
    if let Update::Signal(signal) = &mut update {
        signal.uuid = Some("GPU-other".into());
    }
    node.see(&update, 1);
    node.see(&xid(7, 79), 1);
    assert_eq!(node.taints(), Vec::<String>::new());
    assert_eq!(node.health.counters().foreign, 2);
}

#[test]
fn findings_follow_the_hardware_to_another_slot() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    let mut moved = gpu(1);
    moved.uuid = uuid(0);
    node.see(&Update::Discovered { scan: scan(vec![moved]) }, 60);
    assert_eq!(node.taints_of(1), ["xid=79:NoSchedule"]);
}

#[test]
fn a_flood_of_codes_is_bounded() {
    let mut node = Node::with(1);
    for code in 1000..2000 {
        node.see(&xid(0, code), 0);
    }
    let card = node.health.card_of(&node.inventory, &name(0)).unwrap();
    assert_eq!(card.findings().count(), 256);
    assert_eq!(node.health.counters().overflowed, 1000 - 256);
    assert_eq!(node.health.counters().xids.len(), 257);
    node.see(&read(0, absent(Presence::Lost)), 1);
    assert!(node.taints_of(0).len() <= 2);
}

#[test]
fn hardware_that_left_is_forgotten_in_time() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    let mut other = gpu(0);
    other.uuid = "GPU-cc".into();
    node.see(&opened(vec![other]), 60);
    node.tick(29 * 86_400);
    assert_eq!(node.health.record().cards.iter().filter(|card| card.key == uuid(0)).count(), 1);
    node.tick(31 * 86_400);
    assert_eq!(node.health.record().cards.iter().filter(|card| card.key == uuid(0)).count(), 0);
}
