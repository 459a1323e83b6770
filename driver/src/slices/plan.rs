//! From the slices that exist to the slices that should: which writes, in which order. Pure.
//!
//! The rules are those of Kubernetes' own helper (`dynamic-resource-allocation/resourceslice`): all slices of a pool carry the same
//! generation and their number, or the pool is incomplete and nothing new is allocated from it. So a generation is kept
//! whenever at most one existing slice changes and none comes or goes, and raised on all of them otherwise. Objects that
//! match no wanted slice are deleted first; then come updates, then creations.

use std::collections::BTreeMap;

use super::model::{Device, PoolRef};

/// A slice as the server has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// The object's name. Begins with the slice's index in hex: see [`index_of`].
    pub name: String,
    /// The UID: a delete carries it.
    pub uid: String,
    /// The version: a patch and a delete carry it.
    pub resource_version: String,
    /// The pool that it says it is of. `None` for an object whose spec could not be read: it is ours by driver and node, and in the way.
    pub pool: Option<PoolRef>,
    /// Its devices.
    pub devices: Vec<Device>,
}

/// What earlier writes of this process taught about generations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Known {
    /// The highest generation that was ever seen or written: never written again once its slices were wiped.
    pub highest: i64,
    /// The highest generation at which the pool was complete. Slices of it are not added to later.
    pub complete: i64,
}

/// A write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Delete an object that matches no wanted slice, if it is still the one that was seen.
    Delete {
        /// The object's name.
        name: String,
        /// Its UID.
        uid: String,
        /// Its version.
        resource_version: String,
    },
    /// Rewrite an existing slice, if it is still at the version that was seen.
    Update {
        /// The object's name.
        name: String,
        /// Its version.
        resource_version: String,
        /// Which wanted slice.
        index: usize,
        /// The pool part of the spec.
        pool: PoolRef,
    },
    /// Create a slice.
    Create {
        /// Which wanted slice.
        index: usize,
        /// The pool part of the spec.
        pool: PoolRef,
    },
}

/// The index of the wanted slice that an object of this name stands for: five or more lower-case hex digits, then `-`.
/// `None` for a name that someone else gave.
#[must_use]
pub fn index_of(name: &str) -> Option<usize> {
    let (digits, _) = name.split_once('-')?;
    let hex = |c: char| c.is_ascii_digit() || ('a'..='f').contains(&c);
    (digits.len() >= 5 && digits.chars().all(hex)).then(|| usize::from_str_radix(digits, 16).ok()).flatten()
}

/// `generateName` of a slice: the index in hex first, since that must survive; driver and node are for people and cut to fit.
/// The server appends five characters; an object's name holds 253.
#[must_use]
pub fn generate_name(index: usize, driver: &str, node: &str) -> String {
    const ROOM: usize = 253 - 5;
    let mut name = format!("{index:05x}-{driver}-{node}");
    name.truncate(ROOM - 1);
    let kept = name.trim_end_matches(|c: char| !c.is_ascii_alphanumeric()).len();
    name.truncate(kept);
    name.push('-');
    name
}

/// The writes that make `stored` become `wanted` in the pool of this name. `same(index, stored)` says whether a stored slice
/// already holds what is wanted. Empty when nothing is to do.
pub fn plan(
    pool: &str,
    stored: &[Stored],
    wanted: &[Vec<Device>],
    known: Known,
    same: impl Fn(usize, &Stored) -> bool,
) -> Vec<Step> {
    let (kept, obsolete) = match_up(pool, stored, wanted.len());
    let count = i64::try_from(wanted.len()).unwrap_or(i64::MAX);
    let top = stored.iter().filter_map(|slice| slice.pool.as_ref()).map(|pool| pool.generation).max().unwrap_or(0);
    let view = View { kept: &kept, obsolete: &obsolete, count, top };
    let keep_generation = view.may_keep(wanted.len(), known, &same);
    let generation = if keep_generation { top } else { top.max(known.highest).saturating_add(1) };
    let pool = PoolRef { name: pool.to_owned(), generation, resource_slice_count: count };

    let deletes = obsolete.iter().map(|slice| Step::Delete {
        name: slice.name.clone(),
        uid: slice.uid.clone(),
        resource_version: slice.resource_version.clone(),
    });
    let updates = kept.iter().filter(|(index, slice)| slice.pool.as_ref() != Some(&pool) || !same(**index, slice)).map(
        |(index, slice)| Step::Update {
            name: slice.name.clone(),
            resource_version: slice.resource_version.clone(),
            index: *index,
            pool: pool.clone(),
        },
    );
    let creates = (0..wanted.len())
        .filter(|index| !kept.contains_key(index))
        .map(|index| Step::Create { index, pool: pool.clone() });
    deletes.chain(updates).chain(creates).collect()
}

/// The best object for each wanted index, and the rest. Of two for one index the higher generation wins, then the name.
fn match_up<'a>(pool: &str, stored: &'a [Stored], wanted: usize) -> (BTreeMap<usize, &'a Stored>, Vec<&'a Stored>) {
    let mut sorted: Vec<&Stored> = stored.iter().collect();
    sorted.sort_by_key(|slice| (std::cmp::Reverse(slice.pool.as_ref().map(|pool| pool.generation)), &slice.name));
    let mut kept = BTreeMap::new();
    let mut obsolete = Vec::new();
    for slice in sorted {
        let ours = slice.pool.as_ref().is_some_and(|p| p.name == pool);
        match index_of(&slice.name).filter(|index| ours && *index < wanted && !kept.contains_key(index)) {
            Some(index) => {
                kept.insert(index, slice);
            }
            None => obsolete.push(slice),
        }
    }
    (kept, obsolete)
}

struct View<'a> {
    kept: &'a BTreeMap<usize, &'a Stored>,
    obsolete: &'a [&'a Stored],
    count: i64,
    top: i64,
}

impl View<'_> {
    /// Whether the writes may be made at the highest generation that exists: when the pool is complete there and one slice at
    /// most changes; or when it was never complete there and what stands there is right, so that it only has to be finished.
    fn may_keep(&self, wanted: usize, known: Known, same: &impl Fn(usize, &Stored) -> bool) -> bool {
        if self.kept.is_empty() || self.obsolete.iter().any(|slice| self.at_top(slice)) {
            return false;
        }
        let at_top = self.kept.iter().filter(|(_, slice)| self.at_top(slice));
        if !at_top.clone().all(|(_, slice)| slice.pool.as_ref().is_some_and(|p| p.resource_slice_count == self.count)) {
            return false;
        }
        let changed = at_top.clone().filter(|(index, slice)| !same(**index, slice)).count();
        let complete = at_top.count() == wanted;
        if complete { changed <= 1 } else { changed == 0 && self.top > known.complete }
    }

    fn at_top(&self, slice: &Stored) -> bool {
        slice.pool.as_ref().is_some_and(|pool| pool.generation == self.top)
    }
}

/// Whether the slices are a complete pool: all of the highest generation, as many as they say.
#[must_use]
pub fn complete_generation(stored: &[Stored]) -> Option<i64> {
    let pools: Vec<&PoolRef> = stored.iter().filter_map(|slice| slice.pool.as_ref()).collect();
    let top = pools.iter().map(|pool| pool.generation).max()?;
    let at_top: Vec<_> = pools.iter().filter(|pool| pool.generation == top).collect();
    let count = i64::try_from(at_top.len()).unwrap_or(i64::MAX);
    at_top.iter().all(|pool| pool.resource_slice_count == count).then_some(top)
}

#[cfg(test)]
mod tests;
