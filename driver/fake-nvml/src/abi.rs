//! The C side: layouts of NVML's structs and the argument types of its functions.
//!
//! An exported function takes these argument types instead of bare pointers. Only a C caller makes them, and its contract is
//! NVML's: each pointer is null, or valid for what the function's documentation says. So all `unsafe` of the library stands here.
#![expect(unsafe_code, reason = "arguments of a C library are pointers")]
#![expect(non_snake_case, reason = "NVML's own names")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong};
use std::mem::MaybeUninit;

use crate::code::{self, Code};

/// A device, event set or GPU instance: pointer-sized and opaque to the caller.
#[repr(transparent)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Handle(pub(crate) usize);

/// A place for one result.
#[repr(transparent)]
pub struct Out<'a, T>(Option<&'a mut MaybeUninit<T>>);

impl<T> Out<'_, T> {
    /// Writes the result.
    pub(crate) fn put(self, value: T) -> Result<(), Code> {
        self.0.ok_or(code::INVALID_ARGUMENT)?.write(value);
        Ok(())
    }
}

/// A struct that the caller has filled in part, such as its version, or a counter that it has set.
#[repr(transparent)]
pub struct InOut<'a, T>(Option<&'a mut T>);

impl<'a, T> InOut<'a, T> {
    pub(crate) fn get(self) -> Result<&'a mut T, Code> {
        self.0.ok_or(code::INVALID_ARGUMENT)
    }
}

/// A buffer for a text; its length is the next argument.
#[repr(transparent)]
pub struct Text(*mut c_char);

impl Text {
    /// Writes `text` and the NUL behind it.
    pub(crate) fn put(self, length: c_uint, text: &str) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        if text.len() >= length as usize {
            return Err(code::INSUFFICIENT_SIZE);
        }
        // SAFETY: the caller gave a buffer of `length` bytes, and `text` with its NUL fits, as checked above.
        unsafe {
            std::ptr::copy_nonoverlapping(text.as_ptr(), self.0.cast::<u8>(), text.len());
            self.0.add(text.len()).write(0);
        }
        Ok(())
    }
}

/// A text that the caller gives.
#[repr(transparent)]
pub struct Name(*const c_char);

impl Name {
    pub(crate) fn read(&self) -> Result<&str, Code> {
        if self.0.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: the caller gave a NUL-terminated text that lives as long as the call.
        unsafe { CStr::from_ptr(self.0) }.to_str().map_err(|_| code::INVALID_ARGUMENT)
    }
}

/// Room for several results; how many is another argument.
#[repr(transparent)]
pub struct Array<T>(*mut T);

impl<T> Array<T> {
    /// NVML's protocol for lists: the caller says how many fit and learns how many there are; too little room, or none,
    /// is `INSUFFICIENT_SIZE` (for nothing at all it is success).
    pub(crate) fn fill(self, room: InOut<'_, c_uint>, values: &[T]) -> Result<(), Code>
    where
        T: Copy,
    {
        let room = room.get()?;
        let needed = c_uint::try_from(values.len()).map_err(|_| code::UNKNOWN)?;
        let given = std::mem::replace(room, needed);
        if given < needed {
            return Err(code::INSUFFICIENT_SIZE);
        }
        if values.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: the caller gave room for `given` values, and there are no more than that.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }

    /// The values that the caller has filled in part.
    pub(crate) fn values<'a>(self, count: c_int) -> Result<&'a mut [T], Code> {
        let count = usize::try_from(count).map_err(|_| code::INVALID_ARGUMENT)?;
        if self.0.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: the caller gave `count` values and does not touch them during the call.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.0, count) })
    }

    /// Whether the caller gave no room, as one does to learn how many there are.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }
}

/// The fabric struct, in the version that its first word tells.
#[repr(transparent)]
pub struct FabricInfo(*mut nvmlGpuFabricInfo_v3_t);

impl FabricInfo {
    /// Writes the answer in the caller's version; only version 3 has room for the summary.
    pub(crate) fn put(self, mut answer: nvmlGpuFabricInfo_v3_t) -> Result<(), Code> {
        if self.0.is_null() {
            return Err(code::INVALID_ARGUMENT);
        }
        // SAFETY: in every version the struct begins with the version word, which the caller has set.
        answer.version = unsafe { self.0.cast::<c_uint>().read() };
        if answer.version == version_of::<nvmlGpuFabricInfo_v3_t>(3) {
            // SAFETY: the version word says that there is room for version 3.
            unsafe { self.0.write(answer) };
            return Ok(());
        }
        if answer.version != version_of::<nvmlGpuFabricInfo_v2_t>(2) {
            return Err(code::ARGUMENT_VERSION_MISMATCH);
        }
        // SAFETY: the version word says that there is room for version 2.
        unsafe { self.0.cast::<nvmlGpuFabricInfo_v2_t>().write(answer.without_summary()) };
        Ok(())
    }
}

/// The version word of struct version `number`: size of the struct, and the number in the highest byte.
#[must_use]
pub const fn version_of<T>(number: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "structs of NVML are small")]
    let size = size_of::<T>() as u32;
    size | number << 24
}

/// A text in a fixed field of a struct; what does not fit is cut.
pub(crate) fn fixed<const N: usize>(text: &str) -> [c_char; N] {
    let mut field = [0; N];
    for (to, from) in field.iter_mut().take(N - 1).zip(text.bytes()) {
        *to = c_char::from_ne_bytes([from]);
    }
    field
}

/// `nvmlEventData_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlEventData_t {
    /// The GPU.
    pub device: Handle,
    /// Type bit.
    pub eventType: c_ulonglong,
    /// XID code.
    pub eventData: c_ulonglong,
    /// GPU instance or `0xFFFF_FFFF`.
    pub gpuInstanceId: c_uint,
    /// Compute instance or `0xFFFF_FFFF`.
    pub computeInstanceId: c_uint,
}

/// `nvmlFieldValue_t`. The value is kept as eight bytes: the union's other members are read from its beginning.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlFieldValue_t {
    /// The field.
    pub fieldId: c_uint,
    /// Scope, such as a link.
    pub scopeId: c_uint,
    /// When it was read, in microseconds; 0 here.
    pub timestamp: i64,
    /// How long that took; 0 here.
    pub latencyUsec: i64,
    /// 1 unsigned int, 3 unsigned long long.
    pub valueType: c_uint,
    /// Return code of this field.
    pub nvmlReturn: c_uint,
    /// The value.
    pub value: [u8; 8],
    /// Gives the value the alignment of the union.
    pub align: [u64; 0],
}

/// `nvmlPciInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlPciInfo_t {
    /// Address with a domain of four digits.
    pub busIdLegacy: [c_char; 16],
    /// Domain.
    pub domain: c_uint,
    /// Bus.
    pub bus: c_uint,
    /// Device.
    pub device: c_uint,
    /// Device and vendor.
    pub pciDeviceId: c_uint,
    /// Subsystem.
    pub pciSubSystemId: c_uint,
    /// Address with a domain of eight digits.
    pub busId: [c_char; 32],
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlMemory_v2_t {
    /// Version word.
    pub version: c_uint,
    /// All.
    pub total: c_ulonglong,
    /// The driver's own.
    pub reserved: c_ulonglong,
    /// Free.
    pub free: c_ulonglong,
    /// Used.
    pub used: c_ulonglong,
}

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlDeviceAttributes_t {
    /// Multiprocessors.
    pub multiprocessorCount: c_uint,
    /// Copy engines.
    pub sharedCopyEngineCount: c_uint,
    /// Decoders.
    pub sharedDecoderCount: c_uint,
    /// Encoders.
    pub sharedEncoderCount: c_uint,
    /// JPEG engines.
    pub sharedJpegCount: c_uint,
    /// Optical-flow engines.
    pub sharedOfaCount: c_uint,
    /// Slices of the GPU instance.
    pub gpuInstanceSliceCount: c_uint,
    /// Slices of the compute instance.
    pub computeInstanceSliceCount: c_uint,
    /// Memory in MiB.
    pub memorySizeMB: c_ulonglong,
}

/// `nvmlGpuInstancePlacement_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlGpuInstancePlacement_t {
    /// First memory slice.
    pub start: c_uint,
    /// Memory slices.
    pub size: c_uint,
}

/// `nvmlGpuInstanceInfo_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlGpuInstanceInfo_t {
    /// The GPU.
    pub device: Handle,
    /// Id of the instance.
    pub id: c_uint,
    /// Id of its profile.
    pub profileId: c_uint,
    /// Where it is.
    pub placement: nvmlGpuInstancePlacement_t,
}

/// `nvmlGpuInstanceProfileInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlGpuInstanceProfileInfo_v2_t {
    /// Version word.
    pub version: c_uint,
    /// Id of the profile.
    pub id: c_uint,
    /// Peer-to-peer.
    pub isP2pSupported: c_uint,
    /// Compute slices.
    pub sliceCount: c_uint,
    /// How many fit on the card.
    pub instanceCount: c_uint,
    /// Multiprocessors.
    pub multiprocessorCount: c_uint,
    /// Copy engines.
    pub copyEngineCount: c_uint,
    /// Decoders.
    pub decoderCount: c_uint,
    /// Encoders.
    pub encoderCount: c_uint,
    /// JPEG engines.
    pub jpegCount: c_uint,
    /// Optical-flow engines.
    pub ofaCount: c_uint,
    /// Memory in MiB.
    pub memorySizeMB: c_ulonglong,
    /// Name.
    pub name: [c_char; 96],
}

/// `nvmlEccSramErrorStatus_v1_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlEccSramErrorStatus_v1_t {
    /// Version word.
    pub version: c_uint,
    /// The eleven counters, all 0 here.
    pub counters: [c_ulonglong; 11],
    /// The threshold flag.
    pub bThresholdExceeded: c_uint,
}

/// `nvmlRepairStatus_v1_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlRepairStatus_v1_t {
    /// Version word.
    pub version: c_uint,
    /// Of a channel.
    pub bChannelRepairPending: c_uint,
    /// Of a TPC.
    pub bTpcRepairPending: c_uint,
}

/// `nvmlRowRemapperHistogramValues_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlRowRemapperHistogramValues_t {
    /// All spares left.
    pub max: c_uint,
    /// Many.
    pub high: c_uint,
    /// Some.
    pub partial: c_uint,
    /// Few.
    pub low: c_uint,
    /// None.
    pub none: c_uint,
}

/// `nvmlGpuFabricInfo_v2_t`; version 3 adds one byte behind it.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlGpuFabricInfo_v2_t {
    /// Version word.
    pub version: c_uint,
    /// Cluster.
    pub clusterUuid: [u8; 16],
    /// Return code of the registration.
    pub status: c_uint,
    /// Clique.
    pub cliqueId: c_uint,
    /// State.
    pub state: u8,
    /// Conditions.
    pub healthMask: c_uint,
}

/// `nvmlGpuFabricInfo_v3_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlGpuFabricInfo_v3_t {
    /// Version word.
    pub version: c_uint,
    /// Cluster.
    pub clusterUuid: [u8; 16],
    /// Return code of the registration.
    pub status: c_uint,
    /// Clique.
    pub cliqueId: c_uint,
    /// State.
    pub state: u8,
    /// Conditions.
    pub healthMask: c_uint,
    /// Summary.
    pub healthSummary: u8,
}

impl nvmlGpuFabricInfo_v3_t {
    fn without_summary(self) -> nvmlGpuFabricInfo_v2_t {
        nvmlGpuFabricInfo_v2_t {
            version: self.version,
            clusterUuid: self.clusterUuid,
            status: self.status,
            cliqueId: self.cliqueId,
            state: self.state,
            healthMask: self.healthMask,
        }
    }
}

/// `nvmlProcessInfo_v2_t`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct nvmlProcessInfo_v2_t {
    /// Process.
    pub pid: c_uint,
    /// Memory in bytes.
    pub usedGpuMemory: c_ulonglong,
    /// GPU instance or `0xFFFF_FFFF`.
    pub gpuInstanceId: c_uint,
    /// Compute instance or `0xFFFF_FFFF`.
    pub computeInstanceId: c_uint,
}
