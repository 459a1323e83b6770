//! Each refusal, by the field that the server names.

use super::*;
use crate::object::{Device, Identity, Rule, Selector, Slice};
use crate::taint::{Effect, Taint};
use crate::toleration::{Operator, Toleration};

fn fields(errors: &[FieldError]) -> Vec<&str> {
    errors.iter().map(|error| error.field.as_str()).collect()
}

fn toleration(json: &str) -> Toleration {
    serde_json::from_str(json).unwrap()
}

fn taint(text: &str) -> Taint {
    let (key, effect) = text.split_once(':').unwrap();
    Taint { key: key.into(), value: String::new(), effect: effect.into(), time_added: None }
}

#[test]
fn label_keys_and_values() {
    for key in ["a", "A.b-c_d", "example.test/x", "9"] {
        assert!(is_label_key(key), "{key}");
    }
    let long = "x".repeat(64);
    for key in ["", "a/b/c", "Acme.test/x", "-a", "a-", "/x", "a/", "a b", "ü", &long] {
        assert!(!is_label_key(key), "{key}");
    }
    assert!(is_label_value("") && is_label_value("a.b") && !is_label_value("-5") && !is_label_value(&long));
}

#[test]
fn dns_names() {
    assert!(is_dns_label("gpu-0000-3b-00-0") && !is_dns_label("Gpu") && !is_dns_label("a.b") && !is_dns_label(""));
    assert!(is_dns_subdomain("gpu.devicetaint.dev") && !is_dns_subdomain("a..b") && !is_dns_subdomain(".a"));
}

#[test]
fn pod_tolerations_are_refused_where_the_server_refuses_them() {
    let cases = [
        (r#"{"operator":"Exists"}"#, vec![]),
        (r#"{"operator":"Gt","value":"5"}"#, vec!["t[0].operator"]),
        (r#"{"key":"a","operator":"Exists","value":"x"}"#, vec!["t[0].operator"]),
        (r#"{"key":"a","value":"-5"}"#, vec!["t[0].operator"]),
        (r#"{"key":"a","operator":"Gt","value":"-5"}"#, vec![]),
        (r#"{"key":"a","operator":"Lt","value":"05"}"#, vec!["t[0].value"]),
        (r#"{"key":"a","operator":"Near","value":"5"}"#, vec!["t[0].operator"]),
        (r#"{"key":"a","operator":"Exists","tolerationSeconds":5}"#, vec!["t[0].effect"]),
        (r#"{"key":"a","operator":"Exists","effect":"None"}"#, vec!["t[0].effect"]),
        (r#"{"key":"a/b/c","operator":"Exists"}"#, vec!["t[0].key"]),
    ];
    for (json, expected) in cases {
        assert_eq!(fields(&pod_tolerations(&[toleration(json)], "t", true)), expected, "{json}");
    }
}

#[test]
fn numbers_may_stay_where_they_were_when_the_gate_is_off() {
    let numeric = [toleration(r#"{"key":"a","operator":"Gt","value":"5"}"#)];
    assert_eq!(fields(&pod_tolerations(&numeric, "t", false)), ["t[0].operator"]);
    assert_eq!(pod_tolerations_update(&numeric, &numeric, "t", false), []);
}

#[test]
fn tolerations_of_a_pod_are_only_added_to() {
    let old = [toleration(r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":5}"#)];
    let longer = [toleration(r#"{"key":"a","operator":"Exists","effect":"NoExecute","tolerationSeconds":50}"#)];
    let other = [toleration(r#"{"key":"a","operator":"Exists","effect":"NoSchedule"}"#)];
    assert_eq!(pod_tolerations_update(&old, &longer, "t", true), []);
    assert_eq!(fields(&pod_tolerations_update(&old, &other, "t", true)), ["t"]);
    assert_eq!(fields(&pod_tolerations_update(&old, &[], "t", true)), ["t"]);
}

#[test]
fn node_taints_are_unique_by_key_and_effect() {
    let twice = [taint("a:NoSchedule"), taint("a:NoExecute"), Taint { value: "x".into(), ..taint("a:NoSchedule") }];
    let errors = node_taints(&twice, "spec.taints");
    assert_eq!((fields(&errors), errors[0].kind), (vec!["spec.taints[2]"], ErrorKind::Duplicate));
    assert_eq!(fields(&node_taints(&[taint("a:None"), taint(":NoExecute")], "t")), ["t[0].effect", "t[1].key"]);
    let missing = node_taints(&[taint("a:")], "t");
    assert_eq!(missing[0].kind, ErrorKind::Required);
}

#[test]
fn device_tolerations_have_rules_of_their_own() {
    let fine = [
        toleration(r#"{"value":"x"}"#),
        toleration(r#"{"key":"a","operator":"Exists","effect":"NoSchedule","tolerationSeconds":5}"#),
        toleration(r#"{"key":"a","operator":"Exists","effect":"None"}"#),
    ];
    assert_eq!(device_tolerations(&fine, "t"), []);
    let bad = [
        toleration(r#"{"key":"a","operator":"Exists","value":"x"}"#),
        toleration(r#"{"key":"a","operator":"Gt","value":"5"}"#),
        toleration(r#"{"key":"a","operator":"Exists","effect":"PreferNoSchedule"}"#),
    ];
    assert_eq!(fields(&device_tolerations(&bad, "t")), ["t[0].value", "t[1].operator", "t[2].effect"]);
    let many = vec![Toleration { operator: Operator::Exists, ..Toleration::default() }; 17];
    assert_eq!(fields(&device_tolerations(&many, "t")), ["t"]);
}

#[test]
fn an_unknown_effect_of_a_device_may_stay() {
    let unknown = taint("a:DrainSlowly");
    assert_eq!(fields(&device_taint(&unknown, None, "")), ["effect"]);
    assert_eq!(device_taint(&unknown, Some(&unknown), ""), []);
}

#[test]
fn a_slice_holds_fewer_devices_once_one_is_tainted() {
    let device = |index: usize| Device { name: format!("g{index}"), ..Device::default() };
    let mut slice_of = Slice { devices: (0..65).map(device).collect(), ..Slice::default() };
    assert_eq!(slice(&slice_of), []);
    slice_of.devices[3].taints = vec![taint("a:None"); 17];
    assert_eq!(fields(&slice(&slice_of)), ["spec.devices", "spec.devices[3].taints"]);
    slice_of.devices = vec![device(1), device(1)];
    assert_eq!(fields(&slice(&slice_of)), ["spec.devices[1].name"]);
}

#[test]
fn a_rule_names_what_it_selects_in_full() {
    let selector = Selector { driver: Some("GPU".into()), pool: Some("rack/7".into()), device: Some("a.b".into()) };
    let bad = Rule {
        name: "r".into(),
        uid: String::new(),
        selector: Some(selector),
        taint: Taint { effect: Effect::PreferNoSchedule, ..taint("a:None") },
        careful: false,
        identity: Identity::default(),
        expires_at: None,
        managed: false,
        reason: None,
        by: None,
    };
    let errors = rule(&bad, None);
    assert_eq!(fields(&errors), ["spec.deviceSelector.driver", "spec.deviceSelector.device", "spec.taint.effect"]);
}

#[test]
fn an_error_reads_like_the_servers() {
    let errors = node_taints(&[taint("a:NoRun")], "spec.taints");
    insta::assert_snapshot!(errors[0], @r#"spec.taints[0].effect: Unsupported value: "NoRun": supported values: "NoSchedule", "PreferNoSchedule", "NoExecute""#);
}
