//! Creating and changing: defaults, rules, conflicts, the patch formats, ownership.

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::api::{Patch, PatchParams};

use super::*;
use crate::server::value::list;

#[tokio::test]
async fn a_created_object_has_an_identity() {
    let sim = Sim::start().await;
    let made = sim
        .post(PODS, json!({"metadata": {"generateName": "web-"}, "spec": spec(None), "status": {"phase": "Running"}}))
        .await;
    let name = text(&made, &["metadata", "name"]);
    assert!(name.starts_with("web-") && name.len() == 9);
    assert_eq!((&made["metadata"]["generation"], &made["status"]["phase"]), (&json!(1), &json!("Pending")));
    assert_eq!(text(&made, &["metadata", "uid"]).len(), 36);
    let again = json!({"metadata": {"name": name}, "spec": spec(None)});
    let message = sim.refused("POST", PODS, JSON, again, 409, "AlreadyExists").await;
    assert_eq!(message, format!("pods \"{name}\" already exists"));
}

#[tokio::test]
async fn a_namespace_must_exist_and_fit() {
    let sim = Sim::start().await;
    let path = "/api/v1/namespaces/nowhere/configmaps";
    assert_eq!(sim.refused("POST", path, JSON, named("a"), 404, "NotFound").await, "namespaces \"nowhere\" not found");
    let other = json!({"metadata": {"name": "a", "namespace": "kube-system"}});
    sim.refused("POST", MAPS, JSON, other, 400, "BadRequest").await;
    sim.refused("POST", MAPS, JSON, json!({"kind": "Secret", "metadata": {"name": "a"}}), 400, "BadRequest").await;
}

#[tokio::test]
async fn broken_rules_name_their_fields() {
    let sim = Sim::start().await;
    let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}],
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}]}});
    let (code, status) = sim.send("POST", PODS, JSON, pod).await;
    assert_eq!((code, &status["reason"], &status["details"]["kind"]), (422, &json!("Invalid"), &json!("Pod")));
    assert_eq!(status["details"]["causes"][0]["field"], "spec.tolerations[0].effect");
    assert!(text(&status, &["message"]).starts_with("Pod \"p\" is invalid: spec.tolerations[0].effect: Invalid value"));
}

#[tokio::test]
async fn unknown_fields_are_refused_warned_of_or_dropped() {
    let sim = Sim::start().await;
    let claim = |name: &str| {
        json!({"metadata": {"name": name}, "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "c"}, "tolerations": [{"operator": "Exists"}]}]}}})
    };
    let strict = format!("{CLAIMS}?fieldValidation=Strict");
    let message = sim.refused("POST", &strict, JSON, claim("a"), 400, "BadRequest").await;
    assert!(
        message.contains("strict decoding error: unknown field \"spec.devices.requests[0].tolerations\""),
        "{message}"
    );
    let answer = sim.raw("POST", CLAIMS, JSON, claim("b").to_string().into_bytes()).await.unwrap();
    assert_eq!(answer.headers()["warning"], "299 - \"unknown field \\\"spec.devices.requests[0].tolerations\\\"\"");
    let quiet = sim.post(&format!("{CLAIMS}?fieldValidation=Ignore"), claim("c")).await;
    assert!(quiet["spec"]["devices"]["requests"][0].get("tolerations").is_none());
    let wrong = json!({"metadata": {"name": "d"}, "spec": {"devices": {"requests": "all"}}});
    assert!(sim.refused("POST", CLAIMS, JSON, wrong, 400, "BadRequest").await.contains("cannot unmarshal string"));
}

#[tokio::test]
async fn bodies_in_other_formats_are_told_apart() {
    let sim = Sim::start().await;
    let answer = sim.raw("POST", MAPS, "application/vnd.kubernetes.protobuf", b"k8s\0...".to_vec()).await.unwrap();
    assert_eq!(answer.status(), 415);
    let answer =
        sim.raw("POST", MAPS, "application/yaml", b"metadata:\n  name: y\ndata: {a: b}\n".to_vec()).await.unwrap();
    assert_eq!(answer.status(), 201);
    let answer = sim.raw("PATCH", &format!("{MAPS}/y"), JSON, b"{}".to_vec()).await.unwrap();
    assert_eq!(answer.status(), 415);
}

#[tokio::test]
async fn a_write_decided_on_an_old_version_is_refused() {
    let sim = Sim::start().await;
    let old = sim.post(MAPS, named("a")).await;
    let path = format!("{MAPS}/a");
    let new =
        sim.put(&path, json!({"metadata": {"name": "a", "resourceVersion": version(&old)}, "data": {"n": "1"}})).await;
    assert_ne!(version(&new), version(&old));
    let stale = json!({"metadata": {"name": "a", "resourceVersion": version(&old)}, "data": {"n": "2"}});
    let message = sim.refused("PUT", &path, JSON, stale.clone(), 409, "Conflict").await;
    assert!(message.contains("the object has been modified"));
    for format in [MERGE, STRATEGIC] {
        sim.refused("PATCH", &path, format, stale.clone(), 409, "Conflict").await;
    }
    let unconditional = sim.put(&path, json!({"metadata": {"name": "a"}, "data": {"n": "3"}})).await;
    assert_eq!(unconditional["data"]["n"], "3");
    let stranger = json!({"metadata": {"name": "a", "uid": "other"}, "data": {}});
    sim.refused("PUT", &path, JSON, stranger.clone(), 409, "Conflict").await;
    sim.refused("PATCH", &path, MERGE, stranger, 422, "Invalid").await;
    sim.refused("PUT", &format!("{MAPS}/b"), JSON, named("b"), 404, "NotFound").await;
}

#[tokio::test]
async fn a_write_that_changes_nothing_is_none() {
    let sim = Sim::start().await;
    let before = sim.post(MAPS, json!({"metadata": {"name": "a"}, "data": {"k": "v"}})).await;
    let after = sim.patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"k": "v"}})).await;
    assert_eq!(after, before);
}

#[tokio::test]
async fn status_and_spec_are_written_apart() {
    let sim = Sim::start().await;
    sim.post(PODS, json!({"metadata": {"name": "p"}, "spec": spec(None)})).await;
    let both = json!({"metadata": {"labels": {"a": "b"}}, "status": {"phase": "Running"}});
    let main = sim.patch(&format!("{PODS}/p"), MERGE, both.clone()).await;
    assert_eq!((&main["metadata"]["labels"]["a"], &main["status"]["phase"]), (&json!("b"), &json!("Pending")));
    let other = json!({"metadata": {"labels": {"a": "c"}}, "status": {"phase": "Running"}});
    let status = sim.patch(&format!("{PODS}/p/status"), MERGE, other).await;
    assert_eq!((&status["metadata"]["labels"]["a"], &status["status"]["phase"]), (&json!("b"), &json!("Running")));
    assert_eq!(status["metadata"]["generation"], 1, "only a change of the spec counts");
}

#[tokio::test]
async fn every_patch_format_works() {
    let sim = Sim::start().await;
    sim.post("/api/v1/nodes", named("n1")).await;
    let path = "/api/v1/nodes/n1";
    let condition = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    sim.patch(&format!("{path}/status"), STRATEGIC, condition("True")).await;
    let other = json!({"status": {"conditions": [{"type": "DiskPressure", "status": "False"}]}});
    let node = sim.patch(&format!("{path}/status"), STRATEGIC, other).await;
    assert_eq!(list(&node, &["status", "conditions"]).len(), 2);
    let taints = json!({"spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}});
    assert_eq!(list(&sim.patch(path, STRATEGIC, taints).await, &["spec", "taints"]).len(), 1);
    let add = json!([{"op": "add", "path": "/spec/taints/-", "value": {"key": "b", "effect": "NoSchedule"}}]);
    assert_eq!(list(&sim.patch(path, JSON_PATCH, add).await, &["spec", "taints"]).len(), 2);
    let test = json!([{"op": "test", "path": "/spec/taints/0/key", "value": "z"}]);
    sim.refused("PATCH", path, JSON_PATCH, test, 422, "Invalid").await;
    let none = sim.patch(path, MERGE, json!({"spec": {"taints": null}})).await;
    assert!(none["spec"].get("taints").is_none());
}

#[tokio::test]
async fn cordoning_taints_the_node_and_says_who_did_it() {
    let sim = Sim::start().await;
    sim.post("/api/v1/nodes", named("n1")).await;
    let node = sim.patch("/api/v1/nodes/n1", STRATEGIC, json!({"spec": {"unschedulable": true}})).await;
    assert_eq!(node["spec"]["taints"][0]["key"], "node.kubernetes.io/unschedulable");
    let managed = list(&node, &["metadata", "managedFields"]);
    let owner = managed.iter().find(|entry| !entry["fieldsV1"]["f:spec"]["f:taints"].is_null()).unwrap();
    assert_eq!(owner["manager"], "kube-controller-manager");
    let free = sim.patch("/api/v1/nodes/n1", STRATEGIC, json!({"spec": {"unschedulable": null}})).await;
    assert!(free["spec"].get("taints").is_none());
}

#[tokio::test]
async fn kubes_server_side_apply_owns_fields() {
    let sim = Sim::start().await;
    let nodes: Api<Node> = Api::all(sim.client.clone());
    let apply = |labels: Value| {
        Patch::Apply(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}))
    };
    let mine = PatchParams::apply("mine");
    let made = nodes.patch("n1", &mine, &apply(json!({"a": "1", "b": "2"}))).await.unwrap();
    assert_eq!(made.metadata.labels.unwrap().len(), 2);
    let less = nodes.patch("n1", &mine, &apply(json!({"a": "1"}))).await.unwrap();
    assert_eq!(less.metadata.labels.unwrap().len(), 1);
    let theirs = PatchParams::apply("theirs");
    let refused = nodes.patch("n1", &theirs, &apply(json!({"a": "9"}))).await.unwrap_err();
    assert!(refused.to_string().contains("conflict with \"mine\" using v1: .metadata.labels.a"), "{refused}");
    let forced = nodes.patch("n1", &theirs.force(), &apply(json!({"a": "9"}))).await.unwrap();
    assert_eq!(forced.metadata.labels.unwrap()["a"], "9");
    let managers = forced.metadata.managed_fields.unwrap();
    assert_eq!(managers.iter().filter_map(|entry| entry.manager.as_deref()).collect::<Vec<_>>(), ["theirs"]);
}

#[tokio::test]
async fn apply_to_a_pod_keeps_the_defaults() {
    let sim = Sim::start().await;
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec(None)});
    let path = format!("{PODS}/p?fieldManager=me");
    let first = sim.patch(&path, APPLY, pod.clone()).await;
    assert_eq!(first["spec"]["restartPolicy"], "Always");
    assert_eq!(sim.patch(&path, APPLY, pod.clone()).await, first);
    sim.refused("PATCH", &format!("{PODS}/p"), APPLY, pod, 400, "BadRequest").await;
}

#[tokio::test]
async fn a_dry_run_leaves_no_trace() {
    let sim = Sim::start().await;
    let before = version(&sim.get(MAPS).await).to_owned();
    let made = sim.post(&format!("{MAPS}?dryRun=All"), named("a")).await;
    assert!(!text(&made, &["metadata", "uid"]).is_empty());
    sim.refused("GET", &format!("{MAPS}/a"), JSON, Value::Null, 404, "NotFound").await;
    sim.post(MAPS, named("b")).await;
    sim.delete(&format!("{MAPS}/b"), json!({"dryRun": ["All"]})).await;
    sim.get(&format!("{MAPS}/b")).await;
    let after: u64 = version(&sim.get(MAPS).await).parse().unwrap();
    assert_eq!(after, before.parse::<u64>().unwrap() + 1);
}

#[tokio::test]
async fn events_are_one_thing_in_two_groups() {
    let sim = Sim::start().await;
    let event = json!({"metadata": {"name": "e"}, "regarding": {"kind": "Pod", "name": "p", "namespace": "default"},
        "note": "Marking for deletion", "reason": "R", "type": "Normal", "action": "Evict",
        "reportingController": "c", "reportingInstance": "i", "eventTime": "2026-11-30T10:00:00.000001Z"});
    sim.post("/apis/events.k8s.io/v1/namespaces/default/events", event).await;
    let core = sim.get("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dp").await;
    assert_eq!(core["items"][0]["message"], "Marking for deletion");
    let newer = sim.get("/apis/events.k8s.io/v1/namespaces/default/events/e").await;
    assert_eq!((&newer["note"], &newer["apiVersion"]), (&json!("Marking for deletion"), &json!("events.k8s.io/v1")));
    assert_eq!(newer["eventTime"], "2026-11-30T10:00:00.000001Z");
}
