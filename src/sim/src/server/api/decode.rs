//! The way of an object in (checked against its type, in the form in which it is stored) and out (in the version that the
//! client asked for). Events are stored in their core form and served in both.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Target, Txn};
use crate::server::error::ApiError;
use crate::server::schema::{Cursor, conform, schema};
use crate::server::store::Object;
use crate::server::value::{at, list, object, remove, set, set_default, text};

/// What to do about fields that a type does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Validation {
    /// Drop them in silence.
    Ignore,
    /// Drop them and warn, the default.
    #[default]
    Warn,
    /// Refuse the request.
    Strict,
}

impl Target {
    /// The type of the objects here.
    pub(super) fn cursor(&self) -> Cursor<'static> {
        schema().root(&self.resource.schema)
    }
}

impl Txn<'_> {
    /// Checks a body against its type and brings it into the stored form.
    pub(super) fn decode(&mut self, target: &Target, mut body: Value) -> Result<Value, ApiError> {
        if !body.is_object() {
            return Err(ApiError::bad_request("the body of the request must be an object"));
        }
        let kind = &target.resource.kind;
        set_default(&mut body, &["kind"], kind.as_str());
        set_default(&mut body, &["apiVersion"], target.api_version());
        if text(&body, &["kind"]) != kind || text(&body, &["apiVersion"]) != target.api_version() {
            let found = format!("{}, Kind={}", text(&body, &["apiVersion"]), text(&body, &["kind"]));
            let message = format!(
                "the API version and kind in the data ({found}) do not match the expected ones ({}, Kind={kind})",
                target.api_version()
            );
            return Err(ApiError::bad_request(message));
        }
        self.conform(target, &mut body)?;
        if is_newer_event(target) {
            to_core_event(&mut body);
        }
        Ok(body)
    }

    /// Checks an object against its type; unknown fields go, are warned of, or are an error, as the client asked.
    pub(super) fn conform(&mut self, target: &Target, body: &mut Value) -> Result<(), ApiError> {
        let report = conform(body, target.cursor());
        let (kind, version) = (&target.resource.kind, &target.version);
        let refused = |why: &str| {
            ApiError::bad_request(format!("{kind} in version \"{version}\" cannot be handled as a {kind}: {why}"))
        };
        if let Some(error) = report.errors.first() {
            return Err(refused(error));
        }
        let unknown: Vec<String> = report.unknown.iter().map(|field| format!("unknown field \"{field}\"")).collect();
        match self.options.validation {
            Validation::Strict if !unknown.is_empty() => {
                return Err(refused(&format!("strict decoding error: {}", unknown.join(", "))));
            }
            Validation::Warn => self.warnings.extend(unknown),
            Validation::Strict | Validation::Ignore => {}
        }
        Ok(())
    }
}

fn is_newer_event(target: &Target) -> bool {
    target.resource.is("Event") && target.resource.group == "events.k8s.io"
}

/// The object as a client of this target's version sees it.
pub(crate) fn present(target: &Target, stored: &Object) -> Object {
    if is_newer_event(target) {
        let mut event = Value::clone(stored);
        to_newer_event(&mut event);
        return Arc::new(event);
    }
    let version = target.api_version();
    if text(stored, &["apiVersion"]) == version && text(stored, &["kind"]) == target.resource.kind {
        return stored.clone();
    }
    let mut copy = Value::clone(stored);
    set(&mut copy, &["apiVersion"], version);
    set(&mut copy, &["kind"], target.resource.kind.as_str());
    Arc::new(copy)
}

/// The names of event fields: in `events.k8s.io/v1` and in the core group.
const EVENT_FIELDS: &[(&str, &str)] = &[
    ("note", "message"),
    ("regarding", "involvedObject"),
    ("reportingController", "reportingComponent"),
    ("deprecatedCount", "count"),
    ("deprecatedFirstTimestamp", "firstTimestamp"),
    ("deprecatedLastTimestamp", "lastTimestamp"),
    ("deprecatedSource", "source"),
];

fn to_core_event(event: &mut Value) {
    rename(event, |newer, core| (newer, core));
    set(event, &["apiVersion"], "v1");
}

fn to_newer_event(event: &mut Value) {
    rename(event, |newer, core| (core, newer));
    set(event, &["apiVersion"], "events.k8s.io/v1");
    if list(event, &["metadata", "managedFields"]).is_empty() {
        return;
    }
    remove(event, &["metadata", "managedFields"]);
}

fn rename(event: &mut Value, direction: fn(&'static str, &'static str) -> (&'static str, &'static str)) {
    let map = object(event);
    for (newer, core) in EVENT_FIELDS {
        let (from, to) = direction(newer, core);
        if let Some(value) = map.remove(from) {
            map.insert(to.to_owned(), value);
        }
    }
}

/// The `Status` of a deletion that left no object behind.
pub(crate) fn deleted(target: &Target, gone: &Value) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": {
        "name": at(gone, &["metadata", "name"]), "group": target.resource.group,
        "kind": target.resource.plural, "uid": at(gone, &["metadata", "uid"])}})
}
