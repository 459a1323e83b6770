//! One pool of devices: its slices, which of them count, the hardware last seen under each name, and who uses each device.
//!
//! Only slices of the newest generation count. A slice object that already existed while a higher generation was there is stale
//! for good: when the newer ones vanish it counts as missing, not as the truth again. A slice object made later counts at any
//! generation, since the kubelet wipes a node's slices and a driver may begin its pool again at 1. Where two objects are met in
//! any order, as in a list, their creation times say which came later.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::fmt;

use crate::object::{Device, Identity, Key, Slice};

/// Why a pool is not allocated from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PoolProblem {
    /// Slices of the newest generation are missing.
    Incomplete {
        /// How many are there.
        have: usize,
        /// How many each of them says there are.
        expected: i64,
    },
    /// A device is listed twice.
    Duplicate {
        /// The device's name.
        device: String,
    },
}

impl fmt::Display for PoolProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incomplete { have, expected } => {
                write!(f, "the pool is incomplete: {have} of {expected} slices of its newest generation are there")
            }
            Self::Duplicate { device } => write!(f, "the pool lists device {device} twice"),
        }
    }
}

/// What a pool looks like now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolState {
    /// The newest generation; absent when no slice counts.
    pub generation: Option<i64>,
    /// How many slices of that generation are there.
    pub slices: usize,
    /// How many it should have.
    pub expected: i64,
    /// How many slice objects are there that do not count.
    pub outdated: usize,
    /// Why it is not allocated from, if so.
    pub problem: Option<PoolProblem>,
}

#[derive(Debug)]
struct Part {
    slice: Slice,
    stale: bool,
}

/// Where a device is written: the slice's name and the position in it.
type Place = (String, usize);

#[derive(Debug, Default)]
pub(super) struct Pool {
    parts: BTreeMap<String, Part>,
    newest: Option<i64>,
    places: HashMap<String, Vec<Place>>,
    /// The hardware last seen under each name, and the generation that said so.
    identities: HashMap<String, (i64, Identity)>,
    users: HashMap<String, BTreeSet<Key>>,
}

impl Pool {
    /// Takes a slice as it is now; answers with the used devices that it may have altered.
    pub(super) fn set(&mut self, slice: Slice) -> Vec<String> {
        let old = self.unplace(&slice.name);
        // Another UID is another object: what is remembered of the old one does not apply.
        let known = old.as_ref().filter(|part| part.slice.uid == slice.uid);
        let stale = self.is_stale(&slice, known);
        if known.is_none_or(|known| known.slice.generation < slice.generation) {
            self.mark_older_stale(&slice, known.is_none());
        }
        let name = slice.name.clone();
        self.place(Part { slice, stale });
        self.settle(old.as_ref(), Some(&name))
    }

    /// Removes a slice; answers with the used devices that this may have altered.
    pub(super) fn remove(&mut self, name: &str) -> Vec<String> {
        let old = self.unplace(name);
        self.settle(old.as_ref(), None)
    }

    fn place(&mut self, part: Part) {
        for (position, device) in part.slice.devices.iter().enumerate() {
            let places = self.places.entry(device.name.clone()).or_default();
            places.push((part.slice.name.clone(), position));
            places.sort();
        }
        self.parts.insert(part.slice.name.clone(), part);
    }

    fn unplace(&mut self, name: &str) -> Option<Part> {
        let part = self.parts.remove(name)?;
        for device in &part.slice.devices {
            let Some(places) = self.places.get_mut(&device.name) else { continue };
            places.retain(|(slice, _)| slice != name);
            if places.is_empty() {
                self.places.remove(&device.name);
            }
        }
        Some(part)
    }

    /// Whether a slice existed while a higher generation was there.
    fn is_stale(&self, slice: &Slice, known: Option<&Part>) -> bool {
        let mut higher = self.parts.values().filter(|part| part.slice.generation > slice.generation);
        match known {
            // A new generation is a new publication of its driver.
            Some(known) if known.slice.generation < slice.generation => higher.next().is_some(),
            Some(known) => known.stale,
            None => higher.any(|part| existed_before(slice, &part.slice).unwrap_or(false)),
        }
    }

    /// Marks what existed before a slice of a higher generation came.
    fn mark_older_stale(&mut self, slice: &Slice, is_new: bool) {
        for part in self.parts.values_mut().filter(|part| part.slice.generation < slice.generation) {
            part.stale |= !is_new || existed_before(&part.slice, slice).unwrap_or(true);
        }
    }

    fn find_newest(&self) -> Option<i64> {
        self.parts.values().filter(|part| !part.stale).map(|part| part.slice.generation).max()
    }

    /// The used devices that differ, for verdicts, between two versions of one slice, each where it counts.
    fn altered(&self, old: Option<&Slice>, new: Option<&Slice>) -> Vec<String> {
        if self.users.is_empty() {
            return Vec::new();
        }
        let (old, new) = (self.used_of(old), self.used_of(new));
        let names: BTreeSet<&str> = old.keys().chain(new.keys()).copied().collect();
        let same = |name: &str| match (old.get(name), new.get(name)) {
            (Some(a), Some(b)) => a.taints == b.taints && a.identity == b.identity,
            _ => false,
        };
        names.into_iter().filter(|name| !same(name)).map(str::to_owned).collect()
    }

    /// The devices of a slice that some claim has. Of two with one name the first counts, here as everywhere.
    fn used_of<'a>(&self, slice: Option<&'a Slice>) -> HashMap<&'a str, &'a Device> {
        let mut used = HashMap::new();
        for device in slice.into_iter().flat_map(|slice| &slice.devices) {
            if self.users.contains_key(&device.name) {
                used.entry(device.name.as_str()).or_insert(device);
            }
        }
        used
    }

    /// Finds the newest generation after a slice came or went, remembers the hardware that is there now, and answers with the
    /// used devices that differ: those of the slice, or all where other slices count now.
    fn settle(&mut self, old: Option<&Part>, came: Option<&str>) -> Vec<String> {
        let before = self.newest;
        let old = old.filter(|part| self.counts(part)).map(|part| &part.slice);
        self.newest = self.find_newest();
        if before != self.newest {
            let slices: Vec<String> = self.parts.keys().cloned().collect();
            for slice in &slices {
                self.remember(slice);
            }
            return self.users.keys().cloned().collect();
        }
        let renamed = came.map(|slice| self.remember(slice)).unwrap_or_default();
        let new = came.and_then(|name| self.parts.get(name)).filter(|part| self.counts(part));
        self.altered(old, new.map(|part| &part.slice)).into_iter().chain(renamed).collect()
    }

    /// The hardware last seen under a name is that of the slices that count, else of the highest generation, in whatever order
    /// they came. Answers with the names that mean something else now.
    fn remember(&mut self, slice: &str) -> Vec<String> {
        let mut renamed = Vec::new();
        let Some(part) = self.parts.get(slice) else { return renamed };
        let (counts, generation) = (self.counts(part), part.slice.generation);
        let mut seen = HashSet::new();
        let first = part.slice.devices.iter().filter(|device| seen.insert(&device.name));
        for device in first.filter(|device| device.identity.is_known()) {
            match self.identities.get_mut(&device.name) {
                Some((known, _)) if !counts && *known >= generation => {}
                Some((known, identity)) if *identity == device.identity => *known = generation,
                _ => {
                    self.identities.insert(device.name.clone(), (generation, device.identity.clone()));
                    renamed.push(device.name.clone());
                }
            }
        }
        renamed
    }

    fn counts(&self, part: &Part) -> bool {
        !part.stale && Some(part.slice.generation) == self.newest
    }

    /// The slices that count, by name.
    pub(super) fn current(&self) -> impl Iterator<Item = &Slice> {
        self.parts.values().filter(|part| self.counts(part)).map(|part| &part.slice)
    }

    /// All slice objects, by name.
    pub(super) fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.parts.values().map(|part| &part.slice)
    }

    pub(super) fn slice(&self, name: &str) -> Option<&Slice> {
        self.parts.get(name).map(|part| &part.slice)
    }

    /// A device of the newest generation, and the slice that lists it.
    pub(super) fn device(&self, name: &str) -> Option<(&Slice, &Device)> {
        self.places.get(name)?.iter().find_map(|(slice, position)| {
            let part = self.parts.get(slice).filter(|part| self.counts(part))?;
            Some((&part.slice, part.slice.devices.get(*position)?))
        })
    }

    pub(super) fn last_identity(&self, name: &str) -> Option<&Identity> {
        self.identities.get(name).map(|(_, identity)| identity)
    }

    pub(super) fn state(&self) -> PoolState {
        let slices = self.current().count();
        let expected = self.current().next().map_or(0, |slice| slice.slice_count);
        let problem = self.problem(slices, expected);
        PoolState { generation: self.newest, slices, expected, outdated: self.parts.len() - slices, problem }
    }

    fn problem(&self, have: usize, expected: i64) -> Option<PoolProblem> {
        if i64::try_from(have) != Ok(expected) {
            return Some(PoolProblem::Incomplete { have, expected });
        }
        let mut seen = BTreeSet::new();
        let mut devices = self.current().flat_map(|slice| &slice.devices);
        let twice = devices.find(|device| !seen.insert(&device.name))?;
        Some(PoolProblem::Duplicate { device: twice.name.clone() })
    }

    pub(super) fn add_user(&mut self, device: &str, claim: &Key) {
        self.users.entry(device.to_owned()).or_default().insert(claim.clone());
    }

    pub(super) fn remove_user(&mut self, device: &str, claim: &Key) {
        let Some(claims) = self.users.get_mut(device) else { return };
        claims.remove(claim);
        if claims.is_empty() {
            self.users.remove(device);
        }
    }

    /// The claims that have a device.
    pub(super) fn users(&self, device: &str) -> impl Iterator<Item = &Key> {
        self.users.get(device).into_iter().flatten()
    }

    /// The devices that some claim has.
    pub(super) fn used(&self) -> impl Iterator<Item = &String> {
        self.users.keys()
    }

    /// Whether nothing would be lost by forgetting the pool.
    pub(super) fn is_empty(&self) -> bool {
        self.parts.is_empty() && self.users.is_empty()
    }
}

/// Whether the first of two slice objects was made no later than the second; `None` where a creation time is missing.
fn existed_before(first: &Slice, second: &Slice) -> Option<bool> {
    Some(first.created? <= second.created?)
}
