//! From NVML's news to what is published, prepared and told.

use jiff::SignedDuration;

use super::{Core, View};
use crate::claims::Condition;
use crate::health::{Health, HealthConfig, HealthState, Intent};
use crate::inventory::Inventory;
use crate::inventory::testkit::{
    at, bus, gpu, healthy, missing, name, opened, opened_with, partitioned, read, scan, uuid, xid,
};
use crate::nvml::{Code, GpuReading, OpenError, Signal, Update};
use crate::owner::{Offer, Owner, Which};
use crate::policy::Policy;
use crate::slices::{Device, Limits, StoredTaints};
use crate::state::Memory;

fn core(memory: Memory, now: i64) -> Core {
    let policy = Policy::default_table().unwrap();
    let config = HealthConfig {
        domain: "gpu.devicetaint.dev".to_owned(),
        boot_id: "boot".to_owned(),
        quiet_period: SignedDuration::from_secs(600),
        stale_after: SignedDuration::from_secs(35),
    };
    let health = Health::restore(config, memory.health, &policy, at(now));
    Core::new("node-a", Inventory::restore(memory.inventory), health, policy)
        .remembering_marks(memory.marks)
        .remembering_others(memory.others)
}

fn running(cards: u8) -> Core {
    let mut core = core(Memory::default(), 0);
    core.observe(&opened((0..cards).map(gpu).collect()), Some(&bus(0..cards)), at(0));
    for n in 0..cards {
        core.observe(&read(n, healthy()), None, at(0));
    }
    core
}

fn view(core: &mut Core, now: i64) -> View {
    core.view(&Limits::CURRENT, at(now))
}

/// `device key=value:Effect` of every taint that is wanted.
fn taints(view: &View) -> Vec<String> {
    let devices = view.pool.cards.iter().flat_map(|card| &card.devices);
    devices.flat_map(|device| device.taints.iter().map(|taint| format!("{} {taint}", device.name))).collect()
}

fn unavailable() -> Update {
    Update::Unavailable { error: OpenError::NotLoaded, attempt: 1, retry_in: std::time::Duration::from_secs(1) }
}

#[test]
fn nothing_is_known_until_nvml_was_heard() {
    let mut core = core(Memory::default(), 0);
    assert!(!core.heard());
    let outcome = core.observe(&unavailable(), None, at(1));
    assert!(core.heard() && outcome.changed, "a node without NVML has an empty pool, and that is published");
    assert_eq!(view(&mut core, 1).pool.cards, []);
}

#[test]
fn a_fault_taints_its_own_card_and_tells_kubelet() {
    let mut core = running(3);
    let outcome = core.observe(&xid(1, 79), None, at(5));
    assert!(outcome.changed && outcome.persist && outcome.told.len() == 1, "{outcome:?}");
    assert!(outcome.told[0].is_problem, "a search for warnings finds it: {outcome:?}");
    let view = view(&mut core, 5);
    assert_eq!(taints(&view), [format!("{} gpu.devicetaint.dev/xid=79:NoSchedule", name(1))]);
    let states: Vec<_> = view.report.devices.iter().map(|device| device.state).collect();
    assert_eq!(states, [HealthState::Healthy, HealthState::Unhealthy, HealthState::Healthy]);
    assert_eq!((view.report.devices[1].updated, view.report.devices[0].updated), (at(5), at(5)));
    assert_eq!(core.findings_by_key()["xid"], 1);
}

#[test]
fn a_report_keeps_the_moment_of_its_last_change() {
    let mut core = running(2);
    let first = view(&mut core, 1);
    core.observe(&xid(0, 79), None, at(9));
    let second = view(&mut core, 9);
    assert_eq!((first.report.devices[1].updated, second.report.devices[1].updated), (at(1), at(1)));
    assert_eq!(second.report.devices[0].updated, at(9));
}

#[test]
fn a_lost_card_stays_published_and_is_not_prepared() {
    let mut core = running(2);
    let lost = scan(vec![gpu(0)]);
    let lost = crate::nvml::Scan { count: Ok(2), missing: vec![missing(1, Code::GPU_IS_LOST)], ..lost };
    core.observe(&Update::Discovered { scan: lost }, Some(&bus(0..2)), at(5));
    let view = view(&mut core, 5);
    assert_eq!(taints(&view), [format!("{} gpu.devicetaint.dev/lost:NoSchedule", name(1))]);
    assert!(matches!(view.devices.0[&name(1)].condition, Condition::Lost(_)));
    assert_eq!(view.devices.0[&name(0)].condition, Condition::Ready);
}

#[test]
fn without_nvml_cards_seen_before_stay_with_driver_and_nothing_new_starts() {
    let mut before = running(2);
    before.observe(&xid(0, 79), None, at(5));
    view(&mut before, 5);
    let mut core = core(before.memory(), 100);
    core.observe(&unavailable(), None, at(100));
    let view = view(&mut core, 100);
    let driver = |n| format!("{} gpu.devicetaint.dev/driver=not-loaded:NoSchedule", name(n));
    assert_eq!(taints(&view), [format!("{} gpu.devicetaint.dev/xid=79:NoSchedule", name(0)), driver(0), driver(1)]);
    let device = &view.devices.0[&name(1)];
    assert!(matches!(&device.condition, Condition::Unknown(why) if why.contains("not loaded")));
    assert_eq!(device.identity.uuid, Some(uuid(1)));
}

#[test]
fn the_moment_that_the_server_gave_is_repeated_after_a_restart() {
    let mut before = running(1);
    before.observe(&xid(0, 79), None, at(5));
    let wanted = view(&mut before, 5).pool;
    assert_eq!(wanted.cards[0].devices[0].taints[0].time_added, None, "no clock of this node goes into a taint");
    let mut stored = wanted.cards[0].devices[0].clone();
    stored.taints[0].time_added = Some(at(6));
    let stored = [(stored.name.clone(), StoredTaints::of(&stored))].into();
    assert!(before.adopt_times(&stored, &wanted));
    assert!(!before.adopt_times(&stored, &wanted), "that is no news any more");
    view(&mut before, 7);
    let mut after = core(before.memory(), 100);
    after.observe(&opened_with(scan(vec![gpu(0)])), Some(&bus([0])), at(100));
    assert_eq!(view(&mut after, 100).pool.cards[0].devices[0].taints[0].time_added, Some(at(6)));
}

#[test]
fn the_moment_of_a_taint_that_is_not_wanted_is_not_taken() {
    let mut core = running(1);
    let wanted = view(&mut core, 1).pool;
    let foreign = taints::Taint {
        key: "gpu.devicetaint.dev/xid".to_owned(),
        value: "79".to_owned(),
        effect: taints::Effect::NoSchedule,
        time_added: Some(at(1)),
    };
    let stored = Device { taints: vec![foreign], ..wanted.cards[0].devices[0].clone() };
    assert!(!core.adopt_times(&[(name(0), StoredTaints::of(&stored))].into(), &wanted));
}

/// The same taint on another card under the same name is a new taint: whoever tolerates it for a time has all of that time.
#[test]
fn a_card_swapped_under_the_same_taint_begins_anew() {
    let mut core = running(1);
    core.observe(&xid(0, 79), None, at(5));
    let wanted = view(&mut core, 5).pool;
    let mut old = wanted.cards[0].devices[0].clone();
    old.taints[0].time_added = Some(at(6));
    let stored = [(name(0), StoredTaints::of(&old))].into();
    assert!(core.adopt_times(&stored, &wanted));

    let other = GpuReading { uuid: "GPU-other".to_owned(), ..gpu(0) };
    core.observe(&Update::Discovered { scan: scan(vec![other]) }, Some(&bus([0])), at(50));
    let fault = match xid(0, 79) {
        Update::Signal(signal) => Update::Signal(Signal { uuid: Some("GPU-other".to_owned()), ..signal }),
        other => other,
    };
    core.observe(&fault, None, at(50));
    let wanted = view(&mut core, 50).pool;
    assert_eq!(wanted.cards[0].devices[0].taints.len(), 1);
    assert_eq!(wanted.cards[0].devices[0].taints[0].time_added, None);
    assert!(!core.adopt_times(&stored, &wanted), "what the server still holds is of the old card");
    assert_eq!(view(&mut core, 51).pool.cards[0].devices[0].taints[0].time_added, None);
}

#[test]
fn nothing_is_published_until_every_card_that_answers_was_read() {
    let mut core = core(Memory::default(), 0);
    let lost = crate::nvml::Scan {
        count: Ok(3),
        missing: vec![missing(2, Code::GPU_IS_LOST)],
        ..scan((0..2).map(gpu).collect())
    };
    core.observe(&opened_with(lost), Some(&bus(0..3)), at(0));
    assert!(core.heard() && !core.is_read());
    core.observe(&read(0, healthy()), None, at(0));
    assert!(!core.is_read(), "one card is not read yet");
    core.observe(&read(1, healthy()), None, at(0));
    assert!(core.is_read(), "the lost card cannot be read, and is not waited for");

    core.observe(&opened(vec![gpu(0), gpu(1)]), Some(&bus(0..2)), at(9));
    assert!(!core.is_read(), "NVML was opened again, and nobody saw what happened meanwhile");
    core.go_on_unread();
    assert!(core.is_read());
    core.observe(&opened(vec![gpu(0), gpu(1)]), Some(&bus(0..2)), at(10));
    core.observe(&unavailable(), None, at(11));
    assert!(core.is_read(), "NVML is away again: that is what there is to publish");
}

#[test]
fn partitions_of_a_card_stay_together_and_share_its_taints() {
    let mut core = core(Memory::default(), 0);
    core.observe(&opened(vec![partitioned(0, &[(1, 0), (2, 0)]), gpu(1)]), Some(&bus(0..2)), at(0));
    core.observe(&xid(0, 79), None, at(1));
    let view = view(&mut core, 1);
    let sizes: Vec<_> = view.pool.cards.iter().map(|card| card.devices.len()).collect();
    assert_eq!((sizes, taints(&view).len()), (vec![2, 1], 2));
}

fn offer(which: Which) -> Offer {
    Offer { owner: Owner::Driver { name: "gpu.nvidia.com".to_owned() }, which }
}

/// Names of the devices in the pool.
fn offered(view: &View) -> Vec<&str> {
    view.pool.cards.iter().flat_map(|card| &card.devices).map(|device| device.name.as_str()).collect()
}

#[test]
fn a_card_that_another_driver_lists_is_not_offered_and_comes_back() {
    let mut core = running(3);
    let pci = core.inventory().device(&name(1)).unwrap().pci;
    for which in [Which::At(pci), Which::Is(uuid(1).to_lowercase())] {
        core.heed(&[offer(which)].into());
        let view = view(&mut core, 1);
        assert_eq!(offered(&view), [name(0), name(2)]);
        assert_eq!(view.contested.keys().collect::<Vec<_>>(), [&pci]);
        let owner = |card| view.devices.0[&name(card)].other_owner.as_deref();
        assert_eq!([owner(0), owner(1), owner(2)], [None, Some("driver gpu.nvidia.com"), None]);
        assert_eq!(view.report.devices.len(), 3, "the health of what runs on it is reported on");
    }
    core.heed(&[].into());
    let view = view(&mut core, 2);
    assert_eq!((offered(&view).len(), view.contested.len()), (3, 0));
}

#[test]
fn a_device_plugin_leaves_an_empty_pool() {
    let mut core = running(2);
    let owner = Owner::Plugin { resource: "nvidia.com/gpu".to_owned() };
    core.heed(&[Offer { owner, which: Which::Any }].into());
    let view = view(&mut core, 1);
    assert_eq!((offered(&view), view.devices.0.len()), (vec![], 2));
}

#[test]
fn a_partition_of_another_owner_contests_its_whole_card() {
    let mut core = core(Memory::default(), 0);
    core.observe(&opened(vec![partitioned(0, &[(1, 0), (2, 0)]), gpu(1)]), Some(&bus(0..2)), at(0));
    let partition = core.inventory().devices().find_map(|device| device.parent.is_some().then(|| device.uuid.clone()));
    core.heed(&[offer(Which::Is(partition.flatten().unwrap().to_lowercase()))].into());
    assert_eq!(offered(&view(&mut core, 1)), [name(1)]);
}

fn mark(device: &str, uuid: &str) -> Intent {
    let taint = taints::Taint {
        key: "devicetaint.dev/maintenance".into(),
        value: "fan".into(),
        effect: taints::Effect::NoExecute,
        time_added: Some(at(3)),
    };
    Intent { mark: "dt-1".into(), device: device.into(), uuid: Some(uuid.into()), serial: None, taint }
}

#[test]
fn a_mark_is_published_remembered_and_told_once() {
    let mut core = running(2);
    assert!(!core.knows_marks());
    let outcome = core.follow_marks(&[mark(&name(1), &uuid(1))]);
    assert!(outcome.changed && outcome.persist && core.knows_marks());
    let wanted = [format!("{} devicetaint.dev/maintenance=fan:NoExecute", name(1))];
    let seen = view(&mut core, 5);
    assert_eq!(taints(&seen), wanted);
    let news = core.mark_news(&seen.pool);
    assert!(news.len() == 1 && !news[0].is_problem && news[0].text.contains("dt-1"), "{news:?}");
    assert_eq!((core.mark_news(&seen.pool), core.marks_by_standing()["published"]), (vec![], 1));
    assert!(!core.follow_marks(&[mark(&name(1), &uuid(1))]).changed);

    let mut again = self::core(core.memory(), 10);
    again.observe(&opened((0..2).map(gpu).collect()), Some(&bus(0..2)), at(10));
    assert!(!again.knows_marks());
    assert!(again.go_on_without_marks().changed);
    assert_eq!(taints(&view(&mut again, 10)), wanted, "what is remembered stands while marks cannot be read");
    assert!(again.follow_marks(&[]).persist);
    assert_eq!(taints(&view(&mut again, 11)), Vec::<String>::new());
}

#[test]
fn a_mark_for_another_card_is_told_and_not_followed() {
    let mut core = running(1);
    core.follow_marks(&[mark(&name(0), "GPU-elsewhere")]);
    let seen = view(&mut core, 5);
    assert_eq!(taints(&seen), Vec::<String>::new());
    let news = core.mark_news(&seen.pool);
    assert!(news[0].is_problem && news[0].text.contains("means another card now"), "{news:?}");
    core.follow_marks(&[]);
    assert_eq!(core.mark_news(&seen.pool)[0].text, "mark dt-1 is gone");
}

#[test]
fn a_mark_of_a_card_that_another_owner_offers_is_told_as_that() {
    let mut core = running(2);
    core.follow_marks(&[mark(&name(1), &uuid(1))]);
    let pci = core.inventory().device(&name(1)).unwrap().pci;
    core.heed(&[offer(Which::At(pci))].into());
    let seen = view(&mut core, 5);
    assert_eq!(taints(&seen), Vec::<String>::new());
    let news = core.mark_news(&seen.pool);
    assert!(news[0].is_problem && news[0].text.contains("another owner offers the card"), "{news:?}");
    core.heed(&[].into());
    let seen = view(&mut core, 6);
    assert!(!core.mark_news(&seen.pool)[0].is_problem);
}

/// Nobody should believe that a taint is there which the server would not take.
#[test]
fn a_mark_that_the_server_has_no_room_or_no_word_for_is_told_as_left_out() {
    let named = |number: usize, effect: taints::Effect| {
        let mut intent = mark(&name(0), &uuid(0));
        intent.mark = format!("dt-{number}");
        intent.taint.key = format!("example.org/k{number}");
        intent.taint.effect = effect;
        intent
    };
    let mut core = running(1);
    let many: Vec<Intent> = (0..5).map(|number| named(number, taints::Effect::NoSchedule)).collect();
    core.follow_marks(&[many, vec![named(9, taints::Effect::None)]].concat());
    let old = Limits { taints: 4, effect_none: false, ..Limits::CURRENT };
    let seen = core.view(&old, at(5));
    let news = core.mark_news(&seen.pool);
    let left_out: Vec<&str> = news.iter().filter(|news| news.is_problem).map(|news| &news.text[..9]).collect();
    assert_eq!(left_out, ["mark dt-3", "mark dt-4", "mark dt-9"], "{news:?}");
    assert!(news[5].text.contains("not in the ResourceSlice as such"), "{news:?}");
    assert_eq!((core.marks_by_standing()["published"], core.marks_by_standing()["left_out"]), (3, 3));
    let seen = view(&mut core, 6);
    core.mark_news(&seen.pool);
    assert_eq!(core.marks_by_standing().into_iter().collect::<Vec<_>>(), [("published", 6)]);
}

#[test]
fn a_mark_says_nothing_of_health() {
    let mut core = running(1);
    core.follow_marks(&[mark(&name(0), &uuid(0))]);
    assert_eq!(view(&mut core, 5).report.devices[0].state, HealthState::Healthy);
}
