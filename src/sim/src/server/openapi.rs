//! OpenAPI v3 documents, made from the schema: enough for kubectl to validate on the server, to choose the patch format,
//! and for `kubectl explain`.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::{Map, Value, json};

use super::kinds::{Kinds, Resource};
use super::schema::{Field, Leaf, Merge, Shape, schema};
use super::value::{at, list, text};

/// The index of documents: one per group and version, under `api/v1` and `apis/GROUP/VERSION`. The hash in a document's URL
/// changes when a kind of it does, so that clients may keep what they read.
pub(crate) fn index(kinds: &Kinds) -> Value {
    let mut groups = kinds.groups();
    groups.push(String::new());
    let mut paths = Map::new();
    for group in groups {
        for version in kinds.versions(&group) {
            let name = if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") };
            let mut hasher = DefaultHasher::new();
            for resource in of_version(kinds, &group, &version) {
                (&resource.kind, text(&resource.definition, &["metadata", "resourceVersion"])).hash(&mut hasher);
            }
            let url = format!("/openapi/v3/{name}?hash={:016X}", hasher.finish());
            paths.insert(name, json!({"serverRelativeURL": url}));
        }
    }
    json!({"paths": paths})
}

fn of_version<'a>(kinds: &'a Kinds, group: &str, version: &str) -> Vec<&'a Resource> {
    let served = |r: &&Resource| r.group == group && r.versions.iter().any(|v| v == version);
    kinds.iter().map(|r| &**r).filter(served).collect()
}

/// The document of one group and version, none if it is not served.
pub(crate) fn document(kinds: &Kinds, name: &str) -> Option<Value> {
    let (group, version) = match name.split('/').collect::<Vec<_>>().as_slice() {
        ["api", version] => (String::new(), (*version).to_owned()),
        ["apis", group, version] => ((*group).to_owned(), (*version).to_owned()),
        _ => return None,
    };
    let resources = of_version(kinds, &group, &version);
    if resources.is_empty() {
        return None;
    }
    let (mut paths, mut components) = (Map::new(), Map::new());
    for resource in resources {
        add_paths(&mut paths, resource, name, &version);
        add_components(&mut components, resource, &version);
    }
    Some(json!({"openapi": "3.0.0", "info": {"title": "Kubernetes", "version": "v1.37.2"}, "paths": paths,
                "components": {"schemas": components}}))
}

fn add_paths(paths: &mut Map<String, Value>, resource: &Resource, name: &str, version: &str) {
    let scope = if resource.namespaced { "namespaces/{namespace}/" } else { "" };
    let collection = format!("/{name}/{scope}{}", resource.plural);
    let kind = json!({"group": resource.group, "version": version, "kind": resource.kind});
    let body = json!({"schema": reference(&component(resource, version))});
    let content = |types: &[&str]| -> Map<String, Value> {
        types.iter().map(|name| ((*name).to_owned(), body.clone())).collect()
    };
    let patches: &[&str] = if resource.builtin() {
        &[
            "application/apply-patch+yaml",
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
        ]
    } else {
        &["application/apply-patch+yaml", "application/json-patch+json", "application/merge-patch+json"]
    };
    let operation = |action: &str, body: Option<&[&str]>| {
        let mut operation = json!({"x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
            "responses": {"200": {"description": "OK", "content": content(&["application/json"])}}});
        if let Some(types) = body {
            operation["parameters"] = writing();
            operation["requestBody"] = json!({"content": content(types), "required": true});
        }
        operation
    };
    paths.insert(
        collection.clone(),
        json!({"get": operation("list", None), "post": operation("post", Some(&["application/json"]))}),
    );
    paths.insert(
        format!("{collection}/{{name}}"),
        json!({"get": operation("get", None), "put": operation("put", Some(&["application/json"])),
               "patch": operation("patch", Some(patches)), "delete": operation("delete", None)}),
    );
}

fn writing() -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    json!([parameter("dryRun"), parameter("fieldManager"), parameter("fieldValidation")])
}

fn component(resource: &Resource, version: &str) -> String {
    if resource.builtin() {
        return public(&resource.schema).replace(".v1.", &format!(".{version}."));
    }
    let mut reversed: Vec<&str> = resource.group.split('.').collect();
    reversed.reverse();
    format!("{}.{version}.{}", reversed.join("."), resource.kind)
}

/// The public name of a type.
fn public(name: &str) -> String {
    let prefix = match name.split('.').next() {
        Some("meta") => "io.k8s.apimachinery.pkg.apis.",
        Some("apiextensions") => "io.k8s.apiextensions-apiserver.pkg.apis.",
        _ => "io.k8s.api.",
    };
    format!("{prefix}{name}")
}

fn reference(name: &str) -> Value {
    json!({"$ref": format!("#/components/schemas/{name}")})
}

fn add_components(components: &mut Map<String, Value>, resource: &Resource, version: &str) {
    let kind = json!([{"group": resource.group, "version": version, "kind": resource.kind}]);
    let name = component(resource, version);
    if !resource.builtin() {
        let mut definition = custom_schema(resource, version);
        definition["x-kubernetes-group-version-kind"] = kind;
        components.insert(name, definition);
        add_type(components, "meta.v1.ObjectMeta");
        return;
    }
    let mut todo: BTreeSet<&'static str> = BTreeSet::new();
    if let Some(mut definition) = definition(&resource.schema, &mut todo) {
        definition["x-kubernetes-group-version-kind"] = kind;
        components.insert(name, definition);
    }
    for inner in todo {
        add_type(components, inner);
    }
}

fn add_type(components: &mut Map<String, Value>, name: &str) {
    let public = public(name);
    if components.contains_key(&public) {
        return;
    }
    let mut todo = BTreeSet::new();
    let Some(made) = definition(name, &mut todo) else { return };
    components.insert(public, made);
    for inner in todo {
        add_type(components, inner);
    }
}

fn custom_schema(resource: &Resource, version: &str) -> Value {
    let versions = list(&resource.definition, &["spec", "versions"]);
    let found = versions.iter().find(|v| text(v, &["name"]) == version);
    let mut given = found.map_or(&Value::Null, |v| at(v, &["schema", "openAPIV3Schema"])).clone();
    if !given.is_object() {
        given = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    }
    given["properties"]["apiVersion"] = json!({"type": "string"});
    given["properties"]["kind"] = json!({"type": "string"});
    given["properties"]["metadata"] = json!({"allOf": [reference(&public("meta.v1.ObjectMeta"))]});
    given
}

fn definition(name: &str, todo: &mut BTreeSet<&'static str>) -> Option<Value> {
    let found = schema().types.get(name)?;
    let mut properties = Map::new();
    for (name, field) in &found.fields {
        let mut property = form(&field.shape, todo);
        annotate(&mut property, field);
        properties.insert((*name).to_owned(), property);
    }
    let required: Vec<&str> = found.fields.iter().filter(|(_, f)| f.required).map(|(name, _)| *name).collect();
    let mut definition = json!({"type": "object", "description": "", "properties": properties});
    if !required.is_empty() {
        definition["required"] = json!(required);
    }
    Some(definition)
}

fn form(shape: &Shape, todo: &mut BTreeSet<&'static str>) -> Value {
    match shape {
        Shape::Struct(name) => {
            todo.insert(name);
            json!({"allOf": [reference(&public(name))], "default": {}})
        }
        Shape::List(inner) => json!({"type": "array", "items": form(inner, todo)}),
        Shape::Map(inner) => json!({"type": "object", "additionalProperties": form(inner, todo)}),
        Shape::Leaf(leaf) => match leaf {
            Leaf::Text => json!({"type": "string"}),
            Leaf::Bool => json!({"type": "boolean"}),
            Leaf::Int32 => json!({"type": "integer", "format": "int32"}),
            Leaf::Int64 => json!({"type": "integer", "format": "int64"}),
            Leaf::Number => json!({"type": "number", "format": "double"}),
            Leaf::Time | Leaf::MicroTime => json!({"type": "string", "format": "date-time"}),
            Leaf::Bytes => json!({"type": "string", "format": "byte"}),
            Leaf::Quantity => json!({"oneOf": [{"type": "string"}, {"type": "number"}]}),
            Leaf::IntOrString => json!({"format": "int-or-string", "oneOf": [{"type": "integer"}, {"type": "string"}]}),
            Leaf::Any => json!({"x-kubernetes-preserve-unknown-fields": true}),
        },
    }
}

fn annotate(property: &mut Value, field: &Field) {
    let list = matches!(field.shape, Shape::List(_));
    match &field.merge {
        Merge::Plain if list => property["x-kubernetes-list-type"] = json!("atomic"),
        Merge::Plain => {}
        Merge::Atomic => property["x-kubernetes-map-type"] = json!("atomic"),
        Merge::Set => {
            property["x-kubernetes-list-type"] = json!("set");
            property["x-kubernetes-patch-strategy"] = json!("merge");
        }
        Merge::Keys { keys, apply_only } => {
            property["x-kubernetes-list-type"] = json!("map");
            property["x-kubernetes-list-map-keys"] = json!(keys);
            if !apply_only {
                property["x-kubernetes-patch-strategy"] = json!("merge");
                property["x-kubernetes-patch-merge-key"] = json!(keys.first());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::kinds::Rules;

    #[test]
    fn the_patch_operation_names_field_validation() {
        let kinds = Kinds::new(Rules::V1);
        let document = document(&kinds, "apis/resource.k8s.io/v1").unwrap();
        let patch = &document["paths"]["/apis/resource.k8s.io/v1/resourceslices/{name}"]["patch"];
        assert_eq!(patch["x-kubernetes-group-version-kind"]["kind"], "ResourceSlice");
        let names: Vec<&Value> = patch["parameters"].as_array().unwrap().iter().map(|p| &p["name"]).collect();
        assert!(names.contains(&&json!("fieldValidation")));
        assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_some());
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let kinds = Kinds::new(Rules::V1Beta2);
        for name in index(&kinds)["paths"].as_object().unwrap().keys() {
            let document = document(&kinds, name).unwrap();
            let text = document.to_string();
            for reference in text.split("#/components/schemas/").skip(1) {
                let target = reference.split('"').next().unwrap();
                assert!(document["components"]["schemas"].get(target).is_some(), "{name}: {target}");
            }
        }
    }

    #[test]
    fn unserved_groups_have_no_document() {
        assert!(document(&Kinds::new(Rules::None), "apis/resource.k8s.io/v1beta2").is_none());
        assert!(document(&Kinds::new(Rules::V1), "nonsense").is_none());
    }
}
