//! Slices, rules and claims: times of taints, limits, versions.

use super::*;
use crate::server::kinds::Rules;

const THEN: &str = "2020-01-01T00:00:00Z";

fn slice(taint: Value) -> Value {
    json!({"metadata": {"name": "s"}, "spec": {"driver": "d.dev", "nodeName": "n1",
        "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0", "taints": [taint]}]}})
}

fn rule(effect: &str, time: Option<&str>) -> Value {
    let mut rule =
        json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": effect}}});
    if let Some(time) = time {
        rule["spec"]["taint"]["timeAdded"] = json!(time);
    }
    rule
}

fn time(object: &Value) -> &str {
    match text(object, &["kind"]) {
        "DeviceTaintRule" => text(object, &["spec", "taint", "timeAdded"]),
        _ => object["spec"]["devices"][0]["taints"][0]["timeAdded"].as_str().unwrap(),
    }
}

#[tokio::test]
async fn a_server_without_device_taints_leaves_them_out_until_it_is_switched_on() {
    let sim = Sim::with(|options| options.device_taints = false).await;
    let path = format!("{SLICES}/s");
    let tainted = || slice(json!({"key": "k", "effect": "NoSchedule"}));
    let taints = |slice: &Value| slice["spec"]["devices"][0]["taints"].clone();
    let made = sim.post(SLICES, tainted()).await;
    assert_eq!((taints(&made), made["spec"]["devices"][0]["name"].clone()), (Value::Null, json!("gpu-0")));
    let again = sim.put(&path, tainted()).await;
    assert_eq!(again["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"], "nothing was changed");
    sim.post("/sim/device-taints/on", Value::Null).await;
    assert!(!time(&sim.put(&path, tainted()).await).is_empty());
    // Switched off again, it keeps what is there, as the real one does.
    sim.post("/sim/device-taints/off", Value::Null).await;
    assert!(taints(&sim.put(&path, tainted()).await).is_array());
}

#[tokio::test]
async fn a_slice_gets_the_time_of_each_write_that_leaves_it_out() {
    let sim = Sim::start().await;
    let path = format!("{SLICES}/s");
    let bare = json!({"key": "k", "effect": "NoSchedule"});
    let stamped = json!({"key": "k", "effect": "NoSchedule", "timeAdded": THEN});
    let made = sim.post(SLICES, slice(bare.clone())).await;
    assert!(time(&made) > THEN);
    assert_eq!(made["metadata"]["generation"], 1);
    assert_eq!(time(&sim.put(&path, slice(stamped)).await), THEN);
    assert!(time(&sim.put(&path, slice(bare)).await) > THEN, "an update that omits the time restarts it");
}

#[tokio::test]
async fn a_rule_keeps_its_time_until_its_effect_changes() {
    let sim = Sim::start().await;
    let path = format!("{RULES}/r");
    sim.post(RULES, rule("NoSchedule", Some(THEN))).await;
    let value = sim.patch(&path, MERGE, json!({"spec": {"taint": {"value": "x"}}})).await;
    assert_eq!((time(&value), &value["metadata"]["generation"]), (THEN, &json!(2)));
    let effect = sim.patch(&path, MERGE, json!({"spec": {"taint": {"effect": "NoExecute"}}})).await;
    assert!(time(&effect) > THEN);
    let chosen = sim.patch(&path, MERGE, json!({"spec": {"taint": {"effect": "None", "timeAdded": THEN}}})).await;
    assert_eq!(time(&chosen), THEN);
    assert!(time(&sim.put(&path, rule("None", None)).await) > THEN);
}

#[tokio::test]
async fn an_empty_selector_stays_and_an_absent_one_too() {
    let sim = Sim::start().await;
    let every = sim.post(RULES, rule("NoExecute", None)).await;
    assert_eq!(every["spec"]["deviceSelector"], json!({}));
    let none = json!({"metadata": {"name": "none"}, "spec": {"taint": {"key": "k", "effect": "NoExecute"}}});
    assert!(sim.post(RULES, none).await["spec"].get("deviceSelector").is_none());
}

#[tokio::test]
async fn rules_live_in_the_chosen_version() {
    let sim = Sim::with(|options| options.rules = Rules::V1Beta2).await;
    sim.refused("GET", RULES, JSON, Value::Null, 404, "NotFound").await;
    let path = "/apis/resource.k8s.io/v1beta2/devicetaintrules";
    let made = sim.post(path, rule("NoExecute", None)).await;
    assert_eq!(made["apiVersion"], "resource.k8s.io/v1beta2");
    let status = json!({"status": {"conditions": [{"type": "EvictionInProgress", "status": "False", "reason": "NotStarted",
        "message": "", "lastTransitionTime": THEN}]}});
    let after = sim.patch(&format!("{path}/r/status"), MERGE, status).await;
    assert_eq!(after["metadata"]["generation"], 1);
}

#[tokio::test]
async fn limits_hold() {
    let sim = Sim::start().await;
    let mut many = slice(json!({"key": "k", "effect": "None"}));
    many["spec"]["devices"] =
        (0..65).map(|i| json!({"name": format!("g{i}"), "taints": [{"key": "k", "effect": "None"}]})).collect();
    let message = sim.refused("POST", SLICES, JSON, many, 422, "Invalid").await;
    assert!(message.contains("spec.devices: Too many: 65: must have at most 64 items"), "{message}");
    sim.post(SLICES, slice(json!({"key": "k", "effect": "None"}))).await;
    let moved = json!({"spec": {"nodeName": "n2"}});
    let message = sim.refused("PATCH", &format!("{SLICES}/s"), MERGE, moved, 422, "Invalid").await;
    assert!(message.contains("spec.nodeName: Invalid value: \"n2\": field is immutable"), "{message}");
}

#[tokio::test]
async fn slices_are_selected_by_driver_node_and_pool() {
    let sim = Sim::start().await;
    sim.post(SLICES, slice(json!({"key": "k", "effect": "None"}))).await;
    let count = async |selector: &str| {
        sim.get(&format!("{SLICES}?fieldSelector={selector}")).await["items"].as_array().unwrap().len()
    };
    assert_eq!(count("spec.driver%3Dd.dev,spec.nodeName%3Dn1,spec.pool.name%3Dn1").await, 1);
    assert_eq!(count("spec.driver%3Dother").await, 0);
}

#[tokio::test]
async fn a_claim_is_allocated_once_through_its_status() {
    let sim = Sim::start().await;
    let claim = json!({"metadata": {"name": "c"}, "spec": {"devices": {"requests": [
        {"name": "gpu", "exactly": {"deviceClassName": "gpu.dev", "tolerations": [{"key": "k"}]}}]}}});
    let made = sim.post(CLAIMS, claim).await;
    let request = &made["spec"]["devices"]["requests"][0]["exactly"];
    assert_eq!((&request["count"], &request["tolerations"][0]["operator"]), (&json!(1), &json!("Equal")));
    let path = format!("{CLAIMS}/c/status");
    let allocation = |device: &str| {
        json!({"status": {"allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "d.dev", "pool": "n1", "device": device}]}}}})
    };
    sim.patch(&path, MERGE, allocation("gpu-0")).await;
    sim.refused("PATCH", &path, MERGE, allocation("gpu-1"), 422, "Invalid").await;
    let reserved = json!({"status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}});
    assert_eq!(sim.patch(&path, STRATEGIC, reserved).await["status"]["reservedFor"][0]["uid"], "u");
    let table = sim.patch(&path, MERGE, json!({"status": {"reservedFor": null, "allocation": null}})).await;
    assert!(table["status"].get("allocation").is_none());
}
