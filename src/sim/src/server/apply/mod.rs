//! Who owns which field: `metadata.managedFields`, kept for every write, and server-side apply on top of it.

mod fields;
mod merge;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use fields::{Fields, diff};

use super::schema::Cursor;
use super::value::{at, list, remove, set, text};
use super::world::rfc3339;

/// Who writes, for the records of ownership.
#[derive(Debug, Clone)]
pub(crate) struct Writer<'a> {
    pub(crate) manager: &'a str,
    pub(crate) api_version: &'a str,
    /// The subresource written through, empty for the object itself.
    pub(crate) subresource: &'a str,
    pub(crate) now: Timestamp,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq)]
struct Entry {
    manager: String,
    operation: String,
    api_version: String,
    subresource: String,
    time: String,
    fields: Fields,
}

const UPDATE: &str = "Update";
const APPLY: &str = "Apply";

/// Parts of the object that nobody owns: its identity and what the server keeps itself.
const UNOWNED: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata", "name"],
    &["metadata", "generateName"],
    &["metadata", "namespace"],
    &["metadata", "uid"],
    &["metadata", "resourceVersion"],
    &["metadata", "generation"],
    &["metadata", "creationTimestamp"],
    &["metadata", "deletionTimestamp"],
    &["metadata", "deletionGracePeriodSeconds"],
    &["metadata", "selfLink"],
    &["metadata", "managedFields"],
];

impl Entry {
    fn read(value: &Value) -> Self {
        let get = |field: &str| text(value, &[field]).to_owned();
        Self {
            manager: get("manager"),
            operation: get("operation"),
            api_version: get("apiVersion"),
            subresource: get("subresource"),
            time: get("time"),
            fields: Fields::from_json(at(value, &["fieldsV1"])),
        }
    }

    fn new(writer: &Writer<'_>, operation: &str, fields: Fields) -> Self {
        Self {
            manager: writer.manager.to_owned(),
            operation: operation.to_owned(),
            api_version: writer.api_version.to_owned(),
            subresource: writer.subresource.to_owned(),
            time: rfc3339(writer.now),
            fields,
        }
    }

    fn write(&self) -> Value {
        let mut value = json!({"manager": self.manager, "operation": self.operation, "apiVersion": self.api_version,
            "time": self.time, "fieldsType": "FieldsV1", "fieldsV1": self.fields.to_json()});
        if !self.subresource.is_empty() {
            set(&mut value, &["subresource"], self.subresource.as_str());
        }
        value
    }

    fn is(&self, writer: &Writer<'_>, operation: &str) -> bool {
        self.operation == operation
            && self.manager == writer.manager
            && self.api_version == writer.api_version
            && self.subresource == writer.subresource
    }
}

fn entries(object: &Value) -> Vec<Entry> {
    list(object, &["metadata", "managedFields"]).iter().map(Entry::read).collect()
}

fn write_entries(object: &mut Value, mut entries: Vec<Entry>) {
    entries.retain(|entry| !entry.fields.is_empty());
    entries.sort_by(|a, b| (&a.time, &a.manager).cmp(&(&b.time, &b.manager)));
    if entries.is_empty() {
        remove(object, &["metadata", "managedFields"]);
    } else {
        let list: Vec<Value> = entries.iter().map(Entry::write).collect();
        set(object, &["metadata", "managedFields"], list);
    }
}

fn owned(object: &Value) -> Value {
    let mut copy = Map::new();
    for (name, value) in object.as_object().into_iter().flatten() {
        if name != "metadata" {
            copy.insert(name.clone(), value.clone());
        }
    }
    let mut meta = Map::new();
    for (name, value) in at(object, &["metadata"]).as_object().into_iter().flatten() {
        if !UNOWNED.contains(&&["metadata", name.as_str()][..]) {
            meta.insert(name.clone(), value.clone());
        }
    }
    copy.remove("apiVersion");
    copy.remove("kind");
    if !meta.is_empty() {
        copy.insert("metadata".to_owned(), Value::Object(meta));
    }
    Value::Object(copy)
}

/// Records an ordinary write: changed fields go to the writer, vanished ones to nobody. The time of the writer's entry
/// moves with every write that changed a field.
pub(crate) fn record_update(old: Option<&Value>, new: &mut Value, writer: &Writer<'_>, cursor: Cursor<'_>) {
    let before = old.map(owned);
    let after = owned(new);
    let found = diff(before.as_ref(), Some(&after), cursor);
    let gone = found.changed.clone().union(&found.removed);
    let mut all = entries(new);
    let mut mine = None;
    for entry in &mut all {
        if entry.is(writer, UPDATE) {
            entry.fields = entry.fields.minus(&found.removed).union(&found.changed);
            if !found.changed.is_empty() {
                entry.time = rfc3339(writer.now);
            }
            mine = Some(());
        } else {
            entry.fields = entry.fields.minus(&gone);
        }
    }
    if mine.is_none() && !found.changed.is_empty() {
        all.push(Entry::new(writer, UPDATE, found.changed));
    }
    write_entries(new, all);
}

/// Server-side apply: gives the object that comes out, with its ownership, or the conflicts (who, which field) that only
/// force overrides.
pub(crate) fn apply(
    live: Option<&Value>,
    applied: &Value,
    writer: &Writer<'_>,
    cursor: Cursor<'_>,
    force: bool,
) -> Result<Value, Vec<(String, String)>> {
    let mut merged = live.cloned().unwrap_or_else(|| json!({}));
    let mut all = live.map(entries).unwrap_or_default();
    let mine = all.iter().position(|entry| entry.is(writer, APPLY)).map(|index| all.remove(index));
    merge::merge(&mut merged, applied, cursor);
    let changed = diff(live.map(owned).as_ref(), Some(&owned(&merged)), cursor).changed;
    let known = live.map(|live| upgraded(live, writer, cursor)).unwrap_or_default();
    let conflicts = take(&mut all, &changed, &known);
    if !force && !conflicts.is_empty() {
        return Err(conflicts);
    }
    let wanted = Fields::of(&owned(applied), cursor);
    if let Some(mine) = &mine {
        let others = all.iter().fold(Fields::default(), |sum, entry| sum.union(&entry.fields));
        merge::prune(&mut merged, &mine.fields.minus(&wanted).minus(&others), cursor);
    }
    let mut entry = Entry::new(writer, APPLY, wanted);
    if let (Some(live), Some(mine)) = (live, &mine)
        && owned(live) == owned(&merged)
        && mine.fields == entry.fields
    {
        entry.time.clone_from(&mine.time);
    }
    all.push(entry);
    write_entries(&mut merged, all);
    Ok(merged)
}

/// Takes changed fields from the entries that own them, and tells each as a conflict unless it is known to be none.
fn take(entries: &mut [Entry], changed: &Fields, known: &Fields) -> Vec<(String, String)> {
    let mut conflicts = Vec::new();
    for entry in entries {
        let taken = entry.fields.common(changed);
        entry.fields = entry.fields.minus(&taken);
        if !taken.minus(known).is_empty() {
            let who = format!("conflict with \"{}\" using {}", entry.manager, entry.api_version);
            conflicts.extend(taken.paths().into_iter().map(|path| (who.clone(), path)));
        }
    }
    conflicts
}

/// The fields that `kubectl apply` once wrote on the client's side, as its annotation tells: `kubectl apply --server-side`
/// takes them over without a conflict.
fn upgraded(live: &Value, writer: &Writer<'_>, cursor: Cursor<'_>) -> Fields {
    let last = text(live, &["metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration"]);
    if writer.manager != "kubectl" || last.is_empty() {
        return Fields::default();
    }
    serde_json::from_str::<Value>(last).map(|last| Fields::of(&owned(&last), cursor)).unwrap_or_default()
}

#[cfg(test)]
mod tests;
