//! From a place on the bus to a [`Snapshot`]: who answers there, and how it is.

use tokio::time::Instant;

use super::raw::{Calls, Device, FieldId};
use super::{
    CallError, Code, Ecc, MigMode, PciAddress, Pcie, Presence, Process, Reading, RemappedRows, Snapshot, Thermal,
};

/// No card has more NVLinks (`NVML_NVLINK_MAX_LINKS`).
const MOST_LINKS: u32 = 18;

/// Reads everything of the GPU at an address. `expected` is the UUID that should answer, if one is known.
pub(super) fn snapshot(calls: Calls<'_>, pci: PciAddress, expected: Option<&str>) -> Snapshot {
    match who(calls, pci, expected) {
        Ok((device, presence)) => values(calls, device, presence),
        Err((presence, code)) => nothing(presence, code),
    }
}

/// Finds the card by its address alone, and asks it who it is.
fn who(calls: Calls<'_>, pci: PciAddress, expected: Option<&str>) -> Result<(Device, Presence), (Presence, Code)> {
    let answer = calls.device_at(pci).and_then(|device| Ok((device, calls.uuid(device)?)));
    match answer {
        Ok((device, uuid)) if expected.is_none_or(|expected| expected == uuid) => Ok((device, Presence::Answering)),
        Ok((device, uuid)) => Ok((device, Presence::OtherCard { uuid })),
        Err(CallError { code, .. }) => Err((absence(code), code)),
    }
}

fn absence(code: Code) -> Presence {
    match code {
        Code::GPU_IS_LOST => Presence::Lost,
        Code::RESET_REQUIRED => Presence::ResetRequired,
        Code::NOT_FOUND => Presence::Absent,
        other => Presence::Unreadable(other),
    }
}

/// Reads one value after the other, until the card is gone.
struct Reader<'a> {
    calls: Calls<'a>,
    device: Device,
    presence: Presence,
}

impl<'a> Reader<'a> {
    fn read<T>(&mut self, read: impl FnOnce(&Calls<'a>, Device) -> Result<T, CallError>) -> Reading<T> {
        if self.presence == Presence::Lost {
            return Reading::Failed(Code::GPU_IS_LOST);
        }
        let answer = read(&self.calls, self.device);
        match answer.as_ref().map_err(|error| error.code) {
            Err(Code::GPU_IS_LOST) => self.presence = Presence::Lost,
            // Other values may still be readable, the recovery action above all.
            Err(Code::RESET_REQUIRED) => self.presence = Presence::ResetRequired,
            _ => {}
        }
        Reading::from_call(answer)
    }

    /// Several fields; if the call fails as a whole, each of them has.
    fn fields<const N: usize>(&mut self, ids: [FieldId; N]) -> [Reading<u64>; N] {
        match self.read(|calls, device| calls.fields(device, ids)) {
            Reading::Value(values) => values,
            Reading::NotSupported => [Reading::NotSupported; N],
            Reading::Failed(code) => [Reading::Failed(code); N],
        }
    }

    fn remapped_rows(&mut self) -> RemappedRows {
        let [correctable, uncorrectable, pending, failed] = self.fields([
            FieldId::RemappedCorrectable,
            FieldId::RemappedUncorrectable,
            FieldId::RemapPending,
            FieldId::RemapFailed,
        ]);
        RemappedRows {
            correctable: narrow(correctable),
            uncorrectable: narrow(uncorrectable),
            pending: pending.map(is_set),
            failed: failed.map(is_set),
        }
    }

    fn ecc(&mut self) -> Ecc {
        let mode = self.read(Calls::ecc_mode);
        let mut errors = |kind, counter| self.read(|calls, device| calls.ecc_errors(device, kind, counter));
        Ecc {
            enabled: mode.map(|(enabled, _)| enabled),
            pending: mode.map(|(_, pending)| pending),
            volatile_corrected: errors(0, 0),
            volatile_uncorrected: errors(1, 0),
            aggregate_corrected: errors(0, 1),
            aggregate_uncorrected: errors(1, 1),
        }
    }

    fn thermal(&mut self) -> Thermal {
        let [memory, software, hardware, power_brake] = self.fields([
            FieldId::MemoryTemperature,
            FieldId::SoftwareSlowdownNs,
            FieldId::HardwareSlowdownNs,
            FieldId::PowerBrakeNs,
        ]);
        Thermal {
            gpu_celsius: self.read(Calls::gpu_celsius),
            memory_celsius: narrow(memory),
            slowdown_celsius: self.read(|calls, device| calls.temperature_limit(device, 1)),
            shutdown_celsius: self.read(|calls, device| calls.temperature_limit(device, 0)),
            throttle_reasons: self.read(Calls::throttle_reasons),
            software_slowdown_ns: software,
            hardware_slowdown_ns: hardware,
            power_brake_ns: power_brake,
        }
    }

    fn pcie(&mut self) -> Pcie {
        Pcie {
            width: self.read(Calls::pcie_width),
            max_width: self.read(Calls::pcie_max_width),
            generation: self.read(Calls::pcie_generation),
            max_generation: self.read(Calls::pcie_max_generation),
            replays: self.read(Calls::pcie_replays),
        }
    }

    /// Links end where the number is no link any more.
    fn nvlinks(&mut self) -> Vec<Reading<bool>> {
        let mut links = Vec::new();
        for link in 0..MOST_LINKS {
            match self.read(|calls, device| calls.nvlink(device, link)) {
                Reading::NotSupported | Reading::Failed(Code::INVALID_ARGUMENT | Code::GPU_IS_LOST) => break,
                state => links.push(state.map(|state| state == 1)),
            }
        }
        links
    }
}

fn values(calls: Calls<'_>, device: Device, presence: Presence) -> Snapshot {
    let mut reader = Reader { calls, device, presence };
    let [recovery_action] = reader.fields([FieldId::RecoveryAction]);
    let mut snapshot = Snapshot {
        at: Instant::now(),
        recovery_action: narrow(recovery_action),
        remapped_rows: reader.remapped_rows(),
        retired_pages_pending: reader.read(Calls::retired_pages_pending).map(|pending| pending == 1),
        ecc: reader.ecc(),
        sram_threshold_exceeded: reader.read(Calls::sram_threshold_exceeded),
        repair_pending: reader.read(Calls::repair_pending),
        thermal: reader.thermal(),
        pcie: reader.pcie(),
        nvlinks: reader.nvlinks(),
        fabric: reader.read(Calls::fabric),
        energy_mj: reader.read(Calls::energy_mj),
        persistence: reader.read(Calls::persistence).map(|mode| mode == 1),
        mig_mode: reader.read(Calls::mig_mode),
        minor: reader.read(Calls::minor),
        processes: reader.read(Calls::processes),
        presence: Presence::Answering,
    };
    snapshot.presence = reader.presence;
    snapshot.at = Instant::now();
    snapshot
}

/// A snapshot without a value.
fn nothing(presence: Presence, code: Code) -> Snapshot {
    Snapshot {
        at: Instant::now(),
        presence,
        recovery_action: Reading::Failed(code),
        remapped_rows: RemappedRows {
            correctable: Reading::Failed(code),
            uncorrectable: Reading::Failed(code),
            pending: Reading::Failed(code),
            failed: Reading::Failed(code),
        },
        retired_pages_pending: Reading::Failed(code),
        ecc: Ecc {
            enabled: Reading::Failed(code),
            pending: Reading::Failed(code),
            volatile_corrected: Reading::Failed(code),
            volatile_uncorrected: Reading::Failed(code),
            aggregate_corrected: Reading::Failed(code),
            aggregate_uncorrected: Reading::Failed(code),
        },
        sram_threshold_exceeded: Reading::Failed(code),
        repair_pending: Reading::Failed(code),
        thermal: Thermal {
            gpu_celsius: Reading::Failed(code),
            memory_celsius: Reading::Failed(code),
            slowdown_celsius: Reading::Failed(code),
            shutdown_celsius: Reading::Failed(code),
            throttle_reasons: Reading::Failed(code),
            software_slowdown_ns: Reading::Failed(code),
            hardware_slowdown_ns: Reading::Failed(code),
            power_brake_ns: Reading::Failed(code),
        },
        pcie: Pcie {
            width: Reading::Failed(code),
            max_width: Reading::Failed(code),
            generation: Reading::Failed(code),
            max_generation: Reading::Failed(code),
            replays: Reading::Failed(code),
        },
        nvlinks: Vec::new(),
        fabric: Reading::Failed(code),
        energy_mj: Reading::Failed(code),
        persistence: Reading::Failed(code),
        mig_mode: Reading::<MigMode>::Failed(code),
        minor: Reading::Failed(code),
        processes: Reading::<Vec<Process>>::Failed(code),
    }
}

fn narrow(value: Reading<u64>) -> Reading<u32> {
    match value {
        Reading::Value(value) => u32::try_from(value).map_or(Reading::Failed(Code::UNKNOWN), Reading::Value),
        Reading::NotSupported => Reading::NotSupported,
        Reading::Failed(code) => Reading::Failed(code),
    }
}

fn is_set(value: u64) -> bool {
    value != 0
}
