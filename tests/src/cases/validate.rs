//! `validate`: what the API server, or kubectl's command line, makes of an object.

use std::collections::BTreeSet;

use serde::Deserialize;
use serde_json::{Value, json};
use taints::object::{Device, Slice};
use taints::syntax::{Carrier, TaintArg, parse};
use taints::validate::{self, ErrorKind, FieldError};
use taints::{Effect, Taint, Toleration, defaults};

use super::given::{self, At, GivenTaint};
use super::{Answer, Case};

#[derive(Deserialize)]
struct Object {
    object: String,
}

pub(super) fn run(case: &Case) -> Result<Answer, serde_json::Error> {
    let got = match Object::deserialize(&case.given)?.object.as_str() {
        "pod-toleration" => pod_toleration(&case.given)?,
        "pod-toleration-update" => pod_toleration_update(&case.given)?,
        "node-taints" => node_taints(&case.given)?,
        "device-taint" => device_taint(&case.given)?,
        "device-toleration" => device_toleration(&case.given)?,
        "device-request" => device_request(&case.given)?,
        "resource-slice" => resource_slice(&case.given)?,
        "device-taint-rule-update" => rule_update(&case.given)?,
        "admission-default-tolerations" => admission(&case.given)?,
        "kubectl-taint-arg" => taint_arg(&case.given)?,
        _ => return Ok(Answer::NotBuilt),
    };
    Ok(Answer::Got(got))
}

/// Cases name a field by what comes after `base`, and a duplicate by its kind.
fn verdict(errors: &[FieldError], base: &str) -> Value {
    let name = |error: &FieldError| {
        if error.kind == ErrorKind::Duplicate {
            return "duplicate".to_owned();
        }
        let rest = error.field.strip_prefix(base).unwrap_or(&error.field);
        rest.trim_start_matches('.').to_owned()
    };
    let fields: BTreeSet<String> = errors.iter().map(name).collect();
    json!({ "valid": errors.is_empty(), "errorFields": fields })
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct OneToleration {
    toleration: Toleration,
    #[serde(default)]
    comparison_operators_enabled: bool,
}

fn pod_toleration(given: &Value) -> Result<Value, serde_json::Error> {
    let given = OneToleration::deserialize(given)?;
    let errors = validate::pod_tolerations(&[given.toleration], "t", given.comparison_operators_enabled);
    Ok(verdict(&errors, "t[0]"))
}

fn device_toleration(given: &Value) -> Result<Value, serde_json::Error> {
    let given = OneToleration::deserialize(given)?;
    Ok(verdict(&validate::device_tolerations(&[given.toleration], "t"), "t[0]"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TolerationUpdate {
    old: Vec<Toleration>,
    new: Vec<Toleration>,
    #[serde(default = "on")]
    comparison_operators_enabled: bool,
}

const fn on() -> bool {
    true
}

fn pod_toleration_update(given: &Value) -> Result<Value, serde_json::Error> {
    let given = TolerationUpdate::deserialize(given)?;
    let numbers = given.comparison_operators_enabled;
    Ok(verdict(&validate::pod_tolerations_update(&given.old, &given.new, "tolerations", numbers), ""))
}

fn node_taints(given: &Value) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    struct Given {
        taints: Vec<GivenTaint>,
    }
    let taints = given::taints(Given::deserialize(given)?.taints);
    let mut errors = validate::node_taints(&taints, "t");
    for error in &mut errors {
        // `t[0].effect` is `effect`, whichever taint it is.
        error.field = error.field.split_once('.').map_or_else(String::new, |(_, field)| field.to_owned());
    }
    Ok(verdict(&errors, ""))
}

fn device_taint(given: &Value) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Given {
        taint: GivenTaint,
        old_taint: Option<GivenTaint>,
    }
    let given = Given::deserialize(given)?;
    let old = given.old_taint.map(Taint::from);
    Ok(verdict(&validate::device_taint(&given.taint.into(), old.as_ref(), ""), ""))
}

fn device_request(given: &Value) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Given {
        toleration_count: usize,
    }
    let count = Given::deserialize(given)?.toleration_count;
    let toleration = |number| Toleration { key: format!("example.test/k{number}"), ..Toleration::default() };
    let tolerations: Vec<Toleration> = (0..count).map(toleration).collect();
    Ok(verdict(&validate::device_tolerations(&tolerations, "tolerations"), ""))
}

fn resource_slice(given: &Value) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Given {
        device_count: usize,
        tainted_devices: Option<usize>,
        taints_per_device: Option<usize>,
    }
    let given = Given::deserialize(given)?;
    let each = given.taints_per_device.unwrap_or(1);
    // Taints for each device are meant for all of them, unless the case says how many are tainted.
    let tainted =
        given.tainted_devices.unwrap_or(if given.taints_per_device.is_some() { given.device_count } else { 0 });
    let device = |number| Device {
        name: format!("g{number}"),
        taints: (0..each).filter(|_| number < tainted).map(numbered_taint).collect(),
        ..Device::default()
    };
    let slice = Slice { devices: (0..given.device_count).map(device).collect(), ..Slice::default() };
    Ok(verdict(&validate::slice(&slice), "spec"))
}

fn numbered_taint(number: usize) -> Taint {
    Taint { key: format!("example.test/k{number}"), value: String::new(), effect: Effect::NoSchedule, time_added: None }
}

fn rule_update(given: &Value) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    struct Given {
        old: GivenTaint,
        new: GivenTaint,
        now: At,
    }
    let given = Given::deserialize(given)?;
    let (old, new) = (Taint::from(given.old), Taint::from(given.new));
    let mut answer = verdict(&validate::device_taint(&new, Some(&old), ""), "");
    answer["storedTimeAdded"] = json!(At(defaults::time_added_on_update(&old, &new, given.now.0)).seconds());
    Ok(answer)
}

fn admission(given: &Value) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    struct Given {
        tolerations: Vec<Toleration>,
    }
    let given = Given::deserialize(given)?;
    let keys: Vec<String> =
        defaults::outage_tolerations(&given.tolerations).into_iter().map(|added| added.key).collect();
    // The shape is that of every toleration that is ever added, whether this pod gets one or not.
    let shape = defaults::outage_tolerations(&[]).into_iter().next();
    Ok(json!({ "addedKeys": keys, "addedShape": shape }))
}

fn taint_arg(given: &Value) -> Result<Value, serde_json::Error> {
    #[derive(Deserialize)]
    struct Given {
        arg: String,
    }
    let answer = match parse(&Given::deserialize(given)?.arg, Carrier::Node) {
        Ok(TaintArg::Add(taint)) => {
            json!({ "valid": true, "action": "add", "key": taint.key, "value": taint.value, "effect": taint.effect })
        }
        Ok(TaintArg::Remove { key, effect }) => {
            json!({ "valid": true, "action": "remove", "key": key, "effect": effect })
        }
        Err(_) => json!({ "valid": false }),
    };
    Ok(answer)
}
