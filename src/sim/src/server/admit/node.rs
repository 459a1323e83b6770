//! Nodes: `spec.unschedulable` shows as a taint, as the node lifecycle controller does it.

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::server::value::{at, list, list_mut, remove, text};
use crate::server::world::rfc3339;

const KEY: &str = "node.kubernetes.io/unschedulable";

/// Sets or takes the taint that belongs to the flag. Says whether anything changed.
pub(super) fn complete(node: &mut Value, now: Timestamp) -> bool {
    let ours = |taint: &Value| text(taint, &["key"]) == KEY && text(taint, &["effect"]) == "NoSchedule";
    let wanted = at(node, &["spec", "unschedulable"]) == &Value::Bool(true);
    let present = list(node, &["spec", "taints"]).iter().any(ours);
    if wanted && !present {
        let taint = json!({"key": KEY, "effect": "NoSchedule", "timeAdded": rfc3339(now)});
        list_mut(node, &["spec", "taints"]).push(taint);
    }
    if !wanted && present {
        list_mut(node, &["spec", "taints"]).retain(|taint| !ours(taint));
        if list(node, &["spec", "taints"]).is_empty() {
            remove(node, &["spec", "taints"]);
        }
    }
    wanted != present
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_taint_follows_the_flag() {
        let now = "2026-11-30T10:00:00Z".parse().unwrap();
        let mut node = json!({"spec": {"unschedulable": true, "taints": [{"key": "a", "effect": "NoExecute"}]}});
        assert!(complete(&mut node, now));
        assert_eq!(node["spec"]["taints"][1]["key"], KEY);
        let once = node.clone();
        assert!(!complete(&mut node, now));
        assert_eq!(node, once);
        node["spec"]["unschedulable"] = json!(false);
        assert!(complete(&mut node, now));
        assert_eq!(node["spec"]["taints"], json!([{"key": "a", "effect": "NoExecute"}]));
    }
}
