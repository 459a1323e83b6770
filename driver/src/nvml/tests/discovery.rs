//! Which GPUs there are, as they come, go, change and hide.

use std::time::Duration;

use nvidia_ml::control::{self, Control, Fault, Gpu, Profile};
use tokio::time::Instant;

use super::{PATIENCE, SECOND, Stand, pci};
use crate::nvml::{Code, Known, Presence, Signal, SignalKind, Update};

#[tokio::test]
async fn discovery_tells_what_each_card_is() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let Update::Opened { versions, scan } = stand.next().await else { panic!("Opened comes first") };
    assert_eq!(versions.driver.as_deref(), Some("580.95.05"));
    assert_eq!(versions.cuda.unwrap().to_string(), "13.0");
    assert_eq!((scan.count.unwrap(), scan.gpus.len()), (8, 8));
    assert!(scan.unidentified.is_empty() && scan.missing.is_empty());
    let gpu = &scan.gpus[1];
    assert_eq!((gpu.pci, gpu.index, gpu.minor), (pci(SECOND), 1, Some(1)));
    assert_eq!(gpu.uuid, stand.uuid(1));
    assert_eq!(gpu.serial.as_deref(), Some(stand.control.gpus[1].effective_serial().as_str()));
    assert_eq!(gpu.name.as_deref(), Some("NVIDIA H100 80GB HBM3"));
    assert_eq!(gpu.brand.as_deref(), Some("Nvidia"));
    assert_eq!(gpu.architecture.as_deref(), Some("Hopper"));
    assert_eq!(gpu.compute_capability.unwrap().to_string(), "9.0");
    assert_eq!(gpu.memory_bytes, Some(85_520_809_984));
    assert_eq!(gpu.numa, None);
    assert!(!gpu.mig.is_on() && gpu.mig.mode.is_some());
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn what_nobody_knows_yet_does_not_fail_discovery() {
    let mut control = Control::eight_h100s(1);
    control.gpus[1].brand = Some(99);
    control.gpus[1].architecture = Some(u32::MAX);
    control.gpus[1].faults = vec![Fault::error("nvmlDeviceGetSerial", 999), Fault::error("nvmlDeviceGetName", 42)];
    control.gpus[2].faults = vec![Fault::error("nvmlDeviceGetMemoryInfo_v2", 25)];
    let mut stand = Stand::new(control);
    let scan = stand.opened().await;
    assert_eq!(scan.gpus.len(), 8);
    let gpu = &scan.gpus[1];
    assert_eq!((&gpu.brand, &gpu.architecture, &gpu.serial, &gpu.name), (&None, &None, &None, &None));
    assert_eq!(scan.gpus[2].memory_bytes, None);
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn partitions_are_read_with_their_place() {
    let mut control = Control::server(Profile::A100, 2, 1);
    control.gpus[1] = control.gpus[1].clone().with_mig(&[("3g.40gb", 4), ("1g.10gb", 0), ("1g.10gb", 2)]);
    let mut stand = Stand::new(control);
    let scan = stand.opened().await;
    let mig = &scan.gpus[1].mig;
    assert!(mig.is_on() && mig.unread.is_empty());
    let places: Vec<_> = mig
        .instances
        .iter()
        .map(|part| (part.profile.as_deref().unwrap(), part.start.unwrap(), part.gpu_instance, part.compute_instance))
        .collect();
    assert_eq!(places, [("1g.10gb", 0, 2, 0), ("1g.10gb", 2, 3, 0), ("3g.40gb", 4, 1, 0)]);
    assert_eq!(mig.instances[2].memory_bytes, Some(40_320 << 20));
    assert!(scan.gpus[0].mig.instances.is_empty());
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_changed_partitioning_is_discovered() {
    let mut stand = Stand::with(Control::server(Profile::A100, 2, 1), |config| {
        config.timing.rescan = Duration::from_millis(100);
    });
    assert!(!stand.opened().await.gpus[1].mig.is_on());
    stand.change_second(|gpu| *gpu = gpu.clone().with_mig(&[("7g.80gb", 0)]));
    let scan = stand.discovered().await;
    assert_eq!(scan.gpus[1].mig.instances[0].profile.as_deref(), Some("7g.80gb"));
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_gpu_that_is_lost_at_the_start_is_found_by_its_known_address() {
    let mut control = Control::eight_h100s(1);
    control.gpus[1].lost = true;
    let uuid = control.gpus[1].effective_uuid();
    let known = Known { pci: pci(SECOND), uuid: Some(uuid.clone()) };
    let mut stand = Stand::with(control, |config| config.known = vec![known]);
    let scan = stand.opened().await;
    assert_eq!(scan.gpus.len(), 7);
    assert_eq!(scan.missing[0].pci, pci(SECOND));
    stand.snapshot(SECOND, "lost", |snapshot| snapshot.presence == Presence::Lost).await;
    stand.change_second(|gpu| gpu.lost = false);
    let scan = stand.discovered().await;
    assert_eq!((scan.gpus.len(), scan.gpus[1].uuid.as_str()), (8, uuid.as_str()));
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_gpu_that_hangs_at_the_start_is_left_out_and_taken_in_when_it_answers() {
    let mut control = Control::eight_h100s(1);
    control.gpus[1].faults.push(Fault::hang("*"));
    let mut stand = Stand::new(control);
    let scan = stand.opened().await;
    assert_eq!(scan.gpus.len(), 7);
    assert_eq!((scan.unidentified[0].index, scan.unidentified[0].error.code), (1, Code::TIMEOUT));
    assert!(scan.unidentified[0].error.unanswered_for.is_some());
    stand.change_second(|gpu| gpu.faults.clear());
    assert_eq!(stand.discovered().await.gpus.len(), 8);
    stand.watching(SECOND).await;
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_count_that_disagrees_with_the_handles_hides_no_known_gpu_and_invents_none() {
    let mut stand = Stand::new(Control { count: Some(9), ..Control::eight_h100s(1) });
    let scan = stand.opened().await;
    assert_eq!((scan.count.clone().unwrap(), scan.gpus.len()), (9, 8));
    assert_eq!((scan.unidentified[0].index, scan.unidentified[0].error.code), (8, Code::INVALID_ARGUMENT));
    stand.change(|control| control.count = Some(3));
    stand.supervisor.rescan();
    let scan = stand.discovered().await;
    assert_eq!((scan.count.unwrap(), scan.gpus.len()), (3, 8), "the others answer at their addresses");
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn another_card_at_the_same_address_is_discovered_and_watched_as_itself() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    let old = stand.uuid(1);
    stand.change_second(|gpu| gpu.uuid = Some("GPU-the-new-one".to_owned()));
    let other = Presence::OtherCard { uuid: "GPU-the-new-one".to_owned() };
    let end = Instant::now() + PATIENCE;
    loop {
        assert!(Instant::now() < end, "nobody noticed");
        if let Update::Signal(Signal { uuid, kind: SignalKind::Snapshot(snapshot), .. }) = stand.next().await
            && snapshot.presence == other
        {
            assert_eq!(uuid, Some(old), "a signal of the old card's watch");
            break;
        }
    }
    assert_eq!(stand.discovered().await.gpus[1].uuid, "GPU-the-new-one");
    stand.watching(SECOND).await;
    stand.change_second(|gpu| gpu.events.push(control::Event::xid("of the new one", 48)));
    let of_new = |update: &Update| match update {
        Update::Signal(Signal { uuid, kind: SignalKind::Event(event), .. }) => Some((uuid.clone(), event.xid())),
        _ => None,
    };
    assert_eq!(stand.until("an event", of_new).await, (Some("GPU-the-new-one".to_owned()), Some(48)));
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_removed_card_and_a_new_one_are_discovered() {
    let mut stand = Stand::with(Control::eight_h100s(1), |config| config.timing.rescan = Duration::from_millis(100));
    stand.opened().await;
    stand.change_second(|gpu| gpu.absent = true);
    let scan = stand.discovered().await;
    assert_eq!((scan.count.unwrap(), scan.gpus.len()), (7, 7));
    assert_eq!((scan.missing[0].pci, scan.missing[0].error.code), (pci(SECOND), Code::NOT_FOUND));
    stand.snapshot(SECOND, "absent", |snapshot| snapshot.presence == Presence::Absent).await;
    stand.change(|control| control.gpus.push(Gpu::seeded(Profile::H100, "0000:e1:00.0", 5)));
    let added = |update: &Update| match update {
        Update::Discovered { scan } => scan.gpus.iter().any(|gpu| gpu.pci == pci("0000:e1:00.0")).then_some(()),
        _ => None,
    };
    stand.until("the new card", added).await;
    stand.watching("0000:e1:00.0").await;
    stand.supervisor.know(Vec::new());
    assert_eq!(stand.discovered().await.missing, [], "nobody looks for the removed one any more");
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn no_gpu_at_all_is_no_error() {
    let mut stand = Stand::new(Control::default());
    let scan = stand.opened().await;
    assert_eq!((scan.count.clone().unwrap(), scan.gpus.len(), scan.unidentified.len()), (0, 0, 0));
    stand.supervisor.stop().await;
}
