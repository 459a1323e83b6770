//! Binding and eviction.

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;

use super::*;

const BUDGETS: &str = "/apis/policy/v1/namespaces/default/poddisruptionbudgets";

async fn budget(sim: &Sim, spec: Value) {
    let mut spec = spec;
    spec["selector"] = json!({"matchLabels": {"app": "a"}});
    sim.post(BUDGETS, json!({"metadata": {"name": "b"}, "spec": spec})).await;
}

async fn evict(sim: &Sim, name: &str, options: Value) -> (u16, Value) {
    let body =
        json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}, "deleteOptions": options});
    sim.send("POST", &format!("{PODS}/{name}/eviction"), JSON, body).await
}

async fn status(sim: &Sim) -> Value {
    sim.get(&format!("{BUDGETS}/b")).await["status"].clone()
}

#[tokio::test]
async fn an_eviction_marks_and_deletes_with_grace() {
    let sim = Sim::start().await;
    sim.ready_pod("p", json!({})).await;
    let pods: Api<Pod> = Api::default_namespaced(sim.client.clone());
    pods.evict("p", &EvictParams::default()).await.unwrap();
    let pod = sim.get(&format!("{PODS}/p")).await;
    let conditions = pod["status"]["conditions"].as_array().unwrap();
    let target = conditions.iter().find(|condition| condition["type"] == "DisruptionTarget").unwrap();
    assert_eq!((&target["status"], &target["reason"]), (&json!("True"), &json!("EvictionByEvictionAPI")));
    assert_eq!(pod["metadata"]["deletionGracePeriodSeconds"], 30);
}

#[tokio::test]
async fn a_budget_lets_one_go_and_stops_the_next() {
    let sim = Sim::start().await;
    for name in ["p1", "p2", "p3"] {
        sim.ready_pod(name, json!({"app": "a"})).await;
    }
    budget(&sim, json!({"minAvailable": 2})).await;
    let found = status(&sim).await;
    assert_eq!((&found["currentHealthy"], &found["disruptionsAllowed"]), (&json!(3), &json!(1)));
    assert_eq!(evict(&sim, "p1", Value::Null).await.0, 201);
    assert_eq!(status(&sim).await["disruptionsAllowed"], 0);
    let (code, refusal) = evict(&sim, "p2", Value::Null).await;
    assert_eq!((code, &refusal["reason"]), (429, &json!("TooManyRequests")));
    assert_eq!(refusal["message"], "Cannot evict pod as it would violate the pod's disruption budget.");
    let cause = &refusal["details"]["causes"][0];
    assert_eq!(cause["reason"], "DisruptionBudget");
    assert_eq!(cause["message"], "The disruption budget b needs 2 healthy pods and has 2 currently");
    let pod = sim.get(&format!("{PODS}/p2")).await;
    assert_eq!(pod["status"]["conditions"].as_array().unwrap().len(), 1, "nothing was written on the pod");
}

#[tokio::test]
async fn shares_are_counted_from_the_pods_of_the_moment() {
    let sim = Sim::start().await;
    budget(&sim, json!({"maxUnavailable": "50%"})).await;
    for name in ["p1", "p2", "p3"] {
        sim.ready_pod(name, json!({"app": "a"})).await;
    }
    let found = status(&sim).await;
    assert_eq!(
        (&found["expectedPods"], &found["desiredHealthy"], &found["disruptionsAllowed"]),
        (&json!(3), &json!(1), &json!(2))
    );
}

#[tokio::test]
async fn a_failed_precondition_costs_nothing() {
    let sim = Sim::start().await;
    let pod = sim.ready_pod("p1", json!({"app": "a"})).await;
    budget(&sim, json!({"maxUnavailable": 1})).await;
    for bad in [json!({"uid": "other"}), json!({"resourceVersion": "1"})] {
        let (code, refusal) = evict(&sim, "p1", json!({"preconditions": bad})).await;
        assert_eq!((code, &refusal["reason"]), (409, &json!("Conflict")));
    }
    assert_eq!(status(&sim).await["disruptionsAllowed"], 1);
    let exact = json!({"preconditions": {"uid": pod["metadata"]["uid"], "resourceVersion": version(&pod)}});
    assert_eq!(evict(&sim, "p1", exact).await.0, 201);
}

#[tokio::test]
async fn idle_pods_go_without_a_budget_and_unhealthy_ones_by_policy() {
    let sim = Sim::start().await;
    budget(&sim, json!({"minAvailable": 5, "unhealthyPodEvictionPolicy": "AlwaysAllow"})).await;
    sim.post(PODS, json!({"metadata": {"name": "pending", "labels": {"app": "a"}}, "spec": spec(None)})).await;
    assert_eq!(evict(&sim, "pending", Value::Null).await.0, 201);
    sim.ready_pod("done", json!({"app": "a"})).await;
    sim.patch(&format!("{PODS}/done/status"), MERGE, json!({"status": {"phase": "Failed"}})).await;
    assert_eq!(evict(&sim, "done", Value::Null).await.0, 201);
    sim.ready_pod("ready", json!({"app": "a"})).await;
    assert_eq!(evict(&sim, "ready", Value::Null).await.0, 429);
    sim.patch(
        &format!("{PODS}/ready/status"),
        STRATEGIC,
        json!({"status": {"conditions": [{"type": "Ready", "status": "False"}]}}),
    )
    .await;
    assert_eq!(evict(&sim, "ready", Value::Null).await.0, 201);
}

#[tokio::test]
async fn two_budgets_for_one_pod_are_an_error() {
    let sim = Sim::start().await;
    sim.ready_pod("p", json!({"app": "a"})).await;
    budget(&sim, json!({"maxUnavailable": 1})).await;
    sim.post(BUDGETS, json!({"metadata": {"name": "other"}, "spec": {"maxUnavailable": 1, "selector": {}}})).await;
    let (code, refusal) = evict(&sim, "p", Value::Null).await;
    assert_eq!(code, 500);
    assert!(text(&refusal, &["message"]).contains("more than one PodDisruptionBudget"));
}

#[tokio::test]
async fn a_dry_run_evicts_nobody() {
    let sim = Sim::start().await;
    let before = sim.ready_pod("p", json!({})).await;
    assert_eq!(evict(&sim, "p", json!({"dryRun": ["All"]})).await.0, 201);
    assert_eq!(sim.get(&format!("{PODS}/p")).await, before);
    assert_eq!(evict(&sim, "nobody", Value::Null).await.0, 404);
}

#[tokio::test]
async fn a_pod_is_bound_once() {
    let sim = Sim::start().await;
    sim.post(PODS, json!({"metadata": {"name": "p"}, "spec": spec(None)})).await;
    let path = format!("{PODS}/p/binding");
    let binding = json!({"target": {"kind": "Node", "name": "n1"}});
    assert_eq!(sim.post(&path, binding.clone()).await["status"], "Success");
    let pod = sim.get(&format!("{PODS}/p")).await;
    assert_eq!(
        (&pod["spec"]["nodeName"], &pod["status"]["conditions"][0]["type"]),
        (&json!("n1"), &json!("PodScheduled"))
    );
    let message = sim.refused("POST", &path, JSON, binding, 409, "Conflict").await;
    assert!(message.contains("pod p is already assigned to node \"n1\""));
    sim.refused("POST", &path, JSON, json!({"target": {}}), 400, "BadRequest").await;
}
