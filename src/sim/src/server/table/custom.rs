//! Columns of custom kinds: those that the definition asks for, else name and age.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Column, age, created};
use crate::server::kinds::Resource;
use crate::server::value::{at, int, list, text};

fn printed<'a>(resource: &'a Resource, version: &str) -> &'a [Value] {
    let versions = list(&resource.definition, &["spec", "versions"]);
    let found = versions.iter().find(|v| text(v, &["name"]) == version);
    found.map(|v| list(v, &["additionalPrinterColumns"])).unwrap_or_default()
}

pub(super) fn columns(resource: &Resource, version: &str) -> Vec<Column> {
    let mut columns = vec![Column::of("Name")];
    let asked = printed(resource, version);
    if asked.is_empty() {
        columns.push(Column::of("Age"));
    }
    columns.extend(asked.iter().map(|column| Column {
        name: text(column, &["name"]).to_owned(),
        kind: text(column, &["type"]).to_owned(),
        format: text(column, &["format"]).to_owned(),
        wide: int(column, &["priority"]).unwrap_or(0) > 0,
    }));
    columns
}

pub(super) fn cells(resource: &Resource, version: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let mut cells = vec![at(object, &["metadata", "name"]).clone()];
    let asked = printed(resource, version);
    if asked.is_empty() {
        cells.push(created(object, now));
    }
    cells.extend(asked.iter().map(|column| {
        let found = path(object, text(column, &["jsonPath"]));
        match (text(column, &["type"]), found) {
            ("date", Value::String(then)) => json!(age(then, now)),
            (_, found) => found.clone(),
        }
    }));
    cells
}

/// Follows a plain dotted path with indexes, the part of JSONPath that printed columns use most.
fn path<'a>(object: &'a Value, path: &str) -> &'a Value {
    static NULL: Value = Value::Null;
    let plain = path.replace("\\.", "\u{0}").replace(['[', ']'], ".");
    plain.split('.').filter(|step| !step.is_empty()).fold(object, |here, step| {
        let step = step.replace('\u{0}', ".");
        let found = match step.parse::<usize>() {
            Ok(index) if here.is_array() => here.get(index),
            _ => here.get(step.trim_matches(['\'', '"'])),
        };
        found.unwrap_or(&NULL)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::kinds::custom;

    #[test]
    fn asked_columns_replace_the_age() {
        let resource =
            custom(&json!({"spec": {"names": {"kind": "Mark", "plural": "marks"}, "versions": [{"name": "v1",
            "served": true, "additionalPrinterColumns": [
                {"name": "Effect", "type": "string", "jsonPath": ".spec.taints[0].effect"},
                {"name": "Since", "type": "date", "jsonPath": ".metadata.creationTimestamp", "priority": 1}]}]}}));
        let object = json!({"metadata": {"name": "m", "creationTimestamp": "2026-11-30T10:00:00Z"},
                            "spec": {"taints": [{"effect": "NoExecute"}]}});
        let names: Vec<String> = columns(&resource, "v1").into_iter().map(|column| column.name).collect();
        assert_eq!(names, ["Name", "Effect", "Since"]);
        let now = "2026-11-30T10:00:07Z".parse().unwrap();
        assert_eq!(cells(&resource, "v1", &object, now), [json!("m"), json!("NoExecute"), json!("7s")]);
    }
}
