//! The whole room against the stand-in library: the code that opens a real one, on a machine that a control file describes.

use std::time::Duration;

use nvidia_ml::control::{self, Control, Fault, Gpu, Profile};
use nvidia_ml::{Machine, built_library};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::{
    Code, Config, Event, Known, OpenError, PciAddress, Presence, Reading, Scan, Signal, SignalKind, Snapshot,
    Supervisor, Timing, Update,
};

const SECOND: &str = "0000:3b:00.0";
/// Nothing here takes long; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(20);

fn pci(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// Fast paces, except for what a test waits for on purpose.
fn timing() -> Timing {
    Timing {
        poll: Duration::from_millis(300),
        rescan: Duration::from_secs(60),
        call_deadline: Duration::from_millis(800),
        scan_patience: Duration::from_millis(400),
        open_deadline: Duration::from_millis(400),
        first_retry: Duration::from_millis(50),
        longest_retry: Duration::from_millis(200),
        looks_after_event: vec![Duration::from_millis(30), Duration::from_millis(90)],
        wait: Duration::from_millis(50),
    }
}

/// A machine and the room that watches it.
struct Stand {
    machine: Machine,
    control: Control,
    supervisor: Supervisor,
    updates: mpsc::Receiver<Update>,
    _folder: TempDir,
}

impl Stand {
    fn new(control: Control) -> Self {
        Self::with(control, |_| {})
    }

    fn with(control: Control, change: impl FnOnce(&mut Config)) -> Self {
        Self::lacking(&[], control, change)
    }

    fn lacking(functions: &[&str], control: Control, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::install(&built_library().unwrap(), folder.path(), &control).unwrap();
        let machine = if functions.is_empty() { machine } else { machine.without(functions).unwrap() };
        let mut config = Config { timing: timing(), ..Config::new(&machine.library) };
        change(&mut config);
        let (supervisor, updates) = Supervisor::spawn(config);
        Self { machine, control, supervisor, updates, _folder: folder }
    }

    fn change(&mut self, change: impl FnOnce(&mut Control)) {
        change(&mut self.control);
        self.machine.set(&self.control).unwrap();
    }

    fn change_second(&mut self, change: impl FnOnce(&mut Gpu)) {
        self.change(|control| change(control.gpu_mut(SECOND).unwrap()));
    }

    fn uuid(&self, index: usize) -> String {
        self.control.gpus[index].effective_uuid()
    }

    async fn next(&mut self) -> Update {
        timeout(PATIENCE, self.updates.recv()).await.expect("an update in time").expect("the room goes on")
    }

    /// The first update that is what is looked for; what comes before it is not looked at.
    async fn until<T>(&mut self, what: &str, find: impl Fn(&Update) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(found) = find(&self.next().await) {
                return found;
            }
        }
        panic!("waited for {what} in vain");
    }

    async fn opened(&mut self) -> Scan {
        self.until("Opened", |update| match update {
            Update::Opened { scan, .. } => Some(scan.clone()),
            _ => None,
        })
        .await
    }

    async fn discovered(&mut self) -> Scan {
        self.until("Discovered", |update| match update {
            Update::Discovered { scan } => Some(scan.clone()),
            _ => None,
        })
        .await
    }

    async fn unavailable(&mut self) -> OpenError {
        self.until("Unavailable", |update| match update {
            Update::Unavailable { error, .. } => Some(error.clone()),
            _ => None,
        })
        .await
    }

    /// The first signal of a GPU that is what is looked for.
    async fn signal<T>(&mut self, at: &str, what: &str, find: impl Fn(&SignalKind) -> Option<T>) -> T {
        let at = pci(at);
        self.until(what, |update| match update {
            Update::Signal(signal) if signal.pci == at => find(&signal.kind),
            _ => None,
        })
        .await
    }

    async fn snapshot(&mut self, at: &str, what: &str, is_wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let find = |kind: &SignalKind| match kind {
            SignalKind::Snapshot(snapshot) if is_wanted(snapshot) => Some((**snapshot).clone()),
            _ => None,
        };
        self.signal(at, what, find).await
    }

    async fn watching(&mut self, at: &str) -> u64 {
        self.signal(at, "Watching", |kind| match kind {
            SignalKind::Watching { event_types } => Some(*event_types),
            _ => None,
        })
        .await
    }

    /// Every GPU's events arrive.
    async fn all_watching(&mut self) {
        let mut missing: std::collections::BTreeSet<_> =
            self.control.gpus.iter().map(|gpu| pci(&gpu.pci.to_string())).collect();
        while !missing.is_empty() {
            if let Update::Signal(Signal { pci, kind: SignalKind::Watching { .. }, .. }) = self.next().await {
                missing.remove(&pci);
            }
        }
    }

    async fn event(&mut self, at: &str) -> Event {
        self.signal(at, "Event", |kind| match kind {
            SignalKind::Event(event) => Some(*event),
            _ => None,
        })
        .await
    }

    /// One more healthy snapshot of each GPU but the second: they are watched and see nothing of what happens to it.
    async fn neighbours_are_well(&mut self) {
        let mut missing: std::collections::BTreeSet<_> =
            self.control.gpus.iter().map(|gpu| pci(&gpu.pci.to_string())).collect();
        missing.remove(&pci(SECOND));
        while !missing.is_empty() {
            if let Update::Signal(Signal { pci: at, kind, .. }) = self.next().await
                && at != pci(SECOND)
            {
                match kind {
                    SignalKind::Snapshot(snapshot) => {
                        assert_eq!(snapshot.presence, Presence::Answering, "{at}");
                        missing.remove(&at);
                    }
                    SignalKind::Watching { .. } => {}
                    other => panic!("{at}: {other:?}"),
                }
            }
        }
    }
}

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
async fn an_event_keeps_its_instance_and_is_followed_by_looks() {
    let mut stand = Stand::with(Control::eight_h100s(1), |config| config.timing.poll = Duration::from_secs(3600));
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
async fn a_lost_gpu_leaves_its_seven_neighbours_alone_and_comes_back_by_its_address() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    stand.change_second(|gpu| {
        gpu.lost = true;
        gpu.events.push(control::Event::xid("fell", 79));
    });
    assert_eq!(stand.event(SECOND).await.xid(), Some(79));
    let lost = stand.snapshot(SECOND, "lost", |snapshot| snapshot.presence == Presence::Lost).await;
    assert_eq!(lost.recovery_action, Reading::Failed(Code::GPU_IS_LOST));
    let scan = stand.discovered().await;
    assert_eq!((scan.count.clone().unwrap(), scan.gpus.len()), (8, 7));
    assert_eq!(scan.unidentified[0].index, 1);
    assert_eq!((scan.missing[0].pci, scan.missing[0].error.code), (pci(SECOND), Code::GPU_IS_LOST));
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
async fn a_call_that_hangs_is_told_and_holds_up_nobody_else() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    stand.change_second(|gpu| gpu.faults.push(Fault::hang("nvmlDeviceGetTemperature")));
    let function = stand
        .signal(SECOND, "Hung", |kind| match kind {
            SignalKind::Hung { function, .. } => Some(*function),
            _ => None,
        })
        .await;
    assert_eq!(function, "nvmlDeviceGetTemperature");
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
    assert_eq!(snapshot.thermal.throttle_reasons, Reading::Value(super::Thermal::HARDWARE_THERMAL));
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
async fn no_library_is_told_and_tried_again_until_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join(nvidia_ml::LOADED_AS);
    let config = Config { timing: timing(), ..Config::new(&library) };
    let (supervisor, mut updates) = Supervisor::spawn(config);
    for wanted in 1..=3 {
        let Some(Update::Unavailable { error, attempt, .. }) = updates.recv().await else { panic!("unavailable") };
        assert_eq!(attempt, wanted);
        assert!(matches!(&error, OpenError::NoLibrary { .. }), "{error}");
        assert!(error.to_string().contains("--nvml-library"), "{error}");
    }
    let control = Control::eight_h100s(1);
    // In one step, as a package manager does: half a library is another error.
    let elsewhere = tempfile::tempdir_in(folder.path()).unwrap();
    let machine = Machine::install(&built_library().unwrap(), elsewhere.path(), &control).unwrap();
    std::fs::copy(&machine.control, folder.path().join(nvidia_ml::CONTROL_BESIDE)).unwrap();
    std::fs::rename(&machine.library, &library).unwrap();
    let opened = async {
        loop {
            match updates.recv().await {
                Some(Update::Opened { scan, .. }) => return scan,
                Some(Update::Unavailable { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(timeout(PATIENCE, opened).await.unwrap().gpus.len(), 8);
    supervisor.stop().await;
}

#[tokio::test]
async fn each_reason_to_fail_has_its_own_name() {
    let mut stand = Stand::new(Control::eight_h100s(1).with_init_error(9));
    assert_eq!(stand.unavailable().await, OpenError::NotLoaded);
    stand.change(|control| control.faults = vec![Fault::error("nvmlInit_v2", 18)]);
    stand.until("mismatch", |update| is_unavailable(update, &OpenError::VersionMismatch)).await;
    stand.change(|control| control.faults = vec![Fault::error("nvmlInit_v2", 4)]);
    let failed = OpenError::Failed { code: Code::NO_PERMISSION };
    stand.until("no permission", |update| is_unavailable(update, &failed)).await;
    stand.change(|control| control.faults.clear());
    assert_eq!(stand.opened().await.gpus.len(), 8);
    stand.supervisor.stop().await;
}

fn is_unavailable(update: &Update, wanted: &OpenError) -> Option<()> {
    matches!(update, Update::Unavailable { error, .. } if error == wanted).then_some(())
}

#[tokio::test]
async fn a_library_that_could_not_be_closed_again_is_refused() {
    let mut stand = Stand::lacking(&["nvmlShutdown", "nvmlEventSetFree"], Control::eight_h100s(1), |_| {});
    match stand.unavailable().await {
        OpenError::Unusable { missing, .. } => assert_eq!(missing, ["nvmlShutdown", "nvmlEventSetFree"]),
        other => panic!("{other}"),
    }
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn an_opening_that_hangs_is_told_and_used_when_it_returns() {
    let mut control = Control::eight_h100s(1);
    control.faults.push(Fault::hang("nvmlInit_v2"));
    let mut stand = Stand::new(control);
    assert!(matches!(stand.unavailable().await, OpenError::Unanswered { .. }));
    stand.change(|control| control.faults.clear());
    assert_eq!(stand.opened().await.gpus.len(), 8);
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
async fn everything_is_let_go_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls.jsonl");
    let mut stand = Stand::new(Control { log: Some(log.clone()), ..Control::eight_h100s(1) });
    stand.all_watching().await;
    assert_eq!(stand.supervisor.watched(), 8);
    stand.supervisor.release();
    let abandoned = stand.until("Released", released).await;
    assert_eq!((abandoned, stand.supervisor.watched()), (0, 0));
    let calls = std::fs::read_to_string(&log).unwrap();
    let count = |function: &str| calls.lines().filter(|line| line.contains(function)).count();
    assert_eq!((count("nvmlEventSetFree"), count("nvmlEventSetCreate")), (8, 8), "every set is freed");
    assert!(calls.lines().last().unwrap().contains("nvmlShutdown"), "and the library is closed last");

    // What happens meanwhile is nobody's business; the state is read when NVML is open again.
    stand.change_second(|gpu| gpu.health.recovery_action = Some(2));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), calls, "nothing is called while it is let go");
    stand.supervisor.reopen();
    assert_eq!(stand.opened().await.gpus.len(), 8);
    stand.snapshot(SECOND, "the state of now", |snapshot| snapshot.recovery_action == Reading::Value(2)).await;
    stand.supervisor.stop().await;
}

fn released(update: &Update) -> Option<usize> {
    match update {
        Update::Released { abandoned } => Some(*abandoned),
        _ => None,
    }
}

#[tokio::test]
async fn a_thread_that_hangs_is_left_behind_at_a_release_and_says_nothing_more() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    stand.change_second(|gpu| gpu.faults.push(Fault::hang("nvmlDeviceGetTemperature")));
    stand.signal(SECOND, "Hung", |kind| matches!(kind, SignalKind::Hung { .. }).then_some(())).await;
    stand.supervisor.release();
    assert_eq!(stand.until("Released", released).await, 1);
    assert_eq!(stand.supervisor.abandoned(), 1);
    stand.supervisor.reopen();
    assert_eq!(stand.opened().await.gpus.len(), 8, "discovery does not ask for the temperature");
    stand.signal(SECOND, "Hung again", |kind| matches!(kind, SignalKind::Hung { .. }).then_some(())).await;
    stand.change_second(|gpu| gpu.faults.clear());
    let mut unhung = 0;
    let end = Instant::now() + 3 * timing().poll;
    while let Ok(Some(update)) = tokio::time::timeout_at(end, stand.updates.recv()).await {
        unhung += usize::from(matches!(update, Update::Signal(Signal { kind: SignalKind::Unhung { .. }, .. })));
    }
    assert_eq!(unhung, 1, "only the thread of now speaks");
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_driver_that_is_unloaded_closes_the_session_and_comes_back() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    stand.change(|control| {
        control.faults = vec![Fault::error("nvmlInit_v2", 9), Fault::error("nvmlDeviceGetCount_v2", 9)];
        for gpu in &mut control.gpus {
            gpu.faults = vec![Fault::error("*", 9)];
        }
    });
    assert_eq!(stand.unavailable().await, OpenError::NotLoaded);
    stand.change(|control| {
        control.faults.clear();
        control.gpus.iter_mut().for_each(|gpu| gpu.faults.clear());
    });
    assert_eq!(stand.opened().await.gpus.len(), 8);
    stand.all_watching().await;
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
async fn no_gpu_at_all_is_no_error() {
    let mut stand = Stand::new(Control::default());
    let scan = stand.opened().await;
    assert_eq!((scan.count.clone().unwrap(), scan.gpus.len(), scan.unidentified.len()), (0, 0, 0));
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
