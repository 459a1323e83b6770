//! Rules for `metadata`.

use serde_json::Value;

use super::{FieldError, LABEL_KEY, LABEL_VALUE, dns_label, dns_subdomain, label_key, label_value};
use crate::server::kinds::Resource;
use crate::server::value::{at, list, text};

const SUBDOMAIN: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and \
     must start and end with an alphanumeric character";
const LABEL: &str = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start \
     and end with an alphanumeric character";

pub(super) fn check(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = Vec::new();
    let meta = at(new, &["metadata"]);
    if old.is_none() {
        name(resource, meta, &mut errors);
    }
    labels(meta, &mut errors);
    for key in at(meta, &["annotations"]).as_object().into_iter().flatten().map(|(key, _)| key) {
        if !label_key(&key.to_lowercase()) {
            errors.push(FieldError::invalid("metadata.annotations", &Value::from(key.as_str()), LABEL_KEY));
        }
    }
    owners(meta, &mut errors);
    if let Some(old) = old {
        finalizers(new, old, &mut errors);
    }
    errors
}

fn name(resource: &Resource, meta: &Value, errors: &mut Vec<FieldError>) {
    let name = text(meta, &["name"]);
    if name.is_empty() {
        errors.push(FieldError::required("metadata.name", "name or generateName is required"));
    } else if resource.is("Namespace") && !dns_label(name) {
        errors.push(FieldError::invalid("metadata.name", &Value::from(name), LABEL));
    } else if !dns_subdomain(name, 253) {
        errors.push(FieldError::invalid("metadata.name", &Value::from(name), SUBDOMAIN));
    }
}

fn labels(meta: &Value, errors: &mut Vec<FieldError>) {
    for (key, value) in at(meta, &["labels"]).as_object().into_iter().flatten() {
        if !label_key(key) {
            errors.push(FieldError::invalid("metadata.labels", &Value::from(key.as_str()), LABEL_KEY));
        }
        if !label_value(value.as_str().unwrap_or_default()) {
            errors.push(FieldError::invalid("metadata.labels", value, LABEL_VALUE));
        }
    }
}

fn owners(meta: &Value, errors: &mut Vec<FieldError>) {
    for (index, owner) in list(meta, &["ownerReferences"]).iter().enumerate() {
        for field in ["apiVersion", "kind", "name", "uid"] {
            if text(owner, &[field]).is_empty() {
                let path = format!("metadata.ownerReferences[{index}].{field}");
                errors.push(FieldError::invalid(path, &Value::from(""), format!("{field} must not be empty")));
            }
        }
    }
}

/// An object that is on its way out may lose finalizers and never gain one.
fn finalizers(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    if at(old, &["metadata", "deletionTimestamp"]).is_null() {
        return;
    }
    let before = list(old, &["metadata", "finalizers"]);
    if list(new, &["metadata", "finalizers"]).iter().any(|finalizer| !before.contains(finalizer)) {
        let why = "no new finalizers can be added if the object is being deleted";
        errors.push(FieldError::forbidden("metadata.finalizers", why));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::kinds::{Kinds, Rules};
    use serde_json::json;

    fn texts(kind: &str, new: Value, old: Option<Value>) -> Vec<String> {
        let resource = Kinds::new(Rules::V1).builtin(kind).unwrap();
        check(&resource, &new, old.as_ref()).iter().map(|error| error.field.clone()).collect()
    }

    #[test]
    fn names_and_labels_are_checked() {
        assert_eq!(texts("Pod", json!({"metadata": {"name": "Bad_Name"}}), None), ["metadata.name"]);
        assert_eq!(texts("Pod", json!({"metadata": {}}), None), ["metadata.name"]);
        assert_eq!(texts("Namespace", json!({"metadata": {"name": "a.b"}}), None), ["metadata.name"]);
        let labels = json!({"metadata": {"name": "a", "labels": {"ok": "-x", "a/b/c": ""}}});
        assert_eq!(texts("Pod", labels, None), ["metadata.labels", "metadata.labels"]);
    }

    #[test]
    fn a_dying_object_gains_no_finalizer() {
        let old = json!({"metadata": {"name": "a", "deletionTimestamp": "t", "finalizers": ["x/y"]}});
        let new = json!({"metadata": {"name": "a", "deletionTimestamp": "t", "finalizers": ["x/y", "x/z"]}});
        assert_eq!(texts("Pod", new, Some(old.clone())), ["metadata.finalizers"]);
        assert!(texts("Pod", json!({"metadata": {"name": "a"}}), Some(old)).is_empty());
    }
}
