//! What a control file must hold beyond its types. A fault that could never fire is an error, not a silent nothing.

use std::collections::BTreeSet;

use super::{Control, Event, Fault, Gpu};
use crate::calls;

impl Control {
    /// Checks what types cannot say.
    ///
    /// # Errors
    ///
    /// The path of the first field that makes no sense, and why.
    pub fn check(&self) -> Result<(), String> {
        check_faults("faults", &self.faults)?;
        let mut addresses = BTreeSet::new();
        let mut uuids = BTreeSet::new();
        for (index, gpu) in self.gpus.iter().enumerate() {
            let at = format!("gpus[{index}]");
            if !addresses.insert(gpu.pci) {
                return Err(format!("{at}.pci: another GPU is at {} already", gpu.pci));
            }
            if !uuids.insert(gpu.effective_uuid()) {
                return Err(format!("{at}.uuid: another GPU is {} already", gpu.effective_uuid()));
            }
            check_gpu(&at, gpu)?;
        }
        Ok(())
    }
}

fn check_gpu(at: &str, gpu: &Gpu) -> Result<(), String> {
    if gpu.pci.domain == u32::MAX {
        return Err(format!("{at}.pci: the address could not be read; write it like 0000:3b:00.0"));
    }
    check_faults(&format!("{at}.faults"), &gpu.faults)?;
    check_events(at, &gpu.events)?;
    check_mig(at, gpu)
}

fn check_events(at: &str, events: &[Event]) -> Result<(), String> {
    let mut ids = BTreeSet::new();
    for (index, event) in events.iter().enumerate() {
        if event.xid.is_some() == event.event_type.is_some() {
            return Err(format!("{at}.events[{index}]: give either `xid`, or `type` and `data`"));
        }
        if !ids.insert(&event.id) {
            return Err(format!("{at}.events[{index}].id: `{}` is there already; each id is delivered once", event.id));
        }
    }
    Ok(())
}

fn check_faults(at: &str, faults: &[Fault]) -> Result<(), String> {
    for (index, fault) in faults.iter().enumerate() {
        if fault.error.is_some() == fault.hang {
            return Err(format!("{at}[{index}]: give either `error` or `hang`"));
        }
        if fault.function != "*" && !calls::names().any(|name| name == fault.function) {
            return Err(format!("{at}[{index}].function: this library has no `{}`", fault.function));
        }
    }
    Ok(())
}

fn check_mig(at: &str, gpu: &Gpu) -> Result<(), String> {
    let Some(mig) = &gpu.mig else { return Ok(()) };
    let known = gpu.profile.product().mig_profiles;
    if known.is_empty() {
        return Err(format!("{at}.mig: a {} has no MIG", gpu.profile.name()));
    }
    let mut ids = BTreeSet::new();
    for (index, instance) in mig.instances.iter().enumerate() {
        let at = format!("{at}.mig.instances[{index}]");
        // A compute instance of a part of a GPU instance is named `1c.3g.40gb`.
        let gpu_profile = instance.profile.split_once("c.").map_or(instance.profile.as_str(), |(_, rest)| rest);
        if !known.iter().any(|profile| profile.name == gpu_profile) {
            let names: Vec<_> = known.iter().map(|profile| profile.name).collect();
            return Err(format!("{at}.profile: `{}` is none of {}", instance.profile, names.join(", ")));
        }
        if !ids.insert((instance.gi, instance.ci)) {
            return Err(format!("{at}: gi {} ci {} is there already", instance.gi, instance.ci));
        }
    }
    Ok(())
}
