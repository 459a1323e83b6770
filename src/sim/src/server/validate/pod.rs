//! Rules for pods: what a spec must have, its tolerations, and what an update may not touch.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{FieldError, LABEL_VALUE, dns_label, toleration};
use crate::server::value::{at, items_mut, list, remove, text};

const POLICIES: &[&str] = &["Always", "OnFailure", "Never"];

pub(super) fn check(pod: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    tolerations(pod, errors);
    match old {
        None => spec(pod, errors),
        Some(old) => update(pod, old, errors),
    }
}

fn spec(pod: &Value, errors: &mut Vec<FieldError>) {
    let containers = list(pod, &["spec", "containers"]);
    if containers.is_empty() {
        errors.push(FieldError::required("spec.containers", ""));
    }
    let mut names = BTreeSet::new();
    for field in ["containers", "initContainers"] {
        for (index, container) in list(pod, &["spec", field]).iter().enumerate() {
            let path = format!("spec.{field}[{index}]");
            let name = text(container, &["name"]);
            if name.is_empty() {
                errors.push(FieldError::required(format!("{path}.name"), ""));
            } else if !dns_label(name) {
                errors.push(FieldError::invalid(format!("{path}.name"), &Value::from(name), LABEL_VALUE));
            } else if !names.insert(name) {
                errors.push(FieldError::duplicate(format!("{path}.name"), name));
            }
            if text(container, &["image"]).is_empty() {
                errors.push(FieldError::required(format!("{path}.image"), ""));
            }
            claims_of_container(pod, container, &path, errors);
        }
    }
    let policy = text(pod, &["spec", "restartPolicy"]);
    if !POLICIES.contains(&policy) {
        errors.push(FieldError::not_supported("spec.restartPolicy", policy, POLICIES));
    }
    claims(pod, errors);
}

fn claims_of_container(pod: &Value, container: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let known = list(pod, &["spec", "resourceClaims"]);
    for (index, claim) in list(container, &["resources", "claims"]).iter().enumerate() {
        let name = text(claim, &["name"]);
        if !known.iter().any(|other| text(other, &["name"]) == name) {
            let field = format!("{path}.resources.claims[{index}].name");
            errors.push(FieldError::invalid(
                field,
                &Value::from(name),
                "must be one of the names in pod.spec.resourceClaims",
            ));
        }
    }
}

fn claims(pod: &Value, errors: &mut Vec<FieldError>) {
    let claims = list(pod, &["spec", "resourceClaims"]);
    for (index, claim) in claims.iter().enumerate() {
        let path = format!("spec.resourceClaims[{index}]");
        let name = text(claim, &["name"]);
        if !dns_label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), &Value::from(name), "must be a DNS label"));
        }
        if claims[..index].iter().any(|other| text(other, &["name"]) == name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        let given = ["resourceClaimName", "resourceClaimTemplateName"].map(|field| !text(claim, &[field]).is_empty());
        if given[0] == given[1] {
            let why = "must specify exactly one of: `resourceClaimName`, `resourceClaimTemplateName`";
            errors.push(FieldError::invalid(path, claim, why));
        }
    }
}

fn tolerations(pod: &Value, errors: &mut Vec<FieldError>) {
    for (index, item) in list(pod, &["spec", "tolerations"]).iter().enumerate() {
        toleration::of_pod(item, &format!("spec.tolerations[{index}]"), errors);
    }
}

/// An update may change images, `activeDeadlineSeconds`, a negative grace period, and add tolerations; gates may go.
fn update(pod: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let without_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        remove(&mut toleration, &["tolerationSeconds"]);
        toleration
    };
    let now: Vec<Value> = list(pod, &["spec", "tolerations"]).iter().map(without_seconds).collect();
    let before = list(old, &["spec", "tolerations"]).iter().map(without_seconds);
    if before.into_iter().any(|toleration| !now.contains(&toleration)) {
        let why = "existing toleration can not be modified except its tolerationSeconds";
        errors.push(FieldError::forbidden("spec.tolerations", why));
    }
    if fixed(pod) != fixed(old) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,\
                   `spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),\
                   `spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// The part of the spec that never changes.
fn fixed(pod: &Value) -> Value {
    let mut spec = at(pod, &["spec"]).clone();
    for field in ["tolerations", "activeDeadlineSeconds", "schedulingGates", "nodeSelector", "affinity"] {
        remove(&mut spec, &[field]);
    }
    for field in ["containers", "initContainers"] {
        for container in items_mut(&mut spec, &[field]) {
            remove(container, &["image"]);
        }
    }
    spec
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod() -> Value {
        json!({"spec": {"restartPolicy": "Always", "nodeName": "n", "containers": [{"name": "c", "image": "i"}],
                        "tolerations": [{"key": "k", "effect": "NoExecute", "tolerationSeconds": 5}]}})
    }

    fn fields(pod: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Vec::new();
        check(pod, old, &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn a_spec_needs_named_containers_with_images() {
        assert!(fields(&pod(), None).is_empty());
        let bad =
            json!({"spec": {"restartPolicy": "Sometimes", "containers": [{"name": "c"}, {"name": "c", "image": "i"}]}});
        assert_eq!(fields(&bad, None), ["spec.containers[0].image", "spec.containers[1].name", "spec.restartPolicy"]);
    }

    #[test]
    fn a_claim_entry_names_a_claim_or_a_template() {
        let mut bad = pod();
        bad["spec"]["resourceClaims"] =
            json!([{"name": "gpu", "resourceClaimName": "a", "resourceClaimTemplateName": "b"}]);
        bad["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "other"}]});
        assert_eq!(fields(&bad, None), ["spec.containers[0].resources.claims[0].name", "spec.resourceClaims[0]"]);
    }

    #[test]
    fn an_update_adds_tolerations_and_changes_nothing_else() {
        let old = pod();
        let mut new = pod();
        new["spec"]["tolerations"] = json!([{"key": "x", "operator": "Exists"},
            {"key": "k", "effect": "NoExecute", "tolerationSeconds": 60}]);
        new["spec"]["containers"][0]["image"] = json!("i2");
        assert!(fields(&new, Some(&old)).is_empty());
        new["spec"]["tolerations"] = json!([]);
        new["spec"]["nodeName"] = json!("other");
        assert_eq!(fields(&new, Some(&old)), ["spec.tolerations", "spec"]);
    }
}
