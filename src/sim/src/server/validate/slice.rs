//! Rules for ResourceSlices: the limits of the API of 1.37.

use std::collections::BTreeSet;

use serde_json::Value;

use super::toleration::DEVICE_EFFECTS;
use super::{FieldError, LABEL_KEY, LABEL_VALUE, dns_label, dns_subdomain, label_key, label_value};
use crate::server::value::{at, int, list, text};

/// Devices of a slice, and of one in which a device has taints or consumes counters.
const DEVICES: usize = 128;
const DEVICES_WITH_TAINTS: usize = 64;
/// Taints of one device.
const TAINTS: usize = 16;
/// Attributes and capacities of one device, together.
const ATTRIBUTES: usize = 32;
const TEXT: usize = 64;

pub(super) fn check(slice: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = at(slice, &["spec"]);
    if let Some(old) = old {
        for path in [&["driver"][..], &["nodeName"], &["pool", "name"]] {
            if at(spec, path) != at(at(old, &["spec"]), path) {
                errors.push(FieldError::immutable(format!("spec.{}", path.join(".")), at(spec, path)));
            }
        }
    }
    driver(text(spec, &["driver"]), "spec.driver", errors);
    pool(at(spec, &["pool"]), errors);
    placement(spec, errors);
    devices(spec, old, errors);
}

/// A driver's name: a DNS subdomain of at most 63 letters.
pub(super) fn driver(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if !dns_subdomain(name, 63) {
        errors.push(FieldError::invalid(path, &Value::from(name), "must be a DNS subdomain of at most 63 characters"));
    }
}

/// A pool's name: DNS subdomains joined by slashes, at most 253 letters.
pub(super) fn pool_name(name: &str, path: &str, errors: &mut Vec<FieldError>) {
    if name.is_empty() {
        errors.push(FieldError::required(path, ""));
    } else if name.len() > 253 || !name.split('/').all(|part| dns_subdomain(part, 253)) {
        let why = "must be one or more DNS subdomains joined by '/', at most 253 characters";
        errors.push(FieldError::invalid(path, &Value::from(name), why));
    }
}

fn pool(pool: &Value, errors: &mut Vec<FieldError>) {
    pool_name(text(pool, &["name"]), "spec.pool.name", errors);
    if int(pool, &["generation"]).is_some_and(|n| n < 0) {
        let why = "must be greater than or equal to zero";
        errors.push(FieldError::invalid("spec.pool.generation", at(pool, &["generation"]), why));
    }
    if int(pool, &["resourceSliceCount"]).unwrap_or(0) < 1 {
        let why = "must be greater than zero";
        errors.push(FieldError::invalid("spec.pool.resourceSliceCount", at(pool, &["resourceSliceCount"]), why));
    }
}

fn placement(spec: &Value, errors: &mut Vec<FieldError>) {
    let given = |field: &str| {
        let value = at(spec, &[field]);
        !(value.is_null() || value == &Value::Bool(false) || value.as_str() == Some(""))
    };
    let count = ["nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection"].iter().filter(|f| given(f)).count();
    let why = "exactly one of `nodeName`, `nodeSelector`, `allNodes`, `perDeviceNodeSelection` is required";
    match count {
        0 => errors.push(FieldError::required("spec", why)),
        1 => {}
        _ => errors.push(FieldError::invalid("spec", &Value::from("{}"), why)),
    }
}

fn devices(spec: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let devices = list(spec, &["devices"]);
    let has = |device: &Value, field: &str| !list(device, &[field]).is_empty();
    let small = devices.iter().any(|device| has(device, "taints") || has(device, "consumesCounters"));
    let limit = if small { DEVICES_WITH_TAINTS } else { DEVICES };
    if devices.len() > limit {
        errors.push(FieldError::too_many("spec.devices", devices.len(), limit));
    }
    if !devices.is_empty() && has(spec, "sharedCounters") {
        let why = "only one of `sharedCounters` or `devices` is allowed";
        errors.push(FieldError::invalid("spec", &Value::from("{}"), why));
    }
    let before = old.map(|old| list(old, &["spec", "devices"])).unwrap_or_default();
    let mut names = BTreeSet::new();
    for (index, device) in devices.iter().enumerate() {
        let path = format!("spec.devices[{index}]");
        let name = text(device, &["name"]);
        if !dns_label(name) {
            let why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'";
            errors.push(FieldError::invalid(format!("{path}.name"), &Value::from(name), why));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        attributes(device, &path, errors);
        let same = before.iter().find(|other| text(other, &["name"]) == name);
        // What was accepted once stays acceptable as long as it is not touched.
        if same.is_none_or(|same| at(same, &["taints"]) != at(device, &["taints"])) {
            taints(device, &path, errors);
        }
    }
}

fn taints(device: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let taints = list(device, &["taints"]);
    if taints.len() > TAINTS {
        errors.push(FieldError::too_many(format!("{path}.taints"), taints.len(), TAINTS));
    }
    for (index, taint) in taints.iter().enumerate() {
        device_taint(taint, &format!("{path}.taints[{index}]"), errors);
    }
}

/// Checks a taint of a device or of a rule.
pub(super) fn device_taint(taint: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (key, value, effect) = (text(taint, &["key"]), text(taint, &["value"]), text(taint, &["effect"]));
    if key.is_empty() {
        errors.push(FieldError::required(format!("{path}.key"), ""));
    } else if !label_key(key) {
        errors.push(FieldError::invalid(format!("{path}.key"), &Value::from(key), LABEL_KEY));
    }
    if !label_value(value) {
        errors.push(FieldError::invalid(format!("{path}.value"), &Value::from(value), LABEL_VALUE));
    }
    match effect {
        "" => errors.push(FieldError::required(format!("{path}.effect"), "")),
        known if DEVICE_EFFECTS.contains(&known) => {}
        other => errors.push(FieldError::not_supported(format!("{path}.effect"), other, DEVICE_EFFECTS)),
    }
}

fn attributes(device: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let count = |field: &str| at(device, &[field]).as_object().map_or(0, serde_json::Map::len);
    let total = count("attributes") + count("capacity");
    if total > ATTRIBUTES {
        let why = format!("the total number of attributes and capacities must not exceed {ATTRIBUTES}");
        errors.push(FieldError::invalid(path, &Value::from(total), why));
    }
    for (name, attribute) in at(device, &["attributes"]).as_object().into_iter().flatten() {
        let path = format!("{path}.attributes[{name}]");
        if !qualified(name) {
            errors.push(FieldError::invalid(
                &path,
                &Value::from(name.as_str()),
                "must be a C identifier, or a domain, '/' and one",
            ));
        }
        let values: Vec<(&String, &Value)> = attribute.as_object().into_iter().flatten().collect();
        match values.as_slice() {
            [(kind, value)] => attribute_value(kind, value, &path, errors),
            [] => errors.push(FieldError::required(path, "exactly one value must be specified")),
            _ => errors.push(FieldError::invalid(path, attribute, "exactly one value must be specified")),
        }
    }
    for name in at(device, &["capacity"]).as_object().into_iter().flatten().map(|(name, _)| name) {
        if !qualified(name) {
            let field = format!("{path}.capacity[{name}]");
            errors.push(FieldError::invalid(
                field,
                &Value::from(name.as_str()),
                "must be a C identifier, or a domain, '/' and one",
            ));
        }
    }
}

fn attribute_value(kind: &str, value: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let text = value.as_str().unwrap_or_default();
    if text.len() > TEXT {
        let why = format!("must not be longer than {TEXT} bytes");
        errors.push(FieldError::invalid(format!("{path}.{kind}"), value, why));
    }
    if kind == "version" && !semantic_version(text) {
        let why = "must be a string compatible with semver.org spec 2.0.0";
        errors.push(FieldError::invalid(format!("{path}.version"), value, why));
    }
}

/// `MAJOR.MINOR.PATCH` without leading zeros, then an optional `-pre` and `+build`.
fn semantic_version(text: &str) -> bool {
    let (core, rest) = text.split_at(text.find(['-', '+']).unwrap_or(text.len()));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let parts: Vec<&str> = core.split('.').collect();
    let word = |c: u8| c.is_ascii_alphanumeric() || b".-+".contains(&c);
    parts.len() == 3 && parts.iter().all(|part| number(part)) && rest.bytes().all(word) && rest != "-" && rest != "+"
}

/// A name of an attribute: an optional domain of at most 63 letters, and a C identifier of at most 32.
fn qualified(name: &str) -> bool {
    let (domain, identifier) = name.split_once('/').map_or((None, name), |(domain, id)| (Some(domain), id));
    let start = |c: u8| c.is_ascii_alphabetic() || c == b'_';
    domain.is_none_or(|domain| dns_subdomain(domain, 63))
        && (1..=32).contains(&identifier.len())
        && identifier.bytes().next().is_some_and(start)
        && identifier.bytes().all(|c| start(c) || c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn slice(devices: Vec<Value>) -> Value {
        json!({"spec": {"driver": "d.dev", "nodeName": "n", "devices": devices,
                        "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}}})
    }

    fn fields(slice: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Vec::new();
        check(slice, old, &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    fn numbered(count: usize) -> Vec<Value> {
        (0..count).map(|index| json!({"name": format!("gpu-{index}")})).collect()
    }

    #[test]
    fn a_taint_halves_the_number_of_devices() {
        assert!(fields(&slice(numbered(128)), None).is_empty());
        assert_eq!(fields(&slice(numbered(129)), None), ["spec.devices"]);
        let mut devices = numbered(65);
        devices[3]["taints"] = json!([{"key": "k", "effect": "None"}]);
        assert_eq!(fields(&slice(devices.clone()), None), ["spec.devices"]);
        devices.truncate(64);
        assert!(fields(&slice(devices), None).is_empty());
    }

    #[test]
    fn taints_have_a_limit_and_known_effects() {
        let taint = json!({"key": "k", "effect": "NoSchedule"});
        let many = json!({"name": "a", "taints": vec![taint.clone(); 17]});
        assert_eq!(fields(&slice(vec![many]), None), ["spec.devices[0].taints"]);
        let twice = json!({"name": "a", "taints": vec![taint; 16]});
        assert!(fields(&slice(vec![twice]), None).is_empty());
        let bad = slice(vec![json!({"name": "a", "taints": [{"key": "k", "effect": "PreferNoSchedule"}]})]);
        assert_eq!(fields(&bad, None), ["spec.devices[0].taints[0].effect"]);
        assert!(fields(&bad, Some(&bad)).is_empty(), "an unchanged taint is not checked again");
    }

    #[test]
    fn identity_never_changes() {
        let old = slice(vec![]);
        let mut new = old.clone();
        new["spec"]["driver"] = json!("e.dev");
        new["spec"]["pool"]["name"] = json!("m");
        assert_eq!(fields(&new, Some(&old)), ["spec.driver", "spec.pool.name"]);
        new = old.clone();
        new["spec"]["allNodes"] = json!(true);
        assert_eq!(fields(&new, Some(&old)), ["spec"]);
    }

    #[test]
    fn attributes_have_one_value_of_a_legal_form() {
        let device = json!({"name": "a", "attributes": {"gpu.nvidia.com/uuid": {"string": "x".repeat(65)},
            "v": {"version": "v1.0"}, "w": {"version": "1.2.3-rc.1"}, "two": {"int": 1, "bool": true}, "1x": {"int": 1}}});
        assert_eq!(
            fields(&slice(vec![device]), None),
            [
                "spec.devices[0].attributes[1x]",
                "spec.devices[0].attributes[gpu.nvidia.com/uuid].string",
                "spec.devices[0].attributes[two]",
                "spec.devices[0].attributes[v].version",
            ]
        );
    }
}
