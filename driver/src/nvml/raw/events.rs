//! Event sets: one for each GPU, made and used by that GPU's thread alone.

use std::{mem, ptr};

use nvml_wrapper_sys::bindings as sys;

use super::{Calls, Device, call, instance, number};
use crate::nvml::{CallError, Code, Event};

/// A set with the events of one GPU. Dropping it frees it; that call can hang like any other.
///
/// The raw functions and not the wrapper's: its set drops the instance ids, gives unknown types as 0, and ends on a failed registration.
pub(in crate::nvml) struct EventSet<'a> {
    calls: Calls<'a>,
    set: sys::nvmlEventSet_t,
}

impl<'a> EventSet<'a> {
    /// Makes a set and registers events of these types.
    pub(in crate::nvml) fn register(calls: Calls<'a>, device: Device, types: u64) -> Result<Self, CallError> {
        let mut set = ptr::null_mut();
        // SAFETY: `set` is room for the answer.
        call!(&calls, nvmlEventSetCreate(&raw mut set))?;
        let set = Self { calls, set };
        // SAFETY: device and set are of this session. After an error the set may only be freed, which dropping it does.
        call!(&calls, nvmlDeviceRegisterEvents(device.0, types, set.set))?;
        Ok(set)
    }

    /// Waits for the next event; `None` when none came in time.
    pub(in crate::nvml) fn wait(&self, milliseconds: u32) -> Result<Option<Event>, CallError> {
        // SAFETY: a null device and zeros are a valid value of this struct.
        let mut data: sys::nvmlEventData_t = unsafe { mem::zeroed() };
        // SAFETY: the set is alive, only this thread uses it, and `data` is room for the answer.
        let waited = call!(&self.calls, nvmlEventSetWait_v2(self.set, &raw mut data, milliseconds));
        match waited {
            Ok(()) => Ok(Some(Event {
                event_type: data.eventType,
                data: data.eventData,
                gpu_instance: instance(data.gpuInstanceId),
                compute_instance: instance(data.computeInstanceId),
            })),
            Err(error) if error.code == Code::TIMEOUT => Ok(None),
            Err(error) => Err(error),
        }
    }
}

impl Drop for EventSet<'_> {
    fn drop(&mut self) {
        // SAFETY: the set was created by this session and is not used afterwards.
        let freed = call!(&self.calls, nvmlEventSetFree(self.set));
        if let Err(error) = freed {
            tracing::debug!(%error, "an NVML event set could not be freed");
        }
    }
}

impl Calls<'_> {
    /// Event types of a GPU as bits, with those that have no name here.
    pub(in crate::nvml) fn supported_event_types(&self, device: Device) -> Result<u64, CallError> {
        number!(self, nvmlDeviceGetSupportedEventTypes(device.0))
    }
}
