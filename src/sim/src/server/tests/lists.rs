//! Reading: pages, selectors, versions, and the forms of an answer.

use super::*;
use crate::server::value::list;

async fn with_maps(count: usize) -> Sim {
    let sim = Sim::start().await;
    for index in 0..count {
        let label = if index % 2 == 0 { "even" } else { "odd" };
        sim.post(MAPS, json!({"metadata": {"name": format!("m{index}"), "labels": {"kind": label}}})).await;
    }
    sim
}

fn names(page: &Value) -> Vec<String> {
    list(page, &["items"]).iter().map(|item| text(item, &["metadata", "name"]).to_owned()).collect()
}

#[tokio::test]
async fn pages_show_one_state() {
    let sim = with_maps(5).await;
    let first = sim.get(&format!("{MAPS}?limit=2")).await;
    assert_eq!(names(&first), ["m0", "m1"]);
    assert_eq!(first["metadata"]["remainingItemCount"], 3);
    sim.delete(&format!("{MAPS}/m3"), Value::Null).await;
    let token = text(&first, &["metadata", "continue"]);
    let second = sim.get(&format!("{MAPS}?limit=3&continue={token}")).await;
    assert_eq!(names(&second), ["m2", "m3", "m4"]);
    assert_eq!(version(&second), version(&first));
    assert!(second["metadata"].get("continue").is_none());
    assert_eq!(names(&sim.get(MAPS).await), ["m0", "m1", "m2", "m4"]);
}

#[tokio::test]
async fn an_old_page_token_expires() {
    let sim = with_maps(3).await;
    let first = sim.get(&format!("{MAPS}?limit=1")).await;
    sim.delete(&format!("{MAPS}/m0"), Value::Null).await;
    sim.post("/sim/compact", Value::Null).await;
    let next = format!("{MAPS}?limit=1&continue={}", text(&first, &["metadata", "continue"]));
    sim.refused("GET", &next, JSON, Value::Null, 410, "Expired").await;
    sim.refused("GET", &format!("{MAPS}?continue=x"), JSON, Value::Null, 400, "BadRequest").await;
}

#[tokio::test]
async fn selectors_choose() {
    let sim = with_maps(4).await;
    assert_eq!(names(&sim.get(&format!("{MAPS}?labelSelector=kind%3Dodd")).await), ["m1", "m3"]);
    assert_eq!(names(&sim.get(&format!("{MAPS}?labelSelector=kind+in+(even),!x")).await), ["m0", "m2"]);
    assert_eq!(
        names(&sim.get(&format!("{MAPS}?fieldSelector=metadata.name!%3Dm0&labelSelector=kind%3Deven")).await),
        ["m2"]
    );
    let message =
        sim.refused("GET", &format!("{MAPS}?fieldSelector=data.x%3D1"), JSON, Value::Null, 400, "BadRequest").await;
    assert!(message.contains("field label not supported: data.x"));
}

#[tokio::test]
async fn versions_ask_for_a_state() {
    let sim = with_maps(2).await;
    let before = version(&sim.get(MAPS).await).to_owned();
    sim.post(MAPS, named("later")).await;
    let exact = format!("{MAPS}?resourceVersion={before}&resourceVersionMatch=Exact");
    assert_eq!(names(&sim.get(&exact).await), ["m0", "m1"]);
    let newer = format!("{MAPS}?resourceVersion={before}&resourceVersionMatch=NotOlderThan");
    assert_eq!(names(&sim.get(&newer).await).len(), 3);
    let future = format!("{MAPS}?resourceVersion=999999");
    let message = sim.refused("GET", &future, JSON, Value::Null, 504, "Timeout").await;
    assert!(message.contains("Too large resource version"));
}

#[tokio::test]
async fn items_of_a_list_have_no_kind_of_their_own() {
    let sim = with_maps(1).await;
    let page = sim.get(MAPS).await;
    assert_eq!((&page["kind"], &page["apiVersion"]), (&json!("ConfigMapList"), &json!("v1")));
    assert!(page["items"][0].get("kind").is_none());
    assert_eq!(sim.get(&format!("{MAPS}/m0")).await["kind"], "ConfigMap");
}

async fn accepted(sim: &Sim, path: &str, accept: &str) -> (u16, Value) {
    let request = Request::get(path).header("accept", accept).body(Body::empty()).unwrap();
    let answer = sim.client.send(request).await.unwrap();
    let code = answer.status().as_u16();
    (code, serde_json::from_slice(&answer.into_body().collect().await.unwrap().to_bytes()).unwrap())
}

#[tokio::test]
async fn the_answer_has_the_asked_form() {
    let sim = with_maps(2).await;
    let (_, table) = accepted(&sim, MAPS, "application/json;as=Table;v=v1;g=meta.k8s.io").await;
    assert_eq!(table["kind"], "Table");
    assert_eq!(table["rows"][1]["cells"][0], "m1");
    let (_, metadata) = accepted(&sim, MAPS, "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io").await;
    assert_eq!(metadata["items"][0]["kind"], "PartialObjectMetadata");
    let (code, status) = accepted(&sim, MAPS, "application/vnd.kubernetes.protobuf").await;
    assert_eq!((code, &status["reason"]), (406, &json!("NotAcceptable")));
}

#[tokio::test]
async fn discovery_knows_what_is_served() {
    let sim = Sim::start().await;
    let apis = sim.client.list_api_groups().await.unwrap();
    assert!(apis.groups.iter().any(|group| group.name == "resource.k8s.io"));
    let core = sim.client.list_core_api_resources("v1").await.unwrap();
    assert!(core.resources.iter().any(|resource| resource.name == "pods/eviction"));
    sim.refused("GET", "/apis/no.such.group", JSON, Value::Null, 404, "NotFound").await;
    sim.refused("GET", "/apis/apps/v1/namespaces/default/pods", JSON, Value::Null, 404, "NotFound").await;
}
