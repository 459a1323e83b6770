//! Readings for tests: healthy cards, looks at them, and news of them.

use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::{SysfsCard, SysfsView};
use crate::nvml::{
    CallError, Code, ComputeCapability, CudaVersion, Ecc, Event, GpuReading, MigMode, MigReading, MigState, Missing,
    PciAddress, Pcie, Presence, Reading, RemappedRows, RepairPending, Scan, Signal, SignalKind, Snapshot, Thermal,
    Unidentified, Update, Versions,
};

/// The moment at which every test begins, and `seconds` after it.
pub(crate) fn at(seconds: i64) -> Timestamp {
    let start: Timestamp = "2026-11-02T10:00:00Z".parse().unwrap();
    start + SignedDuration::from_secs(seconds)
}

/// The address of card `n`.
pub(crate) fn pci(n: u8) -> PciAddress {
    PciAddress { domain: 0, bus: 0x10 + n, device: 0, function: 0 }
}

/// The UUID of card `n`.
pub(crate) fn uuid(n: u8) -> String {
    format!("GPU-{n:02x}000000-0000-4000-8000-000000000000")
}

/// The name of card `n`.
pub(crate) fn name(n: u8) -> String {
    super::gpu_name(pci(n))
}

/// Card `n` as a look finds it.
pub(crate) fn gpu(n: u8) -> GpuReading {
    GpuReading {
        index: u32::from(n),
        pci: pci(n),
        uuid: uuid(n),
        serial: Some(format!("165{n:04}")),
        minor: Some(u32::from(n)),
        name: Some("NVIDIA H100 80GB HBM3".into()),
        brand: Some("Nvidia".into()),
        architecture: Some("Hopper".into()),
        compute_capability: Some(ComputeCapability { major: 9, minor: 0 }),
        memory_bytes: Some(81_559 << 20),
        numa: None,
        board_part: None,
        board_id: None,
        mig: MigState { mode: Some(MigMode { current: false, pending: false }), ..MigState::default() },
    }
}

/// Card `n`, partitioned into one instance for each `(gpu instance, compute instance)`.
pub(crate) fn partitioned(n: u8, instances: &[(u32, u32)]) -> GpuReading {
    let instance = |&(gpu_instance, compute_instance): &(u32, u32)| MigReading {
        uuid: format!("MIG-{n}-{gpu_instance}-{compute_instance}"),
        gpu_instance,
        compute_instance,
        profile: Some("1g.10gb".into()),
        start: Some(gpu_instance * 2),
        size: Some(1),
        memory_bytes: Some(10 << 30),
        multiprocessors: Some(16),
    };
    let mode = Some(MigMode { current: true, pending: true });
    GpuReading {
        mig: MigState { mode, instances: instances.iter().map(instance).collect(), unread: Vec::new() },
        ..gpu(n)
    }
}

/// A look in which all of these answer.
pub(crate) fn scan(gpus: Vec<GpuReading>) -> Scan {
    let count = u32::try_from(gpus.len()).unwrap();
    Scan { count: Ok(count), gpus, unidentified: Vec::new(), missing: Vec::new() }
}

/// NVML opened, and these answer.
pub(crate) fn opened(gpus: Vec<GpuReading>) -> Update {
    opened_with(scan(gpus))
}

/// NVML opened with this look.
pub(crate) fn opened_with(scan: Scan) -> Update {
    let versions =
        Versions { driver: Some("580.95.05".into()), nvml: None, cuda: Some(CudaVersion { major: 13, minor: 0 }) };
    Update::Opened { versions, scan }
}

/// A known address that answers with `code`.
pub(crate) fn missing(n: u8, code: Code) -> Missing {
    Missing { pci: pci(n), error: CallError::new("nvmlDeviceGetHandleByPciBusId_v2", code) }
}

/// An index that could not be opened.
pub(crate) fn unidentified(n: u8, known: bool, code: Code) -> Unidentified {
    let error = CallError::new("nvmlDeviceGetHandleByIndex_v2", code);
    Unidentified { index: u32::from(n), pci: known.then(|| pci(n)), error }
}

/// A bus that lists these cards.
pub(crate) fn bus(cards: impl IntoIterator<Item = u8>) -> SysfsView {
    let card = SysfsCard { pcie_root: Some("pci0000:10".into()), numa_node: Some(1), driver: Some("nvidia".into()) };
    SysfsView { cards: cards.into_iter().map(|n| (pci(n), card.clone())).collect() }
}

/// News of card `n`.
pub(crate) fn signal(n: u8, kind: SignalKind) -> Update {
    Update::Signal(Signal { pci: pci(n), uuid: Some(uuid(n)), at: Instant::now(), kind })
}

/// An XID event of card `n`, about the whole card.
pub(crate) fn xid(n: u8, code: u64) -> Update {
    xid_on(n, code, None)
}

/// An XID event of card `n` about a partition.
pub(crate) fn xid_on(n: u8, code: u64, partition: Option<(u32, u32)>) -> Update {
    let event = Event {
        event_type: Event::XID,
        data: code,
        gpu_instance: partition.map(|(gpu, _)| gpu),
        compute_instance: partition.map(|(_, compute)| compute),
    };
    signal(n, SignalKind::Event(event))
}

/// A reading of card `n`.
pub(crate) fn read(n: u8, snapshot: Snapshot) -> Update {
    signal(n, SignalKind::Snapshot(Box::new(snapshot)))
}

/// A reading of a card with nothing wrong, which has been drawing power for a while.
pub(crate) fn healthy() -> Snapshot {
    use Reading::{NotSupported, Value};
    Snapshot {
        at: Instant::now(),
        presence: Presence::Answering,
        recovery_action: Value(0),
        remapped_rows: RemappedRows {
            correctable: Value(0),
            uncorrectable: Value(0),
            pending: Value(false),
            failed: Value(false),
        },
        retired_pages_pending: NotSupported,
        ecc: Ecc {
            enabled: Value(true),
            pending: Value(true),
            volatile_corrected: Value(3),
            volatile_uncorrected: Value(1),
            aggregate_corrected: Value(5),
            aggregate_uncorrected: Value(1),
        },
        sram_threshold_exceeded: Value(false),
        repair_pending: Value(RepairPending { channel: false, tpc: false }),
        thermal: Thermal {
            gpu_celsius: Value(40),
            memory_celsius: Value(45),
            slowdown_celsius: Value(90),
            shutdown_celsius: Value(95),
            throttle_reasons: Value(0),
            software_slowdown_ns: Value(0),
            hardware_slowdown_ns: Value(0),
            power_brake_ns: Value(0),
        },
        pcie: Pcie {
            width: Value(16),
            max_width: Value(16),
            generation: Value(5),
            max_generation: Value(5),
            replays: Value(0),
        },
        nvlinks: vec![Value(true), Value(true)],
        fabric: NotSupported,
        energy_mj: Value(1_000_000),
        persistence: Value(true),
        mig_mode: Value(MigMode { current: false, pending: false }),
        minor: NotSupported,
        processes: NotSupported,
    }
}

/// The same card soon after a reset: what counts from then began again.
pub(crate) fn after_reset() -> Snapshot {
    let mut snapshot = healthy();
    snapshot.energy_mj = Reading::Value(500);
    snapshot.ecc.volatile_corrected = Reading::Value(0);
    snapshot.ecc.volatile_uncorrected = Reading::Value(0);
    snapshot
}

/// A reading that found nobody: every value failed, as the NVML room tells it.
pub(crate) fn absent(presence: Presence) -> Snapshot {
    fn failed<T>() -> Reading<T> {
        Reading::Failed(Code::GPU_IS_LOST)
    }
    let mut snapshot = healthy();
    snapshot.presence = presence;
    snapshot.recovery_action = failed();
    snapshot.remapped_rows =
        RemappedRows { correctable: failed(), uncorrectable: failed(), pending: failed(), failed: failed() };
    snapshot.sram_threshold_exceeded = failed();
    snapshot.energy_mj = failed();
    snapshot.ecc.volatile_corrected = failed();
    snapshot.ecc.volatile_uncorrected = failed();
    snapshot
}

/// A reading of a card whose driver asks for an action.
pub(crate) fn asking(action: u32) -> Snapshot {
    let mut snapshot = healthy();
    snapshot.recovery_action = Reading::Value(action);
    snapshot
}
