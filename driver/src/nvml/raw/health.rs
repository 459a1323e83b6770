//! How a GPU is.

use std::mem;

use nvml_wrapper_sys::bindings as sys;

use super::{Calls, Device, call, instance, number, version_of};
use crate::nvml::{CallError, Code, Fabric, Process, Reading, RepairPending};

const FIELDS: &str = "nvmlDeviceGetFieldValues";
/// Room for this many processes at first; a card rarely has more.
const PROCESSES: usize = 32;
/// A list that grows between two calls is asked for again, this often.
const PROCESS_TRIES: usize = 3;

/// A value that is read by its number (`NVML_FI_DEV_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::nvml) enum FieldId {
    MemoryTemperature,
    RemappedCorrectable,
    RemappedUncorrectable,
    RemapPending,
    RemapFailed,
    RecoveryAction,
    SoftwareSlowdownNs,
    HardwareSlowdownNs,
    PowerBrakeNs,
}

impl FieldId {
    /// The number; the last three moved by 18 with driver 580.82.
    fn number(self, new_numbers: bool) -> u32 {
        let moved = if new_numbers { 18 } else { 0 };
        match self {
            Self::MemoryTemperature => 82,
            Self::RemappedCorrectable => 142,
            Self::RemappedUncorrectable => 143,
            Self::RemapPending => 144,
            Self::RemapFailed => 145,
            Self::RecoveryAction => 230,
            Self::SoftwareSlowdownNs => 251 + moved,
            Self::HardwareSlowdownNs => 252 + moved,
            Self::PowerBrakeNs => 253 + moved,
        }
    }
}

impl Calls<'_> {
    /// Several fields in one call. Each has a result of its own; the call itself fails only as a whole.
    pub(in crate::nvml) fn fields<const N: usize>(
        &self,
        device: Device,
        ids: [FieldId; N],
    ) -> Result<[Reading<u64>; N], CallError> {
        let count = i32::try_from(N).map_err(|_| CallError::new(FIELDS, Code::INVALID_ARGUMENT))?;
        let new_numbers = self.session.has_new_field_numbers();
        let mut values = ids.map(|id| {
            // SAFETY: all zeros is a valid value of this struct of numbers.
            let mut value: sys::nvmlFieldValue_t = unsafe { mem::zeroed() };
            value.fieldId = id.number(new_numbers);
            value
        });
        // SAFETY: the device is of this session, and there are `count` values.
        call!(self, nvmlDeviceGetFieldValues(device.0, count, values.as_mut_ptr()))?;
        Ok(values.map(|value| field_value(&value)))
    }

    pub(in crate::nvml) fn retired_pages_pending(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetRetiredPagesPendingStatus(device.0))
    }

    /// ECC now and after the next reset.
    pub(in crate::nvml) fn ecc_mode(&self, device: Device) -> Result<(bool, bool), CallError> {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the device is of this session, and both numbers are room for the answer.
        call!(self, nvmlDeviceGetEccMode(device.0, &raw mut current, &raw mut pending))?;
        Ok((current == 1, pending == 1))
    }

    /// `kind`: 0 corrected, 1 uncorrected. `counter`: 0 volatile, 1 aggregate.
    pub(in crate::nvml) fn ecc_errors(&self, device: Device, kind: u32, counter: u32) -> Result<u64, CallError> {
        number!(self, nvmlDeviceGetTotalEccErrors(device.0, kind, counter))
    }

    pub(in crate::nvml) fn sram_threshold_exceeded(&self, device: Device) -> Result<bool, CallError> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut status: sys::nvmlEccSramErrorStatus_t = unsafe { mem::zeroed() };
        status.version = version_of::<sys::nvmlEccSramErrorStatus_t>(1);
        // SAFETY: the device is of this session, and the struct is of the version that it says.
        call!(self, nvmlDeviceGetSramEccErrorStatus(device.0, &raw mut status))?;
        Ok(status.bThresholdExceeded != 0)
    }

    pub(in crate::nvml) fn repair_pending(&self, device: Device) -> Result<RepairPending, CallError> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut status: sys::nvmlRepairStatus_t = unsafe { mem::zeroed() };
        status.version = version_of::<sys::nvmlRepairStatus_t>(1);
        // SAFETY: the device is of this session, and the struct is of the version that it says.
        call!(self, nvmlDeviceGetRepairStatus(device.0, &raw mut status))?;
        Ok(RepairPending { channel: status.bChannelRepairPending != 0, tpc: status.bTpcRepairPending != 0 })
    }

    pub(in crate::nvml) fn gpu_celsius(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetTemperature(device.0, 0))
    }

    /// `limit`: 0 shutdown, 1 slowdown.
    pub(in crate::nvml) fn temperature_limit(&self, device: Device, limit: u32) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetTemperatureThreshold(device.0, limit))
    }

    /// Under its new name, or the old one of a driver before R535.
    pub(in crate::nvml) fn throttle_reasons(&self, device: Device) -> Result<u64, CallError> {
        match number!(self, nvmlDeviceGetCurrentClocksEventReasons(device.0)) {
            Err(error) if error.code == Code::FUNCTION_NOT_FOUND => {
                number!(self, nvmlDeviceGetCurrentClocksThrottleReasons(device.0))
            }
            answer => answer,
        }
    }

    pub(in crate::nvml) fn pcie_width(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetCurrPcieLinkWidth(device.0))
    }

    pub(in crate::nvml) fn pcie_max_width(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetMaxPcieLinkWidth(device.0))
    }

    pub(in crate::nvml) fn pcie_generation(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetCurrPcieLinkGeneration(device.0))
    }

    pub(in crate::nvml) fn pcie_max_generation(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetMaxPcieLinkGeneration(device.0))
    }

    pub(in crate::nvml) fn pcie_replays(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetPcieReplayCounter(device.0))
    }

    pub(in crate::nvml) fn nvlink(&self, device: Device, link: u32) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetNvLinkState(device.0, link))
    }

    pub(in crate::nvml) fn energy_mj(&self, device: Device) -> Result<u64, CallError> {
        number!(self, nvmlDeviceGetTotalEnergyConsumption(device.0))
    }

    pub(in crate::nvml) fn persistence(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetPersistenceMode(device.0))
    }

    /// In struct version 3, or 2 for a driver that does not know 3.
    pub(in crate::nvml) fn fabric(&self, device: Device) -> Result<Fabric, CallError> {
        match self.fabric_in(device, version_of::<sys::nvmlGpuFabricInfo_v3_t>(3)) {
            Err(error) if matches!(error.code, Code::ARGUMENT_VERSION_MISMATCH | Code::INVALID_ARGUMENT) => {
                let fabric = self.fabric_in(device, version_of::<sys::nvmlGpuFabricInfo_v2_t>(2))?;
                Ok(Fabric { health_summary: None, ..fabric })
            }
            answer => answer,
        }
    }

    fn fabric_in(&self, device: Device, version: u32) -> Result<Fabric, CallError> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut info: sys::nvmlGpuFabricInfo_v3_t = unsafe { mem::zeroed() };
        info.version = version;
        // SAFETY: the device is of this session; version 2 is the beginning of version 3, so there is room for either.
        call!(self, nvmlDeviceGetGpuFabricInfoV(device.0, &raw mut info))?;
        Ok(Fabric {
            state: info.state,
            status: info.status,
            clique: info.cliqueId,
            health_mask: info.healthMask,
            health_summary: Some(info.healthSummary),
        })
    }

    pub(in crate::nvml) fn processes(&self, device: Device) -> Result<Vec<Process>, CallError> {
        let mut room = PROCESSES;
        for _ in 1..PROCESS_TRIES {
            match self.processes_in(device, room) {
                Err((error, needed)) if error.code == Code::INSUFFICIENT_SIZE => {
                    room = needed.saturating_add(PROCESSES);
                }
                answer => return answer.map_err(|(error, _)| error),
            }
        }
        self.processes_in(device, room).map_err(|(error, _)| error)
    }

    /// The error comes with how many there are.
    fn processes_in(&self, device: Device, room: usize) -> Result<Vec<Process>, (CallError, usize)> {
        const FUNCTION: &str = "nvmlDeviceGetComputeRunningProcesses_v3";
        let Ok(mut count) = u32::try_from(room) else {
            return Err((CallError::new(FUNCTION, Code::INSUFFICIENT_SIZE), PROCESSES));
        };
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut list = vec![unsafe { mem::zeroed::<sys::nvmlProcessInfo_t>() }; room];
        // SAFETY: the device is of this session, and the list has `count` places.
        let answer = call!(self, nvmlDeviceGetComputeRunningProcesses_v3(device.0, &raw mut count, list.as_mut_ptr()));
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        answer.map_err(|error| (error, count))?;
        list.truncate(count);
        Ok(list.iter().map(process).collect())
    }
}

fn process(info: &sys::nvmlProcessInfo_t) -> Process {
    Process {
        pid: info.pid,
        // NVML's "not available" is -1.
        used_bytes: (info.usedGpuMemory != u64::MAX).then_some(info.usedGpuMemory),
        gpu_instance: instance(info.gpuInstanceId),
        compute_instance: instance(info.computeInstanceId),
    }
}

/// The value of a field by its type. An old driver calls a field that it does not know an invalid argument.
fn field_value(field: &sys::nvmlFieldValue_t) -> Reading<u64> {
    match Code(field.nvmlReturn) {
        Code(0) => {}
        Code::INVALID_ARGUMENT => return Reading::NotSupported,
        code if code.means_not_supported() => return Reading::NotSupported,
        code => return Reading::Failed(code),
    }
    // SAFETY: the union was zeroed before the call and every bit pattern is valid for its integers.
    let (narrow, wide, signed) = unsafe { (field.value.uiVal, field.value.ullVal, field.value.siVal) };
    let value = match field.valueType {
        1 => Some(u64::from(narrow)),
        2 | 3 => Some(wide),
        4 => i64::from_ne_bytes(wide.to_ne_bytes()).try_into().ok(),
        5 => signed.try_into().ok(),
        _ => None,
    };
    value.map_or(Reading::Failed(Code::UNKNOWN), Reading::Value)
}

#[cfg(test)]
mod tests {
    use super::{Code, FieldId, Reading, field_value, sys};

    fn field(code: u32, kind: u32, value: u64) -> sys::nvmlFieldValue_t {
        sys::nvmlFieldValue_t {
            fieldId: 230,
            scopeId: 0,
            timestamp: 0,
            latencyUsec: 0,
            valueType: kind,
            nvmlReturn: code,
            value: sys::nvmlValue_t { ullVal: value },
        }
    }

    #[test]
    fn a_field_is_read_by_its_own_type_and_code() {
        assert_eq!(field_value(&field(0, 1, 4)), Reading::Value(4));
        assert_eq!(field_value(&field(0, 3, 1 << 40)), Reading::Value(1 << 40));
        assert_eq!(field_value(&field(0, 5, 0xffff_ffff)), Reading::Failed(Code::UNKNOWN), "a negative number");
        assert_eq!(field_value(&field(0, 0, 4)), Reading::Failed(Code::UNKNOWN), "a double");
        assert_eq!(field_value(&field(3, 1, 4)), Reading::NotSupported);
        assert_eq!(field_value(&field(2, 1, 4)), Reading::NotSupported, "unknown to an old driver");
        assert_eq!(field_value(&field(15, 1, 4)), Reading::Failed(Code::GPU_IS_LOST));
    }

    #[test]
    fn only_the_throttle_times_have_moved() {
        assert_eq!(FieldId::SoftwareSlowdownNs.number(false), 251);
        assert_eq!(FieldId::SoftwareSlowdownNs.number(true), 269);
        assert_eq!(FieldId::PowerBrakeNs.number(true), 271);
        assert_eq!(FieldId::RecoveryAction.number(true), 230);
    }
}
