//! From a device to what it is: optional things stay optional, and only address and UUID can fail it.

use super::raw::{Calls, Device};
use super::{CallError, Code, GpuReading, MigReading, MigState, PciAddress, Unidentified};

/// Reads the GPU at an index.
pub(super) fn at_index(calls: Calls<'_>, index: u32) -> Result<GpuReading, Unidentified> {
    let failed = |pci| move |error| Unidentified { index, pci, error };
    let device = calls.device_at_index(index).map_err(failed(None))?;
    let pci = calls.pci(device).map_err(failed(None))?;
    read(calls, device, index, pci).map_err(failed(Some(pci)))
}

/// Reads the GPU at an address.
pub(super) fn at_address(calls: Calls<'_>, pci: PciAddress) -> Result<GpuReading, CallError> {
    let device = calls.device_at(pci)?;
    let index = calls.index(device)?;
    read(calls, device, index, pci)
}

fn read(calls: Calls<'_>, device: Device, index: u32, pci: PciAddress) -> Result<GpuReading, CallError> {
    Ok(GpuReading {
        index,
        pci,
        uuid: calls.uuid(device)?,
        serial: optional(calls.serial(device))?.filter(|serial| !is_blank_serial(serial)),
        minor: optional(calls.minor(device))?,
        name: optional(calls.name(device))?,
        brand: optional(calls.brand(device))?.and_then(brand_name).map(str::to_owned),
        architecture: optional(calls.architecture(device))?.and_then(architecture_name).map(str::to_owned),
        compute_capability: optional(calls.compute_capability(device))?,
        memory_bytes: optional(calls.memory_bytes(device))?,
        numa: optional(calls.numa_node(device))?,
        board_part: optional(calls.board_part(device))?,
        board_id: optional(calls.board_id(device))?,
        mig: mig(calls, device)?,
    })
}

/// A thing that the card does not tell is absent, whatever the code; but a card that is gone is not half a reading.
fn optional<T>(answer: Result<T, CallError>) -> Result<Option<T>, CallError> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.code == Code::GPU_IS_LOST => Err(error),
        Err(error) => {
            tracing::debug!(%error, "NVML does not tell");
            Ok(None)
        }
    }
}

/// Boards without a serial number say 0.
fn is_blank_serial(serial: &str) -> bool {
    serial.bytes().all(|byte| byte == b'0')
}

fn mig(calls: Calls<'_>, device: Device) -> Result<MigState, CallError> {
    let mode = optional(calls.mig_mode(device))?;
    let mut state = MigState { mode, ..MigState::default() };
    if !state.is_on() {
        return Ok(state);
    }
    let places = match calls.mig_places(device) {
        Ok(places) => places,
        Err(error) => {
            state.unread.push(error);
            return Ok(state);
        }
    };
    for place in 0..places {
        match partition(calls, device, place) {
            Ok(partition) => state.instances.push(partition),
            Err(error) if error.code == Code::GPU_IS_LOST => return Err(error),
            // An empty place.
            Err(error) if error.code == Code::NOT_FOUND => {}
            Err(error) => state.unread.push(error),
        }
    }
    state.instances.sort_by_key(|instance| (instance.start, instance.gpu_instance, instance.compute_instance));
    Ok(state)
}

fn partition(calls: Calls<'_>, device: Device, place: u32) -> Result<MigReading, CallError> {
    let partition = calls.mig_device(device, place)?;
    let gpu_instance = calls.gpu_instance(partition)?;
    let placement = optional(calls.placement(device, gpu_instance))?;
    let attributes = optional(calls.attributes(partition))?;
    Ok(MigReading {
        uuid: calls.uuid(partition)?,
        gpu_instance,
        compute_instance: calls.compute_instance(partition)?,
        profile: optional(calls.name(partition))?.as_deref().and_then(profile_in_name).map(str::to_owned),
        start: placement.map(|placement| placement.start),
        size: placement.map(|placement| placement.size),
        memory_bytes: attributes.map(|attributes| attributes.memory_bytes),
        multiprocessors: attributes.map(|attributes| attributes.multiprocessors),
    })
}

/// The name of a partition ends in `MIG` and its profile: `NVIDIA A100-SXM4-80GB MIG 1g.10gb`.
fn profile_in_name(name: &str) -> Option<&str> {
    let (_, profile) = name.rsplit_once("MIG ")?;
    (profile.contains("g.") && !profile.contains(' ')).then_some(profile)
}

/// Names as NVIDIA's own DRA driver publishes them (`nvmlBrandType_t`).
fn brand_name(number: u32) -> Option<&'static str> {
    let name = match number {
        1 => "Quadro",
        2 => "Tesla",
        3 => "NVS",
        4 => "GRID",
        5 => "GeForce",
        6 => "Titan",
        7 => "NvidiaVApps",
        8 => "NvidiaVPC",
        9 => "NvidiaVCS",
        10 => "NvidiaVWS",
        11 => "NvidiaCloudGaming",
        12 => "QuadroRTX",
        13 => "NvidiaRTX",
        14 => "Nvidia",
        15 => "GeForceRTX",
        16 => "TitanRTX",
        _ => return None,
    };
    Some(name)
}

/// `nvmlDeviceArchitecture_t`.
fn architecture_name(number: u32) -> Option<&'static str> {
    let name = match number {
        2 => "Kepler",
        3 => "Maxwell",
        4 => "Pascal",
        5 => "Volta",
        6 => "Turing",
        7 => "Ampere",
        8 => "Ada Lovelace",
        9 => "Hopper",
        10 => "Blackwell",
        _ => return None,
    };
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::{is_blank_serial, profile_in_name};

    #[test]
    fn the_profile_is_the_end_of_a_partitions_name() {
        assert_eq!(profile_in_name("NVIDIA A100-SXM4-80GB MIG 1g.10gb"), Some("1g.10gb"));
        assert_eq!(profile_in_name("NVIDIA H100 80GB HBM3 MIG 1c.3g.40gb"), Some("1c.3g.40gb"));
        assert_eq!(profile_in_name("NVIDIA B200 MIG 1g.23gb+me"), Some("1g.23gb+me"));
        assert_eq!(profile_in_name("NVIDIA A100-SXM4-80GB"), None);
        assert_eq!(profile_in_name("MIG of another kind"), None);
    }

    #[test]
    fn a_serial_of_zeros_is_none() {
        assert!(is_blank_serial("0") && is_blank_serial("") && !is_blank_serial("1320021012345"));
    }
}
