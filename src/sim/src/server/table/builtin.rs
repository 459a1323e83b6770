//! Columns of the built-in kinds.

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{age, created};
use crate::server::value::{at, int, list, text};

/// The columns of a kind; a `+` marks those that only `-o wide` shows.
pub(super) fn columns(kind: &str) -> &'static [&'static str] {
    match kind {
        "Pod" => &["Name", "Ready", "Status", "Restarts", "Age", "IP+", "Node+", "Nominated Node+", "Readiness Gates+"],
        "Node" => &[
            "Name",
            "Status",
            "Roles",
            "Age",
            "Version",
            "Internal-IP+",
            "External-IP+",
            "OS-Image+",
            "Kernel-Version+",
            "Container-Runtime+",
        ],
        "Namespace" => &["Name", "Status", "Age"],
        "Event" => &[
            "Last Seen",
            "Type",
            "Reason",
            "Object",
            "Subobject+",
            "Source+",
            "Message",
            "First Seen+",
            "Count+",
            "Name+",
        ],
        "ResourceClaim" => &["Name", "State", "Age"],
        "ResourceSlice" => &["Name", "Node", "Driver", "Pool", "Age"],
        "DeviceTaintRule" => &["Name", "Driver", "Pool", "Device", "Taint", "Age"],
        "PodDisruptionBudget" => &["Name", "Min Available", "Max Unavailable", "Allowed Disruptions", "Age"],
        "Lease" => &["Name", "Holder", "Age"],
        "ConfigMap" => &["Name", "Data", "Age"],
        "Secret" => &["Name", "Type", "Data", "Age"],
        "Service" => &["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector+"],
        "CustomResourceDefinition" => &["Name", "Created At"],
        "Deployment" => &["Name", "Ready", "Up-to-date", "Available", "Age"],
        "ReplicaSet" => &["Name", "Desired", "Current", "Ready", "Age"],
        "StatefulSet" => &["Name", "Ready", "Age"],
        "DaemonSet" => &["Name", "Desired", "Current", "Ready", "Up-to-date", "Available", "Age"],
        "PriorityClass" => &["Name", "Value", "Global-default", "Age"],
        _ => &["Name", "Age"],
    }
}

/// The cells of one object, one for each column.
pub(super) fn cells(kind: &str, object: &Value, now: Timestamp) -> Vec<Value> {
    let name = at(object, &["metadata", "name"]).clone();
    match kind {
        "Pod" => pod(object, now),
        "Node" => node(object, now),
        "Event" => event(object, now),
        "Service" => service(object, now),
        "CustomResourceDefinition" => vec![name, at(object, &["metadata", "creationTimestamp"]).clone()],
        _ => {
            let mut cells = vec![name];
            cells.extend(device_cells(kind, object).or_else(|| workload_cells(kind, object)).unwrap_or_default());
            cells.push(created(object, now));
            cells
        }
    }
}

/// What stands between name and age, for the kinds around devices and for small ones.
fn device_cells(kind: &str, object: &Value) -> Option<Vec<Value>> {
    let cells = match kind {
        "Namespace" => vec![at(object, &["status", "phase"]).clone()],
        "ResourceClaim" => vec![json!(claim_state(object))],
        "ResourceSlice" => {
            let node = match text(object, &["spec", "nodeName"]) {
                "" if at(object, &["spec", "allNodes"]) == &Value::Bool(true) => "<all nodes>",
                "" => "<node selector>",
                name => name,
            };
            vec![json!(node), json!(text(object, &["spec", "driver"])), json!(text(object, &["spec", "pool", "name"]))]
        }
        "DeviceTaintRule" => rule(object).to_vec(),
        "Lease" => vec![json!(text(object, &["spec", "holderIdentity"]))],
        "ConfigMap" => vec![json!(entries(object, "data") + entries(object, "binaryData"))],
        "Secret" => vec![json!(text(object, &["type"])), json!(entries(object, "data"))],
        _ => return None,
    };
    Some(cells)
}

/// What stands between name and age, for controllers of pods and what belongs to them.
fn workload_cells(kind: &str, object: &Value) -> Option<Vec<Value>> {
    let counts = |fields: &[&str]| -> Vec<Value> { fields.iter().map(|field| count(object, field)).collect() };
    let cells = match kind {
        "PodDisruptionBudget" => vec![
            or_none(at(object, &["spec", "minAvailable"])),
            or_none(at(object, &["spec", "maxUnavailable"])),
            count(object, "disruptionsAllowed"),
        ],
        "Deployment" => vec![ready_of(object), count(object, "updatedReplicas"), count(object, "availableReplicas")],
        "StatefulSet" => vec![ready_of(object)],
        "ReplicaSet" => vec![wanted(object), count(object, "replicas"), count(object, "readyReplicas")],
        "DaemonSet" => counts(&[
            "desiredNumberScheduled",
            "currentNumberScheduled",
            "numberReady",
            "updatedNumberScheduled",
            "numberAvailable",
        ]),
        "PriorityClass" => {
            vec![at(object, &["value"]).clone(), json!(at(object, &["globalDefault"]).as_bool().unwrap_or(false))]
        }
        _ => return None,
    };
    Some(cells)
}

fn or_none(value: &Value) -> Value {
    if value.is_null() { json!("N/A") } else { value.clone() }
}

fn entries(object: &Value, field: &str) -> usize {
    at(object, &[field]).as_object().map_or(0, serde_json::Map::len)
}

fn count(object: &Value, field: &str) -> Value {
    json!(int(object, &["status", field]).unwrap_or(0))
}

fn wanted(object: &Value) -> Value {
    json!(int(object, &["spec", "replicas"]).unwrap_or(0))
}

fn ready_of(object: &Value) -> Value {
    json!(format!("{}/{}", count(object, "readyReplicas"), wanted(object)))
}

fn claim_state(claim: &Value) -> String {
    let mut state = Vec::new();
    if !at(claim, &["metadata", "deletionTimestamp"]).is_null() {
        state.push("deleted");
    }
    if at(claim, &["status", "allocation"]).is_null() {
        if state.is_empty() {
            state.push("pending");
        }
    } else {
        state.push("allocated");
        if !list(claim, &["status", "reservedFor"]).is_empty() {
            state.push("reserved");
        }
    }
    state.join(",")
}

fn rule(rule: &Value) -> [Value; 4] {
    let selector = at(rule, &["spec", "deviceSelector"]);
    let cell = |field: &str| match text(selector, &[field]) {
        "" if selector.is_null() => json!("<none>"),
        "" => json!("*"),
        name => json!(name),
    };
    let taint = at(rule, &["spec", "taint"]);
    let value = match text(taint, &["value"]) {
        "" => String::new(),
        value => format!("={value}"),
    };
    let shown = format!("{}{value}:{}", text(taint, &["key"]), text(taint, &["effect"]));
    [cell("driver"), cell("pool"), cell("device"), json!(shown)]
}

fn pod(pod: &Value, now: Timestamp) -> Vec<Value> {
    let containers = list(pod, &["spec", "containers"]).len();
    let statuses = list(pod, &["status", "containerStatuses"]);
    let ready = statuses.iter().filter(|status| at(status, &["ready"]) == &Value::Bool(true)).count();
    let restarts: i64 = statuses.iter().filter_map(|status| int(status, &["restartCount"])).sum();
    let cell = |path: &[&str]| match text(pod, path) {
        "" => json!("<none>"),
        found => json!(found),
    };
    vec![
        at(pod, &["metadata", "name"]).clone(),
        json!(format!("{ready}/{containers}")),
        json!(pod_status(pod, statuses)),
        json!(restarts.to_string()),
        created(pod, now),
        cell(&["status", "podIP"]),
        cell(&["spec", "nodeName"]),
        cell(&["status", "nominatedNodeName"]),
        json!("<none>"),
    ]
}

/// The one word for a pod: its phase, unless a reason or a deletion says more.
fn pod_status(pod: &Value, statuses: &[Value]) -> String {
    if !at(pod, &["metadata", "deletionTimestamp"]).is_null() {
        return "Terminating".to_owned();
    }
    let gated = list(pod, &["status", "conditions"]).iter().any(|condition| {
        text(condition, &["type"]) == "PodScheduled" && text(condition, &["reason"]) == "SchedulingGated"
    });
    let mut word = match text(pod, &["status", "reason"]) {
        _ if gated => "SchedulingGated",
        "" => text(pod, &["status", "phase"]),
        reason => reason,
    };
    for status in statuses {
        for state in ["waiting", "terminated"] {
            let reason = text(status, &["state", state, "reason"]);
            if !reason.is_empty() {
                word = reason;
            }
        }
    }
    word.to_owned()
}

fn node(node: &Value, now: Timestamp) -> Vec<Value> {
    let ready = list(node, &["status", "conditions"]).iter().find(|condition| text(condition, &["type"]) == "Ready");
    let mut status = match ready.map(|condition| text(condition, &["status"])) {
        Some("True") => "Ready".to_owned(),
        Some(_) => "NotReady".to_owned(),
        None => "Unknown".to_owned(),
    };
    if at(node, &["spec", "unschedulable"]) == &Value::Bool(true) {
        status.push_str(",SchedulingDisabled");
    }
    let labels = at(node, &["metadata", "labels"]).as_object();
    let role = |label: &String| label.strip_prefix("node-role.kubernetes.io/").map(str::to_owned);
    let roles: Vec<String> = labels.into_iter().flatten().filter_map(|(label, _)| role(label)).collect();
    let address = |kind: &str| {
        let found = list(node, &["status", "addresses"]).iter().find(|address| text(address, &["type"]) == kind);
        json!(found.map_or("<none>", |address| text(address, &["address"])))
    };
    let info = |field: &str| match text(node, &["status", "nodeInfo", field]) {
        "" => json!("<unknown>"),
        found => json!(found),
    };
    vec![
        at(node, &["metadata", "name"]).clone(),
        json!(status),
        json!(if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }),
        created(node, now),
        json!(text(node, &["status", "nodeInfo", "kubeletVersion"])),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn event(event: &Value, now: Timestamp) -> Vec<Value> {
    // The row may show an event of either group.
    let field = |core: &str, newer: &str| match at(event, &[core]) {
        Value::Null => at(event, &[newer]).clone(),
        found => found.clone(),
    };
    let time = |field: Value, or: &str| {
        let own = field.as_str().unwrap_or_default();
        json!(age(if own.is_empty() { text(event, &[or]) } else { own }, now))
    };
    let object = field("involvedObject", "regarding");
    let count = field("count", "deprecatedCount").as_i64().unwrap_or(1);
    let source = field("source", "deprecatedSource");
    let component = match text(&source, &["component"]) {
        "" => field("reportingComponent", "reportingController"),
        found => json!(found),
    };
    vec![
        time(field("lastTimestamp", "deprecatedLastTimestamp"), "eventTime"),
        json!(text(event, &["type"])),
        json!(text(event, &["reason"])),
        json!(format!("{}/{}", text(&object, &["kind"]).to_lowercase(), text(&object, &["name"]))),
        json!(text(&object, &["fieldPath"])),
        component,
        json!(field("message", "note").as_str().unwrap_or_default().trim()),
        time(field("firstTimestamp", "deprecatedFirstTimestamp"), "eventTime"),
        json!(count.to_string()),
        at(event, &["metadata", "name"]).clone(),
    ]
}

fn service(service: &Value, now: Timestamp) -> Vec<Value> {
    let port = |port: &Value| format!("{}/{}", at(port, &["port"]), text(port, &["protocol"]));
    let ports: Vec<String> = list(service, &["spec", "ports"]).iter().map(port).collect();
    let selector = at(service, &["spec", "selector"]).as_object();
    let selector: Vec<String> =
        selector.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default())).collect();
    let or_none = |list: Vec<String>| json!(if list.is_empty() { "<none>".to_owned() } else { list.join(",") });
    vec![
        at(service, &["metadata", "name"]).clone(),
        json!(text(service, &["spec", "type"])),
        json!(text(service, &["spec", "clusterIP"])),
        json!("<none>"),
        or_none(ports),
        created(service, now),
        or_none(selector),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(kind: &str, object: Value) -> Vec<String> {
        let now = "2026-11-30T10:00:00Z".parse().unwrap();
        cells(kind, &object, now)
            .iter()
            .map(|cell| cell.as_str().map_or_else(|| cell.to_string(), str::to_owned))
            .collect()
    }

    #[test]
    fn a_pod_in_one_row() {
        let pod = json!({"metadata": {"name": "p", "creationTimestamp": "2026-11-30T09:59:00Z"},
            "spec": {"nodeName": "n", "containers": [{}, {}]},
            "status": {"phase": "Running", "containerStatuses": [{"ready": true, "restartCount": 2}]}});
        assert_eq!(words("Pod", pod.clone())[..7], ["p", "1/2", "Running", "2", "60s", "<none>", "n"]);
        let mut dying = pod;
        dying["metadata"]["deletionTimestamp"] = json!("2026-11-30T10:00:30Z");
        assert_eq!(words("Pod", dying)[2], "Terminating");
    }

    #[test]
    fn a_claim_tells_its_state() {
        assert_eq!(words("ResourceClaim", json!({}))[1], "pending");
        let claim = json!({"status": {"allocation": {}, "reservedFor": [{}]}});
        assert_eq!(words("ResourceClaim", claim)[1], "allocated,reserved");
    }

    #[test]
    fn a_rule_shows_what_it_selects() {
        let with = |selector: Value| {
            words(
                "DeviceTaintRule",
                json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": selector,
                "taint": {"key": "k", "value": "v", "effect": "NoExecute"}}}),
            )[1..5]
                .join(" ")
        };
        assert_eq!(with(json!({"driver": "d", "device": "x"})), "d * x k=v:NoExecute");
        assert_eq!(with(json!({})), "* * * k=v:NoExecute");
        assert_eq!(with(Value::Null), "<none> <none> <none> k=v:NoExecute");
    }

    #[test]
    fn a_cordoned_node_says_so() {
        let node = json!({"metadata": {"name": "n"}, "spec": {"unschedulable": true},
                          "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        assert_eq!(words("Node", node)[1], "Ready,SchedulingDisabled");
    }
}
