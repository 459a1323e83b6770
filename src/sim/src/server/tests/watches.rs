//! Watches: where they begin, what they show, how they end.

use std::pin::pin;

use futures::TryStreamExt;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use kube::runtime::watcher::{self, watcher};

use super::*;

#[tokio::test]
async fn a_watch_goes_on_where_the_list_ended() {
    let sim = Sim::start().await;
    sim.post(MAPS, named("a")).await;
    let page = sim.get(MAPS).await;
    let mut lines = sim.watch(&format!("{MAPS}?watch=true&resourceVersion={}", version(&page))).await;
    sim.post(MAPS, named("b")).await;
    sim.patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"k": "v"}})).await;
    sim.delete(&format!("{MAPS}/b"), Value::Null).await;
    assert_eq!(lines.named().await, ("ADDED".to_owned(), "b".to_owned()));
    let (kind, object) = lines.next().await.unwrap();
    assert_eq!((kind.as_str(), &object["data"]["k"], &object["kind"]), ("MODIFIED", &json!("v"), &json!("ConfigMap")));
    let (kind, object) = lines.next().await.unwrap();
    assert_eq!(kind, "DELETED");
    assert_eq!(version(&object), version(&sim.get(MAPS).await), "a deletion has a version of its own");
}

#[tokio::test]
async fn a_watch_from_nowhere_shows_all_objects_first() {
    let sim = Sim::start().await;
    sim.post(MAPS, named("a")).await;
    for start in ["", "&resourceVersion=0"] {
        let mut lines = sim.watch(&format!("{MAPS}?watch=true{start}")).await;
        assert_eq!(lines.named().await, ("ADDED".to_owned(), "a".to_owned()));
    }
}

#[tokio::test]
async fn initial_events_end_with_a_bookmark() {
    let sim = Sim::start().await;
    sim.post(MAPS, named("a")).await;
    let start = "watch=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut lines = sim.watch(&format!("{MAPS}?{start}")).await;
    assert_eq!(lines.named().await, ("ADDED".to_owned(), "a".to_owned()));
    let (kind, object) = lines.next().await.unwrap();
    assert_eq!(kind, "BOOKMARK");
    assert_eq!(object["metadata"]["annotations"]["k8s.io/initial-events-end"], "true");
    assert_eq!(version(&object), version(&sim.get(MAPS).await));
    let bad = format!("{MAPS}?watch=true&sendInitialEvents=true");
    sim.refused("GET", &bad, JSON, Value::Null, 400, "BadRequest").await;
}

#[tokio::test]
async fn objects_enter_and_leave_a_selection() {
    let sim = Sim::start().await;
    let mut lines = sim
        .watch(&format!("{PODS}?watch=true&resourceVersion=1&fieldSelector=spec.nodeName%3Dn1&labelSelector=x"))
        .await;
    sim.post(PODS, json!({"metadata": {"name": "p", "labels": {"x": "1"}}, "spec": spec(None)})).await;
    sim.post(&format!("{PODS}/p/binding"), json!({"target": {"kind": "Node", "name": "n1"}})).await;
    sim.patch(&format!("{PODS}/p"), MERGE, json!({"metadata": {"labels": {"y": "1"}}})).await;
    sim.patch(&format!("{PODS}/p"), MERGE, json!({"metadata": {"labels": {"x": null}}})).await;
    sim.delete(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 0})).await;
    for kind in ["ADDED", "MODIFIED", "DELETED"] {
        assert_eq!(lines.named().await, (kind.to_owned(), "p".to_owned()));
    }
}

#[tokio::test]
async fn a_watch_of_a_forgotten_version_gets_410() {
    let sim = Sim::with(|options| options.history = 2).await;
    for name in ["a", "b", "c", "d"] {
        sim.post(MAPS, named(name)).await;
    }
    let mut lines = sim.watch(&format!("{MAPS}?watch=true&resourceVersion=2")).await;
    let (kind, status) = lines.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["code"], &status["reason"]), ("ERROR", &json!(410), &json!("Expired")));
    assert!(text(&status, &["message"]).starts_with("too old resource version: 2 ("));
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn a_watch_ends_at_its_timeout() {
    let sim = Sim::start().await;
    let mut lines = sim.watch(&format!("{MAPS}?watch=true&resourceVersion=1&timeoutSeconds=1")).await;
    assert!(lines.next().await.is_none());
}

#[tokio::test]
async fn a_table_watch_names_its_columns_once() {
    let sim = Sim::start().await;
    let accept = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
    let request = Request::get(format!("{MAPS}?watch=true")).header("accept", accept).body(Body::empty()).unwrap();
    let mut lines = Lines { body: sim.client.send(request).await.unwrap().into_body(), rest: Vec::new() };
    sim.post(MAPS, named("a")).await;
    sim.post(MAPS, named("b")).await;
    let (_, first) = lines.next().await.unwrap();
    let (_, second) = lines.next().await.unwrap();
    assert_eq!((&first["kind"], &first["rows"][0]["cells"][0]), (&json!("Table"), &json!("a")));
    assert!(first["columnDefinitions"].is_array() && second["columnDefinitions"].is_null());
    assert_eq!(second["rows"][0]["object"]["metadata"]["name"], "b");
}

#[tokio::test]
async fn kubes_watcher_follows_with_and_without_streaming_lists() {
    let sim = Sim::start().await;
    sim.post(MAPS, named("a")).await;
    for config in [watcher::Config::default(), watcher::Config::default().streaming_lists()] {
        let maps: Api<ConfigMap> = Api::namespaced(sim.client.clone(), "default");
        let mut events = pin!(watcher(maps, config));
        let mut seen = Vec::new();
        loop {
            match tokio::time::timeout(PATIENCE, events.try_next()).await.unwrap().unwrap().unwrap() {
                watcher::Event::Init => {}
                watcher::Event::InitApply(map) => seen.push(map.metadata.name.unwrap()),
                watcher::Event::InitDone => break,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(seen, ["a"]);
        sim.patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"n": seen.len().to_string()}})).await;
        sim.post(MAPS, named("z")).await;
        sim.delete(&format!("{MAPS}/z"), Value::Null).await;
        let mut deleted = None;
        while deleted.is_none() {
            let event = tokio::time::timeout(PATIENCE, events.try_next()).await.unwrap().unwrap().unwrap();
            if let watcher::Event::Delete(map) = event {
                deleted = map.metadata.name;
            }
        }
        assert_eq!(deleted.as_deref(), Some("z"));
    }
}
