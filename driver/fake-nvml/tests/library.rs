//! The built library, loaded through nvml-wrapper as the agent loads it. Each test has a copy with a machine of its own.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]
#![expect(unsafe_code, reason = "what the wrapper drops or cannot set goes through its raw functions")]
#![expect(clippy::disallowed_methods, reason = "tests measure how long the library waits")]

use std::mem;
use std::sync::mpsc;
use std::time::{Duration, Instant};

use nvidia_ml::control::{Control, Event, Fault, Gpu, Profile};
use nvidia_ml::{Machine, built_library};
use nvml_wrapper::bitmasks::event::EventTypes;
use nvml_wrapper::enum_wrappers::device::{EccCounter, MemoryError, TemperatureSensor};
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::structs::device::FieldId;
use nvml_wrapper::{Device, EventSet, Nvml};
use nvml_wrapper_sys::bindings::nvmlEventData_t;
use tempfile::TempDir;

const SECOND: &str = "0000:3b:00.0";

struct Stand {
    machine: Machine,
    control: Control,
    _folder: TempDir,
}

impl Stand {
    fn new(control: Control) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::install(&built_library().unwrap(), folder.path(), &control).unwrap();
        Self { machine, control, _folder: folder }
    }

    fn open(&self) -> Result<Nvml, NvmlError> {
        Nvml::builder().lib_path(self.machine.library.as_os_str()).init()
    }

    fn change(&mut self, change: impl FnOnce(&mut Control)) {
        change(&mut self.control);
        self.machine.set(&self.control).unwrap();
    }

    fn change_second(&mut self, change: impl FnOnce(&mut Gpu)) {
        self.change(|control| change(control.gpu_mut(SECOND).unwrap()));
    }
}

fn second(nvml: &Nvml) -> Device<'_> {
    nvml.device_by_pci_bus_id(SECOND).unwrap()
}

/// As the agent waits: with the ids that the wrapper drops.
fn wait(set: &EventSet<'_>, milliseconds: u32) -> Result<nvmlEventData_t, NvmlError> {
    let wait = nvml_sym(set.nvml.lib().nvmlEventSetWait_v2.as_ref())?;
    // SAFETY: all zeros is a valid event.
    let mut data: nvmlEventData_t = unsafe { mem::zeroed() };
    // SAFETY: the set is alive and `data` is room for an event.
    nvml_try(unsafe { wait(set.handle(), &raw mut data, milliseconds) })?;
    Ok(data)
}

fn watched<'nvml>(nvml: &'nvml Nvml, pci: &str) -> EventSet<'nvml> {
    let device = nvml.device_by_pci_bus_id(pci).unwrap();
    // Not what the wrapper says is supported: it leaves out the types that it does not know.
    let types = EventTypes::from_bits_retain(0x8 | 0x8000);
    device.register_events(types, nvml.create_event_set().unwrap()).unwrap()
}

#[test]
fn a_card_tells_who_it_is() {
    for profile in Profile::ALL {
        let stand = Stand::new(Control::server(profile, 2, 1));
        let nvml = stand.open().unwrap();
        let device = second(&nvml);
        let product = profile.product();
        assert_eq!(nvml.device_count().unwrap(), 2);
        assert_eq!(device.uuid().unwrap(), stand.control.gpus[1].effective_uuid());
        assert_eq!(device.serial().unwrap(), stand.control.gpus[1].effective_serial());
        assert_eq!(device.name().unwrap(), product.name);
        assert_eq!(device.index().unwrap(), 1);
        assert_eq!(device.minor_number().unwrap(), 1);
        assert_eq!(device.memory_info().unwrap().total, product.memory_bytes);
        assert_eq!(device.cuda_compute_capability().unwrap().major, product.compute_capability.0);
        assert_eq!(device.architecture().unwrap().as_c(), product.architecture);
        assert_eq!(device.brand().unwrap().as_c(), product.brand);
        assert_eq!(device.pci_info().unwrap().bus_id, "00000000:3B:00.0");
        assert!(matches!(device.numa_node_id(), Err(NvmlError::NotSupported)));
    }
}

#[test]
fn versions_and_missing_things_come_as_the_real_library_gives_them() {
    let stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    assert_eq!(nvml.sys_driver_version().unwrap(), "580.95.05");
    assert_eq!(nvml.sys_cuda_driver_version().unwrap(), 13_000);
    assert!(matches!(nvml.device_by_index(8), Err(NvmlError::InvalidArg)));
    assert!(matches!(nvml.device_by_pci_bus_id("0000:02:00.0"), Err(NvmlError::NotFound)));
    assert!(matches!(nvml.device_by_uuid("GPU-none"), Err(NvmlError::NotFound)));
    let absent = nvml.lib().nvmlDeviceGetTopologyNearestGpus.as_ref();
    assert!(matches!(nvml_sym(absent), Err(NvmlError::FailedToLoadSymbol(_))));
}

#[test]
fn health_values_change_while_the_library_is_open() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    let fields = |device: &Device<'_>| -> Vec<u64> {
        let ids = [FieldId(230), FieldId(144), FieldId(145), FieldId(251)];
        let values = device.field_values_for(&ids).unwrap();
        values.into_iter().map(|sample| as_u64(&sample.unwrap().value.unwrap())).collect()
    };
    assert_eq!(fields(&second(&nvml)), [0, 0, 0, 0]);
    stand.change_second(|gpu| {
        gpu.fields.insert(230, 6);
        gpu.health.remapped_rows = Some(nvidia_ml::control::RemappedRows { failed: true, ..Default::default() });
        gpu.health.thermal =
            Some(nvidia_ml::control::Thermal { gpu: 93, software_slowdown_ns: 1 << 40, ..Default::default() });
        gpu.health.ecc = Some(nvidia_ml::control::Ecc { volatile_uncorrected: 3, ..Default::default() });
    });
    assert_eq!(fields(&second(&nvml)), [6, 0, 1, 1 << 40]);
    assert_eq!(second(&nvml).temperature(TemperatureSensor::Gpu).unwrap(), 93);
    assert_eq!(second(&nvml).total_ecc_errors(MemoryError::Uncorrected, EccCounter::Volatile).unwrap(), 3);
}

fn as_u64(value: &nvml_wrapper::enums::device::SampleValue) -> u64 {
    use nvml_wrapper::enums::device::SampleValue;
    match value {
        SampleValue::U32(value) => u64::from(*value),
        SampleValue::U64(value) => *value,
        other => panic!("{other:?}"),
    }
}

#[test]
fn an_old_driver_numbers_and_lacks_fields() {
    let mut control = Control::server(Profile::T4, 2, 1);
    control.driver_version = "550.163.01".to_owned();
    control.gpus[1].field_errors.insert(82, 13);
    let stand = Stand::new(control);
    let nvml = stand.open().unwrap();
    let values = second(&nvml).field_values_for(&[FieldId(230), FieldId(251), FieldId(82)]).unwrap();
    assert!(matches!(values[0].as_ref().unwrap().value, Err(NvmlError::NotSupported)));
    assert_eq!(as_u64(values[1].as_ref().unwrap().value.as_ref().unwrap()), 0);
    assert!(matches!(values[2].as_ref().unwrap().value, Err(NvmlError::FunctionNotFound)));
}

#[test]
fn events_come_once_with_their_instance_ids() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    let (first, set) = (watched(&nvml, "0000:1b:00.0"), watched(&nvml, SECOND));
    stand.change_second(|gpu| {
        gpu.events = vec![Event::xid("a", 94).on(3, 1), Event::xid("b", 79), Event::of_type("c", 0x8000, 2)];
    });
    let event = wait(&set, 1000).unwrap();
    assert_eq!((event.eventType, event.eventData, event.gpuInstanceId, event.computeInstanceId), (8, 94, 3, 1));
    let event = wait(&set, 1000).unwrap();
    assert_eq!((event.eventData, event.gpuInstanceId), (79, u32::MAX));
    // SAFETY: only compared.
    assert_eq!(event.device, unsafe { second(&nvml).handle() });
    assert_eq!(wait(&set, 1000).unwrap().eventType, 0x8000);
    assert!(matches!(wait(&set, 20), Err(NvmlError::Timeout)), "each id once");
    assert!(matches!(wait(&first, 0), Err(NvmlError::Timeout)), "and only to its GPU");
    stand.change_second(|gpu| gpu.events.push(Event::xid("d", 31)));
    assert_eq!(wait(&set, 1000).unwrap().eventData, 31);
}

#[test]
fn an_id_is_not_delivered_again_after_a_reopening() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.change_second(|gpu| gpu.events.push(Event::xid("a", 79)));
    let nvml = stand.open().unwrap();
    let set = watched(&nvml, SECOND);
    assert_eq!(wait(&set, 1000).unwrap().eventData, 79);
    drop(set);
    nvml.shutdown().unwrap();
    let nvml = stand.open().unwrap();
    assert!(matches!(wait(&watched(&nvml, SECOND), 20), Err(NvmlError::Timeout)));
}

#[test]
fn a_missed_event_can_be_dropped_as_the_real_library_does() {
    let mut stand = Stand::new(Control { drop_missed_events: true, ..Control::eight_h100s(1) });
    stand.change_second(|gpu| gpu.events.push(Event::xid("before", 79)));
    let nvml = stand.open().unwrap();
    let set = watched(&nvml, SECOND);
    assert!(matches!(wait(&set, 20), Err(NvmlError::Timeout)));
    stand.change_second(|gpu| gpu.events.push(Event::xid("after", 94)));
    assert_eq!(wait(&set, 1000).unwrap().eventData, 94);
}

#[test]
fn a_waiting_call_sees_a_changed_file_at_once() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    let mut took = Vec::new();
    for round in 0..20 {
        let set = watched(&nvml, SECOND);
        let (started, waiting) = mpsc::channel();
        took.push(std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                let set = set;
                started.send(()).unwrap();
                let event = wait(&set, 10_000).unwrap();
                (event.eventData, Instant::now())
            });
            waiting.recv().unwrap();
            let written = Instant::now();
            stand.change_second(|gpu| gpu.events.push(Event::xid(&round.to_string(), 100 + round)));
            let (code, seen) = waiter.join().unwrap();
            assert_eq!(code, 100 + round);
            seen.saturating_duration_since(written)
        }));
    }
    took.sort();
    assert!(took[10] < Duration::from_millis(50), "{took:?}");
}

#[test]
fn a_wait_ends_at_its_timeout() {
    let stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    let set = watched(&nvml, SECOND);
    let begin = Instant::now();
    assert!(matches!(wait(&set, 150), Err(NvmlError::Timeout)));
    assert!(begin.elapsed() >= Duration::from_millis(150));
}

#[test]
fn a_lost_gpu_fails_itself_and_every_search_but_no_neighbour() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    let device = second(&nvml);
    let (set, neighbour) = (watched(&nvml, SECOND), watched(&nvml, "0000:1b:00.0"));
    let uuid_of_first = stand.control.gpus[0].effective_uuid();
    nvml.device_by_uuid(uuid_of_first.as_str()).unwrap();
    stand.change_second(|gpu| {
        gpu.lost = true;
        gpu.events.push(Event::xid("falls", 79));
    });
    assert!(matches!(device.uuid(), Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_count().unwrap(), 8);
    assert!(matches!(nvml.device_by_index(1), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_pci_bus_id(SECOND), Err(NvmlError::GpuLost)));
    assert!(matches!(nvml.device_by_uuid(uuid_of_first.as_str()), Err(NvmlError::GpuLost)));
    #[expect(deprecated, reason = "the agent must not use it; this shows why")]
    let by_serial = nvml.device_by_serial(stand.control.gpus[0].effective_serial());
    assert!(matches!(by_serial, Err(NvmlError::GpuLost)));
    assert_eq!(nvml.device_by_index(0).unwrap().uuid().unwrap(), uuid_of_first);
    assert_eq!(wait(&set, 1000).unwrap().eventData, 79, "what happened before comes first");
    assert!(matches!(wait(&set, 1000), Err(NvmlError::GpuLost)));
    assert!(matches!(wait(&neighbour, 20), Err(NvmlError::Timeout)));
    stand.change_second(|gpu| gpu.lost = false);
    assert_eq!(device.uuid().unwrap(), stand.control.gpus[1].effective_uuid());
    assert!(matches!(wait(&set, 20), Err(NvmlError::Timeout)));
}

#[test]
fn a_gpu_that_needs_a_reset_still_tells_who_it_is() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.change_second(|gpu| gpu.reset_required = true);
    let nvml = stand.open().unwrap();
    assert_eq!(second(&nvml).uuid().unwrap(), stand.control.gpus[1].effective_uuid());
    assert!(matches!(second(&nvml).temperature(TemperatureSensor::Gpu), Err(NvmlError::ResetRequired)));
}

#[test]
fn a_removed_gpu_leaves_the_list_and_the_minors_of_the_others_stay() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    let old = second(&nvml);
    stand.change_second(|gpu| gpu.absent = true);
    assert_eq!(nvml.device_count().unwrap(), 7);
    assert_eq!(nvml.device_by_index(1).unwrap().minor_number().unwrap(), 2);
    assert!(matches!(nvml.device_by_pci_bus_id(SECOND), Err(NvmlError::NotFound)));
    assert!(matches!(old.uuid(), Err(NvmlError::InvalidArg)));
}

#[test]
fn another_card_at_the_same_address_is_another_card() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    let old = second(&nvml);
    let set = watched(&nvml, SECOND);
    stand.change_second(|gpu| {
        gpu.uuid = Some("GPU-another".to_owned());
        gpu.events.push(Event::xid("of the new card", 94));
    });
    assert_eq!(old.uuid().unwrap(), "GPU-another");
    assert!(matches!(wait(&set, 20), Err(NvmlError::Timeout)), "the old set does not know the new card");
    assert_eq!(wait(&watched(&nvml, SECOND), 1000).unwrap().eventData, 94);
}

#[test]
fn errors_and_a_wrong_count_are_as_given() {
    let mut control = Control { count: Some(9), ..Control::eight_h100s(1) };
    control.gpus[1].faults = vec![
        Fault::register_events(999),
        Fault::error("nvmlDeviceGetSerial", 4),
        Fault::error("nvmlDeviceGetName", 77),
    ];
    let stand = Stand::new(control);
    let nvml = stand.open().unwrap();
    assert_eq!(nvml.device_count().unwrap(), 9);
    assert!(matches!(nvml.device_by_index(8), Err(NvmlError::InvalidArg)));
    assert!(matches!(second(&nvml).serial(), Err(NvmlError::NoPermission)));
    assert!(matches!(second(&nvml).name(), Err(NvmlError::UnexpectedVariant(77))));
    let set = nvml.create_event_set().unwrap();
    let refused = second(&nvml).register_events(EventTypes::CRITICAL_XID_ERROR, set);
    assert!(matches!(refused.unwrap_err().error, NvmlError::Unknown));
    assert!(nvml.device_by_index(0).unwrap().serial().is_ok());
}

#[test]
fn types_that_the_card_lacks_cannot_be_registered() {
    let mut stand = Stand::new(Control::server(Profile::T4, 2, 1));
    let nvml = stand.open().unwrap();
    let register = |types| second(&nvml).register_events(types, nvml.create_event_set().unwrap()).map_err(|e| e.error);
    let modern = EventTypes::from_bits_retain(0x8 | 0x8000);
    assert!(matches!(register(modern), Err(NvmlError::NotSupported)));
    register(EventTypes::CRITICAL_XID_ERROR).unwrap();
    stand.change_second(|gpu| gpu.supported_events = Some(0x8 | 0x8000));
    register(modern).unwrap();
}

#[test]
fn a_hang_holds_one_call_until_the_file_lifts_it() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.change_second(|gpu| gpu.faults.push(Fault::hang("nvmlDeviceGetUUID")));
    let nvml = stand.open().unwrap();
    std::thread::scope(|scope| {
        let (answer, answered) = mpsc::channel();
        let nvml = &nvml;
        scope.spawn(move || answer.send(second(nvml).uuid().unwrap()).unwrap());
        assert!(answered.recv_timeout(Duration::from_millis(150)).is_err(), "it hangs");
        assert!(second(nvml).serial().is_ok(), "other functions go on");
        assert!(nvml.device_by_index(0).unwrap().uuid().is_ok(), "and other GPUs");
        stand.change_second(|gpu| gpu.faults.clear());
        assert_eq!(answered.recv_timeout(Duration::from_secs(10)).unwrap(), stand.control.gpus[1].effective_uuid());
    });
}

#[test]
fn partitions_tell_profile_place_and_parent() {
    let mut control = Control::server(Profile::A100, 2, 1);
    control.gpus[1] = control.gpus[1].clone().with_mig(&[("3g.40gb", 4), ("1g.10gb", 0)]);
    let stand = Stand::new(control);
    let nvml = stand.open().unwrap();
    let whole = second(&nvml);
    assert_eq!(whole.mig_mode().unwrap().current, 1);
    assert_eq!(whole.mig_device_count().unwrap(), 7);
    assert!(matches!(whole.mig_device_by_index(2), Err(NvmlError::NotFound)));
    let part = whole.mig_device_by_index(0).unwrap();
    assert!(part.uuid().unwrap().starts_with("MIG-"));
    assert_ne!(part.uuid().unwrap(), whole.mig_device_by_index(1).unwrap().uuid().unwrap());
    assert_eq!(part.name().unwrap(), "NVIDIA A100-SXM4-80GB MIG 3g.40gb");
    assert_eq!(part.attributes().unwrap().gpu_instance_slice_count, 3);
    assert_eq!(part.memory_info().unwrap().total, 40_320 << 20);
    assert_eq!(part.mig_parent_device().unwrap().uuid().unwrap(), whole.uuid().unwrap());
    assert!(nvml.device_by_index(0).unwrap().mig_device_by_index(0).is_err());
}

#[test]
fn initialisation_fails_as_the_file_says_or_when_it_makes_no_sense() {
    let mut stand = Stand::new(Control::eight_h100s(1).with_init_error(9));
    assert!(matches!(stand.open(), Err(NvmlError::DriverNotLoaded)));
    stand.change(|control| control.faults = vec![Fault::error("nvmlInit_v2", 18)]);
    assert!(matches!(stand.open(), Err(NvmlError::LibRmVersionMismatch)));
    std::fs::write(&stand.machine.control, "{\"gpus\": [{}]}").unwrap();
    assert!(matches!(stand.open(), Err(NvmlError::Unknown)));
    stand.change(|control| control.faults.clear());
    assert_eq!(stand.open().unwrap().device_count().unwrap(), 8);
}

#[test]
fn a_file_that_makes_no_sense_later_changes_nothing() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    std::fs::write(&stand.machine.control, "{\"gpus\": ").unwrap();
    assert_eq!(nvml.device_count().unwrap(), 8);
    std::fs::remove_file(&stand.machine.control).unwrap();
    assert_eq!(nvml.device_count().unwrap(), 8);
    stand.change(|control| control.gpus.truncate(3));
    assert_eq!(nvml.device_count().unwrap(), 3);
}

#[test]
fn two_changes_within_one_tick_of_the_clock_are_both_seen() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    let nvml = stand.open().unwrap();
    for index in 0..50_u32 {
        // Written in place: size and inode stay the same, and the time often too.
        stand.control.gpus[1].minor = Some(10 + index % 80);
        std::fs::write(&stand.machine.control, serde_json::to_vec(&stand.control).unwrap()).unwrap();
        assert_eq!(second(&nvml).minor_number().unwrap(), 10 + index % 80);
    }
}

#[test]
fn calls_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls.jsonl");
    let stand = Stand::new(Control { log: Some(log.clone()), ..Control::eight_h100s(1) });
    let nvml = stand.open().unwrap();
    second(&nvml).uuid().unwrap();
    assert!(second(&nvml).numa_node_id().is_err());
    let text = std::fs::read_to_string(log).unwrap();
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let of = |function: &str| lines.iter().find(|line| line["function"] == function).unwrap();
    assert_eq!(of("nvmlDeviceGetUUID")["pci"], SECOND);
    assert_eq!(of("nvmlDeviceGetUUID")["code"], 0);
    assert_eq!(of("nvmlDeviceGetNumaNodeId")["code"], 3);
}

#[test]
fn a_function_can_be_taken_out_of_a_copy() {
    let folder = tempfile::tempdir().unwrap();
    let machine = Machine::install(&built_library().unwrap(), folder.path(), &Control::eight_h100s(1)).unwrap();
    let machine = machine.without(&["nvmlDeviceGetFieldValues", "nvmlDeviceGetUUID"]).unwrap();
    let nvml = Nvml::builder().lib_path(machine.library.as_os_str()).init().unwrap();
    let device = second(&nvml);
    assert!(matches!(device.field_values_for(&[FieldId(230)]), Err(NvmlError::FailedToLoadSymbol(_))));
    assert!(matches!(device.uuid(), Err(NvmlError::FailedToLoadSymbol(_))));
    assert!(device.serial().is_ok());
    let error = machine.without(&["nvmlDeviceGetNothing"]).unwrap_err();
    assert!(error.to_string().contains("nvmlDeviceGetNothing"));
}

/// This test runs itself in a process of its own, as a variable is the same for all tests of one.
#[test]
fn the_variable_names_the_control_file_and_a_bad_one_is_told_with_line_and_field() {
    const NAME: &str = "the_variable_names_the_control_file_and_a_bad_one_is_told_with_line_and_field";
    let library = built_library().unwrap();
    if std::env::var_os(nvidia_ml::CONTROL_VARIABLE).is_some() {
        let count = Nvml::builder().lib_path(library.as_os_str()).init().and_then(|nvml| nvml.device_count());
        println!("in the child: {count:?}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("control.json");
    let child = || {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", NAME, "--nocapture"]).env(nvidia_ml::CONTROL_VARIABLE, &file);
        let output = command.output().unwrap();
        (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    Control::server(Profile::T4, 3, 1).write_atomically(&file).unwrap();
    assert!(child().0.contains("in the child: Ok(3)"));
    std::fs::write(&file, "{\n  \"gpus\": [\n    { \"profile\": \"v100\" } ] }").unwrap();
    let (out, err) = child();
    assert!(out.contains("in the child: Err(Unknown)"), "{out}");
    let place = format!("fake-nvml: {}:3:", file.display());
    assert!(err.contains(&place) && err.contains("field `profile`") && err.contains("v100"), "{err}");
}

#[test]
fn before_initialisation_and_after_shutdown_nothing_works() {
    let stand = Stand::new(Control::eight_h100s(1));
    let (one, two) = (stand.open().unwrap(), stand.open().unwrap());
    one.shutdown().unwrap();
    assert_eq!(two.device_count().unwrap(), 8, "as often closed as opened");
    let shutdown = nvml_sym(two.lib().nvmlShutdown.as_ref()).unwrap();
    // SAFETY: the wrapper's own shutdown, called a second time at its end, only answers an error.
    nvml_try(unsafe { shutdown() }).unwrap();
    assert!(matches!(two.device_count(), Err(NvmlError::Uninitialized)));
}
