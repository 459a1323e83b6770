//! How the card is.
#![expect(unsafe_code, reason = "exported under C names")]

use std::ffi::c_uint;

use super::device_calls;
use crate::abi::{
    Array, FabricInfo, InOut, Out, nvmlEccSramErrorStatus_v1_t, nvmlGpuFabricInfo_v3_t, nvmlProcessInfo_v2_t,
    nvmlRepairStatus_v1_t, nvmlRowRemapperHistogramValues_t, version_of,
};
use crate::code::{self, Code};
use crate::control::{Ecc, Process};

/// What NVML gives for "no instance".
const NO_INSTANCE: c_uint = 0xffff_ffff;
/// `NVML_MEMORY_ERROR_TYPE_CORRECTED` and `NVML_VOLATILE_ECC`; 1 is the other one of each.
const CORRECTED: c_uint = 0;
const VOLATILE: c_uint = 0;

device_calls! {
    /// Row remapping; a partitioned GPU does not tell it this way, but by fields.
    fn nvmlDeviceGetRemappedRows(
        target,
        corrected: Out<'_, c_uint>,
        uncorrected: Out<'_, c_uint>,
        pending: Out<'_, c_uint>,
        failed: Out<'_, c_uint>,
    ) {
        let rows = target.whole()?.health.remapped_rows.ok_or(code::NOT_SUPPORTED)?;
        if !target.card.partitions().is_empty() {
            return Err(code::NOT_SUPPORTED);
        }
        corrected.put(rows.correctable)?;
        uncorrected.put(rows.uncorrectable)?;
        pending.put(rows.pending.into())?;
        failed.put(rows.failed.into())
    }

    /// Banks by spare rows.
    fn nvmlDeviceGetRowRemapperHistogram(target, values: Out<'_, nvmlRowRemapperHistogramValues_t>) {
        let banks = target.whole()?.health.row_histogram.ok_or(code::NOT_SUPPORTED)?;
        values.put(nvmlRowRemapperHistogramValues_t {
            max: banks.max,
            high: banks.high,
            partial: banks.partial,
            low: banks.low,
            none: banks.none,
        })
    }

    /// SRAM errors.
    fn nvmlDeviceGetSramEccErrorStatus(target, status: InOut<'_, nvmlEccSramErrorStatus_v1_t>) {
        let exceeded = target.whole()?.health.sram_threshold_exceeded.ok_or(code::NOT_SUPPORTED)?;
        let status = status.get()?;
        if status.version != version_of::<nvmlEccSramErrorStatus_v1_t>(1) {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        status.counters = [0; 11];
        status.bThresholdExceeded = exceeded.into();
        Ok(())
    }

    /// Repairs that wait for a reset.
    fn nvmlDeviceGetRepairStatus(target, status: InOut<'_, nvmlRepairStatus_v1_t>) {
        let repair = target.whole()?.health.repair.ok_or(code::NOT_SUPPORTED)?;
        let status = status.get()?;
        if status.version != version_of::<nvmlRepairStatus_v1_t>(1) {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        status.bChannelRepairPending = repair.channel_pending.into();
        status.bTpcRepairPending = repair.tpc_pending.into();
        Ok(())
    }

    /// Errors of one location: all of them are in device memory (location 2), none elsewhere.
    fn nvmlDeviceGetMemoryErrorCounter(
        target,
        error: c_uint,
        counter: c_uint,
        location: c_uint,
        count: Out<'_, u64>,
    ) {
        let total = ecc_count(target.whole()?.health.ecc, error, counter)?;
        count.put(if location == 2 { total } else { 0 })
    }

    /// Errors in all.
    fn nvmlDeviceGetTotalEccErrors(target, error: c_uint, counter: c_uint, count: Out<'_, u64>) {
        count.put(ecc_count(target.whole()?.health.ecc, error, counter)?)
    }

    /// ECC mode now and after the next reset.
    fn nvmlDeviceGetEccMode(target, current: Out<'_, c_uint>, pending: Out<'_, c_uint>) {
        let ecc = target.whole()?.health.ecc.ok_or(code::NOT_SUPPORTED)?;
        current.put(ecc.enabled.into())?;
        pending.put(ecc.pending.into())
    }

    /// Retired pages: none are listed, the card only tells whether some are pending.
    fn nvmlDeviceGetRetiredPages_v2(
        target,
        _cause: c_uint,
        count: InOut<'_, c_uint>,
        _addresses: Array<u64>,
        _timestamps: Array<u64>,
    ) {
        target.whole()?.health.retired_pages_pending.ok_or(code::NOT_SUPPORTED)?;
        *count.get()? = 0;
        Ok(())
    }

    /// Whether pages wait to be retired.
    fn nvmlDeviceGetRetiredPagesPendingStatus(target, pending: Out<'_, c_uint>) {
        pending.put(target.whole()?.health.retired_pages_pending.ok_or(code::NOT_SUPPORTED)?.into())
    }

    /// Why clocks are lowered, under its old name.
    fn nvmlDeviceGetCurrentClocksThrottleReasons(target, reasons: Out<'_, u64>) {
        reasons.put(target.whole()?.health.thermal.ok_or(code::NOT_SUPPORTED)?.throttle_reasons)
    }

    /// Why clocks are lowered.
    fn nvmlDeviceGetCurrentClocksEventReasons(target, reasons: Out<'_, u64>) {
        reasons.put(target.whole()?.health.thermal.ok_or(code::NOT_SUPPORTED)?.throttle_reasons)
    }

    /// Core temperature (sensor 0).
    fn nvmlDeviceGetTemperature(target, sensor: c_uint, celsius: Out<'_, c_uint>) {
        let thermal = target.whole()?.health.thermal.ok_or(code::NOT_SUPPORTED)?;
        if sensor != 0 {
            return Err(code::INVALID_ARGUMENT);
        }
        celsius.put(thermal.gpu)
    }

    /// Temperature limits: 0 shutdown, 1 slowdown.
    fn nvmlDeviceGetTemperatureThreshold(target, kind: c_uint, celsius: Out<'_, c_uint>) {
        let thermal = target.whole()?.health.thermal.ok_or(code::NOT_SUPPORTED)?;
        match kind {
            0 => celsius.put(thermal.shutdown),
            1 => celsius.put(thermal.slowdown),
            _ => Err(code::NOT_SUPPORTED),
        }
    }

    /// Link generation now.
    fn nvmlDeviceGetCurrPcieLinkGeneration(target, generation: Out<'_, c_uint>) {
        generation.put(target.whole()?.health.pcie.ok_or(code::NOT_SUPPORTED)?.generation)
    }

    /// Lanes in use.
    fn nvmlDeviceGetCurrPcieLinkWidth(target, width: Out<'_, c_uint>) {
        width.put(target.whole()?.health.pcie.ok_or(code::NOT_SUPPORTED)?.width)
    }

    /// Highest link generation.
    fn nvmlDeviceGetMaxPcieLinkGeneration(target, generation: Out<'_, c_uint>) {
        generation.put(target.whole()?.health.pcie.ok_or(code::NOT_SUPPORTED)?.max_generation)
    }

    /// Lanes possible.
    fn nvmlDeviceGetMaxPcieLinkWidth(target, width: Out<'_, c_uint>) {
        width.put(target.whole()?.health.pcie.ok_or(code::NOT_SUPPORTED)?.max_width)
    }

    /// Replays.
    fn nvmlDeviceGetPcieReplayCounter(target, replays: Out<'_, c_uint>) {
        replays.put(target.whole()?.health.pcie.ok_or(code::NOT_SUPPORTED)?.replays)
    }

    /// State of one NVLink; a link that the card does not have is an invalid argument.
    fn nvmlDeviceGetNvLinkState(target, link: c_uint, state: Out<'_, c_uint>) {
        let links = target.whole()?.health.nvlinks.as_ref().ok_or(code::NOT_SUPPORTED)?;
        state.put((*links.get(link as usize).ok_or(code::INVALID_ARGUMENT)?).into())
    }

    /// NVLink fabric, in struct version 2 or 3.
    fn nvmlDeviceGetGpuFabricInfoV(target, info: FabricInfo) {
        let fabric = target.whole()?.health.fabric.ok_or(code::NOT_SUPPORTED)?;
        info.put(nvmlGpuFabricInfo_v3_t {
            version: 0,
            clusterUuid: [0xfa; 16],
            status: fabric.status,
            cliqueId: fabric.clique,
            state: fabric.state,
            healthMask: fabric.health_mask,
            healthSummary: fabric.health_summary,
        })
    }

    /// Compute processes.
    fn nvmlDeviceGetComputeRunningProcesses_v3(target, count: InOut<'_, c_uint>, processes: Array<nvmlProcessInfo_v2_t>) {
        let all = target.card.health.processes.as_deref().ok_or(code::NOT_SUPPORTED)?;
        let all: Vec<_> = all.iter().map(process).collect();
        processes.fill(count, &all)
    }

    /// Energy since driver load.
    fn nvmlDeviceGetTotalEnergyConsumption(target, millijoules: Out<'_, u64>) {
        millijoules.put(target.whole()?.health.energy_mj.ok_or(code::NOT_SUPPORTED)?)
    }

    /// Checks the InfoROM.
    fn nvmlDeviceValidateInforom(target) {
        match target.whole()?.health.inforom_corrupt {
            Some(true) => Err(code::CORRUPTED_INFOROM),
            Some(false) => Ok(()),
            None => Err(code::NOT_SUPPORTED),
        }
    }
}

fn ecc_count(ecc: Option<Ecc>, error: c_uint, counter: c_uint) -> Result<u64, Code> {
    let ecc = ecc.filter(|ecc| ecc.enabled).ok_or(code::NOT_SUPPORTED)?;
    if error > 1 || counter > 1 {
        return Err(code::INVALID_ARGUMENT);
    }
    Ok(match (error == CORRECTED, counter == VOLATILE) {
        (true, true) => ecc.volatile_corrected,
        (false, true) => ecc.volatile_uncorrected,
        (true, false) => ecc.aggregate_corrected,
        (false, false) => ecc.aggregate_uncorrected,
    })
}

fn process(process: &Process) -> nvmlProcessInfo_v2_t {
    nvmlProcessInfo_v2_t {
        pid: process.pid,
        usedGpuMemory: process.used_bytes,
        gpuInstanceId: process.gi.unwrap_or(NO_INSTANCE),
        computeInstanceId: process.ci.unwrap_or(NO_INSTANCE),
    }
}
