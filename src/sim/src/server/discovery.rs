//! Discovery: which groups, versions and kinds are served, in one document or step by step.

use bytes::Bytes;
use http::Response;
use serde_json::{Value, json};

use super::error::ApiError;
use super::http::{Body, typed, value};
use super::kinds::{Kinds, Resource};
use super::request::Route;

const VERBS: &[&str] = &["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"];
const STATUS_VERBS: &[&str] = &["get", "patch", "update"];
const AGGREGATED: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// Answers a discovery request.
pub(crate) fn answer(route: &Route, kinds: &Kinds, aggregated: bool) -> Result<Response<Body>, ApiError> {
    match route {
        Route::Groups { core } if aggregated => {
            Ok(typed(200, AGGREGATED, Bytes::from(aggregate(kinds, *core).to_string())))
        }
        Route::Groups { core: true } => Ok(value(
            200,
            &json!({"kind": "APIVersions", "versions": ["v1"],
            "serverAddressByClientCIDRs": []}),
        )),
        Route::Groups { core: false } => {
            let groups: Vec<Value> = kinds.groups().iter().map(|group| group_document(kinds, group)).collect();
            Ok(value(200, &json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": groups})))
        }
        Route::Group(name) if !kinds.versions(name).is_empty() => {
            let mut document = group_document(kinds, name);
            document["kind"] = json!("APIGroup");
            document["apiVersion"] = json!("v1");
            Ok(value(200, &document))
        }
        Route::Version { group, version } if kinds.versions(group).contains(version) => {
            Ok(value(200, &version_document(kinds, group, version)))
        }
        Route::Objects(_) | Route::Group(_) | Route::Version { .. } | Route::Other => Err(ApiError::no_path()),
    }
}

fn group_version(group: &str, version: &str) -> String {
    if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") }
}

fn group_document(kinds: &Kinds, group: &str) -> Value {
    let entry = |version: &String| json!({"groupVersion": group_version(group, version), "version": version});
    let versions: Vec<Value> = kinds.versions(group).iter().map(entry).collect();
    json!({"name": group, "versions": versions, "preferredVersion": versions.first()})
}

fn of_version<'a>(kinds: &'a Kinds, group: &'a str, version: &'a str) -> impl Iterator<Item = &'a Resource> {
    kinds.iter().map(|r| &**r).filter(move |r| r.group == group && r.versions.iter().any(|v| v == version))
}

fn version_document(kinds: &Kinds, group: &str, version: &str) -> Value {
    let mut resources = Vec::new();
    for resource in of_version(kinds, group, version) {
        let mut entry = json!({"name": resource.plural, "singularName": resource.singular, "kind": resource.kind,
            "namespaced": resource.namespaced, "verbs": VERBS});
        if !resource.short.is_empty() {
            entry["shortNames"] = json!(resource.short);
        }
        if !resource.categories.is_empty() {
            entry["categories"] = json!(resource.categories);
        }
        resources.push(entry);
        for (name, kind, verbs) in parts(resource, version) {
            let mut entry = json!({"name": format!("{}/{name}", resource.plural), "singularName": "",
                "namespaced": resource.namespaced, "kind": kind["kind"], "verbs": verbs});
            if kind["group"] != group {
                entry["group"] = kind["group"].clone();
                entry["version"] = kind["version"].clone();
            }
            resources.push(entry);
        }
    }
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": group_version(group, version),
           "resources": resources})
}

/// The subresources of a kind: name, kind of the body, verbs.
fn parts(resource: &Resource, version: &str) -> Vec<(&'static str, Value, &'static [&'static str])> {
    let mut found = Vec::new();
    for (name, group, version, kind) in resource.actions() {
        found.push((*name, json!({"group": group, "version": version, "kind": kind}), &["create"][..]));
    }
    if resource.status {
        let own = json!({"group": resource.group, "version": version, "kind": resource.kind});
        found.push(("status", own, STATUS_VERBS));
    }
    found
}

fn aggregate(kinds: &Kinds, core: bool) -> Value {
    let groups = if core { vec![String::new()] } else { kinds.groups() };
    let items: Vec<Value> = groups
        .iter()
        .map(|group| {
            let meta = if core { json!({}) } else { json!({"name": group}) };
            let versions: Vec<Value> =
                kinds.versions(group).iter().map(|version| aggregate_version(kinds, group, version)).collect();
            json!({"metadata": meta, "versions": versions})
        })
        .collect();
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": items})
}

fn aggregate_version(kinds: &Kinds, group: &str, version: &str) -> Value {
    let resources: Vec<Value> = of_version(kinds, group, version)
        .map(|resource| {
            let own = json!({"group": group, "version": version, "kind": resource.kind});
            let scope = if resource.namespaced { "Namespaced" } else { "Cluster" };
            let mut entry = json!({"resource": resource.plural, "responseKind": own, "scope": scope,
                "singularResource": resource.singular, "verbs": VERBS});
            if !resource.short.is_empty() {
                entry["shortNames"] = json!(resource.short);
            }
            if !resource.categories.is_empty() {
                entry["categories"] = json!(resource.categories);
            }
            let parts = parts(resource, version).into_iter();
            let parts: Vec<Value> = parts
                .map(|(name, kind, verbs)| json!({"subresource": name, "responseKind": kind, "verbs": verbs}))
                .collect();
            if !parts.is_empty() {
                entry["subresources"] = json!(parts);
            }
            entry
        })
        .collect();
    json!({"version": version, "freshness": "Current", "resources": resources})
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::kinds::Rules;

    #[test]
    fn both_forms_tell_of_eviction_and_its_group() {
        let kinds = Kinds::new(Rules::V1);
        let plain = version_document(&kinds, "", "v1");
        let eviction = plain["resources"].as_array().unwrap().iter().find(|r| r["name"] == "pods/eviction").unwrap();
        assert_eq!((&eviction["group"], &eviction["kind"]), (&json!("policy"), &json!("Eviction")));
        let aggregated = aggregate(&kinds, true);
        let pods = &aggregated["items"][0]["versions"][0]["resources"];
        let pods = pods.as_array().unwrap().iter().find(|r| r["resource"] == "pods").unwrap();
        assert_eq!(pods["subresources"][1]["responseKind"]["group"], "policy");
    }

    #[test]
    fn every_group_is_listed_once() {
        let kinds = Kinds::new(Rules::V1Beta2);
        let all = aggregate(&kinds, false);
        let resource =
            all["items"].as_array().unwrap().iter().find(|g| g["metadata"]["name"] == "resource.k8s.io").unwrap();
        let versions: Vec<&Value> = resource["versions"].as_array().unwrap().iter().map(|v| &v["version"]).collect();
        assert_eq!(versions, ["v1", "v1beta2"]);
    }
}
