//! Which GPUs there are, and which card each is.

use std::ffi::{CString, c_int};
use std::{mem, ptr};

use nvml_wrapper_sys::bindings as sys;

use super::{Calls, Device, call, number, read_text, text, version_of};
use crate::nvml::{CallError, Code, ComputeCapability, MigMode, PciAddress};

const FUNCTION_PCI: &str = "nvmlDeviceGetPciInfo_v3";

/// What a partition's `nvmlDeviceGetAttributes_v2` tells.
#[derive(Clone, Copy, Debug)]
pub(in crate::nvml) struct Attributes {
    pub(in crate::nvml) multiprocessors: u32,
    pub(in crate::nvml) memory_bytes: u64,
}

/// Place of a GPU instance in memory slices.
#[derive(Clone, Copy, Debug)]
pub(in crate::nvml) struct Placement {
    pub(in crate::nvml) start: u32,
    pub(in crate::nvml) size: u32,
}

impl Calls<'_> {
    pub(in crate::nvml) fn count(&self) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetCount_v2())
    }

    pub(in crate::nvml) fn device_at_index(&self, index: u32) -> Result<Device, CallError> {
        let mut device = ptr::null_mut();
        // SAFETY: `device` is room for the answer.
        call!(self, nvmlDeviceGetHandleByIndex_v2(index, &raw mut device)).map(|()| Device(device))
    }

    /// The only look-up that a lost neighbour does not disturb.
    pub(in crate::nvml) fn device_at(&self, pci: PciAddress) -> Result<Device, CallError> {
        const FUNCTION: &str = "nvmlDeviceGetHandleByPciBusId_v2";
        let bus_id = CString::new(pci.nvml_bus_id()).map_err(|_| CallError::new(FUNCTION, Code::INVALID_ARGUMENT))?;
        let mut device = ptr::null_mut();
        // SAFETY: the bus id is NUL-terminated and outlives the call, and `device` is room for the answer.
        call!(self, nvmlDeviceGetHandleByPciBusId_v2(bus_id.as_ptr(), &raw mut device)).map(|()| Device(device))
    }

    pub(in crate::nvml) fn uuid(&self, device: Device) -> Result<String, CallError> {
        text!(self, 96, nvmlDeviceGetUUID(device.0))
    }

    pub(in crate::nvml) fn name(&self, device: Device) -> Result<String, CallError> {
        text!(self, 96, nvmlDeviceGetName(device.0))
    }

    pub(in crate::nvml) fn serial(&self, device: Device) -> Result<String, CallError> {
        text!(self, 30, nvmlDeviceGetSerial(device.0))
    }

    pub(in crate::nvml) fn board_part(&self, device: Device) -> Result<String, CallError> {
        text!(self, 80, nvmlDeviceGetBoardPartNumber(device.0))
    }

    pub(in crate::nvml) fn board_id(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetBoardId(device.0))
    }

    pub(in crate::nvml) fn index(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetIndex(device.0))
    }

    pub(in crate::nvml) fn minor(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetMinorNumber(device.0))
    }

    /// NVML's number of the brand, known or not.
    pub(in crate::nvml) fn brand(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetBrand(device.0))
    }

    /// NVML's number of the architecture, known or not.
    pub(in crate::nvml) fn architecture(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetArchitecture(device.0))
    }

    pub(in crate::nvml) fn numa_node(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetNumaNodeId(device.0))
    }

    pub(in crate::nvml) fn compute_capability(&self, device: Device) -> Result<ComputeCapability, CallError> {
        const FUNCTION: &str = "nvmlDeviceGetCudaComputeCapability";
        let (mut major, mut minor): (c_int, c_int) = (0, 0);
        // SAFETY: the device is of this session, and both numbers are room for the answer.
        call!(self, nvmlDeviceGetCudaComputeCapability(device.0, &raw mut major, &raw mut minor))?;
        match (u32::try_from(major), u32::try_from(minor)) {
            (Ok(major), Ok(minor)) => Ok(ComputeCapability { major, minor }),
            _ => Err(CallError::new(FUNCTION, Code::UNKNOWN)),
        }
    }

    pub(in crate::nvml) fn pci(&self, device: Device) -> Result<PciAddress, CallError> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut info: sys::nvmlPciInfo_t = unsafe { mem::zeroed() };
        // SAFETY: the device is of this session, and `info` is room for the answer.
        call!(self, nvmlDeviceGetPciInfo_v3(device.0, &raw mut info))?;
        // The numbers of the struct leave the function out; the text has it.
        let text = read_text(FUNCTION_PCI, &info.busId)?;
        text.parse().map_err(|_| CallError::new(FUNCTION_PCI, Code::UNKNOWN))
    }

    pub(in crate::nvml) fn memory_bytes(&self, device: Device) -> Result<u64, CallError> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut memory: sys::nvmlMemory_v2_t = unsafe { mem::zeroed() };
        memory.version = version_of::<sys::nvmlMemory_v2_t>(2);
        // SAFETY: the device is of this session, and the struct is of the version that it says.
        call!(self, nvmlDeviceGetMemoryInfo_v2(device.0, &raw mut memory)).map(|()| memory.total)
    }

    pub(in crate::nvml) fn mig_mode(&self, device: Device) -> Result<MigMode, CallError> {
        let (mut current, mut pending) = (0, 0);
        // SAFETY: the device is of this session, and both numbers are room for the answer.
        call!(self, nvmlDeviceGetMigMode(device.0, &raw mut current, &raw mut pending))?;
        Ok(MigMode { current: current == 1, pending: pending == 1 })
    }

    /// How many places for partitions there are; some may be empty.
    pub(in crate::nvml) fn mig_places(&self, device: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetMaxMigDeviceCount(device.0))
    }

    pub(in crate::nvml) fn mig_device(&self, device: Device, place: u32) -> Result<Device, CallError> {
        let mut partition = ptr::null_mut();
        // SAFETY: the device is of this session, and `partition` is room for the answer.
        call!(self, nvmlDeviceGetMigDeviceHandleByIndex(device.0, place, &raw mut partition))
            .map(|()| Device(partition))
    }

    pub(in crate::nvml) fn gpu_instance(&self, partition: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetGpuInstanceId(partition.0))
    }

    pub(in crate::nvml) fn compute_instance(&self, partition: Device) -> Result<u32, CallError> {
        number!(self, nvmlDeviceGetComputeInstanceId(partition.0))
    }

    pub(in crate::nvml) fn attributes(&self, partition: Device) -> Result<Attributes, CallError> {
        // SAFETY: all zeros is a valid value of this struct of numbers.
        let mut attributes: sys::nvmlDeviceAttributes_t = unsafe { mem::zeroed() };
        // SAFETY: the device is of this session, and `attributes` is room for the answer.
        call!(self, nvmlDeviceGetAttributes_v2(partition.0, &raw mut attributes))?;
        Ok(Attributes { multiprocessors: attributes.multiprocessorCount, memory_bytes: attributes.memorySizeMB << 20 })
    }

    pub(in crate::nvml) fn placement(&self, device: Device, gpu_instance: u32) -> Result<Placement, CallError> {
        let mut instance = ptr::null_mut();
        // SAFETY: the device is of this session, and `instance` is room for the answer.
        call!(self, nvmlDeviceGetGpuInstanceById(device.0, gpu_instance, &raw mut instance))?;
        // SAFETY: a null device and zeros are a valid value of this struct.
        let mut info: sys::nvmlGpuInstanceInfo_t = unsafe { mem::zeroed() };
        // SAFETY: the instance was given by the call before, and `info` is room for the answer.
        call!(self, nvmlGpuInstanceGetInfo(instance, &raw mut info))?;
        Ok(Placement { start: info.placement.start, size: info.placement.size })
    }
}
