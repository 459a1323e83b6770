//! Partitions.
#![expect(unsafe_code, reason = "exported under C names")]

use std::ffi::c_uint;

use super::device_calls;
use crate::abi::{
    Array, Handle, InOut, Out, fixed, nvmlDeviceAttributes_t, nvmlGpuInstanceInfo_t, nvmlGpuInstancePlacement_t,
    nvmlGpuInstanceProfileInfo_v2_t, version_of,
};
use crate::code::{self, Code, returned};
use crate::control::MigProfile;
use crate::engine::{ENGINE, Target, Thing, on_device};
use crate::machine::{Card, Share};

/// What NVML says of how many partitions a card can have.
const MOST_PARTITIONS: c_uint = 7;

device_calls! {
    /// MIG mode now and after the next reset.
    fn nvmlDeviceGetMigMode(target, current: Out<'_, c_uint>, pending: Out<'_, c_uint>) {
        let card = target.whole()?;
        if card.product().mig_profiles.is_empty() {
            return Err(code::NOT_SUPPORTED);
        }
        let mode = card.gpu.mig.as_ref().is_some_and(|mig| mig.mode);
        let next = card.gpu.mig.as_ref().and_then(|mig| mig.pending).unwrap_or(mode);
        current.put(mode.into())?;
        pending.put(next.into())
    }

    /// How many partitions there can be: none while MIG is off.
    fn nvmlDeviceGetMaxMigDeviceCount(target, count: Out<'_, c_uint>) {
        let on = target.whole()?.gpu.mig.as_ref().is_some_and(|mig| mig.mode);
        count.put(if on { MOST_PARTITIONS } else { 0 })
    }

    /// A partition; `NOT_FOUND` for a place that has none.
    fn nvmlDeviceGetMigDeviceHandleByIndex(target, index: c_uint, device: Out<'_, Handle>) {
        let card = target.whole()?;
        let part = card.partitions().get(index as usize).ok_or(code::NOT_FOUND)?;
        let thing = Thing::Partition(card.gpu.pci, part.gi, part.ci);
        device.put(ENGINE.lock().handle(thing))
    }

    /// Whether the handle is a partition.
    fn nvmlDeviceIsMigDeviceHandle(target, answer: Out<'_, c_uint>) {
        answer.put(target.partition.is_some().into())
    }

    /// The GPU of a partition.
    fn nvmlDeviceGetDeviceHandleFromMigDeviceHandle(target, device: Out<'_, Handle>) {
        target.part()?;
        device.put(ENGINE.lock().handle(Thing::Gpu(target.card.gpu.pci)))
    }

    /// GPU instance of a partition.
    fn nvmlDeviceGetGpuInstanceId(target, id: Out<'_, c_uint>) {
        id.put(target.part()?.gi)
    }

    /// Compute instance of a partition.
    fn nvmlDeviceGetComputeInstanceId(target, id: Out<'_, c_uint>) {
        id.put(target.part()?.ci)
    }

    /// Slices and memory of a partition.
    fn nvmlDeviceGetAttributes_v2(target, attributes: Out<'_, nvmlDeviceAttributes_t>) {
        let part = target.partition.as_ref().ok_or(code::NOT_SUPPORTED)?;
        let share = Share::of(target.card.gpu.profile, part).ok_or(code::UNKNOWN)?;
        attributes.put(nvmlDeviceAttributes_t {
            multiprocessorCount: share.multiprocessors,
            sharedCopyEngineCount: share.profile.slices,
            sharedDecoderCount: 0,
            sharedEncoderCount: 0,
            sharedJpegCount: 0,
            sharedOfaCount: 0,
            gpuInstanceSliceCount: share.profile.slices,
            computeInstanceSliceCount: share.compute_slices,
            memorySizeMB: share.profile.memory_mib,
        })
    }

    /// A GPU instance.
    fn nvmlDeviceGetGpuInstanceById(target, id: c_uint, instance: Out<'_, Handle>) {
        let card = target.whole()?;
        if !card.partitions().iter().any(|part| part.gi == id) {
            return Err(code::NOT_FOUND);
        }
        instance.put(ENGINE.lock().handle(Thing::GpuInstance(card.gpu.pci, id)))
    }

    /// What a profile offers.
    fn nvmlDeviceGetGpuInstanceProfileInfoV(target, profile: c_uint, info: InOut<'_, nvmlGpuInstanceProfileInfo_v2_t>) {
        let card = target.whole()?;
        let profile = card.product().mig_profiles.iter().find(|known| known.index == profile);
        describe(card, profile.ok_or(code::NOT_SUPPORTED)?, info.get()?)
    }

    /// Where an instance of a profile may be put.
    fn nvmlDeviceGetGpuInstancePossiblePlacements_v2(
        target,
        profile: c_uint,
        placements: Array<nvmlGpuInstancePlacement_t>,
        count: InOut<'_, c_uint>,
    ) {
        let known = target.whole()?.product().mig_profiles.iter().find(|known| known.id == profile);
        let known = known.ok_or(code::NOT_SUPPORTED)?;
        let all: Vec<_> = known.starts.iter().map(|start| nvmlGpuInstancePlacement_t { start: *start, size: known.size }).collect();
        if placements.is_null() {
            *count.get()? = c_uint::try_from(all.len()).map_err(|_| code::UNKNOWN)?;
            return Ok(());
        }
        placements.fill(count, &all)
    }
}

fn describe(card: &Card, profile: &MigProfile, info: &mut nvmlGpuInstanceProfileInfo_v2_t) -> Result<(), Code> {
    if info.version != version_of::<nvmlGpuInstanceProfileInfo_v2_t>(2) {
        return Err(code::ARGUMENT_VERSION_MISMATCH);
    }
    *info = nvmlGpuInstanceProfileInfo_v2_t {
        version: info.version,
        id: profile.id,
        isP2pSupported: 0,
        sliceCount: profile.slices,
        instanceCount: c_uint::try_from(profile.starts.len()).map_err(|_| code::UNKNOWN)?,
        multiprocessorCount: card.product().multiprocessors / 8 * profile.slices,
        copyEngineCount: profile.slices,
        decoderCount: 0,
        encoderCount: 0,
        jpegCount: 0,
        ofaCount: 0,
        memorySizeMB: profile.memory_mib,
        name: fixed(&format!("MIG {}", profile.name)),
    };
    Ok(())
}

/// A GPU instance's profile and place. It is about the GPU: its faults and its loss count.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlGpuInstanceGetInfo(instance: Handle, info: Out<'_, nvmlGpuInstanceInfo_t>) -> c_uint {
    let found = {
        let mut engine = ENGINE.lock();
        match engine.thing(instance) {
            Ok(Thing::GpuInstance(pci, id)) => Ok((engine.handle(Thing::Gpu(pci)), id)),
            _ => Err(code::INVALID_ARGUMENT),
        }
    };
    match found {
        Ok((device, id)) => {
            on_device("nvmlGpuInstanceGetInfo", device, |target| instance_info(target, device, id, info))
        }
        Err(code) => returned(Err(code)),
    }
}

fn instance_info(
    target: &Target,
    device: Handle,
    id: c_uint,
    info: Out<'_, nvmlGpuInstanceInfo_t>,
) -> Result<(), Code> {
    let part = target.card.partitions().iter().find(|part| part.gi == id).ok_or(code::NOT_FOUND)?;
    let share = Share::of(target.card.gpu.profile, part).ok_or(code::UNKNOWN)?;
    let placement = nvmlGpuInstancePlacement_t { start: part.start, size: share.profile.size };
    info.put(nvmlGpuInstanceInfo_t { device, id, profileId: share.profile.id, placement })
}
