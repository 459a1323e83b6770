//! Snapshots, lost cards and hanging calls.

use std::time::Duration;

use nvidia_ml::control::{self, Control, Fault, Profile};

use super::{SECOND, Stand, pci, timing};
use crate::nvml::{Code, Presence, Reading, SignalKind, Snapshot, Thermal};

#[tokio::test]
async fn a_lost_gpu_leaves_its_seven_neighbours_alone_and_comes_back_by_its_address() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    stand.change_second(|gpu| {
        gpu.lost = true;
        gpu.events.push(control::Event::xid("fell", 79));
    });
    assert_eq!(stand.event(SECOND).await.xid(), Some(79));
    let scan = stand.discovered().await;
    assert_eq!((scan.count.clone().unwrap(), scan.gpus.len()), (8, 7));
    assert_eq!(scan.unidentified[0].index, 1);
    assert_eq!((scan.missing[0].pci, scan.missing[0].error.code), (pci(SECOND), Code::GPU_IS_LOST));
    // One that fell in the middle of a reading still told some values; from the next one on there are none.
    let is_lost = |snapshot: &Snapshot| snapshot.presence == Presence::Lost;
    let unread = |snapshot: &Snapshot| snapshot.recovery_action == Reading::Failed(Code::GPU_IS_LOST);
    stand.snapshot(SECOND, "lost", |snapshot| is_lost(snapshot) && unread(snapshot)).await;
    stand.neighbours_are_well().await;
    stand.change(|control| control.gpus[0].events.push(control::Event::xid("next door", 31)));
    assert_eq!(stand.event("0000:1b:00.0").await.xid(), Some(31));

    stand.change_second(|gpu| gpu.lost = false);
    stand.snapshot(SECOND, "back", |snapshot| snapshot.presence == Presence::Answering).await;
    stand.watching(SECOND).await;
    stand.change_second(|gpu| gpu.events.push(control::Event::xid("again", 63)));
    assert_eq!(stand.event(SECOND).await.xid(), Some(63));
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_call_that_hangs_is_told_and_holds_up_nobody_else() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    stand.change_second(|gpu| gpu.faults.push(Fault::hang("nvmlDeviceGetTemperature")));
    assert_eq!(stand.hung(SECOND).await, "nvmlDeviceGetTemperature");
    stand.neighbours_are_well().await;
    stand.change(|control| control.gpus[0].events.push(control::Event::xid("next door", 31)));
    assert_eq!(stand.event("0000:1b:00.0").await.xid(), Some(31));
    stand.change_second(|gpu| gpu.faults.clear());
    let lasted = stand
        .signal(SECOND, "Unhung", |kind| match kind {
            SignalKind::Unhung { lasted, .. } => Some(*lasted),
            _ => None,
        })
        .await;
    assert!(lasted >= timing().call_deadline);
    stand.snapshot(SECOND, "well again", |snapshot| snapshot.thermal.gpu_celsius == Reading::Value(34)).await;
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn every_health_value_arrives_where_it_belongs() {
    let mut control = Control::server(Profile::B200, 2, 1);
    control.gpus[1].health = control::Health {
        recovery_action: Some(7),
        remapped_rows: Some(control::RemappedRows { correctable: 1, uncorrectable: 2, pending: true, failed: true }),
        ecc: Some(control::Ecc { volatile_corrected: 3, volatile_uncorrected: 4, ..control::Ecc::default() }),
        sram_threshold_exceeded: Some(true),
        repair: Some(control::Repair { channel_pending: false, tpc_pending: true }),
        thermal: Some(control::Thermal {
            gpu: 91,
            memory: 99,
            throttle_reasons: 0x40,
            hardware_slowdown_ns: 1 << 33,
            ..control::Thermal::default()
        }),
        pcie: Some(control::Pcie { width: 8, replays: 5, ..control::Pcie::default() }),
        nvlinks: Some(vec![true, false]),
        fabric: Some(control::Fabric { health_mask: 1, health_summary: 2, ..control::Fabric::default() }),
        energy_mj: Some(6),
        processes: Some(vec![control::Process { pid: 77, used_bytes: 1 << 30, gi: None, ci: None }; 40]),
        ..control::Health::default()
    };
    let mut stand = Stand::new(control);
    let snapshot = stand.snapshot(SECOND, "a snapshot", |_| true).await;
    assert_eq!(snapshot.recovery_action, Reading::Value(7));
    assert_eq!(snapshot.remapped_rows.uncorrectable, Reading::Value(2));
    assert_eq!(snapshot.remapped_rows.pending, Reading::Value(true));
    assert_eq!(snapshot.remapped_rows.failed, Reading::Value(true));
    assert_eq!(snapshot.ecc.volatile_corrected, Reading::Value(3));
    assert_eq!(snapshot.ecc.volatile_uncorrected, Reading::Value(4));
    assert_eq!(snapshot.ecc.enabled, Reading::Value(true));
    assert_eq!(snapshot.sram_threshold_exceeded, Reading::Value(true));
    assert!(snapshot.repair_pending.get().is_some_and(|repair| repair.tpc && !repair.channel));
    assert_eq!(snapshot.thermal.gpu_celsius, Reading::Value(91));
    assert_eq!(snapshot.thermal.memory_celsius, Reading::Value(99));
    assert_eq!(snapshot.thermal.slowdown_celsius, Reading::Value(90));
    assert_eq!(snapshot.thermal.throttle_reasons, Reading::Value(Thermal::HARDWARE_THERMAL));
    assert_eq!(snapshot.thermal.hardware_slowdown_ns, Reading::Value(1 << 33));
    assert_eq!((snapshot.pcie.width, snapshot.pcie.max_width), (Reading::Value(8), Reading::Value(16)));
    assert_eq!(snapshot.pcie.replays, Reading::Value(5));
    assert_eq!(snapshot.nvlinks, [Reading::Value(true), Reading::Value(false)]);
    let fabric = snapshot.fabric.get().unwrap();
    assert_eq!((fabric.state, fabric.health_mask, fabric.health_summary), (3, 1, Some(2)));
    assert_eq!(snapshot.energy_mj, Reading::Value(6));
    assert_eq!(snapshot.retired_pages_pending, Reading::NotSupported);
    assert_eq!(snapshot.processes.value().unwrap().len(), 40, "more than fit at first");
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_card_that_needs_a_reset_says_so_and_still_tells_what_it_can() {
    let mut control = Control::eight_h100s(1);
    control.gpus[1].reset_required = true;
    let mut stand = Stand::new(control);
    let snapshot = stand.snapshot(SECOND, "a snapshot", |_| true).await;
    assert_eq!(snapshot.presence, Presence::ResetRequired);
    assert_eq!(snapshot.thermal.gpu_celsius, Reading::Failed(Code::RESET_REQUIRED));
    assert_eq!(snapshot.minor, Reading::Value(1));
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_look_is_taken_when_it_is_asked_for() {
    let mut stand = Stand::with(Control::eight_h100s(1), |config| config.timing.poll = Duration::from_secs(3600));
    stand.watching(SECOND).await;
    stand.change_second(|gpu| gpu.health.recovery_action = Some(3));
    stand.supervisor.look(pci(SECOND));
    stand.snapshot(SECOND, "the look", |snapshot| snapshot.recovery_action == Reading::Value(3)).await;
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_driver_reload_between_two_polls_registers_the_events_anew() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.watching(SECOND).await;
    stand.snapshot(SECOND, "the energy before", |snapshot| snapshot.energy_mj == Reading::Value(1_000_000)).await;
    stand.change_second(|gpu| gpu.health.energy_mj = Some(5));
    stand.watching(SECOND).await;
    stand.supervisor.stop().await;
}
