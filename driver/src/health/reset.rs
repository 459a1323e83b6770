//! How to see that a card was reset, its driver reloaded, or the node rebooted: nobody announces it, but counters that only
//! grow fall, and flags that only a reset takes down are down.

use serde::{Deserialize, Serialize};

use crate::nvml::Snapshot;

/// Values of a card that a reset or a driver reload sets back. Unknown ones keep their last value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Baseline {
    /// Corrected memory errors since driver load or reset.
    pub corrected: Option<u64>,
    /// Uncorrected memory errors since driver load or reset.
    pub uncorrected: Option<u64>,
    /// Energy since driver load, in millijoules.
    pub energy_mj: Option<u64>,
    /// A row remap waited for a reset.
    pub remap_pending: Option<bool>,
    /// A page retirement waited for a reset.
    pub retire_pending: Option<bool>,
    /// A repair waited for a reset.
    pub repair_pending: Option<bool>,
}

impl Baseline {
    /// Takes in a reading of a card that answered, and says what in it shows a reset since the one before.
    ///
    /// A reset that happened *before* a finding cannot be taken for one after it: a reset needs every handle on the card
    /// closed, also ours, and a card is read before its events are heard again.
    pub(super) fn advance(&mut self, snapshot: &Snapshot) -> Option<String> {
        let repair = snapshot.repair_pending.get().map(|pending| pending.channel || pending.tpc);
        let next = Self {
            corrected: snapshot.ecc.volatile_corrected.get(),
            uncorrected: snapshot.ecc.volatile_uncorrected.get(),
            energy_mj: snapshot.energy_mj.get(),
            remap_pending: snapshot.remapped_rows.pending.get(),
            retire_pending: snapshot.retired_pages_pending.get(),
            repair_pending: repair,
        };
        let proof = self.proof(&next);
        self.merge(&next);
        proof
    }

    fn proof(&self, next: &Self) -> Option<String> {
        let fell = |before: Option<u64>, after: Option<u64>, what: &str| match (before, after) {
            (Some(before), Some(after)) if after < before => Some(format!("{what} fell from {before} to {after}")),
            _ => None,
        };
        let went = |before: Option<bool>, after: Option<bool>, what: &str| {
            (before == Some(true) && after == Some(false)).then(|| format!("{what} is no longer pending"))
        };
        fell(self.energy_mj, next.energy_mj, "energy since driver load (mJ)")
            .or_else(|| fell(self.uncorrected, next.uncorrected, "volatile uncorrected memory errors"))
            .or_else(|| fell(self.corrected, next.corrected, "volatile corrected memory errors"))
            .or_else(|| went(self.remap_pending, next.remap_pending, "row remapping"))
            .or_else(|| went(self.retire_pending, next.retire_pending, "page retirement"))
            .or_else(|| went(self.repair_pending, next.repair_pending, "a repair"))
    }

    fn merge(&mut self, next: &Self) {
        fn keep<T: Copy>(known: &mut Option<T>, read: Option<T>) {
            if read.is_some() {
                *known = read;
            }
        }
        keep(&mut self.corrected, next.corrected);
        keep(&mut self.uncorrected, next.uncorrected);
        keep(&mut self.energy_mj, next.energy_mj);
        keep(&mut self.remap_pending, next.remap_pending);
        keep(&mut self.retire_pending, next.retire_pending);
        keep(&mut self.repair_pending, next.repair_pending);
    }

    /// What still waits for a reset.
    #[must_use]
    pub fn pending(&self) -> Option<&'static str> {
        let set = |flag: Option<bool>| flag == Some(true);
        match () {
            () if set(self.remap_pending) => Some("a row remap is pending"),
            () if set(self.retire_pending) => Some("a page retirement is pending"),
            () if set(self.repair_pending) => Some("a repair is pending"),
            () => None,
        }
    }
}
