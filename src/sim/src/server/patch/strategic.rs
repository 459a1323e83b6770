//! Strategic merge patch: like a merge patch, but lists whose items have a key are merged item by item, lists of distinct
//! values are joined, and directives (`$patch`, `$deleteFromPrimitiveList/...`, `$retainKeys`) steer the merge.

use serde_json::{Map, Value};

use crate::server::schema::{Cursor, Merge};

const DIRECTIVE: &str = "$patch";
const ORDER: &str = "$setElementOrder/";
const DELETE_FROM: &str = "$deleteFromPrimitiveList/";
const RETAIN: &str = "$retainKeys";

/// Merges a patch into a value; the error says what is wrong with the patch.
pub(super) fn merge(current: &mut Value, patch: &Value, cursor: Cursor<'_>) -> Result<(), String> {
    let Value::Object(patch) = patch else {
        return Err("a strategic merge patch must be a JSON object".to_owned());
    };
    if !current.is_object() {
        *current = Value::Object(Map::new());
    }
    match current {
        Value::Object(current) => merge_maps(current, patch, cursor),
        _ => Ok(()),
    }
}

fn merge_maps(current: &mut Map<String, Value>, patch: &Map<String, Value>, cursor: Cursor<'_>) -> Result<(), String> {
    match patch.get(DIRECTIVE).and_then(Value::as_str) {
        None | Some("merge") => {}
        Some("replace") => {
            *current = stripped(patch);
            return Ok(());
        }
        Some("delete") => {
            current.clear();
            return Ok(());
        }
        Some(other) => return Err(format!("unknown value {other:?} of the {DIRECTIVE} directive")),
    }
    if let Some(Value::Array(kept)) = patch.get(RETAIN) {
        current.retain(|name, _| kept.iter().any(|key| key.as_str() == Some(name)));
    }
    for (name, value) in patch {
        if let Some(list) = name.strip_prefix(DELETE_FROM) {
            delete_from(current, list, value);
        } else if name != DIRECTIVE && name != RETAIN && !name.starts_with(ORDER) {
            merge_field(current, name, value, cursor.child(name))?;
        }
    }
    Ok(())
}

fn merge_field(current: &mut Map<String, Value>, name: &str, value: &Value, cursor: Cursor<'_>) -> Result<(), String> {
    match (current.get_mut(name), value) {
        (_, Value::Null) => {
            current.remove(name);
        }
        (Some(Value::Object(ours)), Value::Object(theirs)) => merge_maps(ours, theirs, cursor)?,
        (Some(Value::Array(ours)), Value::Array(theirs)) => merge_lists(ours, theirs, cursor)?,
        (_, Value::Object(theirs)) => {
            let mut fresh = Map::new();
            merge_maps(&mut fresh, theirs, cursor)?;
            current.insert(name.to_owned(), Value::Object(fresh));
        }
        (_, Value::Array(theirs)) => {
            let mut fresh = Vec::new();
            merge_lists(&mut fresh, theirs, cursor)?;
            current.insert(name.to_owned(), Value::Array(fresh));
        }
        (_, other) => {
            current.insert(name.to_owned(), other.clone());
        }
    }
    Ok(())
}

fn merge_lists(ours: &mut Vec<Value>, theirs: &[Value], cursor: Cursor<'_>) -> Result<(), String> {
    let replaces = |item: &Value| item.get(DIRECTIVE).and_then(Value::as_str) == Some("replace");
    if theirs.iter().any(replaces) {
        let kept = theirs.iter().filter(|item| !replaces(item) || item.as_object().is_some_and(|map| map.len() > 1));
        *ours = kept.map(without_directives).collect();
        return Ok(());
    }
    match cursor.merge {
        Merge::Set => {
            for item in theirs {
                if !ours.contains(item) {
                    ours.push(item.clone());
                }
            }
            Ok(())
        }
        Merge::Keys { keys, apply_only: false } if !keys.is_empty() => {
            merge_items(ours, theirs, keys[0], cursor.item())
        }
        _ => {
            *ours = theirs.iter().filter(|item| item.get(DIRECTIVE).is_none()).map(without_directives).collect();
            Ok(())
        }
    }
}

fn merge_items(ours: &mut Vec<Value>, theirs: &[Value], key: &str, cursor: Cursor<'_>) -> Result<(), String> {
    for item in theirs {
        let Some(id) = item.get(key) else {
            return Err(format!("map: {item} does not contain declared merge key: {key}"));
        };
        let place = ours.iter().position(|other| other.get(key) == Some(id));
        let delete = item.get(DIRECTIVE).and_then(Value::as_str) == Some("delete");
        match (place, item) {
            (Some(index), _) if delete => {
                ours.remove(index);
            }
            (None, _) if delete => {}
            (Some(index), Value::Object(patch)) => {
                if let Value::Object(current) = &mut ours[index] {
                    merge_maps(current, patch, cursor)?;
                }
            }
            (None, Value::Object(patch)) => {
                let mut fresh = Map::new();
                merge_maps(&mut fresh, patch, cursor)?;
                ours.push(Value::Object(fresh));
            }
            (_, other) => ours.push(other.clone()),
        }
    }
    Ok(())
}

fn delete_from(current: &mut Map<String, Value>, list: &str, values: &Value) {
    if let (Some(Value::Array(items)), Value::Array(values)) = (current.get_mut(list), values) {
        items.retain(|item| !values.contains(item));
    }
}

fn stripped(patch: &Map<String, Value>) -> Map<String, Value> {
    let plain = patch.iter().filter(|(name, _)| !name.starts_with('$'));
    plain.map(|(name, value)| (name.clone(), without_directives(value))).collect()
}

fn without_directives(value: &Value) -> Value {
    match value {
        Value::Object(map) => Value::Object(stripped(map)),
        Value::Array(items) => Value::Array(items.iter().map(without_directives).collect()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::schema::schema;
    use serde_json::json;

    fn patched(kind: &str, mut current: Value, patch: Value) -> Value {
        merge(&mut current, &patch, schema().root(kind)).unwrap();
        current
    }

    #[test]
    fn containers_merge_by_name_and_tolerations_are_replaced() {
        let pod = json!({"spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}], "tolerations": [{"key": "k"}]}});
        let patch = json!({"spec": {"$setElementOrder/containers": [{"name": "a"}], "tolerations": [{"key": "x"}],
            "containers": [{"name": "a", "args": ["z"]}, {"name": "b", "$patch": "delete"}, {"name": "c"}]}});
        let expected = json!({"spec": {"tolerations": [{"key": "x"}],
            "containers": [{"name": "a", "image": "1", "args": ["z"]}, {"name": "c"}]}});
        assert_eq!(patched("core.v1.Pod", pod, patch), expected);
    }

    #[test]
    fn conditions_merge_by_type() {
        let node = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "DiskPressure"}]}});
        let patch = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        let next = patched("core.v1.Node", node, patch);
        assert_eq!(
            next["status"]["conditions"],
            json!([{"type": "Ready", "status": "Unknown"}, {"type": "DiskPressure"}])
        );
    }

    #[test]
    fn finalizers_are_a_set() {
        let claim = json!({"metadata": {"finalizers": ["a/a", "b/b"]}});
        let patch = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a/a"], "finalizers": ["b/b", "c/c"]}});
        let next = patched("resource.v1.ResourceClaim", claim, patch);
        assert_eq!(next["metadata"]["finalizers"], json!(["b/b", "c/c"]));
    }

    #[test]
    fn directives_replace_and_clear() {
        let pod = json!({"metadata": {"labels": {"a": "1"}}, "spec": {"containers": [{"name": "a"}]}});
        let patch = json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}},
                           "spec": {"containers": [{"name": "z"}, {"$patch": "replace"}]}});
        let expected = json!({"metadata": {"labels": {"b": "2"}}, "spec": {"containers": [{"name": "z"}]}});
        assert_eq!(patched("core.v1.Pod", pod.clone(), patch), expected);
        let next = patched("core.v1.Pod", pod, json!({"metadata": {"labels": {"$retainKeys": ["c"], "c": "3"}}}));
        assert_eq!(next["metadata"]["labels"], json!({"c": "3"}));
    }

    #[test]
    fn a_patch_that_makes_no_sense_is_refused() {
        let mut pod = json!({"spec": {"containers": []}});
        let cursor = schema().root("core.v1.Pod");
        let missing = merge(&mut pod, &json!({"spec": {"containers": [{"image": "x"}]}}), cursor);
        assert!(missing.unwrap_err().contains("merge key: name"));
        assert!(merge(&mut pod, &json!([]), cursor).is_err());
        assert!(merge(&mut pod, &json!({"spec": {"$patch": "explode"}}), cursor).is_err());
    }
}
