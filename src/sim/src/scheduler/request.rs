//! From the claims of a pod to one question for the allocator.
//!
//! All claims of a pod are allocated together, so that no device is given twice and a choice for one claim can make room for
//! another. Their requests get the claim's position as a prefix, which the answer is split by.

use std::collections::HashMap;

use k8s_openapi::api::resource::v1::{
    DeviceClaim, DeviceClass, DeviceConstraint, DeviceRequest, DeviceSelector, DeviceToleration, ResourceClaim,
};
use taints::alloc::{Alternative, Amount, Constraint, Request};

use crate::actor::convert::device_tolerations;

/// What is asked of the allocator.
#[derive(Debug, Default)]
pub(super) struct Question {
    pub(super) requests: Vec<Request>,
    pub(super) constraints: Vec<Constraint>,
    /// By request (`0:main`, `0:main/sub`): the expressions that a device must match, those of the class first.
    pub(super) selectors: HashMap<String, Vec<String>>,
}

/// Stands between a claim's position and a request's name; no name holds it.
const MARK: char = ':';

/// Splits the name of an answer: the claim's position, and the request's own name.
pub(super) fn split(request: &str) -> Option<(usize, &str)> {
    let (index, name) = request.split_once(MARK)?;
    Some((index.parse().ok()?, name))
}

/// The devices part of a claim.
pub(super) fn devices(claim: &ResourceClaim) -> Option<&DeviceClaim> {
    claim.spec.as_ref()?.devices.as_ref()
}

/// Asks for all claims at once, or says why nothing can be asked: a class that is not there, a feature that is not modelled.
pub(super) fn ask<'a>(
    claims: &[&ResourceClaim],
    class: impl Fn(&str) -> Option<&'a DeviceClass>,
) -> Result<Question, String> {
    let mut question = Question::default();
    for (index, claim) in claims.iter().enumerate() {
        let Some(devices) = devices(claim) else { continue };
        for request in devices.requests.iter().flatten() {
            let alternatives = alternatives(request)?;
            let name = format!("{index}{MARK}{}", request.name);
            for wanted in &alternatives {
                let class = class(wanted.class)
                    .ok_or_else(|| format!("request {}: device class {} does not exist", request.name, wanted.class))?;
                let full = wanted.sub.map_or_else(|| name.clone(), |sub| format!("{name}/{sub}"));
                question.selectors.insert(full, expressions(class, wanted.selectors));
            }
            let alternatives = alternatives.into_iter().map(Wanted::into_alternative).collect();
            question.requests.push(Request { name, alternatives });
        }
        for constraint in devices.constraints.iter().flatten() {
            question.constraints.push(ask_constraint(index, devices, constraint)?);
        }
    }
    Ok(question)
}

/// The expressions of the class, then those of the request: all must match.
fn expressions(class: &DeviceClass, own: Option<&Vec<DeviceSelector>>) -> Vec<String> {
    let all = class.spec.iter().filter_map(|spec| spec.selectors.as_ref()).chain(own);
    all.flatten().filter_map(|selector| selector.cel.as_ref()).map(|cel| cel.expression.clone()).collect()
}

/// `exactly` and the entries of `firstAvailable` in one form.
struct Wanted<'a> {
    sub: Option<&'a str>,
    class: &'a str,
    amount: Amount,
    selectors: Option<&'a Vec<DeviceSelector>>,
    tolerations: Option<&'a Vec<DeviceToleration>>,
    admin_access: bool,
}

impl Wanted<'_> {
    fn into_alternative(self) -> Alternative {
        Alternative {
            name: self.sub.map(str::to_owned),
            amount: self.amount,
            tolerations: device_tolerations(self.tolerations),
            admin_access: self.admin_access,
        }
    }
}

fn alternatives(request: &DeviceRequest) -> Result<Vec<Wanted<'_>>, String> {
    let amount = |mode: Option<&String>, count: Option<i64>| amount(&request.name, mode, count);
    if let Some(exact) = &request.exactly {
        return Ok(vec![Wanted {
            sub: None,
            class: &exact.device_class_name,
            amount: amount(exact.allocation_mode.as_ref(), exact.count)?,
            selectors: exact.selectors.as_ref(),
            tolerations: exact.tolerations.as_ref(),
            admin_access: exact.admin_access.unwrap_or(false),
        }]);
    }
    let subs = request.first_available.iter().flatten();
    subs.map(|sub| {
        Ok(Wanted {
            sub: Some(&sub.name),
            class: &sub.device_class_name,
            amount: amount(sub.allocation_mode.as_ref(), sub.count)?,
            selectors: sub.selectors.as_ref(),
            tolerations: sub.tolerations.as_ref(),
            admin_access: false,
        })
    })
    .collect()
}

fn amount(request: &str, mode: Option<&String>, count: Option<i64>) -> Result<Amount, String> {
    match mode.map(String::as_str) {
        None | Some("" | "ExactCount") => {
            let count = usize::try_from(count.unwrap_or(1)).ok().filter(|count| *count > 0);
            count.map(Amount::Exact).ok_or_else(|| format!("request {request}: the count must be 1 or more"))
        }
        Some("All") => Ok(Amount::All),
        Some(other) => Err(format!("request {request}: unsupported allocation mode {other}")),
    }
}

/// An empty list of requests means all requests of the claim, and only of this claim.
fn ask_constraint(index: usize, devices: &DeviceClaim, constraint: &DeviceConstraint) -> Result<Constraint, String> {
    let Some(attribute) = &constraint.match_attribute else {
        return Err("a constraint other than matchAttribute is not supported by this scheduler".to_owned());
    };
    let own = constraint.requests.iter().flatten().cloned();
    let mut requests: Vec<String> = own.map(|name| format!("{index}{MARK}{name}")).collect();
    if requests.is_empty() {
        let all = devices.requests.iter().flatten();
        requests = all.map(|request| format!("{index}{MARK}{}", request.name)).collect();
    }
    Ok(Constraint { requests, attribute: attribute.clone() })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(devices: &Value) -> ResourceClaim {
        serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"devices": devices}})).unwrap()
    }

    fn class() -> DeviceClass {
        let selectors = json!([{"cel": {"expression": "class"}}]);
        serde_json::from_value(json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})).unwrap()
    }

    fn asked(claims: &[ResourceClaim]) -> Result<Question, String> {
        let class = class();
        ask(&claims.iter().collect::<Vec<_>>(), |name| (name == "gpu").then_some(&class))
    }

    #[test]
    fn requests_of_several_claims_stay_apart() {
        let one = claim(&json!({"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}));
        let two = claim(&json!({
            "requests": [{"name": "gpu", "firstAvailable": [
                {"name": "big", "deviceClassName": "gpu", "count": 2, "selectors": [{"cel": {"expression": "own"}}]},
                {"name": "any", "deviceClassName": "gpu", "allocationMode": "All"},
            ]}],
            "constraints": [{"matchAttribute": "gpu.nvidia.com/pcieRoot"}],
        }));
        let question = asked(&[one, two]).unwrap();
        let names: Vec<&str> = question.requests.iter().map(|request| request.name.as_str()).collect();
        assert_eq!(names, ["0:gpu", "1:gpu"]);
        assert_eq!(question.requests[0].alternatives[0].amount, Amount::Exact(1));
        assert_eq!(question.requests[1].alternatives[1].amount, Amount::All);
        assert_eq!(question.selectors["1:gpu/big"], ["class", "own"]);
        assert_eq!(question.constraints[0].requests, ["1:gpu"]);
        assert_eq!(split("1:gpu/big"), Some((1, "gpu/big")));
    }

    #[test]
    fn what_cannot_be_asked_says_why() {
        let unknown = claim(&json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "none"}}]}));
        assert_eq!(asked(&[unknown]).unwrap_err(), "request r: device class none does not exist");
        let mode = claim(
            &json!({"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "Some"}}]}),
        );
        assert_eq!(asked(&[mode]).unwrap_err(), "request r: unsupported allocation mode Some");
        let distinct = claim(&json!({"requests": [], "constraints": [{"distinctAttribute": "a/b"}]}));
        assert!(asked(&[distinct]).unwrap_err().contains("matchAttribute"));
    }
}
