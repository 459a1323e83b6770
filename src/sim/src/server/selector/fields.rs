//! Field selectors: which fields each kind lets select, and the comparison.

use serde_json::Value;

use super::super::kinds::Resource;
use super::super::value::{at, list, text};

/// A conjunction of comparisons of fields with texts; the empty one matches everything.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct FieldSelector {
    terms: Vec<Term>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Term {
    path: Vec<String>,
    equal: bool,
    value: String,
}

impl FieldSelector {
    /// Reads a selector as queries carry it, for objects of this kind; the error names a field that cannot select.
    pub(crate) fn parse(selector: &str, resource: &Resource) -> Result<Self, String> {
        let mut terms = Vec::new();
        for part in split(selector) {
            let (field, equal, value) = match part.split_once("!=") {
                Some((field, value)) => (field, false, value),
                None => match part.split_once("==").or_else(|| part.split_once('=')) {
                    Some((field, value)) => (field, true, value),
                    None => return Err(format!("invalid field selector: {part:?} has no operator")),
                },
            };
            if !allowed(resource, field) {
                return Err(format!("field label not supported: {field}"));
            }
            let path = stored_path(resource, field);
            terms.push(Term { path, equal, value: value.replace("\\=", "=").replace("\\,", ",") });
        }
        Ok(Self { terms })
    }

    /// Whether the fields of a stored object fit.
    pub(crate) fn matches(&self, object: &Value) -> bool {
        self.terms.iter().all(|term| (term.read(object) == term.value) == term.equal)
    }
}

impl Term {
    fn read(&self, object: &Value) -> String {
        let path: Vec<&str> = self.path.iter().map(String::as_str).collect();
        match at(object, &path) {
            // A flag that is left out selects as false.
            Value::Null if matches!(path.last(), Some(&("unschedulable" | "hostNetwork"))) => "false".to_owned(),
            Value::Null => String::new(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        }
    }
}

fn split(selector: &str) -> Vec<&str> {
    let (mut parts, mut start, mut escaped) = (Vec::new(), 0, false);
    for (index, letter) in selector.char_indices() {
        if letter == ',' && !escaped {
            parts.push(&selector[start..index]);
            start = index + 1;
        }
        escaped = letter == '\\' && !escaped;
    }
    parts.push(&selector[start..]);
    parts.retain(|part| !part.is_empty());
    parts
}

const EVENT: &[&str] = &["kind", "namespace", "name", "uid", "apiVersion", "resourceVersion", "fieldPath"];

fn allowed(resource: &Resource, field: &str) -> bool {
    if field == "metadata.name" || (field == "metadata.namespace" && resource.namespaced) {
        return true;
    }
    if !resource.builtin() {
        return selectable(resource, field);
    }
    match resource.kind.as_str() {
        "Pod" => [
            "spec.nodeName",
            "spec.restartPolicy",
            "spec.schedulerName",
            "spec.serviceAccountName",
            "spec.hostNetwork",
            "status.phase",
            "status.podIP",
            "status.podIPs",
            "status.nominatedNodeName",
        ]
        .contains(&field),
        "Node" => field == "spec.unschedulable",
        "Namespace" => ["status.phase", "name"].contains(&field),
        "Secret" => field == "type",
        "ResourceSlice" => ["spec.nodeName", "spec.driver", "spec.pool.name"].contains(&field),
        "Event" => {
            let object = field.strip_prefix("involvedObject.").or_else(|| field.strip_prefix("regarding."));
            object.map_or(
                ["reason", "type", "source", "reportingComponent", "reportingController"].contains(&field),
                |f| EVENT.contains(&f),
            )
        }
        _ => false,
    }
}

/// The fields that a CustomResourceDefinition offers for selecting.
fn selectable(resource: &Resource, field: &str) -> bool {
    let versions = list(&resource.definition, &["spec", "versions"]);
    versions
        .iter()
        .flat_map(|version| list(version, &["selectableFields"]))
        .any(|selectable| text(selectable, &["jsonPath"]).trim_start_matches('.') == field)
}

/// Where the stored object keeps a selectable field: events are stored in their core form.
fn stored_path(resource: &Resource, field: &str) -> Vec<String> {
    let field = match (resource.kind.as_str(), field) {
        ("Namespace", "name") => "metadata.name",
        ("Event", "source") => "source.component",
        ("Event", "reportingController") => "reportingComponent",
        _ => field,
    };
    let path = field.split('.').map(str::to_owned);
    if resource.is("Event") {
        path.map(|step| if step == "regarding" { "involvedObject".to_owned() } else { step }).collect()
    } else {
        path.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::kinds::{Kinds, Rules};
    use serde_json::json;

    fn fits(kind: &str, selector: &str, object: &Value) -> Result<bool, String> {
        let resource = Kinds::new(Rules::V1).builtin(kind).unwrap();
        Ok(FieldSelector::parse(selector, &resource)?.matches(object))
    }

    #[test]
    fn fields_are_compared_as_texts() {
        let pod = json!({"metadata": {"name": "p", "namespace": "d"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
        assert_eq!(fits("Pod", "spec.nodeName=n,status.phase!=Failed", &pod), Ok(true));
        assert_eq!(fits("Pod", "spec.nodeName==m", &pod), Ok(false));
        assert_eq!(fits("Node", "spec.unschedulable=false", &json!({})), Ok(true));
        assert_eq!(
            fits(
                "ResourceSlice",
                "spec.driver=d,spec.pool.name=p",
                &json!({"spec": {"driver": "d", "pool": {"name": "p"}}})
            ),
            Ok(true)
        );
    }

    #[test]
    fn other_fields_cannot_select() {
        let refused = fits("Pod", "spec.color=red", &json!({}));
        assert_eq!(refused, Err("field label not supported: spec.color".to_owned()));
        assert!(fits("Node", "metadata.namespace=x", &json!({})).is_err());
    }

    #[test]
    fn events_select_by_the_object_that_they_are_about() {
        let event = json!({"involvedObject": {"name": "p", "uid": "u"}, "reason": "R"});
        assert_eq!(fits("Event", "involvedObject.name=p,involvedObject.uid=u,reason=R", &event), Ok(true));
        assert_eq!(fits("Event", "regarding.name=q", &event), Ok(false));
    }
}
