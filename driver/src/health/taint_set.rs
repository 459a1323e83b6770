//! The taints of each device: for each key the worst of its open findings, plus the intents of people, within the limits of
//! the API, with the times that the API server has stamped.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use taints::{Effect, Taint};

use super::finding::Finding;
use super::{CardHealth, Health, Intent};
use crate::inventory::{Device, Inventory};
use crate::policy::KEYS;

/// Key of the taint that stands for those which had no room.
const FOLDED: &str = "multiple";

/// What the API server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Taints of one device: 16, before Kubernetes 1.35 4.
    pub max_taints: usize,
    /// Whether the effect `None` is known (1.35 and later). Without, informative taints are left out.
    pub none_effect: bool,
}

impl Default for Limits {
    /// Kubernetes 1.35 and later.
    fn default() -> Self {
        Self { max_taints: 16, none_effect: true }
    }
}

/// Device, UUID, key, value, effect: a taint that must keep its time. Another card under the same name begins anew.
pub(super) type StampKey = (String, Option<String>, String, String, Effect);

/// When the API server says that a taint was added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Stamp {
    /// Name of the device.
    pub device: String,
    /// UUID of the card or partition that had the name; `None` for a card that never answered.
    #[serde(default)]
    pub uuid: Option<String>,
    /// The taint with its time.
    pub taint: Taint,
}

impl Stamp {
    pub(super) fn from_entry((key, at): (&StampKey, &Timestamp)) -> Self {
        let (device, uuid, key, value, effect) = key.clone();
        Self { device, uuid, taint: Taint { key, value, effect, time_added: Some(*at) } }
    }

    pub(super) fn into_entry(self) -> (StampKey, Timestamp) {
        let Taint { key, value, effect, time_added } = self.taint;
        ((self.device, self.uuid, key, value, effect), time_added.unwrap_or(Timestamp::UNIX_EPOCH))
    }
}

impl Health {
    /// The taints that every device should carry now; devices without taints are in it with an empty list. A taint that the
    /// API server has not stamped yet has no time. Stamps of taints that are no longer wanted are forgotten here: should one
    /// come back, it is a new one.
    pub fn desired_taints(
        &mut self,
        inventory: &Inventory,
        intents: &[Intent],
        limits: &Limits,
    ) -> BTreeMap<String, Vec<Taint>> {
        let mut wanted = BTreeMap::new();
        let mut alive = BTreeSet::new();
        for device in inventory.devices() {
            let all = self.wanted(device, inventory, intents);
            let mut taints = fold(&all, &self.config.domain, limits);
            for taint in all.iter().chain(&taints) {
                alive.insert(stamp_key(device, taint));
            }
            for taint in &mut taints {
                // A mark brings its time, which is the API server's too.
                taint.time_added = taint.time_added.or_else(|| self.stamps.get(&stamp_key(device, taint)).copied());
            }
            wanted.insert(device.name.clone(), taints);
        }
        self.stamps.retain(|key, _| alive.contains(key));
        wanted
    }

    /// Takes the time that the API server stored for a taint of the hardware that is the device now, and says whether that was
    /// news: save the record then. Later writes repeat it, so that deadlines which count from it do not move.
    pub fn adopt_time(&mut self, inventory: &Inventory, device: &str, taint: &Taint) -> bool {
        let (Some(device), Some(at)) = (inventory.device(device), taint.time_added) else { return false };
        self.stamps.insert(stamp_key(device, taint), at) != Some(at)
    }

    /// Intents for the device, then findings of its hardware, each the strongest first: what a person asked for is not what has to go
    /// where there is no room for all. An intent never has a key of ours.
    fn wanted(&self, device: &Device, inventory: &Inventory, intents: &[Intent]) -> Vec<Taint> {
        let card = inventory.card(device.pci).and_then(|card| self.cards.get(&card.key()));
        let mut found = card.map(|card| of_findings(card, device, &self.config.domain)).unwrap_or_default();
        // The order of equals is the precedence of keys: the list comes so, and the sort is stable.
        found.sort_by_key(|taint| Reverse(taint.effect.clone()));
        let mut taints = self.followed(inventory, intents, device);
        taints.extend(found);
        taints
    }
}

fn stamp_key(device: &Device, taint: &Taint) -> StampKey {
    (device.name.clone(), device.uuid.clone(), taint.key.clone(), taint.value.clone(), taint.effect.clone())
}

/// One taint a key, in the order of the vocabulary: what is certain first.
fn of_findings(card: &CardHealth, device: &Device, domain: &str) -> Vec<Taint> {
    let taint = |finding: &Finding, effect: &Effect| Taint {
        key: format!("{domain}/{}", finding.id.key),
        value: finding.id.value.clone(),
        effect: effect.clone(),
        time_added: None,
    };
    let worst = KEYS.iter().filter_map(|key| worst(card, device, key));
    worst.filter_map(|finding| finding.response.effect().map(|effect| taint(finding, effect))).collect()
}

/// The finding whose value a key's taint shows: strongest effect, then hardest exit, then the smaller value, so that neither
/// order nor number of signals matters.
pub(super) fn worst<'a>(card: &'a CardHealth, device: &Device, key: &str) -> Option<&'a Finding> {
    let rank = |finding: &&Finding| {
        let value = &finding.id.value;
        // Codes compare as numbers.
        (finding.response.clone(), finding.clear, Reverse((value.parse::<u64>().ok(), value.clone())))
    };
    card.findings()
        .filter(|finding| finding.id.key == key && finding.concerns(device.gpu_instance, device.compute_instance))
        .max_by_key(rank)
}

/// Keeps what there is room for; the rest becomes one taint with the strongest of their effects.
fn fold(all: &[Taint], domain: &str, limits: &Limits) -> Vec<Taint> {
    let known = |taint: &&Taint| limits.none_effect || taint.effect != Effect::None;
    let mut kept: Vec<Taint> = all.iter().filter(known).cloned().collect();
    if kept.len() > limits.max_taints {
        let rest = kept.split_off(limits.max_taints.saturating_sub(1));
        if let Some(effect) = rest.into_iter().map(|taint| taint.effect).max() {
            kept.push(Taint { key: format!("{domain}/{FOLDED}"), value: String::new(), effect, time_added: None });
        }
        kept.truncate(limits.max_taints);
    }
    kept
}
