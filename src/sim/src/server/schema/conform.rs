//! Fits a decoded object to its type, as the API's own decoder does: wrong types are errors, unknown fields are named and
//! dropped, nulls and empty optional lists and maps vanish, times and numbers take their usual form.

use jiff::Timestamp;
use serde_json::{Map, Value};

use super::{Cursor, Leaf, Merge, Shape};
use crate::server::world::{rfc3339, rfc3339_micro};

/// What was found on the way.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Paths of fields that the type does not have; they are dropped from the object.
    pub(crate) unknown: Vec<String>,
    /// Values of a wrong type, in words.
    pub(crate) errors: Vec<String>,
}

/// Fits `value` to the type at `cursor`.
pub(crate) fn conform(value: &mut Value, cursor: Cursor<'_>) -> Report {
    let mut report = Report::default();
    visit(value, cursor, &mut String::new(), &mut report);
    report
}

fn visit(value: &mut Value, cursor: Cursor<'_>, path: &mut String, report: &mut Report) {
    match cursor.shape {
        Shape::Struct(_) => match value {
            Value::Object(map) => fields(map, cursor, path, report),
            other => wrong(other, "object", path, report),
        },
        Shape::Map(_) => match value {
            Value::Object(map) => entries(map, cursor, path, report),
            other => wrong(other, "map", path, report),
        },
        Shape::List(_) => match value {
            Value::Array(items) => list(items, cursor, path, report),
            other => wrong(other, "list", path, report),
        },
        Shape::Leaf(leaf) => {
            if let Err(expected) = fit(value, *leaf) {
                wrong(value, expected, path, report);
            }
        }
    }
}

fn fields(map: &mut Map<String, Value>, cursor: Cursor<'_>, path: &mut String, report: &mut Report) {
    map.retain(|name, value| {
        let Some(field) = cursor.field(name) else {
            report.unknown.push(join(path, name));
            return false;
        };
        if value.is_null() {
            return false;
        }
        step(path, name, |path| visit(value, field, path, report));
        let required = cursor.strukt().and_then(|t| t.fields.get(name.as_str())).is_some_and(|f| f.required);
        required || !vanishes(value, field)
    });
}

/// Empty lists and maps are left out when the API writes an optional field; empty structs are not.
fn vanishes(value: &Value, cursor: Cursor<'_>) -> bool {
    match (cursor.shape, value) {
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(map)) => map.is_empty(),
        _ => false,
    }
}

fn entries(map: &mut Map<String, Value>, cursor: Cursor<'_>, path: &mut String, report: &mut Report) {
    for (name, value) in map.iter_mut() {
        if value.is_null() && matches!(cursor.child(name).shape, Shape::Leaf(Leaf::Text)) {
            *value = Value::String(String::new());
        }
        step(path, name, |path| visit(value, cursor.child(name), path, report));
    }
}

fn list(items: &mut Vec<Value>, cursor: Cursor<'_>, path: &mut String, report: &mut Report) {
    for (index, item) in items.iter_mut().enumerate() {
        let length = path.len();
        path.push_str(&format!("[{index}]"));
        visit(item, cursor.item(), path, report);
        path.truncate(length);
    }
    if matches!(cursor.merge, Merge::Set) {
        let mut seen = Vec::new();
        items.retain(|item| !seen.contains(item) && (seen.push(item.clone()), true).1);
    }
}

fn fit(value: &mut Value, leaf: Leaf) -> Result<(), &'static str> {
    match leaf {
        Leaf::Any => Ok(()),
        Leaf::Text | Leaf::Bytes => value.is_string().then_some(()).ok_or("string"),
        Leaf::Bool => value.is_boolean().then_some(()).ok_or("bool"),
        Leaf::Int32 => value.as_i64().and_then(|n| i32::try_from(n).ok()).map(|_| ()).ok_or("int32"),
        Leaf::Int64 => value.as_i64().map(|_| ()).ok_or("int64"),
        Leaf::Number => value.is_number().then_some(()).ok_or("number"),
        Leaf::IntOrString => (value.is_string() || value.as_i64().is_some()).then_some(()).ok_or("int or string"),
        Leaf::Quantity => quantity(value),
        Leaf::Time => time(value, rfc3339),
        Leaf::MicroTime => time(value, rfc3339_micro),
    }
}

fn quantity(value: &mut Value) -> Result<(), &'static str> {
    if value.is_number() {
        *value = Value::String(value.to_string());
    }
    let text = value.as_str().ok_or("quantity")?;
    let digits = text.trim_start_matches(['+', '-']).trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let exponent = digits.strip_prefix(['e', 'E']).is_some_and(|rest| rest.parse::<i32>().is_ok());
    let suffix =
        ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].contains(&digits);
    (text.contains(|c: char| c.is_ascii_digit()) && (suffix || exponent)).then_some(()).ok_or("quantity")
}

fn time(value: &mut Value, write: fn(Timestamp) -> String) -> Result<(), &'static str> {
    let parsed: Timestamp = value.as_str().and_then(|text| text.parse().ok()).ok_or("RFC 3339 time")?;
    *value = Value::String(write(parsed));
    Ok(())
}

fn wrong(found: &Value, expected: &str, path: &str, report: &mut Report) {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    };
    report.errors.push(format!("json: cannot unmarshal {kind} into field {path} of type {expected}"));
}

fn join(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") }
}

fn step(path: &mut String, name: &str, visit: impl FnOnce(&mut String)) {
    let length = path.len();
    if length > 0 {
        path.push('.');
    }
    path.push_str(name);
    visit(path);
    path.truncate(length);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::schema::schema;
    use serde_json::json;

    fn fitted(name: &str, mut value: Value) -> (Value, Report) {
        let report = conform(&mut value, schema().root(name));
        (value, report)
    }

    #[test]
    fn a_field_at_the_wrong_level_is_named_and_dropped() {
        let claim = json!({"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "c"}, "tolerations": [{"key": "k"}]}]}}});
        let (value, report) = fitted("resource.v1.ResourceClaim", claim);
        assert_eq!(report.unknown, ["spec.devices.requests[0].tolerations"]);
        assert!(value["spec"]["devices"]["requests"][0].get("tolerations").is_none());
    }

    #[test]
    fn an_empty_selector_stays_and_an_empty_list_goes() {
        let rule = json!({"spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": "NoExecute"}}});
        let (value, _) = fitted("resource.v1.DeviceTaintRule", rule.clone());
        assert_eq!(value, rule);
        let (node, _) = fitted("core.v1.Node", json!({"spec": {"taints": [], "unschedulable": null}}));
        assert_eq!(node, json!({"spec": {}}));
    }

    #[test]
    fn wrong_types_are_errors_with_their_path() {
        let (_, report) = fitted("core.v1.Pod", json!({"spec": {"tolerations": [{"tolerationSeconds": "10"}]}}));
        let expected = "json: cannot unmarshal string into field spec.tolerations[0].tolerationSeconds of type int64";
        assert_eq!(report.errors, [expected]);
    }

    #[test]
    fn times_and_quantities_take_their_usual_form() {
        let slice = json!({"spec": {"devices": [{"name": "d", "capacity": {"memory": {"value": 80}},
            "taints": [{"key": "k", "effect": "None", "timeAdded": "2026-11-30T11:00:00.5+01:00"}]}]}});
        let (value, report) = fitted("resource.v1.ResourceSlice", slice);
        assert_eq!(report, Report::default());
        assert_eq!(value["spec"]["devices"][0]["taints"][0]["timeAdded"], "2026-11-30T10:00:00Z");
        assert_eq!(value["spec"]["devices"][0]["capacity"]["memory"]["value"], "80");
        let (_, report) = fitted("core.v1.Node", json!({"status": {"capacity": {"cpu": "four"}}}));
        assert_eq!(report.errors.len(), 1);
    }
}
