//! Short ways into a JSON object by path. A missing field reads as null, an empty text or an empty list, as it does in
//! the API's own types.

use serde_json::{Map, Value};

static NULL: Value = Value::Null;

/// The value at `path`, null where any step is missing.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> &'a Value {
    path.iter().fold(value, |here, step| here.get(*step).unwrap_or(&NULL))
}

/// The text at `path`, empty where it is missing or no text.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).as_str().unwrap_or_default()
}

/// The items of the list at `path`.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The whole number at `path`.
pub(crate) fn int(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).as_i64()
}

/// The place at `path` for writing; objects on the way are made.
pub(crate) fn entry<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Value {
    path.iter().fold(value, |here, step| object(here).entry(*step).or_insert(Value::Null))
}

/// The value as an object for writing; anything else in its place is replaced by an empty one.
pub(crate) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        _ => unreachable!("an object was put there above"),
    }
}

/// The list at `path` for writing; made where it is missing.
pub(crate) fn list_mut<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Vec<Value> {
    let place = entry(value, path);
    if !place.is_array() {
        *place = Value::Array(Vec::new());
    }
    match place {
        Value::Array(items) => items,
        _ => unreachable!("a list was put there above"),
    }
}

/// The items of the list at `path` for writing, none where it is missing (and nothing is made).
pub(crate) fn items_mut<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut [Value] {
    let place = path.iter().try_fold(value, |here, step| here.get_mut(*step));
    place.and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

/// Writes `new` at `path`.
pub(crate) fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    *entry(value, path) = new.into();
}

/// Writes `new` at `path` if nothing (or null, or an empty text) is there.
pub(crate) fn set_default(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    let place = entry(value, path);
    if place.is_null() || place.as_str() == Some("") {
        *place = new.into();
    }
}

/// Takes the field at `path` out.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let parent = parents.iter().try_fold(value, |here, step| here.get_mut(*step))?;
    parent.as_object_mut()?.remove(*last)
}

/// Writes the field at `path` as `from` has it: takes it out where `from` has none.
pub(crate) fn copy(from: &Value, to: &mut Value, path: &[&str]) {
    match at(from, path) {
        Value::Null => {
            remove(to, path);
        }
        found => set(to, path, found.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_missing_step_reads_as_nothing() {
        let value = json!({"a": {"b": "c"}});
        assert_eq!(text(&value, &["a", "b"]), "c");
        assert_eq!(text(&value, &["a", "x", "y"]), "");
        assert!(list(&value, &["a"]).is_empty());
    }

    #[test]
    fn writing_makes_the_objects_on_the_way() {
        let mut value = json!({"a": 1});
        set(&mut value, &["a", "b", "c"], 2);
        assert_eq!(value, json!({"a": {"b": {"c": 2}}}));
        assert_eq!(remove(&mut value, &["a", "b", "c"]), Some(json!(2)));
        assert_eq!(remove(&mut value, &["x", "y"]), None);
    }
}
