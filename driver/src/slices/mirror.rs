//! What the server is known to hold, and what it made of our writes. Pure: observations in, plans out.
//!
//! The server may store something else than it was sent: a moment in every taint, or nothing where a feature is off. So what
//! came back is *adopted*: a slice is right when it holds what the server made of the very same wish, and no loop begins.

use std::collections::BTreeMap;

use taints::Taint;

use super::model::{Device, PoolRef};
use super::plan::{self, Known, Step, Stored};

/// The attribute that tells which card a device's name means: a moment is only carried over to the same card.
const UUID: &str = "gpu.nvidia.com/uuid";

/// The slices of this driver on this node, as last seen, and what was learned from writing them.
#[derive(Clone, Debug, Default)]
pub struct Mirror {
    pool: String,
    stored: BTreeMap<String, Stored>,
    known: Known,
    adopted: BTreeMap<usize, Adopted>,
}

/// A wish, and what the server made of it.
#[derive(Clone, Debug)]
struct Adopted {
    sent: Vec<Device>,
    got: Vec<Device>,
}

/// The taints of a device as the server holds them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StoredTaints {
    uuid: Option<String>,
    /// With the moments that the server's clock gave them.
    pub taints: Vec<Taint>,
}

impl StoredTaints {
    /// Of a device as it is stored.
    #[must_use]
    pub fn of(device: &Device) -> Self {
        Self { uuid: device.text(UUID).map(ToOwned::to_owned), taints: device.taints.clone() }
    }

    /// Whether they were put on the hardware that `device` is, as far as both tell: a name may mean another card by now.
    #[must_use]
    pub fn are_of(&self, device: &Device) -> bool {
        same_uuid(self.uuid.as_deref(), device.text(UUID))
    }
}

/// What the server left out of a write.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// Taints that were sent and are not there: the feature gate `DRADeviceTaints` is off.
    pub taints: usize,
    /// Devices, attributes or capacities that were sent and are not there.
    pub others: usize,
}

impl Mirror {
    /// Of the pool of this name; nothing is known yet.
    #[must_use]
    pub fn new(pool: &str) -> Self {
        Self { pool: pool.to_owned(), ..Self::default() }
    }

    /// A list: what is not in it is not there.
    pub fn replace(&mut self, list: impl IntoIterator<Item = Stored>) {
        self.stored = list.into_iter().map(|slice| (slice.name.clone(), slice)).collect();
        self.learn();
    }

    /// An object as a watch told it. An older version than the known one is news of our own earlier write, and ignored.
    /// Returns whether anything changed.
    pub fn observe(&mut self, slice: Stored) -> bool {
        let old = self.stored.get(&slice.name);
        if old.is_some_and(|old| old.uid == slice.uid && !is_newer(&slice.resource_version, &old.resource_version)) {
            return false;
        }
        self.stored.insert(slice.name.clone(), slice);
        self.learn();
        true
    }

    /// An object is gone. Returns whether it was known.
    pub fn forget(&mut self, name: &str, uid: &str) -> bool {
        let known = self.stored.get(name).is_some_and(|slice| slice.uid == uid);
        if known {
            self.stored.remove(name);
        }
        known
    }

    /// Whether the server holds no slice of ours.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.stored.is_empty()
    }

    /// The server's answer to a write of the wanted slice `index`.
    pub fn wrote(&mut self, index: usize, sent: Vec<Device>, answer: Stored) -> Dropped {
        let dropped = dropped(&sent, &answer.devices);
        self.adopted.insert(index, Adopted { sent, got: answer.devices.clone() });
        self.stored.insert(answer.name.clone(), answer);
        self.learn();
        dropped
    }

    /// The writes that are left to do.
    #[must_use]
    pub fn plan(&self, wanted: &[Vec<Device>]) -> Vec<Step> {
        let stored: Vec<Stored> = self.stored.values().cloned().collect();
        plan::plan(&self.pool, &stored, wanted, self.known, |index, slice| self.holds(index, slice, &wanted[index]))
    }

    /// The wish with the moments that the server gave to the same taints of the same cards: a later write must repeat them, or the
    /// server would count anew. A moment that the wish brings itself, from an earlier life of this process, stays.
    #[must_use]
    pub fn with_times(&self, mut wanted: Vec<Vec<Device>>) -> Vec<Vec<Device>> {
        let stored: BTreeMap<&str, &Device> = self
            .stored
            .values()
            .flat_map(|slice| &slice.devices)
            .map(|device| (device.name.as_str(), device))
            .collect();
        for device in wanted.iter_mut().flatten() {
            let Some(old) = stored.get(device.name.as_str()).filter(|old| same_card(old, device)) else { continue };
            for taint in device.taints.iter_mut().filter(|taint| taint.time_added.is_none()) {
                taint.time_added = old.taints.iter().find(|t| same_taint(t, taint)).and_then(|t| t.time_added);
            }
        }
        wanted
    }

    /// The taints of each device as the server holds them, with their moments.
    #[must_use]
    pub fn taints(&self) -> BTreeMap<String, StoredTaints> {
        let devices = self.stored.values().flat_map(|slice| &slice.devices);
        devices.map(|device| (device.name.clone(), StoredTaints::of(device))).collect()
    }

    /// The server keeps taints by now: what was written without them counts as not written.
    pub fn doubt(&mut self) {
        self.adopted.retain(|_, adopted| dropped(&adopted.sent, &adopted.got).taints == 0);
    }

    /// Taints of the wish that the server does not keep.
    #[must_use]
    pub fn dropped_taints(&self) -> usize {
        self.adopted.values().map(|adopted| dropped(&adopted.sent, &adopted.got).taints).sum()
    }

    fn holds(&self, index: usize, slice: &Stored, wanted: &[Device]) -> bool {
        if slice.devices == wanted {
            return true;
        }
        self.adopted.get(&index).is_some_and(|adopted| {
            adopted.got == slice.devices
                && timeless(&adopted.sent) == timeless(wanted)
                && times_agree(wanted, &adopted.got)
        })
    }

    fn learn(&mut self) {
        let generation = |pool: &PoolRef| pool.generation;
        let top = self.stored.values().filter_map(|slice| slice.pool.as_ref()).map(generation).max();
        let stored: Vec<Stored> = self.stored.values().cloned().collect();
        self.known.highest = self.known.highest.max(top.unwrap_or(0));
        self.known.complete = self.known.complete.max(plan::complete_generation(&stored).unwrap_or(0));
    }
}

/// Whether the version is later. Versions are decimal numbers that grow (Kubernetes 1.35 promises it, older ones do it); of
/// versions that are not, any other one counts as later.
fn is_newer(version: &str, than: &str) -> bool {
    match (version.parse::<u128>(), than.parse::<u128>()) {
        (Ok(version), Ok(than)) => version > than,
        _ => version != than,
    }
}

fn same_card(a: &Device, b: &Device) -> bool {
    same_uuid(a.text(UUID), b.text(UUID))
}

fn same_uuid(a: Option<&str>, b: Option<&str>) -> bool {
    match (a, b) {
        (Some(a), Some(b)) => a == b,
        _ => true,
    }
}

fn same_taint(a: &Taint, b: &Taint) -> bool {
    a.key == b.key && a.value == b.value && a.effect == b.effect
}

fn timeless(devices: &[Device]) -> Vec<Device> {
    let mut devices = devices.to_vec();
    for taint in devices.iter_mut().flat_map(|device| &mut device.taints) {
        taint.time_added = None;
    }
    devices
}

/// Whether every moment that the wish names stands in what the server holds, for the taints that it holds.
fn times_agree(wanted: &[Device], got: &[Device]) -> bool {
    wanted.iter().all(|device| {
        let Some(stored) = got.iter().find(|stored| stored.name == device.name) else { return true };
        device.taints.iter().filter(|taint| taint.time_added.is_some()).all(|taint| {
            stored.taints.iter().find(|t| same_taint(t, taint)).is_none_or(|t| t.time_added == taint.time_added)
        })
    })
}

fn dropped(sent: &[Device], got: &[Device]) -> Dropped {
    let mut dropped = Dropped::default();
    for device in sent {
        let Some(stored) = got.iter().find(|stored| stored.name == device.name) else {
            dropped.others += 1;
            continue;
        };
        let lost = |taint: &&Taint| !stored.taints.iter().any(|t| same_taint(t, taint));
        dropped.taints += device.taints.iter().filter(lost).count();
        dropped.others += device.attributes.keys().filter(|name| !stored.attributes.contains_key(*name)).count();
        dropped.others += device.capacity.keys().filter(|name| !stored.capacity.contains_key(*name)).count();
    }
    dropped
}

#[cfg(test)]
mod tests {
    use super::super::model::{Attribute, Device, PoolRef};
    use super::super::plan::{Step, Stored};
    use super::{Dropped, Mirror, is_newer};
    use jiff::Timestamp;
    use taints::{Effect, Taint};

    fn device(uuid: &str, taints: &[(&str, Option<i64>)]) -> Device {
        let taint = |(key, at): &(&str, Option<i64>)| Taint {
            key: (*key).to_owned(),
            value: String::new(),
            effect: Effect::NoSchedule,
            time_added: at.map(|at| Timestamp::from_second(at).unwrap()),
        };
        Device {
            name: "gpu-0".to_owned(),
            attributes: [("gpu.nvidia.com/uuid".to_owned(), Attribute::String(uuid.to_owned()))].into(),
            capacity: [].into(),
            taints: taints.iter().map(taint).collect(),
        }
    }

    fn stored(device: Device, version: &str) -> Stored {
        Stored {
            name: "00000-d-n-abc".to_owned(),
            uid: "u".to_owned(),
            resource_version: version.to_owned(),
            pool: Some(PoolRef { name: "n".to_owned(), generation: 1, resource_slice_count: 1 }),
            devices: vec![device],
        }
    }

    fn with(device: Device, version: &str) -> Mirror {
        let mut mirror = Mirror::new("n");
        mirror.replace([stored(device, version)]);
        mirror
    }

    #[test]
    fn the_servers_moment_is_repeated_on_the_same_card_only() {
        let mirror = with(device("GPU-a", &[("k", Some(100))]), "1");
        let time =
            |device: Device| mirror.with_times(vec![vec![device]])[0][0].taints[0].time_added.map(Timestamp::as_second);
        assert_eq!(time(device("GPU-a", &[("k", None)])), Some(100));
        assert_eq!(time(device("GPU-a", &[("k", Some(50))])), Some(50), "what was persisted wins");
        assert_eq!(time(device("GPU-a", &[("other", None)])), None);
        assert_eq!(time(device("GPU-b", &[("k", None)])), None, "another card under the same name");
    }

    #[test]
    fn a_server_that_drops_taints_is_taken_at_its_word_once() {
        let mut mirror = with(device("GPU-a", &[]), "1");
        let wanted = vec![vec![device("GPU-a", &[("k", None)])]];
        assert_eq!(mirror.plan(&wanted).len(), 1);
        let dropped = mirror.wrote(0, wanted[0].clone(), stored(device("GPU-a", &[]), "2"));
        assert_eq!(dropped, Dropped { taints: 1, others: 0 });
        assert_eq!((mirror.plan(&wanted), mirror.dropped_taints()), (vec![], 1));
        let more = vec![vec![device("GPU-a", &[("k", None), ("l", None)])]];
        assert_eq!(mirror.plan(&more).len(), 1, "another wish is tried");
        mirror.doubt();
        assert_eq!(mirror.plan(&wanted).len(), 1, "once the server is said to keep taints, the same wish is tried too");
    }

    #[test]
    fn a_stored_answer_with_times_needs_no_further_write() {
        let mut mirror = with(device("GPU-a", &[]), "1");
        let wanted = vec![vec![device("GPU-a", &[("k", None)])]];
        mirror.wrote(0, wanted[0].clone(), stored(device("GPU-a", &[("k", Some(7))]), "2"));
        assert_eq!(mirror.plan(&mirror.with_times(wanted.clone())), []);
        let other_time = vec![vec![device("GPU-a", &[("k", Some(3))])]];
        assert_eq!(mirror.plan(&other_time).len(), 1, "a persisted moment is put back");
        assert_eq!(mirror.taints()["gpu-0"].taints[0].time_added.map(Timestamp::as_second), Some(7));
    }

    #[test]
    fn a_foreign_change_of_an_adopted_slice_is_undone() {
        let mut mirror = with(device("GPU-a", &[]), "1");
        let wanted = vec![vec![device("GPU-a", &[("k", None)])]];
        mirror.wrote(0, wanted[0].clone(), stored(device("GPU-a", &[("k", Some(7))]), "2"));
        assert!(mirror.observe(stored(device("GPU-a", &[]), "3")));
        assert!(matches!(&mirror.plan(&mirror.with_times(wanted))[..], [Step::Update { .. }]));
    }

    #[test]
    fn late_news_of_an_earlier_write_change_nothing() {
        let mut mirror = with(device("GPU-a", &[]), "10");
        assert!(!mirror.observe(stored(device("GPU-b", &[]), "9")));
        assert!(!mirror.observe(stored(device("GPU-b", &[]), "10")));
        assert!(mirror.observe(stored(device("GPU-b", &[]), "11")));
        assert!(!mirror.forget("00000-d-n-abc", "another"));
        assert!(mirror.forget("00000-d-n-abc", "u"));
        assert!(is_newer("x", "y") && !is_newer("x", "x"));
    }
}
