use super::store::stored;
use super::*;
use crate::testing::{answer, fake_client};
use crate::wire::{MarkWire, RuleWire, decode};
use std::sync::{Arc, Mutex};

const RULE: Form = Form::Rule(RuleVersion::V1);

fn mark() -> Mark {
    Mark {
        device: DeviceId { driver: "gpu.devicetaint.dev".into(), pool: "n1".into(), device: "gpu-0000-3b-00-0".into() },
        key: DEFAULT_KEY.into(),
        value: "fan".into(),
        effect: Effect::NoSchedule,
        identity: Identity { uuid: Some("GPU-1".into()), serial: None },
        by: Some("ada".into()),
        reason: Some("fan swap".into()),
        expires_at: Some("2026-11-02T00:00:00Z".parse().unwrap()),
        careful: true,
    }
}

#[test]
fn the_name_follows_from_device_key_and_effect_alone() {
    let name = mark().name();
    assert!(name.starts_with("dt-") && name.len() == 19, "{name}");
    let other_words = Mark { value: String::new(), by: None, reason: None, ..mark() };
    assert_eq!(other_words.name(), name);
    let other_effect = Mark { effect: Effect::NoExecute, ..mark() };
    assert_ne!(other_effect.name(), name);
    let shifted = DeviceId { driver: "gpu.devicetaint.devn".into(), pool: "1".into(), ..mark().device };
    assert_ne!(super::name(&shifted, DEFAULT_KEY, &Effect::NoSchedule), name);
}

#[test]
fn a_mark_survives_the_way_to_the_server_and_back() {
    for version in [RuleVersion::V1, RuleVersion::V1beta2, RuleVersion::V1alpha3] {
        let object = mark().object(Form::Rule(version));
        assert_eq!(object["apiVersion"], format!("resource.k8s.io/{version}"));
        assert!(object["spec"]["taint"].get("timeAdded").is_none());
        let rule = decode::<RuleWire>(object).unwrap();
        assert_eq!(Mark::of_rule(&rule), Some(mark()));
    }
}

#[test]
fn a_device_mark_says_the_same_and_stands_since_its_creation() {
    let mut object = mark().object(Form::Mark);
    assert_eq!((&object["apiVersion"], &object["kind"]), (&json!("devicetaint.dev/v1alpha1"), &json!("DeviceMark")));
    assert_eq!(object["spec"], mark().object(RULE)["spec"]);
    object["metadata"]["creationTimestamp"] = json!("2026-11-01T00:00:00Z");
    let rule = decode::<MarkWire>(object).unwrap();
    assert_eq!(Mark::of_rule(&rule), Some(mark()));
    assert_eq!(rule.taint.time_added, Some("2026-11-01T00:00:00Z".parse().unwrap()));
}

#[tokio::test]
async fn errors_name_the_kind() {
    let refused = fake_client(|_, _| answer(409, &json!({})));
    let error = create(&refused, Form::Mark, &mark()).await.unwrap_err().to_string();
    assert_eq!(error, format!("DeviceMark {} exists already", mark().name()));
}

#[test]
fn rules_of_others_are_no_marks() {
    let mut object = mark().object(RULE);
    object["metadata"]["labels"] = json!({});
    assert_eq!(Mark::of_rule(&decode::<RuleWire>(object).unwrap()), None);
    let mut wide = mark().object(RULE);
    wide["spec"]["deviceSelector"] = json!({});
    assert_eq!(Mark::of_rule(&decode::<RuleWire>(wide).unwrap()), None);
}

fn seen() -> Stored {
    let mut object = mark().object(RULE);
    object["metadata"]["uid"] = json!("u1");
    object["metadata"]["resourceVersion"] = json!("41");
    stored(RULE, object).unwrap()
}

#[tokio::test]
async fn a_delete_carries_uid_and_version() {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let log = asked.clone();
    let client = fake_client(move |request, _| {
        log.lock().unwrap().push(format!("{} {}", request.method(), request.uri().path()));
        answer(if request.headers().contains_key("content-type") { 409 } else { 500 }, &json!({}))
    });
    let error = delete(&client, &seen()).await.unwrap_err();
    assert!(matches!(error, MarkError::Changed(_)), "{error}");
    let name = mark().name();
    assert_eq!(*asked.lock().unwrap(), [format!("DELETE /apis/resource.k8s.io/v1/devicetaintrules/{name}")]);
}

#[tokio::test]
async fn each_answer_becomes_the_right_error() {
    let codes = |code| fake_client(move |_, _| answer(code, &json!({})));
    assert!(matches!(create(&codes(409), RULE, &mark()).await, Err(MarkError::Exists(_))));
    assert!(matches!(create(&codes(403), RULE, &mark()).await, Err(MarkError::Forbidden { .. })));
    assert!(matches!(apply(&codes(500), RULE, &mark()).await, Err(MarkError::Call { .. })));
    assert!(get(&codes(404), RULE, "dt-1").await.unwrap().is_none());
    assert!(delete(&codes(404), &seen()).await.is_ok());
}

#[tokio::test]
async fn a_list_leaves_out_what_cannot_be_understood() {
    let items = json!({"items": [mark().object(RULE), {"metadata": {"name": "bad"}}]});
    let client = fake_client(move |_, _| answer(200, &items));
    let found = list(&client, RULE).await.unwrap();
    assert_eq!(found.iter().map(|stored| stored.rule.name.clone()).collect::<Vec<_>>(), [mark().name()]);
}
