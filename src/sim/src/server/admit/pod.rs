//! Pods: the API's defaults, the status of a new pod, and the tolerations that every pod gets.

use serde_json::{Map, Value, json};

use super::each_container;
use crate::server::value::{at, entry, items_mut, list, list_mut, set, set_default, text};

/// How long a pod stays on a node that is not ready or unreachable, unless it says otherwise.
const OUTAGE_SECONDS: i64 = 300;

/// The API's defaults.
pub(super) fn defaults(pod: &mut Value) {
    let spec = entry(pod, &["spec"]);
    set_default(spec, &["restartPolicy"], "Always");
    set_default(spec, &["dnsPolicy"], "ClusterFirst");
    set_default(spec, &["schedulerName"], "default-scheduler");
    set_default(spec, &["terminationGracePeriodSeconds"], 30);
    set_default(spec, &["securityContext"], json!({}));
    set_default(spec, &["enableServiceLinks"], true);
    each_container(spec, complete_container);
}

/// What only a new pod gets: its first status.
pub(super) fn admit_new(pod: &mut Value) {
    tolerate_outages(pod);
    set_default(pod, &["spec", "preemptionPolicy"], "PreemptLowerPriority");
    set_default(pod, &["spec", "serviceAccountName"], "default");
    copy_account(pod);
    let class = quality(pod);
    set(pod, &["status"], json!({"phase": "Pending", "qosClass": class}));
}

fn copy_account(pod: &mut Value) {
    let account = at(pod, &["spec", "serviceAccountName"]).clone();
    set_default(pod, &["spec", "serviceAccount"], account);
}

fn complete_container(container: &mut Value) {
    let image = text(container, &["image"]);
    let tag = image.rsplit('/').next().and_then(|last| last.split_once(':')).map(|(_, tag)| tag);
    let pull = if matches!(tag, None | Some("latest")) && !image.contains('@') { "Always" } else { "IfNotPresent" };
    set_default(container, &["imagePullPolicy"], pull);
    set_default(container, &["terminationMessagePath"], "/dev/termination-log");
    set_default(container, &["terminationMessagePolicy"], "File");
    set_default(container, &["resources"], json!({}));
    for port in items_mut(container, &["ports"]) {
        set_default(port, &["protocol"], "TCP");
    }
    // A limit without a request is a request too.
    if let Some(limits) = at(container, &["resources", "limits"]).as_object().cloned() {
        for (name, value) in limits {
            set_default(container, &["resources", "requests", &name], value);
        }
    }
}

/// Adds what the DefaultTolerationSeconds plugin adds: for each key, unless some toleration covers the key and the effect
/// NoExecute, whatever its operator and value.
pub(super) fn tolerate_outages(pod: &mut Value) {
    for key in ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            ["", key].contains(&text(toleration, &["key"]))
                && ["", "NoExecute"].contains(&text(toleration, &["effect"]))
        };
        if !list(pod, &["spec", "tolerations"]).iter().any(covers) {
            list_mut(pod, &["spec", "tolerations"])
                .push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                "tolerationSeconds": OUTAGE_SECONDS}));
        }
    }
}

/// The quality-of-service class: Guaranteed when every container has equal requests and limits for cpu and memory,
/// BestEffort when none has any, Burstable otherwise.
fn quality(pod: &Value) -> &'static str {
    let containers = ["containers", "initContainers"].into_iter().flat_map(|field| list(pod, &["spec", field]));
    let (mut any, mut all) = (false, true);
    for container in containers {
        let map = |field: &str| -> Map<String, Value> {
            let found = at(container, &["resources", field]).as_object().cloned().unwrap_or_default();
            found.into_iter().filter(|(name, _)| ["cpu", "memory"].contains(&name.as_str())).collect()
        };
        let (requests, limits) = (map("requests"), map("limits"));
        any |= !requests.is_empty() || !limits.is_empty();
        all &= limits.len() == 2 && requests == limits;
    }
    match (any, all) {
        (false, _) => "BestEffort",
        (true, true) => "Guaranteed",
        (true, false) => "Burstable",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(spec: Value) -> Value {
        let mut pod = json!({"spec": spec});
        defaults(&mut pod);
        admit_new(&mut pod);
        pod
    }

    #[test]
    fn a_new_pod_is_pending_with_defaults() {
        let pod = made(json!({"containers": [{"name": "c", "image": "r/i:1", "ports": [{"containerPort": 1}]}]}));
        assert_eq!(pod["status"], json!({"phase": "Pending", "qosClass": "BestEffort"}));
        assert_eq!(pod["spec"]["containers"][0]["imagePullPolicy"], "IfNotPresent");
        assert_eq!(pod["spec"]["containers"][0]["ports"][0]["protocol"], "TCP");
        assert_eq!(pod["spec"]["restartPolicy"], "Always");
    }

    #[test]
    fn outages_are_tolerated_unless_the_pod_says_something_about_them() {
        let keys = |spec: Value| -> Vec<String> {
            list(&made(spec), &["spec", "tolerations"]).iter().map(|t| text(t, &["key"]).to_owned()).collect()
        };
        assert_eq!(keys(json!({})), ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
        assert_eq!(keys(json!({"tolerations": [{"operator": "Exists"}]})), [""]);
        let own = json!({"tolerations": [{"key": "node.kubernetes.io/not-ready", "value": "never"}]});
        assert_eq!(keys(own), ["node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"]);
        let other = json!({"tolerations": [{"operator": "Exists", "effect": "NoSchedule"}]});
        assert_eq!(keys(other).len(), 3);
    }

    #[test]
    fn the_quality_follows_the_resources() {
        let with = |resources: Value| quality(&made(json!({"containers": [{"image": "i", "resources": resources}]})));
        assert_eq!(with(json!({"limits": {"cpu": "1", "memory": "1Gi"}})), "Guaranteed");
        assert_eq!(with(json!({"limits": {"cpu": "1"}})), "Burstable");
        assert_eq!(with(json!({"claims": [{"name": "gpu"}]})), "BestEffort");
    }
}
