//! The field reports, each with its small input.

use super::{Node, shipped, stamp, time_added};
use crate::health::{FindingEventKind, HealthState};
use crate::inventory::testkit::{
    absent, after_reset, asking, at, gpu, healthy, name, opened, opened_with, partitioned, read, scan, unidentified,
    uuid, xid, xid_on,
};
use crate::nvml::{Code, Presence, Reading, Update};

fn mig(n: u8, start: u32) -> String {
    format!("{}-mig-1g10gb-{start}-0", name(n))
}

#[test]
fn f05_a_fault_of_the_card_taints_all_of_its_partitions_and_no_other_card() {
    let mut node = Node::of(vec![partitioned(0, &[(1, 0), (2, 0)]), gpu(1)]);
    let changes = node.see(&xid(0, 79), 10);
    assert!(changes.taints_changed);
    let expected = [format!("{} xid=79:NoSchedule", mig(0, 2)), format!("{} xid=79:NoSchedule", mig(0, 4))];
    assert_eq!(node.taints(), expected);
}

#[test]
fn f05_a_fault_of_a_partition_stays_with_it_unless_the_code_is_of_the_card() {
    let mut node = Node::of(vec![partitioned(0, &[(1, 0), (2, 0)])]);
    node.see(&xid_on(0, 48, Some((1, 0))), 10);
    assert_eq!(node.taints(), [format!("{} xid=48:NoSchedule", mig(0, 2))]);
    node.see(&xid_on(0, 79, Some((1, 0))), 11);
    assert_eq!(node.taints().len(), 2);
}

#[test]
fn f06_an_event_that_matches_no_partition_counts_for_the_card() {
    let mut node = Node::of(vec![partitioned(0, &[(1, 0)])]);
    node.see(&xid_on(0, 48, Some((2, 0))), 10);
    assert_eq!(node.taints(), [format!("{} xid=48:NoSchedule", mig(0, 2))]);
    assert_eq!(node.health.counters().unattributed, 1);
    // On a card without partitions the ids mean nothing, and nothing is amiss.
    let mut whole = Node::with(1);
    whole.see(&xid_on(0, 48, Some((0, 0))), 10);
    assert_eq!(whole.taints_of(0), ["xid=48:NoSchedule"]);
    assert_eq!(whole.health.counters().unattributed, 0);
}

#[test]
fn f07_one_lost_card_of_eight_taints_exactly_that_one() {
    let mut node = Node::with(8);
    node.see(&read(3, absent(Presence::Lost)), 10);
    assert_eq!(node.taints(), [format!("{} lost:NoSchedule", name(3))]);
    let states: Vec<HealthState> = node.health.device_health(&node.inventory).into_iter().map(|h| h.state).collect();
    assert_eq!(states.iter().filter(|state| **state == HealthState::Unhealthy).count(), 1);
    assert_eq!(states[3], HealthState::Unhealthy);
    let changes = node.see(&read(3, healthy()), 25);
    assert_eq!(node.taints(), Vec::<String>::new());
    assert!(matches!(&changes.events[0].kind, FindingEventKind::Cleared { why } if why == "the condition ended"));
}

#[test]
fn f08_a_recorded_remap_informs_and_a_failed_one_isolates() {
    let mut node = Node::with(1);
    let mut snapshot = healthy();
    snapshot.remapped_rows.pending = Reading::Value(true);
    node.see(&xid(0, 63), 10);
    node.see(&read(0, snapshot.clone()), 10);
    assert_eq!(node.taints_of(0), ["memory=remap-pending:None"]);
    node.see(&xid(0, 64), 20);
    assert_eq!(node.taints_of(0), ["memory=remap-failed:NoSchedule"]);
    snapshot.remapped_rows.failed = Reading::Value(true);
    node.see(&read(0, snapshot), 21);
    // Only the flag itself takes it away again.
    node.poll(0, 30, 30);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn f08_a_policy_can_make_63_fatal() {
    let mut node = Node::under("version: 1\nxid:\n  63: {effect: NoExecute}\n", 1);
    node.see(&xid(0, 63), 10);
    assert_eq!(node.taints_of(0), ["memory=remap-pending:NoExecute"]);
}

#[test]
fn f08_a_flag_that_never_read_set_is_no_proof_that_it_went() {
    let mut node = Node::with(1);
    node.see(&xid(0, 64), 10);
    node.poll(0, 15, 7200);
    assert_eq!(node.taints_of(0), ["memory=remap-failed:NoSchedule"]);
    node.see(&read(0, after_reset()), 7215);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn f09_a_context_switch_timeout_isolates_only_as_a_habit() {
    let mut node = Node::with(1);
    node.see(&xid(0, 109), 10);
    assert_eq!(node.taints_of(0), ["xid=109:None"]);
    let text = node.explain(&name(0));
    for part in [
        "xid=109:None (context switch timeout)",
        "the shipped policy, line ",
        "xid.109",
        "goes 24h after the last event",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    node.see(&xid(0, 109), 3600);
    assert_eq!(node.taints_of(0), ["xid=109:NoSchedule"]);
}

#[test]
fn f09_two_in_two_days_are_no_habit() {
    let mut node = Node::with(1);
    node.see(&xid(0, 109), 10);
    node.see(&xid(0, 109), 25 * 3600);
    assert_eq!(node.taints_of(0), ["xid=109:None"]);
}

#[test]
fn f09_a_recovery_action_isolates_at_the_first() {
    let mut node = Node::with(1);
    node.see(&xid(0, 109), 10);
    node.see(&read(0, asking(1)), 12);
    assert_eq!(node.taints_of(0), ["recovery=gpu-reset:NoSchedule", "xid=109:None"]);
}

#[test]
fn f10_a_contained_memory_error_informs_until_it_is_a_habit() {
    let mut node = Node::with(1);
    node.see(&xid(0, 94), 10);
    node.see(&xid(0, 94), 20);
    assert_eq!(node.taints_of(0), ["xid=94:None"]);
    node.see(&xid(0, 94), 30);
    assert_eq!(node.taints_of(0), ["xid=94:NoSchedule"]);
    node.see(&xid(0, 95), 40);
    assert_eq!(node.taints_of(0), ["xid=94:NoSchedule"]);
    assert!(node.explain(&name(0)).contains("xid=95:NoSchedule"));
}

#[test]
fn f12_the_recovery_action_is_what_it_reads_last() {
    let mut node = Node::with(2);
    node.see(&xid(0, 149), 10);
    node.see(&xid(0, 154), 10);
    node.see(&read(0, asking(4)), 10);
    node.see(&read(1, asking(4)), 10);
    node.see(&read(0, asking(1)), 11);
    assert_eq!(node.taints_of(0), ["recovery=gpu-reset:NoSchedule", "xid=149:None"]);
    assert_eq!(node.taints_of(1), ["recovery=drain-and-reset:NoSchedule"]);
    node.see(&read(0, after_reset()), 65);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    assert_eq!(node.taints_of(1), ["recovery=drain-and-reset:NoSchedule"]);
}

#[test]
fn f12_an_action_that_came_after_this_program_is_not_healthy() {
    let mut node = Node::with(1);
    node.see(&read(0, asking(42)), 10);
    assert_eq!(node.taints_of(0), ["recovery=action-42:NoSchedule"]);
}

#[test]
fn f13_a_later_code_withdraws_an_earlier_one_of_the_same_card() {
    let mut node = Node::with(2);
    node.see(&xid(0, 163), 0);
    node.see(&xid(1, 162), 8);
    assert_eq!(node.taints_of(0), ["xid=163:None"]);
    node.see(&xid(0, 162), 9);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    let text = node.explain(&name(0));
    assert!(text.contains("past: xid=163 cleared") && text.contains("XID 162 says that it is over"), "{text}");
    assert!(text.contains("xid=162:Ignore"), "{text}");
}

#[test]
fn f14_a_restart_keeps_finding_and_time() {
    let mut node = Node::with(1);
    let mut broken = healthy();
    broken.remapped_rows.failed = Reading::Value(true);
    node.see(&xid(0, 64), 0);
    node.see(&read(0, broken.clone()), 1);
    assert!(stamp(&mut node, &name(0), "memory", "remap-failed", taints::Effect::NoSchedule, 2));
    node.restart("boot-1", 60);
    node.see(&opened(vec![gpu(0)]), 61);
    assert_eq!(time_added(&mut node, &name(0)), [Some(at(2))]);
    node.see(&read(0, broken), 62);
    assert_eq!(node.taints_of(0), ["memory=remap-failed:NoSchedule"]);
    assert_eq!(time_added(&mut node, &name(0)), [Some(at(2))]);
    let card = node.health.card_of(&node.inventory, &name(0)).unwrap();
    assert_eq!(card.findings().next().unwrap().first_seen, at(0));
}

#[test]
fn f14_a_reboot_clears_only_after_the_card_was_read_and_says_what_showed_it() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    node.restart("boot-2", 600);
    node.see(&opened(vec![gpu(0)]), 601);
    assert_eq!(node.taints_of(0), ["xid=79:NoSchedule"]);
    node.see(&read(0, asking(2)), 602);
    assert_eq!(node.taints_of(0), ["recovery=node-reboot:NoSchedule", "xid=79:NoSchedule"]);
    let mut other = Node::with(1);
    other.see(&xid(0, 79), 0);
    other.restart("boot-2", 600);
    other.see(&opened(vec![gpu(0)]), 601);
    let changes = other.see(&read(0, healthy()), 602);
    assert_eq!(other.taints_of(0), Vec::<String>::new());
    let cleared = changes.events[0].to_string();
    assert!(
        cleared.ends_with("the card answers, the recovery action reads none, and the node's boot id changed"),
        "{cleared}"
    );
}

#[test]
fn f16_a_harmless_code_does_not_hide_a_fatal_one() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    node.see(&xid(0, 43), 5);
    node.see(&xid(0, 109), 6);
    assert_eq!(node.taints_of(0), ["xid=79:NoSchedule"]);
    let text = node.explain(&name(0));
    assert!(text.contains("xid=79:NoSchedule (the GPU fell off the bus)") && text.contains("xid=43:Ignore"), "{text}");
}

#[test]
fn f19_findings_of_a_card_do_not_stick_to_the_one_that_takes_its_place() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    let mut other = gpu(0);
    other.uuid = "GPU-cc".into();
    node.see(&Update::Discovered { scan: scan(vec![other]) }, 60);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    node.see(&Update::Discovered { scan: scan(vec![gpu(0)]) }, 120);
    assert_eq!(node.taints_of(0), ["xid=79:NoSchedule"]);
}

#[test]
fn f28_each_dimension_has_a_key_of_its_own() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    let mut snapshot = asking(2);
    snapshot.remapped_rows.failed = Reading::Value(true);
    snapshot.pcie.width = Reading::Value(8);
    node.see(&read(0, snapshot), 1);
    let expected = [
        "recovery=node-reboot:NoSchedule",
        "memory=remap-failed:NoSchedule",
        "xid=79:NoSchedule",
        "link=pcie-width:None",
    ];
    assert_eq!(node.taints_of(0), expected);
}

#[test]
fn f29_when_the_first_fault_recovers_exactly_the_second_remains() {
    let mut node = Node::with(1);
    node.see(&read(0, absent(Presence::Lost)), 0);
    node.see(&xid(0, 119), 5);
    assert_eq!(node.taints_of(0), ["lost:NoSchedule", "xid=119:NoSchedule"]);
    node.see(&read(0, healthy()), 15);
    assert_eq!(node.taints_of(0), ["xid=119:NoSchedule"]);
}

#[test]
fn f33_a_card_that_fails_discovery_is_published_and_says_so() {
    let mut node = Node::bare(shipped());
    node.bus = crate::inventory::testkit::bus(0..2);
    let mut look = scan(vec![gpu(0)]);
    look.unidentified = vec![unidentified(1, true, Code::UNKNOWN)];
    node.see(&opened_with(look), 0);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    assert_eq!(node.taints_of(1), ["unmonitored=undiscovered:None"]);
    let health = node.health.device_health(&node.inventory);
    assert_eq!(health[1].state, HealthState::Unknown);
    // Once it tells its name, its story goes on under it.
    node.see(&opened(vec![gpu(0), gpu(1)]), 60);
    assert_eq!(node.taints_of(1), Vec::<String>::new());
    assert_eq!(node.health.card_of(&node.inventory, &name(1)).unwrap().key, uuid(1));
}

#[test]
fn f35_a_silent_monitor_makes_a_card_unknown_not_bad() {
    let mut node = Node::with(2);
    node.poll(1, 0, 120);
    assert_eq!(node.taints(), [format!("{} unmonitored=stale:None", name(0))]);
    let health = node.health.device_health(&node.inventory);
    assert_eq!((health[0].state, health[1].state), (HealthState::Unknown, HealthState::Healthy));
    node.see(&read(0, healthy()), 121);
    assert_eq!(node.taints(), Vec::<String>::new());
}
