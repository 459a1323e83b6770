//! Faults on purpose, over HTTP.

use super::*;
use crate::server::{Answer, Fault};

fn on_maps(times: u32, answer: Value) -> Value {
    json!({"match": {"path": format!("{MAPS}*"), "userAgent": "tester*"}, "times": times, "answer": answer})
}

#[tokio::test]
async fn statuses_come_as_often_as_asked() {
    let sim = Sim::start().await;
    for (code, reason) in [(409, "Conflict"), (410, "Expired"), (500, "InternalError"), (503, "ServiceUnavailable")] {
        sim.fault(on_maps(1, json!({"status": code}))).await;
        sim.refused("GET", MAPS, JSON, Value::Null, code, reason).await;
        sim.get(MAPS).await;
    }
    sim.fault(on_maps(1, json!({"status": 429, "retryAfter": 7}))).await;
    let answer = sim.raw("GET", MAPS, JSON, Vec::new()).await.unwrap();
    assert_eq!(answer.status(), 429);
    assert_eq!(answer.headers()["retry-after"], "7");
    let listed = sim.get("/sim/faults").await;
    assert_eq!(
        (&listed[0]["hits"], &listed[0]["left"], &listed[4]["answer"]["retryAfter"]),
        (&json!(1), &json!(0), &json!(7))
    );
    assert_eq!(sim.running.faults.list().len(), 5);
}

#[tokio::test]
async fn a_cut_connection_has_no_answer() {
    let sim = Sim::start().await;
    sim.fault(on_maps(1, json!({"cut": true}))).await;
    assert!(sim.raw("POST", MAPS, JSON, named("a").to_string().into_bytes()).await.is_err());
    sim.refused("GET", &format!("{MAPS}/a"), JSON, Value::Null, 404, "NotFound").await;
    sim.fault(on_maps(1, json!({"cut": true, "applied": true}))).await;
    assert!(sim.raw("POST", MAPS, JSON, named("a").to_string().into_bytes()).await.is_err());
    sim.get(&format!("{MAPS}/a")).await;
}

#[tokio::test]
async fn deleting_a_fault_ends_its_delay() {
    let sim = Sim::start().await;
    let id = sim.fault(on_maps(1, json!({"delayMs": 600_000}))).await;
    let (answer, ()) = tokio::join!(sim.get(MAPS), async {
        while sim.running.faults.list()[0].hits == 0 {
            tokio::task::yield_now().await;
        }
        sim.delete(&format!("/sim/faults/{id}"), Value::Null).await;
    });
    assert_eq!(answer["kind"], "ConfigMapList");
    assert!(sim.running.faults.list().is_empty());
}

#[tokio::test]
async fn a_stale_read_shows_the_state_of_then() {
    let sim = Sim::start().await;
    sim.post(MAPS, json!({"metadata": {"name": "a"}, "data": {"n": "1"}})).await;
    let id =
        sim.fault(json!({"match": {"method": "GET", "path": format!("{MAPS}*")}, "answer": {"stale": true}})).await;
    sim.patch(&format!("{MAPS}/a"), MERGE, json!({"data": {"n": "2"}})).await;
    sim.post(MAPS, named("b")).await;
    assert_eq!(sim.get(&format!("{MAPS}/a")).await["data"]["n"], "1");
    assert_eq!(sim.get(MAPS).await["items"].as_array().unwrap().len(), 1);
    sim.refused("GET", &format!("{MAPS}/b"), JSON, Value::Null, 404, "NotFound").await;
    let mut lines = sim.watch(&format!("{MAPS}?watch=true")).await;
    assert_eq!(lines.next().await.unwrap().1["data"]["n"], "1");
    sim.delete(&format!("/sim/faults/{id}"), Value::Null).await;
    assert_eq!(lines.next().await.unwrap().1["data"]["n"], "2", "the watch catches up");
    assert_eq!(sim.get(MAPS).await["items"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn a_watch_fails_after_some_events() {
    let sim = Sim::start().await;
    for name in ["a", "b", "c"] {
        sim.post(MAPS, named(name)).await;
    }
    sim.fault(on_maps(1, json!({"status": 410, "afterEvents": 2}))).await;
    let mut lines = sim.watch(&format!("{MAPS}?watch=true")).await;
    assert_eq!((lines.named().await.1, lines.named().await.1), ("a".to_owned(), "b".to_owned()));
    let (kind, status) = lines.next().await.unwrap();
    assert_eq!((kind.as_str(), &status["code"]), ("ERROR", &json!(410)));
    assert!(lines.next().await.is_none());
    sim.fault(on_maps(1, json!({"cut": true, "afterEvents": 1}))).await;
    let mut lines = sim.watch(&format!("{MAPS}?watch=true")).await;
    lines.named().await;
    assert!(lines.read().await.is_err(), "the connection broke in the middle");
}

#[tokio::test]
async fn open_watches_can_be_interrupted() {
    let sim = Sim::start().await;
    let mut lines = sim.watch(&format!("{MAPS}?watch=true&resourceVersion=1")).await;
    let listed = async |answer: Value| {
        let id = sim.fault(json!({"match": {"path": format!("{MAPS}*"), "open": true}, "answer": answer})).await;
        sim.running.faults.list().into_iter().find(|fault| fault.id == id).unwrap().hits
    };
    assert_eq!(listed(json!({"status": 410})).await, 1);
    assert_eq!(lines.next().await.unwrap().0, "ERROR");
    assert!(lines.next().await.is_none());
    let mut lines = sim.watch(&format!("{MAPS}?watch=true&resourceVersion=1")).await;
    listed(json!({"cut": true})).await;
    assert!(lines.read().await.is_err());
}

#[tokio::test]
async fn faults_can_be_set_in_the_same_process() {
    let sim = Sim::start().await;
    let answer = Answer { status: Some(500), ..Answer::default() };
    let id = sim.running.fault(Fault { answer, ..Fault::default() });
    sim.refused("GET", MAPS, JSON, Value::Null, 500, "InternalError").await;
    assert!(sim.running.faults.remove(id));
    sim.running.compact();
    let mut lines = sim.watch(&format!("{MAPS}?watch=true&resourceVersion=1")).await;
    assert_eq!(lines.next().await.unwrap().0, "ERROR");
}

#[tokio::test]
async fn a_fault_that_makes_no_sense_is_refused() {
    let sim = Sim::start().await;
    let message =
        sim.refused("POST", "/sim/faults", JSON, json!({"answer": {"explode": true}}), 400, "BadRequest").await;
    assert!(message.contains("this is no fault"));
    sim.refused("DELETE", "/sim/faults/77", JSON, Value::Null, 404, "NotFound").await;
    sim.refused("GET", "/sim/nothing", JSON, Value::Null, 404, "NotFound").await;
}
