//! Whether kubelet takes a pod that was bound to its node: the scheduler may have been passed by.

use k8s_openapi::api::core::v1::{Node, Pod};
use taints::node;

use crate::actor::convert;
use crate::scheduler::{fit::COMPARISON_OPERATORS, selector};

/// Why a pod is rejected: reason and message of its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rejection {
    pub(super) reason: &'static str,
    pub(super) message: String,
}

/// Checks a pod that has not started yet.
pub(super) fn admit(pod: &Pod, node: &Node) -> Result<(), Rejection> {
    if !selector::pod_selects(pod, node) {
        return Err(reject("NodeAffinity", "node(s) didn't match Pod's node affinity/selector"));
    }
    if !node::kubelet_admits(&convert::taints(node), &convert::tolerations(pod), false, COMPARISON_OPERATORS) {
        return Err(reject("TaintToleration", "node(s) had taints that the pod didn't tolerate"));
    }
    Ok(())
}

fn reject(predicate: &'static str, why: &str) -> Rejection {
    Rejection { reason: predicate, message: format!("Pod was rejected: Predicate {predicate} failed: {why}") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_a_no_execute_taint_and_the_pods_own_wishes_reject() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": {"taints": [
            {"key": "soft", "effect": "NoSchedule"}, {"key": "hard", "effect": "NoExecute"}]}}))
        .unwrap();
        let pod = |spec: &serde_json::Value| -> Pod {
            serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap()
        };
        let rejection = admit(&pod(&json!({"containers": []})), &node).unwrap_err();
        assert_eq!(rejection.reason, "TaintToleration");
        assert!(rejection.message.contains("Predicate TaintToleration failed"), "{}", rejection.message);
        let tolerant = json!({"containers": [], "tolerations": [{"key": "hard", "operator": "Exists"}]});
        assert_eq!(admit(&pod(&tolerant), &node), Ok(()));
        let elsewhere = json!({"containers": [], "nodeSelector": {"zone": "1"}});
        assert_eq!(admit(&pod(&elsewhere), &node).unwrap_err().reason, "NodeAffinity");
    }
}
