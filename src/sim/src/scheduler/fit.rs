//! Whether a node may take a pod at all: before any claim is looked at.

use k8s_openapi::api::core::v1::{Node, Pod};
use taints::{Effect, Taint, Toleration, node};

use super::selector;
use crate::actor::convert;

/// The gate `TaintTolerationComparisonOperators` is alpha, so off, in 1.37.
pub(crate) const COMPARISON_OPERATORS: bool = false;
/// The taint that goes with `spec.unschedulable`.
const UNSCHEDULABLE: &str = "node.kubernetes.io/unschedulable";

/// Why the node cannot take the pod, in kube-scheduler's words; nothing when it can.
pub(super) fn refusal(pod: &Pod, tolerations: &[Toleration], node: &Node) -> Option<String> {
    let cordoned = node.spec.as_ref().and_then(|spec| spec.unschedulable).unwrap_or(false);
    if cordoned && !tolerates_cordon(tolerations) {
        return Some("node(s) were unschedulable".to_owned());
    }
    let taints = convert::taints(node);
    if let Some(taint) = node::first_untolerated(&taints, tolerations, COMPARISON_OPERATORS) {
        return Some(format!("node(s) had untolerated taint {{{}: {}}}", taint.key, taint.value));
    }
    if !selector::pod_selects(pod, node) {
        return Some("node(s) didn't match Pod's node affinity/selector".to_owned());
    }
    // kube-scheduler looks at the not-ready taint alone. A small cluster without a node lifecycle controller has none.
    (!is_ready(node)).then(|| "node(s) were not ready".to_owned())
}

fn tolerates_cordon(tolerations: &[Toleration]) -> bool {
    let taint =
        Taint { key: UNSCHEDULABLE.to_owned(), value: String::new(), effect: Effect::NoSchedule, time_added: None };
    node::first_match(tolerations, &taint, COMPARISON_OPERATORS).is_some()
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// How much the pod would rather be elsewhere: `PreferNoSchedule` taints that it does not tolerate.
pub(super) fn dislikes(tolerations: &[Toleration], node: &Node) -> usize {
    node::intolerable_soft(&convert::taints(node), tolerations, COMPARISON_OPERATORS)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn node(spec: &Value, ready: &str) -> Node {
        let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec, "status": status})).unwrap()
    }

    fn why(pod_spec: &Value, node: &Node) -> Option<String> {
        let mut spec = json!({"containers": []});
        json_patch::merge(&mut spec, pod_spec);
        let pod: Pod = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
        refusal(&pod, &convert::tolerations(&pod), node)
    }

    #[test]
    fn reasons_are_those_of_kube_scheduler() {
        let tainted = node(&json!({"taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}]}), "True");
        assert_eq!(why(&json!({}), &tainted).unwrap(), "node(s) had untolerated taint {k: v}");
        assert_eq!(why(&json!({"tolerations": [{"key": "k", "operator": "Exists"}]}), &tainted), None);
        let cordoned = node(&json!({"unschedulable": true}), "True");
        assert_eq!(why(&json!({}), &cordoned).unwrap(), "node(s) were unschedulable");
        assert_eq!(why(&json!({"tolerations": [{"operator": "Exists"}]}), &cordoned), None);
        assert_eq!(why(&json!({}), &node(&json!({}), "Unknown")).unwrap(), "node(s) were not ready");
        let other = why(&json!({"nodeSelector": {"zone": "1"}}), &node(&json!({}), "True"));
        assert_eq!(other.unwrap(), "node(s) didn't match Pod's node affinity/selector");
    }

    #[test]
    fn soft_taints_only_rank() {
        let soft = node(&json!({"taints": [{"key": "k", "effect": "PreferNoSchedule"}]}), "True");
        assert_eq!(why(&json!({}), &soft), None);
        assert_eq!(dislikes(&[], &soft), 1);
    }
}
