//! Opening, closing, versions, counting and finding.
#![expect(unsafe_code, reason = "exported under C names")]

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use crate::abi::{Handle, Name, Out, Text};
use crate::code::{self, Code};
use crate::control::Pci;
use crate::engine::{self, on_lookup, on_system};
use crate::machine::{Card, Machine};

/// Names of the functions of this module.
pub(crate) const NAMES: &[&str] = &[
    "nvmlInit_v2",
    "nvmlInitWithFlags",
    "nvmlShutdown",
    "nvmlErrorString",
    "nvmlSystemGetDriverVersion",
    "nvmlSystemGetNVMLVersion",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount_v2",
    "nvmlDeviceGetHandleByIndex_v2",
    "nvmlDeviceGetHandleByPciBusId_v2",
    "nvmlDeviceGetHandleByUUID",
    "nvmlDeviceGetHandleBySerial",
];

/// Opens the library; fails with `UNKNOWN` when the control file cannot be used, and says why on stderr.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInit_v2() -> c_uint {
    engine::init()
}

/// As `nvmlInit_v2`: no flag makes a difference here. Faults of `nvmlInit_v2` count for it too.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> c_uint {
    engine::init()
}

/// Closes the library, as often as it was opened.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlShutdown() -> c_uint {
    engine::shutdown()
}

/// A return code in words.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlErrorString(result: c_uint) -> *const c_char {
    code::text(result).as_ptr()
}

/// Version of the kernel driver.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetDriverVersion(version: Text, length: c_uint) -> c_uint {
    on_system("nvmlSystemGetDriverVersion", |machine| version.put(length, &machine.control.driver_version))
}

/// Version of the library.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetNVMLVersion(version: Text, length: c_uint) -> c_uint {
    on_system("nvmlSystemGetNVMLVersion", |machine| version.put(length, &machine.control.nvml_version))
}

/// CUDA version.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlSystemGetCudaDriverVersion_v2(version: Out<'_, c_int>) -> c_uint {
    on_system("nvmlSystemGetCudaDriverVersion_v2", |machine| version.put(machine.control.cuda_version))
}

/// Number of GPUs: lost ones count, absent ones do not.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetCount_v2(count: Out<'_, c_uint>) -> c_uint {
    on_system("nvmlDeviceGetCount_v2", |machine| {
        let listed = c_uint::try_from(machine.listed().count()).map_err(|_| code::UNKNOWN)?;
        count.put(machine.control.count.unwrap_or(listed))
    })
}

/// The GPU at a place in the list; `GPU_IS_LOST` only if that one is.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, device: Out<'_, Handle>) -> c_uint {
    let find = |machine: &Machine| machine.listed().nth(index as usize).cloned().ok_or(code::INVALID_ARGUMENT);
    on_lookup("nvmlDeviceGetHandleByIndex_v2", find, |handle| device.put(handle))
}

/// The GPU at an address; `GPU_IS_LOST` only if that one is.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByPciBusId_v2(address: Name, device: Out<'_, Handle>) -> c_uint {
    let find = |machine: &Machine| {
        let pci = Pci::parse(address.read()?).ok_or(code::INVALID_ARGUMENT)?;
        machine.at(pci).cloned().ok_or(code::NOT_FOUND)
    };
    on_lookup("nvmlDeviceGetHandleByPciBusId_v2", find, |handle| device.put(handle))
}

/// The GPU with a UUID. It searches, so it fails while any GPU is lost.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleByUUID(uuid: Name, device: Out<'_, Handle>) -> c_uint {
    let find = |machine: &Machine| {
        let uuid = uuid.read()?;
        search(machine, |card| card.uuid == uuid)
    };
    on_lookup("nvmlDeviceGetHandleByUUID", find, |handle| device.put(handle))
}

/// The GPU with a serial number. It searches, so it fails while any GPU is lost.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetHandleBySerial(serial: Name, device: Out<'_, Handle>) -> c_uint {
    let find = |machine: &Machine| {
        let serial = serial.read()?;
        search(machine, |card| card.gpu.effective_serial() == serial)
    };
    on_lookup("nvmlDeviceGetHandleBySerial", find, |handle| device.put(handle))
}

fn search(machine: &Machine, is_wanted: impl Fn(&Card) -> bool) -> Result<Arc<Card>, Code> {
    if machine.listed().any(|card| card.gpu.lost) {
        return Err(code::GPU_IS_LOST);
    }
    machine.listed().find(|card| is_wanted(card)).cloned().ok_or(code::NOT_FOUND)
}
