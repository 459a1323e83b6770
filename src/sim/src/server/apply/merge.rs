//! The merge of server-side apply: what the applied object says wins, the rest of the live object stays; and the removal
//! of fields that a manager no longer applies.

use serde_json::Value;

use super::fields::{Fields, item_key};
use crate::server::schema::{Cursor, Merge};

/// Merges an applied value into the live one.
pub(crate) fn merge(live: &mut Value, applied: &Value, cursor: Cursor<'_>) {
    match (&mut *live, applied) {
        (Value::Object(ours), Value::Object(theirs)) if cursor.granular() => {
            for (name, value) in theirs {
                match ours.get_mut(name) {
                    Some(place) => merge(place, value, cursor.child(name)),
                    None => {
                        ours.insert(name.clone(), value.clone());
                    }
                }
            }
        }
        (Value::Array(ours), Value::Array(theirs)) => match cursor.merge {
            Merge::Set => {
                for item in theirs {
                    if !ours.contains(item) {
                        ours.push(item.clone());
                    }
                }
            }
            Merge::Keys { keys, .. } => merge_items(ours, theirs, keys, cursor.item()),
            Merge::Plain | Merge::Atomic => *live = applied.clone(),
        },
        _ => *live = applied.clone(),
    }
}

fn merge_items(ours: &mut Vec<Value>, theirs: &[Value], keys: &[&str], cursor: Cursor<'_>) {
    for item in theirs {
        let key = item_key(item, keys);
        match ours.iter_mut().find(|other| item_key(other, keys) == key) {
            Some(place) => merge(place, item, cursor),
            None => ours.push(item.clone()),
        }
    }
}

/// Takes the fields of a set out of a value.
pub(crate) fn prune(value: &mut Value, fields: &Fields, cursor: Cursor<'_>) {
    match value {
        Value::Object(map) => {
            for (step, inner) in &fields.children {
                let Some(name) = step.strip_prefix("f:") else { continue };
                if inner.member {
                    map.remove(name);
                } else if let Some(place) = map.get_mut(name) {
                    prune(place, inner, cursor.child(name));
                }
            }
        }
        Value::Array(items) => items.retain_mut(|item| {
            let step = match cursor.merge {
                Merge::Set => format!("v:{item}"),
                Merge::Keys { keys, .. } => format!("k:{}", item_key(item, keys)),
                Merge::Plain | Merge::Atomic => return true,
            };
            let Some(inner) = fields.children.get(&step) else { return true };
            if !inner.member {
                prune(item, inner, cursor.item());
            }
            !inner.member
        }),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::schema::schema;
    use serde_json::json;

    #[test]
    fn keyed_lists_merge_by_key_and_plain_ones_are_replaced() {
        let cursor = schema().root("core.v1.Pod");
        let mut live = json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["x"]}, {"name": "b"}]}});
        let applied = json!({"spec": {"containers": [{"name": "a", "args": ["y", "z"]}, {"name": "c"}]}});
        merge(&mut live, &applied, cursor);
        let expected = json!({"spec": {"containers": [{"name": "a", "image": "1", "args": ["y", "z"]}, {"name": "b"}, {"name": "c"}]}});
        assert_eq!(live, expected);
    }

    #[test]
    fn pruning_takes_fields_and_items() {
        let cursor = schema().root("core.v1.Pod");
        let mut live = json!({"metadata": {"labels": {"a": "1", "b": "2"}, "finalizers": ["x/y", "x/z"]},
                              "spec": {"containers": [{"name": "a", "image": "1"}, {"name": "b"}]}});
        let fields =
            Fields::from_json(&json!({"f:metadata": {"f:labels": {"f:a": {}}, "f:finalizers": {"v:\"x/y\"": {}}},
            "f:spec": {"f:containers": {"k:{\"name\":\"a\"}": {"f:image": {}}, "k:{\"name\":\"b\"}": {}}}}));
        prune(&mut live, &fields, cursor);
        let expected =
            json!({"metadata": {"labels": {"b": "2"}, "finalizers": ["x/z"]}, "spec": {"containers": [{"name": "a"}]}});
        assert_eq!(live, expected);
    }
}
