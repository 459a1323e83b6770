//! Rules for ResourceClaims and their templates.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{FieldError, dns_label, dns_subdomain, toleration};
use crate::server::value::{at, int, list, text};

const MODES: &[&str] = &["All", "ExactCount"];
/// Limits of the API: requests of a claim, devices of an allocation, consumers of a claim.
const REQUESTS: usize = 32;
const RESULTS: usize = 32;
const CONSUMERS: usize = 256;

pub(super) fn check(claim: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    match old {
        Some(old) if at(claim, &["spec"]) != at(old, &["spec"]) => {
            errors.push(FieldError::immutable("spec", at(claim, &["spec"])));
        }
        Some(_) => {}
        None => spec(at(claim, &["spec"]), "spec", errors),
    }
    status(claim, old, errors);
}

pub(super) fn check_template(template: &Value, errors: &mut Vec<FieldError>) {
    spec(at(template, &["spec", "spec"]), "spec.spec", errors);
}

fn spec(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let requests = list(spec, &["devices", "requests"]);
    let path = format!("{path}.devices.requests");
    if requests.len() > REQUESTS {
        errors.push(FieldError::too_many(&path, requests.len(), REQUESTS));
    }
    let mut names = BTreeSet::new();
    for (index, request) in requests.iter().enumerate() {
        let path = format!("{path}[{index}]");
        let name = text(request, &["name"]);
        if !dns_label(name) {
            errors.push(FieldError::invalid(format!("{path}.name"), &Value::from(name), "must be a DNS label"));
        } else if !names.insert(name) {
            errors.push(FieldError::duplicate(format!("{path}.name"), name));
        }
        let (exactly, alternatives) = (at(request, &["exactly"]), list(request, &["firstAvailable"]));
        match (exactly.is_null(), alternatives.is_empty()) {
            (true, true) => {
                errors.push(FieldError::required(path, "exactly one of `exactly` or `firstAvailable` is required"));
            }
            (false, false) => {
                errors.push(FieldError::invalid(
                    path,
                    &Value::from(name),
                    "exactly one of `exactly` or `firstAvailable` is required",
                ));
            }
            (false, true) => one(exactly, &format!("{path}.exactly"), errors),
            (true, false) => {
                for (index, alternative) in alternatives.iter().enumerate() {
                    one(alternative, &format!("{path}.firstAvailable[{index}]"), errors);
                }
            }
        }
    }
}

fn one(request: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let class = text(request, &["deviceClassName"]);
    if class.is_empty() {
        errors.push(FieldError::required(format!("{path}.deviceClassName"), ""));
    } else if !dns_subdomain(class, 253) {
        errors.push(FieldError::invalid(
            format!("{path}.deviceClassName"),
            &Value::from(class),
            "must be a DNS subdomain",
        ));
    }
    let count = int(request, &["count"]).unwrap_or(0);
    match text(request, &["allocationMode"]) {
        "All" if count != 0 => {
            let why = "must not be specified when allocationMode is 'All'";
            errors.push(FieldError::invalid(format!("{path}.count"), &Value::from(count), why));
        }
        "ExactCount" if count <= 0 => {
            errors.push(FieldError::invalid(format!("{path}.count"), &Value::from(count), "must be greater than zero"));
        }
        mode if MODES.contains(&mode) => {}
        other => errors.push(FieldError::not_supported(format!("{path}.allocationMode"), other, MODES)),
    }
    for (index, selector) in list(request, &["selectors"]).iter().enumerate() {
        if text(selector, &["cel", "expression"]).is_empty() {
            errors.push(FieldError::required(format!("{path}.selectors[{index}].cel.expression"), ""));
        }
    }
    toleration::of_request(request, path, errors);
}

fn status(claim: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let none = Value::Null;
    let allocation = at(claim, &["status", "allocation"]);
    let before = old.map_or(&none, |old| at(old, &["status", "allocation"]));
    if !allocation.is_null() && !before.is_null() && allocation != before {
        errors.push(FieldError::immutable("status.allocation", allocation));
    }
    let consumers = list(claim, &["status", "reservedFor"]);
    if consumers.len() > CONSUMERS {
        errors.push(FieldError::too_many("status.reservedFor", consumers.len(), CONSUMERS));
    }
    if !consumers.is_empty() && allocation.is_null() {
        errors.push(FieldError::forbidden("status.reservedFor", "may not be specified when `allocated` is not set"));
    }
    if before.is_null() {
        results(claim, allocation, errors);
    }
}

fn results(claim: &Value, allocation: &Value, errors: &mut Vec<FieldError>) {
    let results = list(allocation, &["devices", "results"]);
    let path = "status.allocation.devices.results";
    if results.len() > RESULTS {
        errors.push(FieldError::too_many(path, results.len(), RESULTS));
    }
    let requests = list(claim, &["spec", "devices", "requests"]);
    for (index, result) in results.iter().enumerate() {
        let request = text(result, &["request"]);
        let main = request.split('/').next().unwrap_or_default();
        if !requests.iter().any(|known| text(known, &["name"]) == main) {
            let why =
                "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'";
            errors.push(FieldError::invalid(format!("{path}[{index}].request"), &Value::from(request), why));
        }
        for field in ["driver", "pool", "device"] {
            if text(result, &[field]).is_empty() {
                errors.push(FieldError::required(format!("{path}[{index}].{field}"), ""));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim() -> Value {
        json!({"spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu.dev", "allocationMode": "ExactCount", "count": 1}}]}}})
    }

    fn fields(claim: &Value, old: Option<&Value>) -> Vec<String> {
        let mut errors = Vec::new();
        check(claim, old, &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn requests_are_checked() {
        assert!(fields(&claim(), None).is_empty());
        let mut bad = claim();
        bad["spec"]["devices"]["requests"] = json!([{"name": "a", "exactly": {"allocationMode": "All", "count": 1}},
            {"name": "a", "exactly": {"deviceClassName": "c", "allocationMode": "ExactCount", "count": 0}}, {"name": "b"}]);
        let path = "spec.devices.requests";
        assert_eq!(
            fields(&bad, None),
            [
                format!("{path}[0].exactly.deviceClassName"),
                format!("{path}[0].exactly.count"),
                format!("{path}[1].name"),
                format!("{path}[1].exactly.count"),
                format!("{path}[2]"),
            ]
        );
    }

    #[test]
    fn an_allocation_is_set_once() {
        let mut allocated = claim();
        allocated["status"] = json!({"allocation": {"devices": {"results": [
            {"request": "gpu", "driver": "d", "pool": "p", "device": "x"}]}}, "reservedFor": [{"uid": "u"}]});
        assert!(fields(&allocated, Some(&claim())).is_empty());
        let mut moved = allocated.clone();
        moved["status"]["allocation"]["devices"]["results"][0]["device"] = json!("y");
        assert_eq!(fields(&moved, Some(&allocated)), ["status.allocation"]);
        let mut foreign = allocated.clone();
        foreign["status"]["allocation"]["devices"]["results"][0]["request"] = json!("other");
        assert_eq!(fields(&foreign, Some(&claim())), ["status.allocation.devices.results[0].request"]);
        let mut spec = claim();
        spec["spec"]["devices"]["requests"][0]["name"] = json!("z");
        assert_eq!(fields(&spec, Some(&claim())), ["spec"]);
    }
}
