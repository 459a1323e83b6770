//! Events, and what is done where there are none.

use std::time::Duration;

use nvidia_ml::control::{self, Control, Fault, Profile};
use tokio::time::Instant;

use super::{SECOND, Stand, pci};
use crate::nvml::{Code, Event, Presence, Reading, Signal, SignalKind, Update};

#[tokio::test]
async fn an_event_keeps_its_instance_and_is_followed_by_looks() {
    let mut stand = Stand::with(Control::eight_h100s(1), |config| {
        config.timing.poll = Duration::from_secs(3600);
        // Many, so that one comes after the verdict however slow this machine is.
        config.timing.looks_after_event = (1..100).map(|number| Duration::from_millis(200 * number)).collect();
    });
    let types = stand.watching(SECOND).await;
    assert_eq!(types & (Event::XID | Event::RECOVERY_ACTION), Event::XID | Event::RECOVERY_ACTION);
    stand.change_second(|gpu| {
        gpu.events.push(control::Event::xid("a", 94).on(3, 1));
        gpu.health.recovery_action = Some(1);
    });
    let event = stand.event(SECOND).await;
    assert_eq!((event.xid(), event.gpu_instance, event.compute_instance), (Some(94), Some(3), Some(1)));
    let event_at = Instant::now();
    stand.snapshot(SECOND, "the look at once", |snapshot| snapshot.recovery_action == Reading::Value(1)).await;
    assert!(event_at.elapsed() < Duration::from_secs(5));
    // The driver sets its verdict late: the poll is an hour away, the later looks see it.
    stand.change_second(|gpu| gpu.health.recovery_action = Some(4));
    stand.snapshot(SECOND, "a later look", |snapshot| snapshot.recovery_action == Reading::Value(4)).await;
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn events_of_unknown_types_and_of_the_whole_gpu_are_kept_as_they_are() {
    let mut control = Control::eight_h100s(1);
    control.gpus[1].supported_events = Some(0x1_0000 | Event::XID);
    let mut stand = Stand::new(control);
    assert_eq!(stand.watching(SECOND).await, 0x1_0000 | Event::XID);
    stand.change_second(|gpu| gpu.events = vec![control::Event::of_type("new", 0x1_0000, 7)]);
    let event = stand.event(SECOND).await;
    assert_eq!((event.event_type, event.data, event.xid(), event.gpu_instance), (0x1_0000, 7, None, None));
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_storm_of_events_arrives_in_order_and_does_not_keep_the_card_from_being_looked_at() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.watching(SECOND).await;
    stand.change_second(|gpu| {
        gpu.events = (0..200_u64).map(|number| control::Event::xid(&number.to_string(), 1000 + number)).collect();
    });
    let mut codes = Vec::new();
    let mut looked_between = false;
    while codes.len() < 200 {
        if let Update::Signal(Signal { pci: at, kind, .. }) = stand.next().await
            && at == pci(SECOND)
        {
            match kind {
                SignalKind::Event(event) => codes.extend(event.xid()),
                SignalKind::Snapshot(_) => looked_between |= !codes.is_empty(),
                _ => {}
            }
        }
    }
    assert!(codes.iter().copied().eq(1000..1200), "{codes:?}");
    assert!(looked_between);
    assert_eq!(stand.supervisor.dropped(), 0);
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_gpu_whose_events_cannot_be_registered_is_polled_and_tried_again() {
    let mut control = Control::eight_h100s(1);
    control.gpus[1].faults.push(Fault::register_events(999));
    let mut stand = Stand::new(control);
    let error = stand
        .signal(SECOND, "NotWatching", |kind| match kind {
            SignalKind::NotWatching { error } => Some(error.clone()),
            _ => None,
        })
        .await;
    assert_eq!((error.function, error.code), ("nvmlDeviceRegisterEvents", Code::UNKNOWN));
    stand.snapshot(SECOND, "polled", |snapshot| snapshot.presence == Presence::Answering).await;
    stand.change(|control| control.gpus[0].events.push(control::Event::xid("next door", 31)));
    assert_eq!(stand.event("0000:1b:00.0").await.xid(), Some(31));
    stand.change_second(|gpu| gpu.faults.clear());
    stand.watching(SECOND).await;
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn an_old_driver_that_refuses_new_event_types_still_gives_xids() {
    let mut control = Control::server(Profile::T4, 1, 1);
    control.driver_version = "470.57.02".to_owned();
    let lacks = ["nvmlDeviceGetFieldValues", "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetRepairStatus"];
    let mut stand = Stand::lacking(&lacks, control, |_| {});
    let scan = stand.opened().await;
    assert_eq!((scan.gpus[0].brand.as_deref(), scan.gpus[0].mig.mode), (Some("Tesla"), None));
    let snapshot = stand.snapshot("0000:1b:00.0", "a snapshot", |_| true).await;
    assert_eq!(snapshot.recovery_action, Reading::NotSupported);
    assert_eq!(snapshot.remapped_rows.failed, Reading::NotSupported);
    assert_eq!(snapshot.sram_threshold_exceeded, Reading::NotSupported);
    assert_eq!(snapshot.retired_pages_pending, Reading::Value(false));
    stand.change(|control| control.gpus[0].events.push(control::Event::xid("a", 31)));
    assert_eq!(stand.event("0000:1b:00.0").await.xid(), Some(31));
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn an_event_becomes_a_signal_within_milliseconds() {
    let mut stand = Stand::with(Control::eight_h100s(1), |config| config.timing.poll = Duration::from_secs(3600));
    stand.all_watching().await;
    let mut took = Vec::new();
    for number in 0..20 {
        let written = Instant::now();
        stand.change_second(|gpu| gpu.events.push(control::Event::xid(&format!("event {number}"), 31)));
        let at = stand
            .until("an event", |update| match update {
                Update::Signal(Signal { at, kind: SignalKind::Event(_), .. }) => Some(*at),
                _ => None,
            })
            .await;
        took.push(at.saturating_duration_since(written));
    }
    took.sort();
    assert!(took[10] < Duration::from_millis(50), "{took:?}");
    stand.supervisor.stop().await;
}
