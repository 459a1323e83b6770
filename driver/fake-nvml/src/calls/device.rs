//! Which card it is.
#![expect(unsafe_code, reason = "exported under C names")]

use std::ffi::{c_int, c_uint};

use super::device_calls;
use crate::abi::{InOut, Out, Text, fixed, nvmlMemory_v2_t, nvmlPciInfo_t, version_of};
use crate::code;
use crate::machine::Share;

device_calls! {
    /// UUID of a GPU or a partition.
    fn nvmlDeviceGetUUID(target, uuid: Text, length: c_uint) {
        match &target.partition {
            Some(part) => uuid.put(length, &target.card.partition_uuid(part)),
            None => uuid.put(length, &target.card.uuid),
        }
    }

    /// Product name; a partition's ends with its profile.
    fn nvmlDeviceGetName(target, name: Text, length: c_uint) {
        let product = target.card.gpu.name.as_deref().unwrap_or(target.card.product().name);
        match &target.partition {
            Some(part) => name.put(length, &format!("{product} MIG {}", part.profile)),
            None => name.put(length, product),
        }
    }

    /// Place in the list.
    fn nvmlDeviceGetIndex(target, index: Out<'_, c_uint>) {
        let pci = target.whole()?.gpu.pci;
        index.put(target.machine.index_of(pci).ok_or(code::NOT_FOUND)?)
    }

    /// PCI address and ids.
    fn nvmlDeviceGetPciInfo_v3(target, info: Out<'_, nvmlPciInfo_t>) {
        let card = target.whole()?;
        let pci = card.gpu.pci;
        info.put(nvmlPciInfo_t {
            busIdLegacy: fixed(&pci.to_string().to_uppercase()),
            domain: pci.domain,
            bus: pci.bus.into(),
            device: pci.device.into(),
            pciDeviceId: card.product().pci_device_id,
            pciSubSystemId: card.product().pci_subsystem_id,
            busId: fixed(&pci.bus_id()),
        })
    }

    /// `N` of `/dev/nvidiaN`.
    fn nvmlDeviceGetMinorNumber(target, minor: Out<'_, c_uint>) {
        minor.put(target.whole()?.minor)
    }

    /// Serial number.
    fn nvmlDeviceGetSerial(target, serial: Text, length: c_uint) {
        serial.put(length, &target.whole()?.gpu.effective_serial())
    }

    /// Board id: from the bus, as each card here is a board of its own.
    fn nvmlDeviceGetBoardId(target, id: Out<'_, c_uint>) {
        id.put(c_uint::from(target.whole()?.gpu.pci.bus) << 8)
    }

    /// Board part number.
    fn nvmlDeviceGetBoardPartNumber(target, part: Text, length: c_uint) {
        part.put(length, target.whole()?.product().board_part)
    }

    /// Brand.
    fn nvmlDeviceGetBrand(target, brand: Out<'_, c_uint>) {
        brand.put(target.card.gpu.brand.unwrap_or(target.card.product().brand))
    }

    /// Architecture.
    fn nvmlDeviceGetArchitecture(target, architecture: Out<'_, c_uint>) {
        architecture.put(target.card.gpu.architecture.unwrap_or(target.card.product().architecture))
    }

    /// CUDA compute capability.
    fn nvmlDeviceGetCudaComputeCapability(target, major: Out<'_, c_int>, minor: Out<'_, c_int>) {
        let capability = target.card.product().compute_capability;
        major.put(capability.0)?;
        minor.put(capability.1)
    }

    /// Memory of a GPU or a partition.
    fn nvmlDeviceGetMemoryInfo_v2(target, memory: InOut<'_, nvmlMemory_v2_t>) {
        let memory = memory.get()?;
        if memory.version != version_of::<nvmlMemory_v2_t>(2) {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        let share = target.partition.as_ref().and_then(|part| Share::of(target.card.gpu.profile, part));
        let whole = target.card.gpu.memory_bytes.unwrap_or(target.card.product().memory_bytes);
        memory.total = share.map_or(whole, |share| share.profile.memory_mib << 20);
        memory.reserved = 0;
        memory.free = memory.total;
        memory.used = 0;
        Ok(())
    }

    /// NUMA node of the GPU's memory.
    fn nvmlDeviceGetNumaNodeId(target, node: Out<'_, c_uint>) {
        node.put(target.whole()?.gpu.numa_node.ok_or(code::NOT_SUPPORTED)?)
    }

    /// Persistence mode.
    fn nvmlDeviceGetPersistenceMode(target, mode: Out<'_, c_uint>) {
        mode.put(target.whole()?.health.persistence.ok_or(code::NOT_SUPPORTED)?.into())
    }
}
