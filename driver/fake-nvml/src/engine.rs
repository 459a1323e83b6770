//! The state of the loaded library, and the way of every call through it: initialised? file changed? fault? lost? Then the body.
//!
//! One lock holds it all and is never held while a call waits.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::c_uint;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

use crate::abi::Handle;
use crate::code::{self, Code, returned};
use crate::control::{Fault, MigInstance, Pci};
use crate::machine::{Card, Machine};
use crate::place::control_file;
use crate::reload::{Source, tell};
use crate::watch::Watch;

/// How long a hanging call waits before it looks at the file again; a change wakes it at once.
const HANG_STEP: Duration = Duration::from_secs(1);

pub(crate) static ENGINE: Mutex<Engine> = Mutex::new(Engine::new());

/// All that is not in the control file.
pub(crate) struct Engine {
    inits: u32,
    source: Option<Source>,
    things: Vec<Thing>,
    pub(crate) sets: BTreeMap<Handle, EventSet>,
    /// GPU and id of each event that this process has had.
    pub(crate) delivered: BTreeSet<(Pci, String)>,
}

/// What a handle stands for. A GPU's handle is its place, as the real one's is: what sits there may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Thing {
    Gpu(Pci),
    Partition(Pci, u32, u32),
    GpuInstance(Pci, u32),
    Set,
}

/// An event set.
#[derive(Clone, Debug)]
pub(crate) struct EventSet {
    /// Address, UUID and event types of each registered GPU. Another card at the same address is not registered.
    pub(crate) registered: Vec<(Pci, String, u64)>,
    pub(crate) watch: Arc<Watch>,
}

/// What a call about a device is about.
pub(crate) struct Target {
    pub(crate) machine: Arc<Machine>,
    pub(crate) card: Arc<Card>,
    pub(crate) partition: Option<MigInstance>,
}

impl Target {
    /// For functions that only a whole GPU has.
    pub(crate) fn whole(&self) -> Result<&Card, Code> {
        if self.partition.is_some() { Err(code::INVALID_ARGUMENT) } else { Ok(&self.card) }
    }

    /// For functions that only a partition has.
    pub(crate) fn part(&self) -> Result<&MigInstance, Code> {
        self.partition.as_ref().ok_or(code::INVALID_ARGUMENT)
    }
}

/// Tags of handles: no address of the caller's memory, so that a mix-up is an error and not a crash.
const HANDLE_TAG: usize = 0x4e56_0000;

impl Engine {
    const fn new() -> Self {
        Self { inits: 0, source: None, things: Vec::new(), sets: BTreeMap::new(), delivered: BTreeSet::new() }
    }

    /// Opens the control file at the first initialisation; a later one finds it open.
    fn init(&mut self) -> Result<Arc<Machine>, Code> {
        if self.inits == 0 {
            let source = control_file().and_then(Source::open).map_err(|problem| {
                tell(&problem);
                code::UNKNOWN
            })?;
            self.source = Some(source);
        }
        self.source.as_mut().map(Source::machine).ok_or(code::UNKNOWN)
    }

    pub(crate) fn machine(&mut self) -> Result<Arc<Machine>, Code> {
        if self.inits == 0 {
            return Err(code::UNINITIALIZED);
        }
        self.source.as_mut().map(Source::machine).ok_or(code::UNINITIALIZED)
    }

    pub(crate) fn watch(&self) -> Result<Arc<Watch>, Code> {
        let source = self.source.as_ref().ok_or(code::UNINITIALIZED)?;
        Ok(Arc::new(Watch::new(&source.path)))
    }

    /// The handle of a thing: always the same one.
    pub(crate) fn handle(&mut self, thing: Thing) -> Handle {
        let known = self.things.iter().position(|known| *known == thing && thing != Thing::Set);
        let place = known.unwrap_or_else(|| {
            self.things.push(thing);
            self.things.len() - 1
        });
        Handle(HANDLE_TAG | place << 4 | 8)
    }

    pub(crate) fn thing(&self, handle: Handle) -> Result<Thing, Code> {
        let place = (handle.0 ^ HANDLE_TAG) >> 4;
        let thing = self.things.get(place).copied().ok_or(code::INVALID_ARGUMENT)?;
        if handle.0 == (HANDLE_TAG | place << 4 | 8) { Ok(thing) } else { Err(code::INVALID_ARGUMENT) }
    }

    fn target(&mut self, handle: Handle) -> Result<Target, Code> {
        let machine = self.machine()?;
        let (pci, ids) = match self.thing(handle)? {
            Thing::Gpu(pci) => (pci, None),
            Thing::Partition(pci, gi, ci) => (pci, Some((gi, ci))),
            Thing::GpuInstance(..) | Thing::Set => return Err(code::INVALID_ARGUMENT),
        };
        let card = Arc::clone(machine.at(pci).ok_or(code::INVALID_ARGUMENT)?);
        let partition = ids.map(|ids| find_partition(&card, ids)).transpose()?;
        Ok(Target { machine, card, partition })
    }
}

fn find_partition(card: &Card, ids: (u32, u32)) -> Result<MigInstance, Code> {
    let found = card.partitions().iter().find(|instance| (instance.gi, instance.ci) == ids);
    found.cloned().ok_or(code::INVALID_ARGUMENT)
}

/// Counts one more user of the library.
pub(crate) fn init() -> c_uint {
    let result = pass("nvmlInit_v2", |engine| {
        let machine = engine.init()?;
        Ok(about_machine(machine, "nvmlInit_v2"))
    });
    let result = result.map(|_| ENGINE.lock().inits += 1);
    returned(result)
}

/// Counts one user less.
pub(crate) fn shutdown() -> c_uint {
    on_system("nvmlShutdown", |_| {
        let mut engine = ENGINE.lock();
        engine.inits = engine.inits.saturating_sub(1);
        if engine.inits == 0 {
            engine.sets.clear();
        }
        Ok(())
    })
}

/// A call about no single GPU.
pub(crate) fn on_system(function: &'static str, body: impl FnOnce(&Machine) -> Result<(), Code>) -> c_uint {
    let result = pass(function, |engine| {
        let machine = engine.machine()?;
        Ok(about_machine(machine, function))
    });
    let result = result.and_then(|machine| {
        let answer = body(&machine);
        log(&machine, function, None, answer);
        answer
    });
    returned(result)
}

fn about_machine(machine: Arc<Machine>, function: &str) -> (Option<Fault>, Arc<Machine>) {
    let fault = machine.control.faults.iter().find(|fault| fault.is_about(function)).cloned();
    (fault, machine)
}

/// A call about a GPU or a partition.
pub(crate) fn on_device(
    function: &'static str,
    handle: Handle,
    body: impl FnOnce(&Target) -> Result<(), Code>,
) -> c_uint {
    let found = pass(function, |engine| {
        let target = engine.target(handle)?;
        Ok((target.card.fault(function).cloned(), target))
    });
    let result = found.and_then(|target| {
        let answer = reachable(&target.card, function).and_then(|()| body(&target));
        log(&target.machine, function, Some(&target.card), answer);
        answer
    });
    returned(result)
}

/// A search for a GPU: `find` gives the one it is about.
pub(crate) fn on_lookup(
    function: &'static str,
    find: impl Fn(&Machine) -> Result<Arc<Card>, Code>,
    found: impl FnOnce(Handle) -> Result<(), Code>,
) -> c_uint {
    let result = pass(function, |engine| {
        let machine = engine.machine()?;
        let card = find(&machine)?;
        Ok((card.fault(function).cloned(), (machine, card)))
    });
    let result = result.and_then(|(machine, card)| {
        let answer = if card.gpu.lost { Err(code::GPU_IS_LOST) } else { Ok(()) };
        let answer = answer.and_then(|()| found(ENGINE.lock().handle(Thing::Gpu(card.gpu.pci))));
        log(&machine, function, Some(&card), answer);
        answer
    });
    returned(result)
}

/// Functions that tell which card it is; they work on one that needs a reset.
const TELL_IDENTITY: [&str; 8] = [
    "nvmlDeviceGetUUID",
    "nvmlDeviceGetSerial",
    "nvmlDeviceGetName",
    "nvmlDeviceGetIndex",
    "nvmlDeviceGetPciInfo_v3",
    "nvmlDeviceGetMinorNumber",
    "nvmlDeviceGetSupportedEventTypes",
    "nvmlDeviceRegisterEvents",
];

fn reachable(card: &Card, function: &str) -> Result<(), Code> {
    if card.gpu.lost {
        return Err(code::GPU_IS_LOST);
    }
    if card.gpu.reset_required && !TELL_IDENTITY.contains(&function) {
        return Err(code::RESET_REQUIRED);
    }
    Ok(())
}

/// Looks until no fault hangs the call: `look` gives the fault that is about it, if any, and what it is about.
pub(crate) fn pass<T>(
    function: &str,
    look: impl Fn(&mut Engine) -> Result<(Option<Fault>, T), Code>,
) -> Result<T, Code> {
    let mut watch = None;
    loop {
        let (fault, about, step) = {
            let mut engine = ENGINE.lock();
            let (fault, about) = look(&mut engine)?;
            if fault.as_ref().is_some_and(|fault| fault.hang) && watch.is_none() {
                watch = Some(engine.watch()?);
                tell(&format!("{function} hangs until the control file says otherwise"));
                continue;
            }
            (fault, about, watch.clone())
        };
        match (fault, step) {
            (None, _) => return Ok(about),
            (Some(Fault { error: Some(error), .. }), _) => return Err(Code(error)),
            (Some(_), Some(watch)) => watch.wait(HANG_STEP),
            (Some(_), None) => return Err(code::UNKNOWN),
        }
    }
}

/// Appends a call to the log, if there is one. A log that cannot be written does not fail the call.
pub(crate) fn log(machine: &Machine, function: &str, card: Option<&Card>, answer: Result<(), Code>) {
    let Some(path) = &machine.control.log else { return };
    let line = serde_json::json!({
        "function": function,
        "pci": card.map(|card| card.gpu.pci.to_string()),
        "code": returned(answer),
        "process": std::process::id(),
    });
    let written = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    if let Err(error) = written {
        tell(&format!("{}: the call is not logged: {error}", path.display()));
    }
}
