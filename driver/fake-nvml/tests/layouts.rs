//! The stand-in's structs against the bindings that nvml-wrapper uses: the same size, alignment and place of every field.
#![expect(clippy::cast_possible_truncation, reason = "version words are 32 bits wide")]

use std::mem::{align_of, offset_of, size_of};

use nvidia_ml::abi;
use nvml_wrapper_sys::bindings as sys;

/// Compares two structs and the fields that have the same name in both.
macro_rules! same_layout {
    ($ours:path, $theirs:path, [$($field:ident),+ $(,)?]) => {{
        assert_eq!(size_of::<$ours>(), size_of::<$theirs>(), "size of {}", stringify!($ours));
        assert_eq!(align_of::<$ours>(), align_of::<$theirs>(), "alignment of {}", stringify!($ours));
        $(assert_eq!(
            offset_of!($ours, $field),
            offset_of!($theirs, $field),
            "place of {} in {}", stringify!($field), stringify!($ours)
        );)+
    }};
}

#[test]
fn events_and_fields() {
    same_layout!(
        abi::nvmlEventData_t,
        sys::nvmlEventData_t,
        [device, eventType, eventData, gpuInstanceId, computeInstanceId]
    );
    same_layout!(
        abi::nvmlFieldValue_t,
        sys::nvmlFieldValue_t,
        [fieldId, scopeId, timestamp, latencyUsec, valueType, nvmlReturn, value]
    );
    assert_eq!(size_of::<abi::Handle>(), size_of::<sys::nvmlDevice_t>());
}

#[test]
fn identity() {
    same_layout!(
        abi::nvmlPciInfo_t,
        sys::nvmlPciInfo_t,
        [busIdLegacy, domain, bus, device, pciDeviceId, pciSubSystemId, busId]
    );
    same_layout!(abi::nvmlMemory_v2_t, sys::nvmlMemory_v2_t, [version, total, reserved, free, used]);
}

#[test]
fn partitions() {
    same_layout!(
        abi::nvmlDeviceAttributes_t,
        sys::nvmlDeviceAttributes_t,
        [multiprocessorCount, sharedOfaCount, gpuInstanceSliceCount, computeInstanceSliceCount, memorySizeMB]
    );
    same_layout!(abi::nvmlGpuInstancePlacement_t, sys::nvmlGpuInstancePlacement_t, [start, size]);
    same_layout!(abi::nvmlGpuInstanceInfo_t, sys::nvmlGpuInstanceInfo_t, [device, id, profileId, placement]);
    same_layout!(
        abi::nvmlGpuInstanceProfileInfo_v2_t,
        sys::nvmlGpuInstanceProfileInfo_v2_t,
        [version, id, sliceCount, instanceCount, multiprocessorCount, ofaCount, memorySizeMB, name]
    );
}

#[test]
fn health() {
    same_layout!(abi::nvmlEccSramErrorStatus_v1_t, sys::nvmlEccSramErrorStatus_v1_t, [version, bThresholdExceeded]);
    assert_eq!(
        offset_of!(abi::nvmlEccSramErrorStatus_v1_t, counters),
        offset_of!(sys::nvmlEccSramErrorStatus_v1_t, aggregateUncParity)
    );
    same_layout!(
        abi::nvmlRepairStatus_v1_t,
        sys::nvmlRepairStatus_v1_t,
        [version, bChannelRepairPending, bTpcRepairPending]
    );
    same_layout!(
        abi::nvmlRowRemapperHistogramValues_t,
        sys::nvmlRowRemapperHistogramValues_t,
        [max, high, partial, low, none]
    );
    same_layout!(
        abi::nvmlProcessInfo_v2_t,
        sys::nvmlProcessInfo_v2_t,
        [pid, usedGpuMemory, gpuInstanceId, computeInstanceId]
    );
    same_layout!(
        abi::nvmlGpuFabricInfo_v2_t,
        sys::nvmlGpuFabricInfo_v2_t,
        [version, clusterUuid, status, cliqueId, state, healthMask]
    );
    same_layout!(
        abi::nvmlGpuFabricInfo_v3_t,
        sys::nvmlGpuFabricInfo_v3_t,
        [version, clusterUuid, status, cliqueId, state, healthMask, healthSummary]
    );
}

#[test]
fn version_words_are_those_of_the_header() {
    assert_eq!(abi::version_of::<abi::nvmlMemory_v2_t>(2), size_of::<sys::nvmlMemory_v2_t>() as u32 | 2 << 24);
    assert_eq!(abi::version_of::<abi::nvmlRepairStatus_v1_t>(1), 0x0100_000c);
    assert_eq!(abi::version_of::<abi::nvmlGpuFabricInfo_v3_t>(3), 0x0300_0028);
}
