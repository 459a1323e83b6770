//! Objects for tests: as short as a test can say them.

use serde_json::{Value, json};

pub(crate) const PODS: &str = "/api/v1/pods";
pub(crate) const NODES: &str = "/api/v1/nodes";
pub(crate) const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
pub(crate) const CLAIMS: &str = "/apis/resource.k8s.io/v1/resourceclaims";
pub(crate) const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
/// Served once there is one.
pub(crate) const MARKS: &str = "/apis/devicetaint.dev/v1alpha1/devicemarks";

/// The driver of every device here.
pub(crate) const DRIVER: &str = "gpu.devicetaint.dev";

/// When every test begins.
pub(crate) const START: &str = "2026-11-01T10:00:00Z";

/// `namespace/name`, or the name alone.
pub(crate) fn name_of(object: &Value) -> String {
    let meta = &object["metadata"];
    let name = meta["name"].as_str().unwrap_or_default();
    meta["namespace"].as_str().map_or_else(|| name.to_owned(), |namespace| format!("{namespace}/{name}"))
}

/// A running pod of node n1 in namespace `ml`, with a claim of the same name if it has a device.
pub(crate) fn pod(name: &str, claim: Option<&str>) -> Value {
    let claims: Vec<Value> = claim.iter().map(|claim| json!({"name": "gpu", "resourceClaimName": claim})).collect();
    json!({
        "metadata": {"namespace": "ml", "name": name, "creationTimestamp": START},
        "spec": {"nodeName": "n1", "resourceClaims": claims},
        "status": {"phase": "Running"},
    })
}

/// A claim of namespace `ml` with a device of node n1, reserved for pods by name.
pub(crate) fn claim(name: &str, device: &str, tolerations: &Value, pods: &[&str]) -> Value {
    let reserved = |pod: &&str| json!({"resource": "pods", "name": pod, "uid": format!("uid-ml/{pod}")});
    let reserved: Vec<Value> = pods.iter().map(reserved).collect();
    json!({
        "metadata": {"namespace": "ml", "name": name},
        "spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"tolerations": tolerations}}]}},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device, "tolerations": tolerations}]}},
            "reservedFor": reserved,
        },
    })
}

/// A toleration of everything that is NoExecute, for so many seconds or for ever.
pub(crate) fn tolerates(seconds: Option<i64>) -> Value {
    let mut toleration = json!({"operator": "Exists", "effect": "NoExecute"});
    if let Some(seconds) = seconds {
        toleration["tolerationSeconds"] = json!(seconds);
    }
    json!([toleration])
}

/// The slice of node n1 with these devices, none of them tainted.
pub(crate) fn slice(devices: &[&str]) -> Value {
    let devices: Vec<Value> = devices.iter().map(|name| json!({"name": name})).collect();
    json!({
        "metadata": {"name": "n1-slice", "creationTimestamp": START},
        "spec": {"driver": DRIVER, "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": devices},
    })
}

/// Node n1 with a taint of this key and effect NoExecute, or none.
pub(crate) fn node(taint: Option<&str>) -> Value {
    let taints: Vec<Value> = taint.iter().map(|key| json!({"key": key, "effect": "NoExecute"})).collect();
    json!({"metadata": {"name": "n1"}, "spec": {"taints": taints}})
}

/// A rule that taints one device NoExecute since the start.
pub(crate) fn rule(name: &str, device: &str) -> Value {
    json!({
        "metadata": {"name": name},
        "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": "n1", "device": device},
            "taint": {"key": "example.com/broken", "effect": "NoExecute", "timeAdded": START},
        },
    })
}

/// A mark of ours that ends at a time.
pub(crate) fn mark(name: &str, expires_at: &str) -> Value {
    let mut rule = rule(name, "gpu-9");
    rule["metadata"]["labels"] = json!({"devicetaint.dev/managed-by": "kubectl-device"});
    rule["metadata"]["annotations"] = json!({"devicetaint.dev/expires-at": expires_at, "devicetaint.dev/by": "ada"});
    rule
}
