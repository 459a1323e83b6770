//! Names stay, lost cards stay, neighbours are left alone, swapped cards are other cards.

use proptest::prelude::*;

use super::testkit::{
    absent, at, bus, gpu, healthy, missing, name, opened, opened_with, partitioned, pci, read, scan, unidentified, uuid,
};
use super::{Attribute, Device, DeviceKind, Inventory, InventoryEvent, Standing};
use crate::nvml::{Code, OpenError, Presence, Reading, Update};

fn inventory(cards: u8) -> Inventory {
    let mut inventory = Inventory::default();
    let update = opened((0..cards).map(gpu).collect());
    inventory.apply(&update, Some(&bus(0..cards)), at(0));
    inventory
}

fn names(inventory: &Inventory) -> Vec<String> {
    inventory.devices().map(|device| device.name.clone()).collect()
}

fn text(device: &Device, attribute: &str) -> Option<String> {
    match device.attributes.get(attribute)? {
        Attribute::String(text) | Attribute::Version(text) => Some(text.clone()),
        Attribute::Int(number) => Some(number.to_string()),
        Attribute::Bool(flag) => Some(flag.to_string()),
    }
}

fn unavailable() -> Update {
    Update::Unavailable { error: OpenError::NotLoaded, attempt: 1, retry_in: std::time::Duration::from_secs(1) }
}

#[test]
fn a_card_is_published_with_the_attributes_that_selectors_know() {
    let inventory = inventory(1);
    let device = inventory.device("gpu-0000-10-00-0").unwrap();
    let expected = [
        ("gpu.nvidia.com/type", "gpu"),
        ("gpu.nvidia.com/uuid", &uuid(0)),
        ("gpu.nvidia.com/serial", "1650000"),
        ("gpu.nvidia.com/productName", "NVIDIA H100 80GB HBM3"),
        ("gpu.nvidia.com/brand", "Nvidia"),
        ("gpu.nvidia.com/architecture", "Hopper"),
        ("gpu.nvidia.com/cudaComputeCapability", "9.0.0"),
        ("gpu.nvidia.com/driverVersion", "580.95.5"),
        ("gpu.nvidia.com/cudaDriverVersion", "13.0.0"),
        ("resource.kubernetes.io/pciBusID", "0000:10:00.0"),
        ("resource.kubernetes.io/pcieRoot", "pci0000:10"),
        ("resource.kubernetes.io/numaNode", "1"),
    ];
    for (attribute, value) in expected {
        assert_eq!(text(device, attribute).as_deref(), Some(value), "{attribute}");
    }
    assert_eq!(device.attributes.len(), expected.len());
    assert_eq!(device.capacity["gpu.nvidia.com/memory"], "81559Mi");
    assert_eq!((device.minor, device.present, device.generation), (Some(0), true, 1));
}

#[test]
fn what_a_card_does_not_tell_is_left_out() {
    let mut bare = gpu(0);
    bare.name = Some(String::new());
    (bare.brand, bare.architecture, bare.compute_capability, bare.memory_bytes) = (None, None, None, None);
    let mut inventory = Inventory::default();
    inventory.apply(&opened(vec![bare]), None, at(0));
    let device = inventory.devices().next().unwrap();
    assert_eq!(device.capacity.len(), 0);
    for attribute in ["productName", "brand", "architecture", "cudaComputeCapability"] {
        assert_eq!(text(device, &format!("gpu.nvidia.com/{attribute}")), None, "{attribute}");
    }
}

#[test]
fn a_later_look_that_tells_less_changes_nothing() {
    let mut inventory = inventory(1);
    let mut bare = gpu(0);
    (bare.name, bare.brand, bare.architecture, bare.serial, bare.minor) = (None, None, None, None, None);
    let changes = inventory.apply(&Update::Discovered { scan: scan(vec![bare]) }, None, at(60));
    assert_eq!((changes.devices_changed, changes.persist), (false, false));
    assert_eq!(inventory.devices().next().unwrap().serial.as_deref(), Some("1650000"));
}

/// F07, F19: the cards beside a lost one are left alone, and it keeps its name and identity.
#[test]
fn f07_a_lost_card_touches_no_neighbour() {
    let mut inventory = inventory(8);
    let before = names(&inventory);
    let changes = inventory.apply(&read(3, absent(Presence::Lost)), None, at(15));
    assert!(!changes.devices_changed);
    assert_eq!(names(&inventory), before);
    let absent: Vec<&str> = inventory.devices().filter(|d| !d.present).map(|d| d.name.as_str()).collect();
    assert_eq!(absent, [name(3)]);
    assert!(matches!(changes.events[..], [InventoryEvent::Lost { pci: at, .. }] if at == pci(3)));
    let changes = inventory.apply(&read(3, healthy()), None, at(30));
    assert_eq!(changes.events, [InventoryEvent::Returned { pci: pci(3) }]);
    assert!(inventory.devices().all(|device| device.present));
}

/// F19: a card that the driver no longer lists keeps its name, and so do the others.
#[test]
fn f19_names_do_not_shift_when_a_card_is_drained() {
    let mut inventory = inventory(2);
    let mut second = gpu(1);
    second.index = 0;
    let update = Update::Discovered { scan: scan(vec![second]) };
    for seconds in [15, 3600] {
        inventory.apply(&update, Some(&bus([0, 1])), at(seconds));
        inventory.tick(Some(&bus([0, 1])), at(seconds + 600));
    }
    assert_eq!(names(&inventory), [name(0), name(1)]);
    let first = inventory.device(&name(0)).unwrap();
    assert_eq!((first.uuid.clone(), first.present), (Some(uuid(0)), false));
    assert_eq!(inventory.device(&name(1)).unwrap().uuid, Some(uuid(1)));
}

/// F19, swap variant; F20: a name that now means other hardware says so.
#[test]
fn f19_a_swapped_card_is_another_card_under_the_same_name() {
    let mut inventory = inventory(1);
    let mut other = gpu(0);
    (other.uuid, other.serial) = ("GPU-cc".into(), Some("999".into()));
    (other.architecture, other.minor) = (None, None);
    let changes = inventory.apply(&Update::Discovered { scan: scan(vec![other]) }, Some(&bus([0])), at(60));
    assert!(changes.devices_changed && changes.persist);
    let swapped = InventoryEvent::Swapped { pci: pci(0), from: uuid(0), to: "GPU-cc".into() };
    assert_eq!(changes.events, [swapped]);
    let device = inventory.device(&name(0)).unwrap();
    assert_eq!((device.uuid.as_deref(), device.serial.as_deref()), (Some("GPU-cc"), Some("999")));
    assert_eq!((device.generation, device.minor), (2, None));
    assert_eq!(text(device, "gpu.nvidia.com/architecture"), None);
}

#[test]
fn a_lost_library_removes_nothing_and_changes_nothing_that_is_published() {
    let mut inventory = inventory(2);
    let changes = inventory.apply(&unavailable(), Some(&bus([])), at(60));
    assert!(!changes.devices_changed);
    inventory.tick(Some(&bus([])), at(86_400));
    assert_eq!(names(&inventory), [name(0), name(1)]);
    assert!(inventory.devices().all(|device| !device.present));
}

#[test]
fn a_restart_without_nvml_publishes_every_card_with_its_last_identity() {
    let before = inventory(2);
    let mut after = Inventory::restore(before.record());
    after.apply(&unavailable(), Some(&bus([])), at(60));
    let published = |inventory: &Inventory| -> Vec<_> {
        inventory
            .devices()
            .map(|d| (d.name.clone(), d.attributes.clone(), d.capacity.clone(), d.uuid.clone()))
            .collect()
    };
    assert_eq!(published(&after), published(&before));
}

#[test]
fn a_node_that_never_had_a_card_has_no_devices() {
    let mut inventory = Inventory::default();
    inventory.apply(&unavailable(), None, at(0));
    inventory.apply(&opened(Vec::new()), Some(&bus([])), at(1));
    assert_eq!(names(&inventory), Vec::<String>::new());
}

#[test]
fn only_nvml_and_sysfs_together_remove_a_card_and_not_at_once() {
    let mut inventory = inventory(2);
    let without = opened(vec![gpu(0)]);
    inventory.apply(&without, Some(&bus([0])), at(60));
    assert_eq!(names(&inventory).len(), 2);
    assert_eq!(inventory.card(pci(1)).unwrap().standing, Standing::Gone(at(60)));
    inventory.tick(None, at(600));
    inventory.tick(Some(&bus([0, 1])), at(600));
    assert_eq!(names(&inventory).len(), 2);
    let changes = inventory.tick(Some(&bus([0])), at(600));
    assert!(changes.devices_changed && changes.persist);
    assert_eq!(names(&inventory), [name(0)]);
}

#[test]
fn a_card_in_an_emptied_slot_has_a_generation_of_its_own() {
    let mut inventory = inventory(1);
    inventory.apply(&opened(Vec::new()), Some(&bus([])), at(60));
    inventory.tick(Some(&bus([])), at(600));
    assert_eq!(names(&inventory).len(), 0);
    let json = serde_json::to_string(&inventory.record()).unwrap();
    let mut inventory = Inventory::restore(serde_json::from_str(&json).unwrap());
    inventory.apply(&opened(vec![gpu(0)]), Some(&bus([0])), at(700));
    assert_eq!(inventory.device(&name(0)).unwrap().generation, 2);
}

#[test]
fn a_card_that_comes_back_within_the_grace_was_never_gone() {
    let mut inventory = inventory(1);
    inventory.apply(&opened(Vec::new()), Some(&bus([])), at(60));
    inventory.apply(&opened(vec![gpu(0)]), Some(&bus([0])), at(80));
    inventory.tick(Some(&bus([0])), at(600));
    assert_eq!(names(&inventory), [name(0)]);
    assert!(inventory.card(pci(0)).unwrap().is_present());
}

#[test]
fn a_bus_that_does_not_list_what_answers_proves_nothing() {
    let mut inventory = inventory(2);
    inventory.apply(&opened(vec![gpu(0)]), Some(&bus([])), at(60));
    inventory.tick(Some(&bus([])), at(600));
    assert_eq!(names(&inventory).len(), 2);
}

#[test]
fn a_look_whose_count_failed_removes_nothing() {
    let mut inventory = inventory(2);
    let mut look = scan(Vec::new());
    look.count = Err(missing(0, Code::UNKNOWN).error);
    inventory.apply(&opened_with(look), Some(&bus([])), at(60));
    inventory.tick(Some(&bus([])), at(600));
    assert_eq!(names(&inventory).len(), 2);
}

/// F33: a card without MIG is a plain GPU, a partitioned one its partitions, and one that fails hides neither.
#[test]
fn f33_cards_with_and_without_mig_and_one_that_fails_live_together() {
    let mut plain = gpu(0);
    plain.mig.mode = None;
    let mut look = scan(vec![plain, partitioned(1, &[(1, 0), (2, 0)])]);
    look.unidentified = vec![unidentified(2, true, Code::UNKNOWN)];
    look.count = Ok(3);
    let mut inventory = Inventory::default();
    inventory.apply(&opened_with(look), Some(&bus(0..3)), at(0));
    let mig = |start: u32| format!("{}-mig-1g10gb-{start}-0", name(1));
    assert_eq!(names(&inventory), [name(0), mig(2), mig(4), name(2)]);
    let part = inventory.device(&mig(2)).unwrap();
    assert_eq!((part.kind, part.parent.clone()), (DeviceKind::Mig, Some(name(1))));
    assert_eq!((part.gpu_instance, part.compute_instance, part.minor), (Some(1), Some(0), Some(1)));
    assert_eq!(text(part, "gpu.nvidia.com/parentUUID"), Some(uuid(1)));
    assert_eq!(part.capacity["gpu.nvidia.com/memory"], "10Gi");
    let failed = inventory.device(&name(2)).unwrap();
    assert_eq!((failed.uuid.as_deref(), failed.present), (None, false));
}

#[test]
fn partitions_that_cannot_be_read_now_are_not_forgotten() {
    let mut inventory = Inventory::default();
    inventory.apply(&opened(vec![partitioned(0, &[(1, 0), (2, 0)])]), None, at(0));
    let mut half = partitioned(0, &[(2, 0)]);
    half.mig.unread = vec![missing(0, Code::UNKNOWN).error];
    let changes = inventory.apply(&opened(vec![half]), None, at(1));
    assert!(!changes.devices_changed);
    let changes = inventory.apply(&opened(vec![partitioned(0, &[(2, 0)])]), None, at(2));
    assert!(changes.devices_changed);
    assert_eq!(inventory.devices().count(), 1);
}

#[test]
fn a_card_lost_at_the_start_is_known_by_its_address() {
    let record = inventory(2).record();
    let mut inventory = Inventory::restore(record);
    let mut look = scan(vec![gpu(0)]);
    look.count = Ok(2);
    look.unidentified = vec![unidentified(1, false, Code::GPU_IS_LOST)];
    look.missing = vec![missing(1, Code::GPU_IS_LOST)];
    let changes = inventory.apply(&opened_with(look), Some(&bus(0..2)), at(0));
    assert!(!changes.events.iter().any(|event| matches!(event, InventoryEvent::Unattributed { .. })));
    let card = inventory.card(pci(1)).unwrap();
    assert_eq!(card.identity.uuid, Some(uuid(1)));
    assert!(matches!(card.standing, Standing::Lost(_)));
}

#[test]
fn a_card_that_never_answered_is_found_on_the_bus() {
    let mut look = scan(vec![gpu(0)]);
    look.unidentified = vec![unidentified(1, false, Code::GPU_IS_LOST)];
    let mut inventory = Inventory::default();
    inventory.apply(&opened_with(look), Some(&bus(0..2)), at(0));
    assert_eq!(names(&inventory), [name(0), name(1)]);
    assert!(matches!(inventory.card(pci(1)).unwrap().standing, Standing::Lost(_)));
}

#[test]
fn a_known_card_whose_call_hangs_explains_the_index_that_did_not_answer() {
    let mut inventory = inventory(2);
    let mut look = scan(vec![gpu(0)]);
    look.unidentified = vec![unidentified(1, false, Code::TIMEOUT)];
    look.missing = vec![missing(1, Code::TIMEOUT)];
    let changes = inventory.apply(&opened_with(look), Some(&bus(0..3)), at(60));
    assert_eq!(changes.events, []);
    assert!(matches!(inventory.card(pci(1)).unwrap().standing, Standing::Unreadable(_)));
    assert_eq!(names(&inventory), [name(0), name(1)]);
}

#[test]
fn lost_is_believed_of_a_stranger_only_where_every_index_says_so() {
    let mut inventory = inventory(1);
    let mut look = scan(vec![gpu(0)]);
    look.unidentified = vec![unidentified(1, false, Code::GPU_IS_LOST), unidentified(2, false, Code::UNKNOWN)];
    inventory.apply(&opened_with(look), Some(&bus(0..3)), at(60));
    for n in [1, 2] {
        assert!(matches!(inventory.card(pci(n)).unwrap().standing, Standing::Unreadable(_)), "{n}");
    }
}

/// F07: if none can be identified, none is blamed.
#[test]
fn f07_a_lost_card_that_nobody_can_name_taints_none() {
    let mut look = scan(vec![gpu(0)]);
    look.unidentified = vec![unidentified(1, false, Code::GPU_IS_LOST)];
    let mut inventory = Inventory::default();
    let changes = inventory.apply(&opened_with(look), Some(&bus(0..3)), at(0));
    assert_eq!(names(&inventory), [name(0)]);
    assert!(matches!(changes.events.last(), Some(InventoryEvent::Unattributed { cards: 1, .. })));
}

#[test]
fn news_of_another_card_is_not_news_of_this_one() {
    let mut inventory = inventory(1);
    let mut update = read(0, absent(Presence::Lost));
    if let Update::Signal(signal) = &mut update {
        signal.uuid = Some("GPU-other".into());
    }
    inventory.apply(&update, None, at(1));
    assert!(inventory.card(pci(0)).unwrap().is_present());
}

#[test]
fn a_minor_number_that_a_reload_changed_is_learnt() {
    let mut inventory = inventory(1);
    let mut snapshot = healthy();
    snapshot.minor = Reading::Value(5);
    let changes = inventory.apply(&read(0, snapshot), None, at(1));
    assert_eq!((changes.persist, changes.devices_changed), (true, false));
    assert_eq!(inventory.devices().next().unwrap().minor, Some(5));
}

#[test]
fn the_record_reads_back() {
    let mut inventory = Inventory::default();
    inventory.apply(&opened(vec![gpu(0), partitioned(1, &[(1, 0)])]), Some(&bus(0..2)), at(0));
    let json = serde_json::to_string(&inventory.record()).unwrap();
    let record = serde_json::from_str(&json).unwrap();
    let restored = Inventory::restore(record);
    assert_eq!(names(&restored), names(&inventory));
    assert!(restored.cards().all(|card| card.standing == Standing::Unconfirmed));
}

proptest! {
    /// Whatever NVML tells of any subset of cards, in any order: no card that sysfs lists ever loses its name or its identity.
    #[test]
    fn cards_on_the_bus_keep_name_and_identity(looks in prop::collection::vec((any::<u8>(), any::<bool>()), 0..12)) {
        let mut inventory = inventory(8);
        let before: Vec<_> = inventory.devices().map(|d| (d.name.clone(), d.uuid.clone(), d.generation)).collect();
        for (step, (answering, open)) in looks.into_iter().enumerate() {
            let gpus = (0..8).filter(|n| answering & (1 << n) != 0).map(gpu).collect();
            let update = if open { opened(gpus) } else { unavailable() };
            let now = at(i64::try_from(step).unwrap() * 3600);
            inventory.apply(&update, Some(&bus(0..8)), now);
            inventory.tick(Some(&bus(0..8)), now);
        }
        let after: Vec<_> = inventory.devices().map(|d| (d.name.clone(), d.uuid.clone(), d.generation)).collect();
        prop_assert_eq!(before, after);
    }
}
