//! Marks by people: DeviceTaintRules of ours, that anyone can read with plain kubectl.
//!
//! `kubectl device` writes them, the controller deletes those whose expiry has passed, the rules read them. A mark taints one
//! device by name, and its annotations carry the hardware that was meant, so that a name which now means another card is not
//! acted on. The name of the object follows from device, key and effect, so that two people who mark the same thing meet.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::{Method, Request};
use jiff::Timestamp;
use kube::Client;
use kube::core::params::DeleteParams;
use kube::core::{ApiResource, params::Preconditions};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use taints::Effect;
use taints::object::{DeviceId, Identity, Rule};

use crate::call::{CallError, within};
use crate::connect::CALL_TIMEOUT;
use crate::server::RuleVersion;
use crate::wire::{Malformed, RuleWire, decode};

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
/// The key of a mark when a person names none: the same for every driver, so that tolerations can name it.
pub const DEFAULT_KEY: &str = "devicetaint.dev/maintenance";

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

    /// The DeviceTaintRule to write, in a version that the server has. `timeAdded` is left to the API server's clock.
    #[must_use]
    pub fn object(&self, version: RuleVersion) -> Value {
        // An empty value is sent too: a server-side apply leaves a field alone that it does not name, and the old value would stay.
        let taint = json!({"key": self.key, "value": self.value, "effect": self.effect.as_str()});
        json!({
            "apiVersion": version.resource().api_version,
            "kind": "DeviceTaintRule",
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

    /// The mark that a rule of ours stands for; absent for rules of others, and for those that do not name one device.
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

/// A rule as it is stored, with the version that a delete must carry.
#[derive(Clone, Debug)]
pub struct Stored {
    /// What the rules read of it.
    pub rule: Rule,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// Why a mark could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// Another mark, or a rule of somebody else, has the name.
    #[error("DeviceTaintRule {0} exists already")]
    Exists(String),
    /// It changed between looking and writing.
    #[error("DeviceTaintRule {0} was changed by somebody else in the meantime; look again")]
    Changed(String),
    /// We may not.
    #[error("not allowed to {verb} DeviceTaintRule {name}: {message}")]
    Forbidden {
        /// What was tried.
        verb: &'static str,
        /// On which object.
        name: String,
        /// What the server said.
        message: String,
    },
    /// The call failed.
    #[error("cannot {verb} DeviceTaintRule {name}: {source}")]
    Call {
        /// What was tried.
        verb: &'static str,
        /// On which object.
        name: String,
        /// What came back.
        source: CallError,
    },
    /// The stored object cannot be understood.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Reads a rule by name; absent when there is none.
///
/// # Errors
/// When the call fails, or the object cannot be understood.
pub async fn get(client: &Client, version: RuleVersion, name: &str) -> Result<Option<Stored>, MarkError> {
    let request = request(Method::GET, &path(version, name), &Value::Null);
    match send(client, request).await {
        Ok(object) => stored(object).map(Some),
        Err(source) if source.is_not_found() => Ok(None),
        Err(source) => Err(failed("read", name, source)),
    }
}

/// All rules of the cluster, ours and others'. One that cannot be understood is left out, with a warning.
///
/// # Errors
/// When the call fails.
pub async fn list(client: &Client, version: RuleVersion) -> Result<Vec<Stored>, MarkError> {
    let request = request(Method::GET, &collection(&version.resource()), &Value::Null);
    let mut answer = send(client, request).await.map_err(|source| failed("list", "*", source))?;
    let items = answer.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
    let read = |item| stored(item).inspect_err(|error| tracing::warn!(%error, "rule left out")).ok();
    Ok(items.into_iter().filter_map(read).collect())
}

/// Creates a mark.
///
/// # Errors
/// [`MarkError::Exists`] when there is an object of this name; else when the call fails.
pub async fn create(client: &Client, version: RuleVersion, mark: &Mark) -> Result<Stored, MarkError> {
    let path = format!("{}?fieldManager={MANAGER}", collection(&version.resource()));
    match send(client, request(Method::POST, &path, &mark.object(version))).await {
        Ok(object) => stored(object),
        Err(source) if source.is_conflict() => Err(MarkError::Exists(mark.name())),
        Err(source) => Err(failed("create", &mark.name(), source)),
    }
}

/// Creates or changes a mark by server-side apply. `timeAdded` stays what the server has, unless the effect changes.
///
/// # Errors
/// When the call fails.
pub async fn apply(client: &Client, version: RuleVersion, mark: &Mark) -> Result<Stored, MarkError> {
    let name = mark.name();
    let path = format!("{}?fieldManager={MANAGER}&force=true", path(version, &name));
    match send(client, request(Method::PATCH, &path, &mark.object(version))).await {
        Ok(object) => stored(object),
        Err(source) => Err(failed("apply", &name, source)),
    }
}

/// Deletes the very object that was looked at. One that is gone already is no error.
///
/// # Errors
/// [`MarkError::Changed`] when it is not the same any more; else when the call fails.
pub async fn delete(client: &Client, version: RuleVersion, seen: &Stored) -> Result<(), MarkError> {
    let name = &seen.rule.name;
    let options = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(seen.rule.uid.clone()),
            resource_version: Some(seen.resource_version.clone()),
        }),
        ..DeleteParams::default()
    };
    let body = serde_json::to_value(&options).unwrap_or_default();
    match send(client, request(Method::DELETE, &path(version, name), &body)).await {
        Ok(_) => Ok(()),
        Err(source) if source.is_not_found() => Ok(()),
        Err(source) if source.is_conflict() => Err(MarkError::Changed(name.clone())),
        Err(source) => Err(failed("delete", name, source)),
    }
}

fn collection(resource: &ApiResource) -> String {
    format!("/apis/{}/{}", resource.api_version, resource.plural)
}

fn path(version: RuleVersion, name: &str) -> String {
    format!("{}/{name}", collection(&version.resource()))
}

fn request(method: Method, path: &str, body: &Value) -> Result<Request<Vec<u8>>, http::Error> {
    let content = if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, content).body(bytes)
}

async fn send(client: &Client, request: Result<Request<Vec<u8>>, http::Error>) -> Result<Value, CallError> {
    let request = request.map_err(|error| CallError::Answer(error.to_string()))?;
    within(CALL_TIMEOUT, client.request::<Value>(request)).await
}

fn stored(object: Value) -> Result<Stored, MarkError> {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    Ok(Stored { rule: decode::<RuleWire>(object)?, resource_version: version })
}

fn failed(verb: &'static str, name: &str, source: CallError) -> MarkError {
    match source.status() {
        Some(status) if status.code == 403 => {
            MarkError::Forbidden { verb, name: name.to_owned(), message: status.message.clone() }
        }
        _ => MarkError::Call { verb, name: name.to_owned(), source },
    }
}

#[cfg(test)]
#[path = "mark_tests.rs"]
mod tests;
