//! Sets of fields, as `metadata.managedFields` writes them, with the few operations that ownership needs.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::server::schema::{Cursor, Merge};

/// A set of fields as a tree. A step is `f:name`, `k:{"key":"value"}` for an item of a keyed list, `v:value` for one of a
/// set, as in the fieldsV1 format.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Fields {
    /// The field at this place itself is in the set.
    pub(crate) member: bool,
    pub(crate) children: BTreeMap<String, Fields>,
}

/// How two states of an object differ.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Diff {
    /// Fields that are new or have another value.
    pub(crate) changed: Fields,
    /// Fields that are gone.
    pub(crate) removed: Fields,
}

impl Fields {
    fn leaf() -> Self {
        Self { member: true, children: BTreeMap::new() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        !self.member && self.children.is_empty()
    }

    /// Every field of a value.
    pub(crate) fn of(value: &Value, cursor: Cursor<'_>) -> Self {
        match parts(value, cursor) {
            Some(parts) if !parts.is_empty() => {
                let children =
                    parts.into_iter().map(|part| (part.step, Self::of_part(part.value, part.cursor, part.item)));
                Self { member: false, children: children.collect() }
            }
            _ => Self::leaf(),
        }
    }

    fn of_part(value: &Value, cursor: Cursor<'_>, item: bool) -> Self {
        let mut found = Self::of(value, cursor);
        found.member |= item;
        found
    }

    /// Both sets together.
    pub(crate) fn union(mut self, other: &Self) -> Self {
        self.member |= other.member;
        for (step, theirs) in &other.children {
            let ours = self.children.remove(step).unwrap_or_default();
            self.children.insert(step.clone(), ours.union(theirs));
        }
        self
    }

    /// What is here and not in the other set.
    pub(crate) fn minus(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(step, ours)| {
            let left = other.children.get(step).map_or_else(|| ours.clone(), |theirs| ours.minus(theirs));
            (!left.is_empty()).then(|| (step.clone(), left))
        });
        Self { member: self.member && !other.member, children: children.collect() }
    }

    /// What is in both sets.
    pub(crate) fn common(&self, other: &Self) -> Self {
        let children = self.children.iter().filter_map(|(step, ours)| {
            let both = ours.common(other.children.get(step)?);
            (!both.is_empty()).then(|| (step.clone(), both))
        });
        Self { member: self.member && other.member, children: children.collect() }
    }

    /// The fieldsV1 form.
    pub(crate) fn to_json(&self) -> Value {
        let mut map: Map<String, Value> =
            self.children.iter().map(|(step, child)| (step.clone(), child.to_json())).collect();
        if self.member && !map.is_empty() {
            map.insert(".".to_owned(), Value::Object(Map::new()));
        }
        Value::Object(map)
    }

    /// Reads the fieldsV1 form; anything else is the empty set.
    pub(crate) fn from_json(value: &Value) -> Self {
        let Some(map) = value.as_object() else { return Self::default() };
        let children = map.iter().filter(|(step, _)| *step != ".").map(|(step, v)| (step.clone(), Self::from_json(v)));
        Self { member: map.is_empty() || map.contains_key("."), children: children.collect() }
    }

    /// The fields as paths for people: `.spec.containers[name="c"].image`.
    pub(crate) fn paths(&self) -> Vec<String> {
        let mut found = Vec::new();
        self.collect(&mut String::new(), &mut found);
        found
    }

    fn collect(&self, path: &mut String, found: &mut Vec<String>) {
        if self.member {
            found.push(path.clone());
        }
        for (step, child) in &self.children {
            let length = path.len();
            path.push_str(&readable(step));
            child.collect(path, found);
            path.truncate(length);
        }
    }
}

fn readable(step: &str) -> String {
    match step.split_at_checked(2) {
        Some(("f:", name)) => format!(".{name}"),
        Some(("k:", key)) => {
            let key: Map<String, Value> = serde_json::from_str(key).unwrap_or_default();
            let terms: Vec<String> = key.iter().map(|(name, value)| format!("{name}={value}")).collect();
            format!("[{}]", terms.join(","))
        }
        Some(("v:", value)) => format!("[={value}]"),
        _ => step.to_owned(),
    }
}

/// A part of a value that can be owned by itself.
pub(crate) struct Part<'a> {
    pub(crate) step: String,
    pub(crate) value: &'a Value,
    pub(crate) cursor: Cursor<'a>,
    /// It is an item of a list, which is owned itself beside its fields.
    pub(crate) item: bool,
}

/// The parts of a value, none where it is owned as a whole.
pub(crate) fn parts<'a>(value: &'a Value, cursor: Cursor<'a>) -> Option<Vec<Part<'a>>> {
    match value {
        Value::Object(map) if cursor.granular() => {
            let part = |(name, value): (&'a String, &'a Value)| Part {
                step: format!("f:{name}"),
                value,
                cursor: cursor.child(name),
                item: false,
            };
            Some(map.iter().map(part).collect())
        }
        Value::Array(items) => {
            let step: Box<dyn Fn(&Value) -> String> = match cursor.merge {
                Merge::Set => Box::new(|item| format!("v:{item}")),
                Merge::Keys { keys, .. } => Box::new(|item| format!("k:{}", item_key(item, keys))),
                Merge::Plain | Merge::Atomic => return None,
            };
            let part = |value: &'a Value| Part { step: step(value), value, cursor: cursor.item(), item: true };
            Some(items.iter().map(part).collect())
        }
        _ => None,
    }
}

/// The key of an item of a keyed list. A port without a protocol is TCP.
pub(crate) fn item_key(item: &Value, keys: &[&str]) -> Value {
    let pairs = keys.iter().filter_map(|key| match item.get(*key) {
        Some(value) => Some(((*key).to_owned(), value.clone())),
        None if *key == "protocol" => Some(((*key).to_owned(), Value::from("TCP"))),
        None => None,
    });
    Value::Object(pairs.collect())
}

/// Compares two states of a value; none stands for a missing one.
pub(crate) fn diff(old: Option<&Value>, new: Option<&Value>, cursor: Cursor<'_>) -> Diff {
    match (old, new) {
        (None, None) => Diff::default(),
        (None, Some(new)) => Diff { changed: Fields::of(new, cursor), removed: Fields::default() },
        (Some(old), None) => Diff { changed: Fields::default(), removed: Fields::of(old, cursor) },
        (Some(old), Some(new)) if old == new => Diff::default(),
        (Some(old), Some(new)) => match (parts(old, cursor), parts(new, cursor)) {
            (Some(old), Some(new)) => diff_parts(old, new),
            (_, None) => Diff { changed: Fields::leaf(), removed: Fields::default() },
            (None, Some(_)) => Diff { changed: Fields::of(new, cursor), removed: Fields::leaf() },
        },
    }
}

fn diff_parts(old: Vec<Part<'_>>, new: Vec<Part<'_>>) -> Diff {
    let mut before: BTreeMap<String, Part<'_>> = old.into_iter().map(|part| (part.step.clone(), part)).collect();
    let mut found = Diff::default();
    for part in new {
        let Part { step, value, cursor, item } = part;
        let inner = match before.remove(&step) {
            Some(old) => diff(Some(old.value), Some(value), cursor),
            None => Diff { changed: Fields::of_part(value, cursor, item), removed: Fields::default() },
        };
        add(&mut found.changed, &step, inner.changed);
        add(&mut found.removed, &step, inner.removed);
    }
    for (step, part) in before {
        add(&mut found.removed, &step, Fields::of_part(part.value, part.cursor, part.item));
    }
    found
}

fn add(fields: &mut Fields, step: &str, inner: Fields) {
    if !inner.is_empty() {
        fields.children.insert(step.to_owned(), inner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::schema::schema;
    use serde_json::json;

    fn pod() -> Cursor<'static> {
        schema().root("core.v1.Pod")
    }

    #[test]
    fn a_set_has_the_form_of_managed_fields() {
        let value = json!({"metadata": {"labels": {"a": "1"}, "finalizers": ["x/y"]},
            "spec": {"containers": [{"name": "c", "ports": [{"containerPort": 1}], "args": ["x"]}], "tolerations": [{"key": "k"}]}});
        let fields = Fields::of(&value, pod());
        let json = json!({
            "f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {"f:tolerations": {}, "f:containers": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:args": {},
                "f:ports": {"k:{\"containerPort\":1,\"protocol\":\"TCP\"}": {".": {}, "f:containerPort": {}}}}}}});
        assert_eq!(fields.to_json(), json);
        assert_eq!(Fields::from_json(&json), fields);
    }

    #[test]
    fn a_diff_tells_changed_from_removed() {
        let old = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"tolerations": [{"key": "k"}]}});
        let new = json!({"metadata": {"labels": {"a": "1", "c": "3"}}, "spec": {"tolerations": []}});
        let found = diff(Some(&old), Some(&new), pod());
        assert_eq!(found.changed.paths(), [".metadata.labels.c", ".spec.tolerations"]);
        assert_eq!(found.removed.paths(), [".metadata.labels.b"]);
    }

    #[test]
    fn sets_can_be_joined_cut_and_compared() {
        let a = Fields::from_json(&json!({"f:x": {"f:y": {}, "f:z": {}}}));
        let b = Fields::from_json(&json!({"f:x": {"f:y": {}}, "f:w": {}}));
        assert_eq!(a.minus(&b).paths(), [".x.z"]);
        assert_eq!(a.common(&b).paths(), [".x.y"]);
        assert_eq!(a.clone().union(&b).paths(), [".w", ".x.y", ".x.z"]);
        assert!(a.minus(&a).is_empty());
    }

    #[test]
    fn paths_are_readable() {
        let fields = Fields::from_json(&json!({"f:spec": {"f:containers": {"k:{\"name\":\"c\"}": {"f:image": {}}}}}));
        assert_eq!(fields.paths(), [r#".spec.containers[name="c"].image"#]);
    }
}
