//! Custom kinds: a definition is established at once, its objects are served until it goes.

use super::*;

const DEFINITIONS: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
const MARKS: &str = "/apis/devicetaint.dev/v1/devicemarks";

fn definition() -> Value {
    json!({"metadata": {"name": "devicemarks.devicetaint.dev"}, "spec": {"group": "devicetaint.dev", "scope": "Cluster",
        "names": {"plural": "devicemarks", "kind": "DeviceMark", "shortNames": ["dm"]},
        "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}},
            "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": {"type": "object"}}}},
            "additionalPrinterColumns": [{"name": "Device", "type": "string", "jsonPath": ".spec.device"}]}]}})
}

#[tokio::test]
async fn a_defined_kind_is_served_like_any_other() {
    let sim = Sim::start().await;
    let made = sim.post(DEFINITIONS, definition()).await;
    assert_eq!(made["status"]["conditions"][1]["type"], "Established");
    sim.post(MARKS, json!({"metadata": {"name": "m"}, "spec": {"device": "gpu-0", "free": {"form": [1, null]}}})).await;
    let path = format!("{MARKS}/m");
    let spec = sim.patch(&path, MERGE, json!({"spec": {"device": "gpu-1"}, "status": {"x": 1}})).await;
    assert_eq!((&spec["metadata"]["generation"], spec.get("status")), (&json!(2), None));
    let status = sim.patch(&format!("{path}/status"), MERGE, json!({"status": {"x": 1}})).await;
    assert_eq!((&status["metadata"]["generation"], &status["status"]["x"]), (&json!(2), &json!(1)));
    sim.refused("PATCH", &path, STRATEGIC, json!({}), 415, "UnsupportedMediaType").await;
    let resources = sim.get("/apis/devicetaint.dev/v1").await;
    assert_eq!(resources["resources"][0]["shortNames"], json!(["dm"]));
    let document = sim.get("/openapi/v3/apis/devicetaint.dev/v1").await;
    let patch = &document["paths"]["/apis/devicetaint.dev/v1/devicemarks/{name}"]["patch"];
    assert!(patch["requestBody"]["content"].get("application/strategic-merge-patch+json").is_none());
}

#[tokio::test]
async fn the_objects_go_with_their_definition() {
    let sim = Sim::start().await;
    sim.post(DEFINITIONS, definition()).await;
    sim.post(MARKS, named("m")).await;
    let mut lines = sim.watch(&format!("{MARKS}?watch=true")).await;
    assert_eq!(lines.named().await.0, "ADDED");
    sim.delete(&format!("{DEFINITIONS}/devicemarks.devicetaint.dev"), Value::Null).await;
    assert_eq!(lines.named().await.0, "DELETED");
    sim.refused("GET", MARKS, JSON, Value::Null, 404, "NotFound").await;
}
