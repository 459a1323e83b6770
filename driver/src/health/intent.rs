//! What a person asked for, and whether it is followed: an intent is for one piece of hardware, and a name may mean another by now.

use std::cmp::Reverse;
use std::fmt;

use serde::{Deserialize, Serialize};
use taints::Taint;

use super::Health;
use crate::inventory::{Device, Inventory};

/// A taint that a person asked for on a device of this node, by a DeviceMark.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Name of the DeviceMark.
    pub mark: String,
    /// Name of the device.
    pub device: String,
    /// The hardware that was meant, the card's UUID or the partition's. An intent for other hardware than the name means now
    /// is not followed; with neither this nor a serial number, the name counts alone.
    #[serde(default)]
    pub uuid: Option<String>,
    /// The serial number of the hardware that was meant; it counts where no UUID is given.
    #[serde(default)]
    pub serial: Option<String>,
    /// The taint, with its full key, and since when the API server's clock has it.
    pub taint: Taint,
}

/// Whether an intent is followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum IntentStanding {
    /// Its taint is published.
    Followed,
    /// The name means another card than the one that was meant.
    OtherCard,
    /// Which card the name means is not known.
    UnknownCard,
    /// No device has the name now.
    NoDevice,
    /// Another owner offers the card, so that it is not in our slice.
    NotOffered,
    /// The key is one under which this driver tells faults.
    DriversKey,
    /// Another intent with the same key and effect is older.
    Repeated,
    /// The API server takes no more taints of a device, or does not know the effect.
    LeftOut,
}

impl IntentStanding {
    /// A short name, for metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Followed => "published",
            Self::OtherCard => "other_card",
            Self::UnknownCard => "unknown_card",
            Self::NoDevice => "no_device",
            Self::NotOffered => "not_offered",
            Self::DriversKey => "drivers_key",
            Self::Repeated => "repeated",
            Self::LeftOut => "left_out",
        }
    }
}

impl fmt::Display for IntentStanding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Followed => "put into the ResourceSlice",
            Self::OtherCard => {
                "not followed: the name means another card now; untaint it, and mark the card that is meant again"
            }
            Self::UnknownCard => "not followed while it is not known which card the name means",
            Self::NoDevice => "not followed while no device has the name",
            Self::NotOffered => "not followed while another owner offers the card",
            Self::DriversKey => {
                "not followed: its key is one under which this driver tells faults; use a key of your own"
            }
            Self::Repeated => "not followed: an older mark has the same key and effect",
            Self::LeftOut => {
                "not in the ResourceSlice as such: the API server takes only so many taints of a device, and the effect None from Kubernetes 1.35 on only"
            }
        })
    }
}

impl Health {
    /// Whether a key is of the domain under which this driver tells faults.
    #[must_use]
    pub fn is_own_key(&self, key: &str) -> bool {
        key.split_once('/').is_some_and(|(domain, _)| domain == self.config.domain)
    }

    /// How each intent stands, in the order of the intents.
    #[must_use]
    pub fn intent_standings(&self, inventory: &Inventory, intents: &[Intent]) -> Vec<IntentStanding> {
        let alone = |intent: &Intent| match inventory.device(&intent.device) {
            _ if self.is_own_key(&intent.taint.key) => IntentStanding::DriversKey,
            None => IntentStanding::NoDevice,
            Some(device) => meant(intent, device),
        };
        let mut standings: Vec<IntentStanding> = intents.iter().map(alone).collect();
        for (index, intent) in intents.iter().enumerate() {
            let twin = |(other, _): &(&Intent, _)| other.device == intent.device && other.taint.same_as(&intent.taint);
            let followed =
                intents.iter().zip(&standings).filter(|(_, standing)| **standing == IntentStanding::Followed);
            let older = followed.filter(twin).any(|(other, _)| age(other) < age(intent));
            if older && standings[index] == IntentStanding::Followed {
                standings[index] = IntentStanding::Repeated;
            }
        }
        standings
    }

    /// The taints of the intents that are followed on a device, the strongest first.
    pub(super) fn followed(&self, inventory: &Inventory, intents: &[Intent], device: &Device) -> Vec<Taint> {
        let of_device: Vec<Intent> = intents.iter().filter(|intent| intent.device == device.name).cloned().collect();
        let standings = self.intent_standings(inventory, &of_device);
        let followed = of_device.iter().zip(standings).filter(|(_, standing)| *standing == IntentStanding::Followed);
        let mut taints: Vec<Taint> = followed.map(|(intent, _)| intent.taint.clone()).collect();
        taints.sort_by_key(|taint| (Reverse(taint.effect.clone()), taint.key.clone()));
        taints
    }
}

/// Of two intents for the same taint the older one counts; the name settles the rest.
fn age(intent: &Intent) -> (Option<jiff::Timestamp>, &str) {
    (intent.taint.time_added, &intent.mark)
}

/// Whether a device is the hardware that was meant: the UUID decides, else the serial number.
fn meant(intent: &Intent, device: &Device) -> IntentStanding {
    let known = |found: &[&Option<String>], wanted: &String| {
        let found: Vec<&String> = found.iter().filter_map(|found| found.as_ref()).collect();
        match found.as_slice() {
            [] => IntentStanding::UnknownCard,
            found if found.contains(&wanted) => IntentStanding::Followed,
            _ => IntentStanding::OtherCard,
        }
    };
    match (&intent.uuid, &intent.serial) {
        (Some(uuid), _) => known(&[&device.uuid, &device.card_uuid], uuid),
        (None, Some(serial)) => known(&[&device.serial], serial),
        (None, None) => IntentStanding::Followed,
    }
}
