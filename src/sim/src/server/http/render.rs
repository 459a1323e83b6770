//! Objects as bytes, in the form that the client asked for. Lists are written straight from the store, without copies.

use bytes::Bytes;
use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Value, json};

use super::accept::Form;
use crate::server::api::{Page, Target, present};
use crate::server::store::Object;
use crate::server::table;
use crate::server::value::{at, set};

/// An item of a list: built-in kinds do not repeat kind and version there.
struct Item<'a> {
    object: &'a Value,
    bare: bool,
}

impl Serialize for Item<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.object.as_object().into_iter().flatten() {
            if !(self.bare && (name == "kind" || name == "apiVersion")) {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

/// Any JSON as bytes.
pub(crate) fn bytes(value: &Value) -> Bytes {
    Bytes::from(value.to_string())
}

/// One object.
pub(crate) fn object(form: Form, target: &Target, stored: &Object, now: Timestamp) -> Bytes {
    bytes(&value(form, target, stored, now, true))
}

fn value(form: Form, target: &Target, stored: &Object, now: Timestamp, columns: bool) -> Value {
    let shown = present(target, stored);
    match form {
        Form::Plain => Value::clone(&shown),
        Form::Table => table::table(target, std::slice::from_ref(&shown), now, columns),
        Form::Metadata => metadata(&shown),
    }
}

fn metadata(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": at(object, &["metadata"])})
}

/// A page of a list.
pub(crate) fn list(form: Form, target: &Target, page: &Page, now: Timestamp) -> Bytes {
    let mut meta = json!({"resourceVersion": page.revision.to_string()});
    if let Some(token) = &page.token {
        set(&mut meta, &["continue"], token.as_str());
    }
    if let Some(remaining) = page.remaining {
        set(&mut meta, &["remainingItemCount"], remaining);
    }
    if form == Form::Table {
        let shown: Vec<Object> = page.items.iter().map(|item| present(target, item)).collect();
        let mut table = table::table(target, &shown, now, true);
        set(&mut table, &["metadata"], meta);
        return bytes(&table);
    }
    let (kind, version) = match form {
        Form::Metadata => ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned()),
        _ => (format!("{}List", target.resource.kind), target.api_version()),
    };
    let mut out = format!(r#"{{"kind":"{kind}","apiVersion":"{version}","metadata":{meta},"items":["#).into_bytes();
    for (index, item) in page.items.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        let shown = present(target, item);
        match form {
            Form::Metadata => out.extend_from_slice(metadata(&shown).to_string().as_bytes()),
            _ => write_item(&mut out, &Item { object: &shown, bare: target.resource.builtin() }),
        }
    }
    out.extend_from_slice(b"]}");
    Bytes::from(out)
}

fn write_item(out: &mut Vec<u8>, item: &Item<'_>) {
    // Writing JSON values into memory does not fail.
    if let Err(error) = serde_json::to_writer(out, item) {
        tracing::error!(%error, "a stored object could not be written");
    }
}

/// One event of a watch, a line of its own. In a table watch only the first event carries the columns.
pub(crate) fn event(form: Form, target: &Target, kind: &str, stored: &Object, now: Timestamp, first: bool) -> Bytes {
    if form == Form::Plain {
        let shown = present(target, stored);
        let mut out = format!(r#"{{"type":"{kind}","object":"#).into_bytes();
        write_item(&mut out, &Item { object: &shown, bare: false });
        out.extend_from_slice(b"}\n");
        return Bytes::from(out);
    }
    raw_event(kind, &value(form, target, stored, now, first))
}

/// An event about something that is no stored object: a bookmark or an error.
pub(crate) fn raw_event(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{{\"type\":\"{kind}\",\"object\":{object}}}\n"))
}
