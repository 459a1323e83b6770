//! One bad object must not stop a watch: decoding that keeps the name of what it cannot read.

use std::borrow::Cow;
use std::fmt;

use kube::Resource;
use kube::core::{ApiResource, DynamicResourceScope, ObjectMeta};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::Wire;
use crate::kind::Kind;

/// An object that could not be understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} {name} cannot be understood and is left out: {problem}", .kind.name())]
pub struct Malformed {
    /// Its kind.
    pub kind: Kind,
    /// Its name, with the namespace where it has one; empty when even that is missing.
    pub name: String,
    /// What is wrong, and in which field.
    pub problem: String,
}

/// An object of a watch, or the reason why it cannot be read, in either case with name, UID and version.
///
/// Decoding fails only when the text is no JSON object at all; everything else ends in [`Guarded::object`].
pub struct Guarded<W: Wire> {
    meta: ObjectMeta,
    /// What rules read, or why they cannot.
    pub object: Result<W::Object, Malformed>,
}

/// Reads one object of a kind.
///
/// # Errors
/// When it cannot be understood, with its name.
pub fn decode<W: Wire>(value: Value) -> Result<W::Object, Malformed> {
    let name = full_name(&metadata(&value));
    let problem = match W::deserialize(value) {
        Ok(wire) => match wire.into_object() {
            Ok(object) => return Ok(object),
            Err(problem) => problem,
        },
        Err(error) => error.to_string(),
    };
    Err(Malformed { kind: W::KIND, name, problem })
}

/// Name, namespace, UID and version: all that the watch itself needs.
fn metadata(value: &Value) -> ObjectMeta {
    let text = |field: &str| value.get("metadata")?.get(field)?.as_str().map(str::to_owned);
    ObjectMeta {
        name: text("name"),
        namespace: text("namespace"),
        uid: text("uid"),
        resource_version: text("resourceVersion"),
        ..ObjectMeta::default()
    }
}

fn full_name(meta: &ObjectMeta) -> String {
    let name = meta.name.as_deref().unwrap_or_default();
    match meta.namespace.as_deref() {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name.to_owned(),
    }
}

impl<'de, W: Wire> Deserialize<'de> for Guarded<W> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // One object at a time goes through `Value`: a second try on the same text needs it, and it is dropped at once.
        let value = Value::deserialize(deserializer)?;
        let meta = metadata(&value);
        Ok(Self { meta, object: decode::<W>(value) })
    }
}

impl<W: Wire> Clone for Guarded<W> {
    fn clone(&self) -> Self {
        Self { meta: self.meta.clone(), object: self.object.clone() }
    }
}

impl<W: Wire> fmt::Debug for Guarded<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guarded").field("object", &self.object).finish_non_exhaustive()
    }
}

/// Enough of a resource for kube's watcher, which asks for the version of what it saw.
impl<W: Wire> Resource for Guarded<W> {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(dt: &ApiResource) -> Cow<'_, str> {
        dt.kind.as_str().into()
    }

    fn group(dt: &ApiResource) -> Cow<'_, str> {
        dt.group.as_str().into()
    }

    fn version(dt: &ApiResource) -> Cow<'_, str> {
        dt.version.as_str().into()
    }

    fn plural(dt: &ApiResource) -> Cow<'_, str> {
        dt.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.meta
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.meta
    }
}
