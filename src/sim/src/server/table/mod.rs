//! Tables: objects as rows for people, the way `kubectl get` shows them. Ages are made here, at the time of the answer.

mod age;
mod builtin;
mod custom;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::api::Target;
use super::kinds::Resource;
use super::store::Object;
use super::value::{at, text};

pub(crate) use age::age;

/// A column: its name, its type, its format, and whether only `-o wide` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) name: String,
    pub(crate) kind: String,
    pub(crate) format: String,
    pub(crate) wide: bool,
}

impl Column {
    fn of(name: &str) -> Self {
        let (name, wide) = name.strip_suffix('+').map_or((name, false), |name| (name, true));
        let kind = if ["Data", "Desired", "Current"].contains(&name) { "integer" } else { "string" };
        let format = if name == "Name" { "name" } else { "" };
        Self { name: name.to_owned(), kind: kind.to_owned(), format: format.to_owned(), wide }
    }

    fn definition(&self) -> Value {
        json!({"name": self.name, "type": self.kind, "format": self.format, "description": "",
               "priority": i32::from(self.wide)})
    }
}

/// A table of objects; the column definitions may be left out in later events of a watch.
pub(crate) fn table(target: &Target, objects: &[Object], now: Timestamp, columns: bool) -> Value {
    let resource = &target.resource;
    let rows: Vec<Value> = objects
        .iter()
        .map(|object| {
            let meta = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                              "metadata": at(object, &["metadata"])});
            json!({"cells": cells(resource, &target.version, object, now), "object": meta})
        })
        .collect();
    let definitions: Value = if columns {
        self::columns(resource, &target.version).iter().map(Column::definition).collect()
    } else {
        Value::Null
    };
    let version = match objects {
        [one] => text(one, &["metadata", "resourceVersion"]),
        _ => "",
    };
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {"resourceVersion": version},
           "columnDefinitions": definitions, "rows": rows})
}

fn columns(resource: &Resource, version: &str) -> Vec<Column> {
    if resource.builtin() {
        builtin::columns(&resource.kind).iter().map(|name| Column::of(name)).collect()
    } else {
        custom::columns(resource, version)
    }
}

fn cells(resource: &Resource, version: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    if resource.builtin() {
        builtin::cells(&resource.kind, object, now)
    } else {
        custom::cells(resource, version, object, now)
    }
}

/// The age of an object.
fn created(object: &Value, now: Timestamp) -> Value {
    json!(age(text(object, &["metadata", "creationTimestamp"]), now))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::kinds::{Kinds, Rules};
    use std::sync::Arc;

    fn target(kind: &str) -> Target {
        let resource = Kinds::new(Rules::V1).builtin(kind).unwrap();
        Target {
            resource,
            version: "v1".to_owned(),
            namespace: String::new(),
            name: String::new(),
            subresource: String::new(),
        }
    }

    #[test]
    fn every_kind_has_a_cell_for_each_column() {
        for resource in Kinds::new(Rules::V1).iter() {
            let object = Arc::new(json!({"metadata": {"name": "x"}}));
            let found = table(&target(&resource.kind), &[object], Timestamp::UNIX_EPOCH, true);
            let columns = found["columnDefinitions"].as_array().unwrap().len();
            assert_eq!(found["rows"][0]["cells"].as_array().unwrap().len(), columns, "{}", resource.kind);
            assert_eq!(
                found["columnDefinitions"][0]["format"].as_str(),
                Some(if resource.kind == "Event" { "" } else { "name" })
            );
        }
    }

    #[test]
    fn later_events_of_a_watch_need_no_columns() {
        let found = table(&target("Pod"), &[], Timestamp::UNIX_EPOCH, false);
        assert!(found["columnDefinitions"].is_null());
    }
}
