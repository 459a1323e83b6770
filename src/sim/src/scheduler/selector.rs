//! Whether a node is selected: `nodeSelector` and node affinity of pods, and the node selector of an allocation (core/v1
//! `NodeSelector`).

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, NodeSelector, NodeSelectorRequirement, NodeSelectorTerm, Pod};

/// Whether the pod's own wishes allow the node.
pub(crate) fn pod_selects(pod: &Pod, node: &Node) -> bool {
    let Some(spec) = &pod.spec else { return true };
    let labels = node.metadata.labels.as_ref();
    let wanted = spec.node_selector.iter().flatten();
    let has = |key: &String, value: &String| labels.and_then(|labels| labels.get(key)) == Some(value);
    let affinity = spec.affinity.as_ref().and_then(|affinity| affinity.node_affinity.as_ref());
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    wanted.into_iter().all(|(key, value)| has(key, value)) && required.is_none_or(|selector| selects(selector, node))
}

/// Whether one of the terms selects the node. An empty term selects nothing.
pub(crate) fn selects(selector: &NodeSelector, node: &Node) -> bool {
    selector.node_selector_terms.iter().any(|term| term_selects(term, node))
}

fn term_selects(term: &NodeSelectorTerm, node: &Node) -> bool {
    let expressions = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    if expressions.is_empty() && fields.is_empty() {
        return false;
    }
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    let label =
        |requirement: &NodeSelectorRequirement| holds(requirement, labels.get(&requirement.key).map(String::as_str));
    let field = |requirement: &NodeSelectorRequirement| {
        let name = if requirement.key == "metadata.name" { node.metadata.name.as_deref() } else { None };
        holds(requirement, name)
    };
    expressions.iter().all(label) && fields.iter().all(field)
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let among = |value: &str| values.iter().any(|wanted| wanted == value);
    let bound = || values.first().and_then(|bound| bound.parse::<i64>().ok());
    let number = || value.and_then(|value| value.parse::<i64>().ok());
    match requirement.operator.as_str() {
        "In" => value.is_some_and(among),
        "NotIn" => !value.is_some_and(among),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => number().zip(bound()).is_some_and(|(number, bound)| number > bound),
        "Lt" => number().zip(bound()).is_some_and(|(number, bound)| number < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> Node {
        serde_json::from_value(json!({"metadata": {"name": "node-a", "labels": {"zone": "1", "gpu": "h100"}}})).unwrap()
    }

    fn selector(term: &serde_json::Value) -> NodeSelector {
        serde_json::from_value(json!({"nodeSelectorTerms": [term]})).unwrap()
    }

    #[test]
    fn every_operator_is_understood() {
        for (key, operator, values, expected) in [
            ("gpu", "In", json!(["h100", "b200"]), true),
            ("gpu", "In", json!(["b200"]), false),
            ("no", "In", json!([""]), false),
            ("gpu", "NotIn", json!(["b200"]), true),
            ("no", "NotIn", json!(["b200"]), true),
            ("gpu", "Exists", json!([]), true),
            ("no", "DoesNotExist", json!([]), true),
            ("zone", "Gt", json!(["0"]), true),
            ("zone", "Lt", json!(["1"]), false),
            ("gpu", "Gt", json!(["0"]), false),
            ("gpu", "Like", json!(["h*"]), false),
        ] {
            let term = json!({"matchExpressions": [{"key": key, "operator": operator, "values": values}]});
            assert_eq!(selects(&selector(&term), &node()), expected, "{key} {operator} {values}");
        }
    }

    #[test]
    fn an_allocation_selects_its_node_by_name() {
        let named = |name: &str| json!({"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]});
        assert!(selects(&selector(&named("node-a")), &node()));
        assert!(!selects(&selector(&named("node-b")), &node()));
        assert!(!selects(&selector(&json!({})), &node()), "an empty term selects nothing");
    }

    #[test]
    fn a_pod_needs_all_labels_and_its_affinity() {
        let pod =
            |spec: serde_json::Value| -> Pod { serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap() };
        assert!(pod_selects(&pod(json!({"containers": []})), &node()));
        assert!(pod_selects(&pod(json!({"containers": [], "nodeSelector": {"zone": "1", "gpu": "h100"}})), &node()));
        assert!(!pod_selects(&pod(json!({"containers": [], "nodeSelector": {"zone": "2", "gpu": "h100"}})), &node()));
        let affinity = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [
            {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["2"]}]}]}}});
        assert!(!pod_selects(&pod(json!({"containers": [], "affinity": affinity})), &node()));
    }
}
