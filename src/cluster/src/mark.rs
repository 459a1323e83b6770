//! Marks by people: objects of ours that anyone can read with plain kubectl.
//!
//! `kubectl device` writes them, the controller deletes those whose expiry has passed, the rules read them. A mark taints one
//! device by name, and its annotations carry the hardware that was meant, so that a name which now means another card is not
//! acted on. The name of the object follows from device, key and effect, so that two people who mark the same thing meet.
//!
//! A mark is a DeviceTaintRule where the server serves those. Elsewhere it is a DeviceMark, our own kind (deploy/chart/crds) with
//! the same spec, labels and annotations: the agent of the device's node makes a taint of it in its slice.

mod store;

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use jiff::Timestamp;
use kube::core::ApiResource;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use taints::Effect;
use taints::object::{DeviceId, Identity, Rule};

use crate::kind::Kind;
use crate::server::RuleVersion;

pub use store::{MarkError, Stored, apply, create, delete, get, list};

/// Annotation: how a NoSchedule rule evicts.
pub const EVICT: &str = "devicetaint.dev/evict";
/// Value of [`EVICT`]: with budgets, pace and breaker.
pub const CAREFUL: &str = "careful";
/// Annotation: the UUID of the hardware that was meant.
pub const UUID: &str = "devicetaint.dev/uuid";
/// Annotation: the serial number of the hardware that was meant.
pub const SERIAL: &str = "devicetaint.dev/serial";
/// Annotation: who put the mark there.
pub const BY: &str = "devicetaint.dev/by";
/// Annotation: why, in that person's words.
pub const REASON: &str = "devicetaint.dev/reason";
/// Annotation: when the mark ends, in RFC 3339.
pub const EXPIRES_AT: &str = "devicetaint.dev/expires-at";
/// Label: which program looks after the object.
pub const MANAGED_BY: &str = "devicetaint.dev/managed-by";
/// Value of [`MANAGED_BY`], and the field manager of server-side apply.
pub const MANAGER: &str = "kubectl-device";
/// Label of the slices of a driver that makes taints of DeviceMarks; its value is the version of the kind that it follows.
pub const FOLLOWS_MARKS: &str = "devicetaint.dev/follows-marks";
/// The version in which DeviceMarks are served.
pub const VERSION: &str = "v1alpha1";
/// The key of a mark when a person names none: the same for every driver, so that tolerations can name it.
pub const DEFAULT_KEY: &str = "devicetaint.dev/maintenance";

/// Which object a mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A DeviceTaintRule: Kubernetes acts on it, for devices of every driver.
    Rule(RuleVersion),
    /// A DeviceMark: the agent of the device's node makes a taint of it in its slice.
    Mark,
}

impl Form {
    /// Its kind.
    #[must_use]
    pub const fn kind(self) -> Kind {
        match self {
            Self::Rule(_) => Kind::Rule,
            Self::Mark => Kind::Mark,
        }
    }

    /// How to reach it.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        match self {
            Self::Rule(version) => version.resource(),
            Self::Mark => resource(),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kind().name())
    }
}

/// How to reach DeviceMarks.
#[must_use]
pub fn resource() -> ApiResource {
    Kind::Mark.resource(VERSION)
}

/// A mark as a person wishes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// The device.
    pub device: DeviceId,
    /// The taint's key.
    pub key: String,
    /// The taint's value; empty for none.
    pub value: String,
    /// The taint's effect.
    pub effect: Effect,
    /// The hardware that is meant; nothing known means that the name alone counts.
    pub identity: Identity,
    /// Who.
    pub by: Option<String>,
    /// Why.
    pub reason: Option<String>,
    /// Until when.
    pub expires_at: Option<Timestamp>,
    /// Whether a NoSchedule mark evicts with care.
    pub careful: bool,
}

/// The name of the mark for this device, key and effect: `dt-` and 16 hexadecimal digits.
#[must_use]
pub fn name(device: &DeviceId, key: &str, effect: &Effect) -> String {
    let mut hash = Sha256::new();
    for part in [&device.driver, &device.pool, &device.device, key, effect.as_str()] {
        // None of the parts may hold a NUL, so "a" + "bc" and "ab" + "c" stay different.
        hash.update(part.as_bytes());
        hash.update([0]);
    }
    hash.finalize().iter().take(8).fold(String::from("dt-"), |mut name, byte| {
        // Writing to a String cannot fail.
        write!(name, "{byte:02x}").ok();
        name
    })
}

impl Mark {
    /// The name of the object.
    #[must_use]
    pub fn name(&self) -> String {
        name(&self.device, &self.key, &self.effect)
    }

    /// The object to write. `timeAdded` is left to the API server's clock: a rule gets it there, and for a DeviceMark it is the
    /// moment of its creation.
    #[must_use]
    pub fn object(&self, form: Form) -> Value {
        // An empty value is sent too: a server-side apply leaves a field alone that it does not name, and the old value would stay.
        let taint = json!({"key": self.key, "value": self.value, "effect": self.effect.as_str()});
        json!({
            "apiVersion": form.resource().api_version,
            "kind": form.kind().name(),
            "metadata": {"name": self.name(), "labels": {MANAGED_BY: MANAGER}, "annotations": self.annotations()},
            "spec": {
                "deviceSelector": {"driver": self.device.driver, "pool": self.device.pool, "device": self.device.device},
                "taint": taint,
            },
        })
    }

    fn annotations(&self) -> BTreeMap<&'static str, String> {
        let texts = [
            (UUID, self.identity.uuid.clone()),
            (SERIAL, self.identity.serial.clone()),
            (BY, self.by.clone()),
            (REASON, self.reason.clone()),
            (EXPIRES_AT, self.expires_at.map(|time| time.to_string())),
            (EVICT, self.careful.then(|| CAREFUL.to_owned())),
        ];
        texts.into_iter().filter_map(|(name, text)| Some((name, text?))).collect()
    }

    /// The mark that a rule or DeviceMark of ours stands for; absent for rules of others, and for those that do not name one device.
    #[must_use]
    pub fn of_rule(rule: &Rule) -> Option<Self> {
        let selector = rule.selector.as_ref().filter(|_| rule.managed)?;
        Some(Self {
            device: DeviceId {
                driver: selector.driver.clone()?,
                pool: selector.pool.clone()?,
                device: selector.device.clone()?,
            },
            key: rule.taint.key.clone(),
            value: rule.taint.value.clone(),
            effect: rule.taint.effect.clone(),
            identity: rule.identity.clone(),
            by: rule.by.clone(),
            reason: rule.reason.clone(),
            expires_at: rule.expires_at,
            careful: rule.careful,
        })
    }
}

#[cfg(test)]
mod tests;
