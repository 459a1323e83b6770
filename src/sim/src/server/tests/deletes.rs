//! Deleting: preconditions, grace, finalizers, owners, namespaces.

use super::*;

#[tokio::test]
async fn a_deletion_holds_to_its_preconditions() {
    let sim = Sim::start().await;
    let made = sim.post(MAPS, named("a")).await;
    let path = format!("{MAPS}/a");
    let message = sim.refused("DELETE", &path, JSON, json!({"preconditions": {"uid": "other"}}), 409, "Conflict").await;
    assert!(message.contains("the UID in the precondition (other) does not match the UID in record"));
    sim.refused("DELETE", &path, JSON, json!({"preconditions": {"resourceVersion": "1"}}), 409, "Conflict").await;
    let exact = json!({"preconditions": {"uid": made["metadata"]["uid"], "resourceVersion": version(&made)}});
    let status = sim.delete(&path, exact).await;
    assert_eq!((&status["status"], &status["details"]["kind"]), (&json!("Success"), &json!("configmaps")));
    sim.refused("DELETE", &path, JSON, Value::Null, 404, "NotFound").await;
}

#[tokio::test]
async fn a_bound_pod_goes_when_its_kubelet_says_so() {
    let sim = Sim::start().await;
    sim.ready_pod("p", json!({})).await;
    let path = format!("{PODS}/p");
    let dying = sim.delete(&path, Value::Null).await;
    assert_eq!(dying["metadata"]["deletionGracePeriodSeconds"], 30);
    assert_eq!(sim.delete(&path, Value::Null).await, dying, "a second deletion changes nothing");
    let shorter = sim.delete(&path, json!({"gracePeriodSeconds": 5})).await;
    assert_eq!(shorter["metadata"]["deletionGracePeriodSeconds"], 5);
    let longer = sim.delete(&path, json!({"gracePeriodSeconds": 60})).await;
    assert_eq!(longer["metadata"]["deletionGracePeriodSeconds"], 5);
    sim.delete(&path, json!({"gracePeriodSeconds": 0})).await;
    sim.refused("GET", &path, JSON, Value::Null, 404, "NotFound").await;
}

#[tokio::test]
async fn unbound_and_finished_pods_go_at_once() {
    let sim = Sim::start().await;
    sim.post(PODS, json!({"metadata": {"name": "waiting"}, "spec": spec(None)})).await;
    sim.ready_pod("done", json!({})).await;
    sim.patch(&format!("{PODS}/done/status"), MERGE, json!({"status": {"phase": "Succeeded"}})).await;
    for name in ["waiting", "done"] {
        let path = format!("{PODS}/{name}");
        sim.delete(&path, Value::Null).await;
        sim.refused("GET", &path, JSON, Value::Null, 404, "NotFound").await;
    }
}

#[tokio::test]
async fn finalizers_hold_an_object() {
    let sim = Sim::start().await;
    sim.post(MAPS, json!({"metadata": {"name": "a", "finalizers": ["x/held"]}})).await;
    let path = format!("{MAPS}/a");
    let dying = sim.delete(&path, Value::Null).await;
    assert!(!text(&dying, &["metadata", "deletionTimestamp"]).is_empty());
    let more = json!({"metadata": {"finalizers": ["x/held", "x/more"]}});
    sim.refused("PATCH", &path, MERGE, more, 422, "Invalid").await;
    sim.patch(&path, MERGE, json!({"metadata": {"finalizers": null}})).await;
    sim.refused("GET", &path, JSON, Value::Null, 404, "NotFound").await;
}

#[tokio::test]
async fn dependents_go_with_their_last_owner() {
    let sim = Sim::start().await;
    let owners = [sim.post(MAPS, named("o1")).await, sim.post(MAPS, named("o2")).await];
    let reference = |owner: &Value| json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner["metadata"]["name"], "uid": owner["metadata"]["uid"]});
    let both = json!([reference(&owners[0]), reference(&owners[1])]);
    sim.post(MAPS, json!({"metadata": {"name": "child", "ownerReferences": both}})).await;
    sim.delete(&format!("{MAPS}/o1"), Value::Null).await;
    sim.get(&format!("{MAPS}/child")).await;
    sim.delete(&format!("{MAPS}/o2"), Value::Null).await;
    sim.refused("GET", &format!("{MAPS}/child"), JSON, Value::Null, 404, "NotFound").await;
}

#[tokio::test]
async fn orphans_stay() {
    let sim = Sim::start().await;
    let owner = sim.post(MAPS, named("o")).await;
    let reference = json!([{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": owner["metadata"]["uid"]}]);
    sim.post(MAPS, json!({"metadata": {"name": "child", "ownerReferences": reference}})).await;
    sim.delete(&format!("{MAPS}/o"), json!({"propagationPolicy": "Orphan"})).await;
    let child = sim.get(&format!("{MAPS}/child")).await;
    assert!(child["metadata"].get("ownerReferences").is_none());
}

#[tokio::test]
async fn a_namespace_goes_when_it_is_empty() {
    let sim = Sim::start().await;
    sim.post("/api/v1/namespaces", named("team")).await;
    let maps = "/api/v1/namespaces/team/configmaps";
    sim.post(maps, json!({"metadata": {"name": "held", "finalizers": ["x/held"]}})).await;
    sim.post(maps, named("free")).await;
    let dying = sim.delete("/api/v1/namespaces/team", Value::Null).await;
    assert_eq!(dying["status"]["phase"], "Terminating");
    sim.refused("GET", &format!("{maps}/free"), JSON, Value::Null, 404, "NotFound").await;
    let message = sim.refused("POST", maps, JSON, named("new"), 403, "Forbidden").await;
    assert!(message.contains("because it is being terminated"));
    sim.patch(&format!("{maps}/held"), MERGE, json!({"metadata": {"finalizers": null}})).await;
    sim.refused("GET", "/api/v1/namespaces/team", JSON, Value::Null, 404, "NotFound").await;
}

#[tokio::test]
async fn a_collection_is_deleted_by_selector() {
    let sim = Sim::start().await;
    for (name, label) in [("a", "x"), ("b", "y"), ("c", "x")] {
        sim.post(MAPS, json!({"metadata": {"name": name, "labels": {"l": label}}})).await;
    }
    sim.delete(&format!("{MAPS}?labelSelector=l%3Dx"), Value::Null).await;
    assert_eq!(sim.get(MAPS).await["items"].as_array().unwrap().len(), 1);
}
