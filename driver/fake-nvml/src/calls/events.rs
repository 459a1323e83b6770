//! Event sets.
#![expect(unsafe_code, reason = "exported under C names")]

use std::ffi::{c_uint, c_ulonglong};
use std::sync::Arc;
use std::time::Duration;

use crate::abi::{Handle, Out, nvmlEventData_t};
use crate::clock::now;
use crate::code::{self, Code, returned};
use crate::control::Fault;
use crate::engine::{ENGINE, Engine, EventSet, Target, Thing, log, on_device, on_system, pass};
use crate::machine::{Card, Machine};

/// Names of the functions of this module.
pub(crate) const NAMES: &[&str] = &[
    "nvmlEventSetCreate",
    "nvmlEventSetFree",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
    "nvmlEventSetWait_v2",
];

const WAIT: &str = "nvmlEventSetWait_v2";
/// "No instance", or "not told".
const NO_INSTANCE: c_uint = 0xffff_ffff;

/// Makes a set.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetCreate(set: Out<'_, Handle>) -> c_uint {
    on_system("nvmlEventSetCreate", |_| {
        let mut engine = ENGINE.lock();
        let watch = engine.watch()?;
        let handle = engine.handle(Thing::Set);
        engine.sets.insert(handle, EventSet { registered: Vec::new(), watch });
        set.put(handle)
    })
}

/// Ends a set.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetFree(set: Handle) -> c_uint {
    on_system("nvmlEventSetFree", |_| {
        let removed = ENGINE.lock().sets.remove(&set);
        removed.map(drop).ok_or(code::INVALID_ARGUMENT)
    })
}

/// Event types that can be registered.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceGetSupportedEventTypes(device: Handle, types: Out<'_, c_ulonglong>) -> c_uint {
    on_device("nvmlDeviceGetSupportedEventTypes", device, |target| types.put(target.whole()?.supported_events()))
}

/// Adds a GPU's events to a set; a partition has none of its own. One type that the card lacks fails them all.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlDeviceRegisterEvents(device: Handle, types: c_ulonglong, set: Handle) -> c_uint {
    on_device("nvmlDeviceRegisterEvents", device, |target| register(target, types, set))
}

fn register(target: &Target, types: u64, set: Handle) -> Result<(), Code> {
    let card = target.whole()?;
    if types & !card.supported_events() != 0 {
        return Err(code::NOT_SUPPORTED);
    }
    let mut engine = ENGINE.lock();
    if target.machine.control.drop_missed_events {
        let missed = card.gpu.events.iter().map(|event| (card.gpu.pci, event.id.clone()));
        engine.delivered.extend(missed);
    }
    let set = engine.sets.get_mut(&set).ok_or(code::INVALID_ARGUMENT)?;
    set.registered.retain(|(pci, ..)| *pci != card.gpu.pci);
    set.registered.push((card.gpu.pci, card.uuid.clone(), types));
    Ok(())
}

/// Waits for an event. What is there is delivered first, also of a GPU that is lost by now; then a lost GPU ends every wait at once.
#[unsafe(no_mangle)]
pub extern "C" fn nvmlEventSetWait_v2(set: Handle, data: Out<'_, nvmlEventData_t>, timeout: c_uint) -> c_uint {
    let end = now() + Duration::from_millis(timeout.into());
    let answer = loop {
        let looked = pass(WAIT, |engine| look(engine, set));
        match looked {
            Err(error) => break Err(error),
            Ok(Seen::Event(event)) => break Ok(event),
            Ok(Seen::Nothing(watch)) => {
                let left = end.saturating_duration_since(now());
                if left.is_zero() {
                    // Not logged: a program that waits in a loop would write nothing else.
                    return code::TIMEOUT.0;
                }
                watch.wait(left);
            }
        }
    };
    let answer = answer.and_then(|event| data.put(event));
    if let Ok(machine) = ENGINE.lock().machine() {
        log(&machine, WAIT, None, answer);
    }
    returned(answer)
}

/// What a look at a set gives.
enum Seen {
    Event(nvmlEventData_t),
    Nothing(Arc<crate::watch::Watch>),
}

fn look(engine: &mut Engine, handle: Handle) -> Result<(Option<Fault>, Seen), Code> {
    let machine = engine.machine()?;
    let set = engine.sets.get(&handle).cloned().ok_or(code::INVALID_ARGUMENT)?;
    let nothing = Seen::Nothing(Arc::clone(&set.watch));
    if let Some(fault) = wait_fault(&machine, &set) {
        return Ok((Some(fault), nothing));
    }
    for (card, types) in registered(&machine, &set) {
        if let Some(event) = next_event(engine, card, types) {
            return Ok((None, Seen::Event(event)));
        }
    }
    if registered(&machine, &set).any(|(card, _)| card.gpu.lost) {
        return Err(code::GPU_IS_LOST);
    }
    Ok((None, nothing))
}

fn wait_fault(machine: &Machine, set: &EventSet) -> Option<Fault> {
    let of_machine = machine.control.faults.iter().find(|fault| fault.is_about(WAIT));
    of_machine.or_else(|| registered(machine, set).find_map(|(card, _)| card.fault(WAIT))).cloned()
}

fn registered<'a>(machine: &'a Machine, set: &'a EventSet) -> impl Iterator<Item = (&'a Card, u64)> {
    set.registered.iter().filter_map(|(pci, uuid, types)| {
        let card = machine.at(*pci).filter(|card| card.uuid == *uuid)?;
        Some((&**card, *types))
    })
}

fn next_event(engine: &mut Engine, card: &Card, types: u64) -> Option<nvmlEventData_t> {
    let pci = card.gpu.pci;
    let event =
        card.gpu.events.iter().find(|event| {
            event.type_and_data().0 & types != 0 && !engine.delivered.contains(&(pci, event.id.clone()))
        })?;
    engine.delivered.insert((pci, event.id.clone()));
    let (event_type, data) = event.type_and_data();
    Some(nvmlEventData_t {
        device: engine.handle(Thing::Gpu(pci)),
        eventType: event_type,
        eventData: data,
        gpuInstanceId: event.gi.unwrap_or(NO_INSTANCE),
        computeInstanceId: event.ci.unwrap_or(NO_INSTANCE),
    })
}
