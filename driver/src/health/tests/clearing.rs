//! The ways out: evidence, quiet time, timers, people. And what is no evidence.

use std::time::Duration;

use super::{Node, QUIET};
use crate::health::HealthState;
use crate::inventory::testkit::{absent, after_reset, asking, at, gpu, healthy, name, opened, read, signal, xid};
use crate::nvml::{CallError, Code, OpenError, Presence, Reading, RepairPending, SignalKind, Snapshot, Update};
use tokio::time::Instant;

fn without_action(mut snapshot: Snapshot) -> Snapshot {
    snapshot.recovery_action = Reading::NotSupported;
    snapshot
}

fn unavailable(error: OpenError) -> Update {
    Update::Unavailable { error, attempt: 1, retry_in: Duration::from_secs(1) }
}

#[test]
fn an_action_that_reads_none_again_waits_for_the_quiet_period() {
    let mut node = Node::with(1);
    node.see(&read(0, asking(1)), 0);
    node.poll(0, 15, 15 + QUIET - 15);
    assert_eq!(node.taints_of(0), ["recovery=gpu-reset:NoSchedule"]);
    node.poll(0, 15 + QUIET, 15 + QUIET);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn a_reset_that_was_seen_ends_the_wait() {
    let mut node = Node::with(1);
    node.see(&read(0, asking(1)), 0);
    node.see(&read(0, after_reset()), 15);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn quiet_time_that_nobody_watched_does_not_count() {
    let mut node = Node::with(1);
    node.see(&read(0, asking(1)), 0);
    node.poll(0, 15, 60);
    // Ten minutes in which nothing was read.
    node.see(&read(0, healthy()), 60 + QUIET);
    assert_eq!(node.taints_of(0), ["recovery=gpu-reset:NoSchedule"]);
    node.poll(0, 75 + QUIET, 60 + 2 * QUIET);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn an_action_that_cannot_be_read_neither_heals_nor_isolates() {
    let mut node = Node::with(2);
    let mut blind = healthy();
    blind.recovery_action = Reading::Failed(Code::UNKNOWN);
    node.see(&read(0, asking(1)), 0);
    for seconds in (15..=3 * QUIET).step_by(15) {
        node.see(&read(0, blind.clone()), seconds);
        node.see(&read(1, blind.clone()), seconds);
    }
    assert_eq!(node.taints_of(0), ["recovery=gpu-reset:NoSchedule"]);
    assert_eq!(node.taints_of(1), Vec::<String>::new());
}

#[test]
fn a_code_that_the_action_never_follows_needs_a_reset() {
    let mut node = Node::with(1);
    node.see(&xid(0, 119), 0);
    node.poll(0, 15, 3 * QUIET);
    assert_eq!(node.taints_of(0), ["xid=119:NoSchedule"]);
    let changes = node.see(&read(0, after_reset()), 3 * QUIET + 15);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    let text = changes.events[0].to_string();
    assert!(text.contains("energy since driver load (mJ) fell from 1000000 to 500"), "{text}");
}

#[test]
fn a_reset_does_not_clear_what_still_waits_for_one() {
    let mut node = Node::with(1);
    node.see(&xid(0, 119), 0);
    let mut pending = after_reset();
    pending.repair_pending = Reading::Value(RepairPending { channel: true, tpc: false });
    node.see(&read(0, pending), 15);
    assert_eq!(node.taints_of(0), ["xid=119:NoSchedule"]);
    node.see(&read(0, after_reset()), 30);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn a_reset_before_the_fault_does_not_excuse_it() {
    let mut node = Node::with(1);
    node.see(&read(0, after_reset()), 15);
    node.see(&xid(0, 119), 20);
    node.see(&read(0, after_reset()), 30);
    assert_eq!(node.taints_of(0), ["xid=119:NoSchedule"]);
}

#[test]
fn a_fault_after_the_reset_undoes_its_evidence() {
    let mut node = Node::with(1);
    node.see(&xid(0, 119), 0);
    let mut pending = after_reset();
    pending.remapped_rows.pending = Reading::Value(true);
    node.see(&read(0, pending), 15);
    node.see(&xid(0, 119), 20);
    let mut clear = after_reset();
    clear.energy_mj = Reading::Value(600);
    node.see(&read(0, clear.clone()), 30);
    // The remap went with a reset, so that is a new proof; a third reading would have none.
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    node.see(&xid(0, 119), 40);
    node.see(&read(0, clear), 45);
    assert_eq!(node.taints_of(0), ["xid=119:NoSchedule"]);
}

#[test]
fn an_old_driver_without_recovery_action_clears_on_a_reset_only() {
    let mut node = Node::with(1);
    node.see(&read(0, without_action(healthy())), 0);
    node.see(&xid(0, 48), 1);
    for seconds in (15..3 * QUIET).step_by(15) {
        node.see(&read(0, without_action(healthy())), seconds);
    }
    assert_eq!(node.taints_of(0), ["xid=48:NoSchedule"]);
    node.see(&read(0, without_action(after_reset())), 3 * QUIET);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn falling_off_the_bus_needs_a_reboot() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    node.see(&read(0, after_reset()), 15);
    node.poll(0, 30, 3 * QUIET);
    assert_eq!(node.taints_of(0), ["xid=79:NoSchedule"]);
}

#[test]
fn a_boot_id_that_cannot_be_read_is_no_reboot() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    node.restart("", 60);
    node.see(&opened(vec![gpu(0)]), 60);
    node.see(&read(0, healthy()), 61);
    assert_eq!(node.taints_of(0), ["xid=79:NoSchedule"]);
}

#[test]
fn an_application_fault_goes_by_time_from_its_last_event() {
    let mut node = Node::with(1);
    node.see(&xid(0, 69), 0);
    node.see(&xid(0, 69), 1800);
    node.tick(3600);
    assert_eq!(node.taints_of(0), ["xid=69:None", "unmonitored=stale:None"]);
    node.see(&read(0, healthy()), 5400);
    node.tick(5400);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn a_timer_does_not_free_a_card_that_nobody_watches() {
    let mut node = Node::under("version: 1\nxid:\n  69: {effect: NoSchedule}\n", 1);
    node.see(&xid(0, 69), 0);
    node.tick(7200);
    assert_eq!(node.taints_of(0), ["xid=69:NoSchedule", "unmonitored=stale:None"]);
    node.see(&read(0, healthy()), 7201);
    node.tick(7202);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn each_relapse_doubles_the_quiet_time() {
    let mut node = Node::with(1);
    node.see(&read(0, asking(1)), 0);
    node.poll(0, 15, 15 + QUIET);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    let start = 1000;
    node.see(&read(0, asking(1)), start);
    node.poll(0, start + 15, start + 15 + QUIET);
    assert_eq!(node.taints_of(0), ["recovery=gpu-reset:NoSchedule"]);
    assert!(node.explain(&name(0)).contains("it came back 1 times"));
    node.poll(0, start + 30 + QUIET, start + 15 + 2 * QUIET);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn a_card_that_flaps_must_stay_before_it_is_trusted() {
    let mut node = Node::with(1);
    for round in 0..2 {
        node.see(&read(0, absent(Presence::Lost)), round * 20);
        node.see(&read(0, healthy()), round * 20 + 10);
    }
    assert_eq!(node.taints_of(0), ["lost:NoSchedule"]);
    node.poll(0, 45, 60);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn only_a_person_clears_what_the_policy_says_so() {
    let mut node = Node::under("version: 1\nxid:\n  48: {clear: manual}\n", 1);
    node.see(&xid(0, 48), 0);
    node.see(&read(0, after_reset()), 15);
    node.poll(0, 30, 3 * QUIET);
    assert_eq!(node.taints_of(0), ["xid=48:NoSchedule"]);
    let inventory = node.inventory.clone();
    let changes = node.health.acknowledge(&inventory, &name(0), "xid", "ops", at(4 * QUIET));
    assert!(changes.taints_changed && changes.persist);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn a_lost_driver_taints_every_card_and_goes_when_nvml_opens() {
    let mut node = Node::with(2);
    node.see(&unavailable(OpenError::NotLoaded), 10);
    let of = |n: u8, value: &str| format!("{} driver={value}:NoSchedule", name(n));
    assert_eq!(node.taints(), [of(0, "not-loaded"), of(1, "not-loaded")]);
    node.see(&unavailable(OpenError::VersionMismatch), 20);
    assert_eq!(node.taints(), [of(0, "version-mismatch"), of(1, "version-mismatch")]);
    assert!(node.health.device_health(&node.inventory).iter().all(|health| health.state == HealthState::Unknown));
    node.tick(600);
    assert_eq!(node.taints().len(), 2, "a silent card is explained by its driver already");
    node.see(&opened(vec![gpu(0), gpu(1)]), 610);
    assert_eq!(node.taints(), Vec::<String>::new());
}

#[test]
fn an_open_that_hangs_or_may_not_be_made_informs_only() {
    let mut node = Node::with(1);
    node.see(&unavailable(OpenError::Unanswered { waited: Duration::from_secs(30) }), 10);
    assert_eq!(node.taints_of(0), ["unmonitored=init-hung:None"]);
    node.see(&unavailable(OpenError::Failed { code: Code::NO_PERMISSION }), 20);
    assert_eq!(node.taints_of(0), ["unmonitored=init-failed:None"]);
    node.see(&unavailable(OpenError::NotLoaded), 30);
    assert_eq!(node.taints_of(0), ["driver=not-loaded:NoSchedule"]);
}

#[test]
fn a_standing_fault_outlives_a_lost_driver() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    node.see(&unavailable(OpenError::NotLoaded), 10);
    node.restart("boot-1", 20);
    node.see(&unavailable(OpenError::NotLoaded), 21);
    assert_eq!(node.taints_of(0), ["xid=79:NoSchedule", "driver=not-loaded:NoSchedule"]);
    node.see(&opened(vec![gpu(0)]), 30);
    assert_eq!(node.taints_of(0), ["xid=79:NoSchedule"]);
}

#[test]
fn a_monitor_that_fails_informs_until_it_works() {
    let mut node = Node::with(1);
    let failed = |code| SignalKind::NotWatching { error: CallError::new("nvmlDeviceRegisterEvents", code) };
    node.see(&signal(0, failed(Code::NO_PERMISSION)), 1);
    assert_eq!(node.taints_of(0), ["unmonitored=no-permission:None"]);
    node.see(&signal(0, failed(Code::GPU_IS_LOST)), 2);
    node.see(&signal(0, SignalKind::Watching { event_types: 8 }), 3);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    node.see(&signal(0, SignalKind::Hung { function: "nvmlDeviceGetFieldValues", since: Instant::now() }), 4);
    assert_eq!(node.taints_of(0), ["unmonitored=hung:None"]);
    // A hung call ends with the process that made it.
    node.restart("boot-1", 5);
    node.see(&opened(vec![gpu(0)]), 5);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn a_card_that_cannot_be_read_is_neither_lost_nor_well() {
    let mut node = Node::with(1);
    node.see(&read(0, absent(Presence::Lost)), 0);
    node.see(&read(0, absent(Presence::Unreadable(Code::UNKNOWN))), 10);
    assert_eq!(node.taints_of(0), ["lost:NoSchedule", "unmonitored=unreadable:None"]);
    node.see(&read(0, healthy()), 20);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn a_card_that_refuses_work_asks_for_a_reset() {
    let mut node = Node::with(1);
    node.see(&read(0, absent(Presence::ResetRequired)), 0);
    assert_eq!(node.taints_of(0), ["recovery=gpu-reset:NoSchedule"]);
    node.see(&read(0, after_reset()), 15);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn heat_counts_when_it_lasts_and_goes_when_it_stays_away() {
    let mut node = Node::with(1);
    let mut hot = healthy();
    hot.thermal.throttle_reasons = Reading::Value(0x40);
    node.see(&read(0, hot.clone()), 15);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
    for seconds in (30..300).step_by(15) {
        node.see(&read(0, hot.clone()), seconds);
    }
    assert_eq!(node.taints_of(0), ["thermal=hardware-thermal:None"]);
    node.poll(0, 300, 1500);
    assert_eq!(node.taints_of(0), Vec::<String>::new());
}

#[test]
fn a_link_counts_as_down_only_after_it_was_up() {
    let mut node = Node::with(1);
    let mut snapshot = healthy();
    snapshot.nvlinks = vec![Reading::Value(true), Reading::Value(false), Reading::Value(false)];
    node.see(&read(0, snapshot), 15);
    assert_eq!(node.taints_of(0), ["link=nvlink-down:None"]);
    assert!(node.explain(&name(0)).contains("NVLink 1 went down"));
}

#[test]
fn the_policy_of_today_judges_what_was_saved() {
    let mut node = Node::with(1);
    node.see(&xid(0, 79), 0);
    node.policy = node.policy.with_file("policy.yaml", "version: 1\nxid:\n  79: {effect: NoExecute}\n").unwrap();
    node.restart("boot-1", 60);
    node.see(&opened(vec![gpu(0)]), 61);
    assert_eq!(node.taints_of(0), ["xid=79:NoExecute"]);
}
