//! What the server fills in: defaults of the API, and the work of the admission plugins and small controllers that matter
//! here.

mod device;
mod node;
mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::kinds::Resource;
use super::value::{at, items_mut, list, object, set, set_default, text};
use super::world::rfc3339;

/// Leaves out the taints of devices, as a server without `DRADeviceTaints` does before anything else looks at them.
pub(crate) fn drop_device_taints(resource: &Resource, object: &mut Value, old: Option<&Value>) {
    if resource.is("ResourceSlice") {
        device::drop_taints(object, old);
    }
}

/// Fills in what the API's defaults say. They count as written by the client, so ownership is recorded after them.
pub(crate) fn defaults(resource: &Resource, object: &mut Value, old: Option<&Value>, now: Timestamp) {
    if !resource.builtin() {
        return;
    }
    match resource.kind.as_str() {
        "Pod" => pod::defaults(object),
        "ResourceSlice" => device::stamp_slice(object, now),
        "DeviceTaintRule" => device::stamp_rule(object, old, now),
        "ResourceClaim" => device::complete_claim(object),
        "ResourceClaimTemplate" => device::complete_template(object),
        "CustomResourceDefinition" => definition_defaults(object),
        "Service" => service(object),
        "Deployment" | "ReplicaSet" | "StatefulSet" => set_default(object, &["spec", "replicas"], 1),
        "PriorityClass" => set_default(object, &["preemptionPolicy"], "PreemptLowerPriority"),
        "Secret" => set_default(object, &["type"], "Opaque"),
        _ => {}
    }
}

/// Does what admission and the registry do to an object that is about to be made (`old` none) or changed.
pub(crate) fn admit(resource: &Resource, object: &mut Value, old: Option<&Value>, now: Timestamp) {
    if !resource.builtin() {
        return;
    }
    match (resource.kind.as_str(), old) {
        ("Pod", None) => pod::admit_new(object),
        ("Pod", Some(_)) => pod::tolerate_outages(object),
        ("Namespace", None) => namespace(object),
        ("CustomResourceDefinition", _) => definition_status(object, now),
        _ => {}
    }
}

/// Does at once what a controller of the cluster would do a moment later. Says whether it did anything.
pub(crate) fn control(resource: &Resource, object: &mut Value, now: Timestamp) -> bool {
    resource.is("Node") && node::complete(object, now)
}

fn namespace(object: &mut Value) {
    let name = text(object, &["metadata", "name"]).to_owned();
    set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
    set(object, &["spec", "finalizers"], json!(["kubernetes"]));
    set(object, &["status"], json!({"phase": "Active"}));
}

fn service(object: &mut Value) {
    set_default(object, &["spec", "type"], "ClusterIP");
    set_default(object, &["spec", "sessionAffinity"], "None");
    set_default(object, &["spec", "clusterIP"], "None");
    for port in items_mut(object, &["spec", "ports"]) {
        set_default(port, &["protocol"], "TCP");
        let number = at(port, &["port"]).clone();
        set_default(port, &["targetPort"], number);
    }
}

fn definition_defaults(crd: &mut Value) {
    let kind = text(crd, &["spec", "names", "kind"]).to_owned();
    set_default(crd, &["spec", "names", "listKind"], format!("{kind}List"));
    set_default(crd, &["spec", "names", "singular"], kind.to_lowercase());
    set_default(crd, &["spec", "conversion", "strategy"], "None");
}

/// A definition is accepted and established at once.
fn definition_status(crd: &mut Value, now: Timestamp) {
    let stored = list(crd, &["spec", "versions"]).iter().filter(|v| at(v, &["storage"]) == &Value::Bool(true));
    let stored: Vec<Value> = stored.map(|version| at(version, &["name"]).clone()).collect();
    let before = at(crd, &["status", "conditions"]).clone();
    let condition = |kind: &str, reason: &str, message: &str| {
        let old = before.as_array().into_iter().flatten().find(|other| text(other, &["type"]) == kind);
        let since = old.map_or_else(|| json!(rfc3339(now)), |old| at(old, &["lastTransitionTime"]).clone());
        json!({"type": kind, "status": "True", "reason": reason, "message": message, "lastTransitionTime": since})
    };
    let conditions = json!([
        condition("NamesAccepted", "NoConflicts", "no conflicts found"),
        condition("Established", "InitialNamesAccepted", "the initial names have been accepted"),
    ]);
    let names = at(crd, &["spec", "names"]).clone();
    set(crd, &["status"], json!({"conditions": conditions, "acceptedNames": names, "storedVersions": stored}));
}

/// The containers of a pod spec, for writing: those of `containers` and `initContainers`.
fn each_container(spec: &mut Value, mut change: impl FnMut(&mut Value)) {
    for field in ["containers", "initContainers"] {
        for container in items_mut(spec, &[field]) {
            object(container);
            change(container);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::kinds::{Kinds, Rules};

    #[test]
    fn a_definition_is_established_at_once_and_keeps_its_times() {
        let resource = Kinds::new(Rules::V1).builtin("CustomResourceDefinition").unwrap();
        let mut crd = json!({"spec": {"names": {"kind": "Mark", "plural": "marks"},
                                      "versions": [{"name": "v1", "storage": true}]}});
        defaults(&resource, &mut crd, None, "2026-11-30T10:00:00Z".parse().unwrap());
        admit(&resource, &mut crd, None, "2026-11-30T10:00:00Z".parse().unwrap());
        assert_eq!(crd["status"]["storedVersions"], json!(["v1"]));
        assert_eq!(crd["spec"]["names"]["listKind"], "MarkList");
        let mut later = crd.clone();
        admit(&resource, &mut later, Some(&crd), "2026-11-30T11:00:00Z".parse().unwrap());
        assert_eq!(later, crd);
    }
}
