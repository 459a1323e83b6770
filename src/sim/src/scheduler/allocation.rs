//! What is written into a claim (resource/v1 `AllocationResult`), field by field as kube-scheduler 1.37 does.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{NodeSelector, NodeSelectorRequirement, NodeSelectorTerm};
use k8s_openapi::api::resource::v1::{
    AllocationResult, DeviceAllocationConfiguration, DeviceAllocationResult, DeviceClass,
    DeviceRequestAllocationResult, ResourceClaim,
};
use taints::alloc::Pick;

use super::request::devices;
use crate::actor::{convert::to_device_toleration, seconds};

/// The devices that one claim gets, with the request's own name in each pick.
pub(super) fn build<'a>(
    claim: &ResourceClaim,
    picks: &[Pick],
    node: Option<&str>,
    class: impl Fn(&str) -> Option<&'a DeviceClass>,
    now: Timestamp,
) -> AllocationResult {
    let config = configuration(claim, picks, class);
    AllocationResult {
        allocation_timestamp: Some(seconds(now)),
        devices: Some(DeviceAllocationResult {
            config: (!config.is_empty()).then_some(config),
            results: (!picks.is_empty()).then(|| picks.iter().map(result).collect()),
        }),
        node_selector: node.map(of_node),
    }
}

fn result(pick: &Pick) -> DeviceRequestAllocationResult {
    let tolerations: Vec<_> = pick.tolerations.iter().map(to_device_toleration).collect();
    DeviceRequestAllocationResult {
        request: pick.request.clone(),
        driver: pick.device.driver.clone(),
        pool: pick.device.pool.clone(),
        device: pick.device.device.clone(),
        admin_access: pick.admin_access.then_some(true),
        tolerations: (!tolerations.is_empty()).then_some(tolerations),
        ..DeviceRequestAllocationResult::default()
    }
}

/// Devices of a node's own pool can be used there only.
fn of_node(node: &str) -> NodeSelector {
    let requirement = NodeSelectorRequirement {
        key: "metadata.name".to_owned(),
        operator: "In".to_owned(),
        values: Some(vec![node.to_owned()]),
    };
    let term = NodeSelectorTerm { match_fields: Some(vec![requirement]), match_expressions: None };
    NodeSelector { node_selector_terms: vec![term] }
}

/// Configuration of the classes first, then that of the claim: a later entry wins.
fn configuration<'a>(
    claim: &ResourceClaim,
    picks: &[Pick],
    class: impl Fn(&str) -> Option<&'a DeviceClass>,
) -> Vec<DeviceAllocationConfiguration> {
    let mut config = Vec::new();
    let mut classes: Vec<(&str, Vec<String>)> = Vec::new();
    for (request, class) in chosen_classes(claim, picks) {
        match classes.iter_mut().find(|(known, _)| *known == class) {
            Some((_, requests)) => requests.push(request),
            None => classes.push((class, vec![request])),
        }
    }
    for (name, requests) in classes {
        let entries = class(name).and_then(|class| class.spec.as_ref()?.config.as_ref());
        config.extend(entries.into_iter().flatten().map(|entry| DeviceAllocationConfiguration {
            opaque: entry.opaque.clone(),
            requests: Some(requests.clone()),
            source: "FromClass".to_owned(),
        }));
    }
    let entries = devices(claim).and_then(|devices| devices.config.as_ref()).into_iter().flatten();
    config.extend(entries.filter(|entry| concerns(entry.requests.as_deref().unwrap_or_default(), picks)).map(
        |entry| DeviceAllocationConfiguration {
            opaque: entry.opaque.clone(),
            requests: entry.requests.clone(),
            source: "FromClaim".to_owned(),
        },
    ));
    config
}

/// Request (`main` or `main/sub`) and class of what was chosen, in the order of the requests.
fn chosen_classes<'a>(claim: &'a ResourceClaim, picks: &[Pick]) -> Vec<(String, &'a str)> {
    let chosen = |name: &str| picks.iter().any(|pick| pick.request == name);
    let mut classes = Vec::new();
    for request in devices(claim).and_then(|devices| devices.requests.as_ref()).into_iter().flatten() {
        if let Some(exact) = request.exactly.as_ref().filter(|_| chosen(&request.name)) {
            classes.push((request.name.clone(), exact.device_class_name.as_str()));
        }
        for sub in request.first_available.iter().flatten() {
            let name = format!("{}/{}", request.name, sub.name);
            if chosen(&name) {
                classes.push((name, sub.device_class_name.as_str()));
            }
        }
    }
    classes
}

/// An entry for no request in particular is for all; one that names only alternatives which were not chosen is left out.
fn concerns(requests: &[String], picks: &[Pick]) -> bool {
    let main = |request: &str| request.split('/').next().map(str::to_owned);
    requests.is_empty()
        || requests.iter().any(|name| {
            picks.iter().any(|pick| pick.request == *name || main(&pick.request).as_deref() == Some(name.as_str()))
        })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use taints::object::DeviceId;

    use super::*;

    fn pick(request: &str, device: &str) -> Pick {
        let tolerations: Vec<taints::Toleration> =
            serde_json::from_value(json!([{"key": "k", "operator": "Exists"}])).unwrap();
        let device = DeviceId { driver: "d".into(), pool: "node-a".into(), device: device.into() };
        let tolerations = if request == "main/big" { tolerations } else { Vec::new() };
        Pick { request: request.into(), device, tolerations, admin_access: false }
    }

    fn opaque(driver: &str) -> Value {
        json!({"opaque": {"driver": driver, "parameters": {"a": 1}}})
    }

    #[test]
    fn an_allocation_has_the_form_that_kube_scheduler_writes() {
        let with_requests = |requests: Value| {
            let mut entry = opaque("claim");
            json_patch::merge(&mut entry, &json!({ "requests": requests }));
            entry
        };
        let claim: ResourceClaim = serde_json::from_value(json!({"metadata": {"name": "c"}, "spec": {"devices": {
            "requests": [
                {"name": "main", "firstAvailable": [{"name": "big", "deviceClassName": "gpu"}, {"name": "any", "deviceClassName": "other"}]},
                {"name": "side", "exactly": {"deviceClassName": "gpu"}},
            ],
            "config": [with_requests(json!(["main/any"])), with_requests(json!(["main"])), opaque("all")],
        }}}))
        .unwrap();
        let class: DeviceClass =
            serde_json::from_value(json!({"metadata": {"name": "gpu"}, "spec": {"config": [opaque("class")]}}))
                .unwrap();
        let picks = [pick("main/big", "gpu-0"), pick("side", "gpu-1")];
        let now = "2026-11-30T10:00:00.5Z".parse().unwrap();
        let built = build(&claim, &picks, Some("node-a"), |name| (name == "gpu").then_some(&class), now);
        let parameters = |driver: &str| json!({"driver": driver, "parameters": {"a": 1}});
        let expected = json!({
            "allocationTimestamp": "2026-11-30T10:00:00Z",
            "devices": {
                "results": [
                    {"request": "main/big", "driver": "d", "pool": "node-a", "device": "gpu-0",
                     "tolerations": [{"key": "k", "operator": "Exists"}]},
                    {"request": "side", "driver": "d", "pool": "node-a", "device": "gpu-1"},
                ],
                "config": [
                    {"source": "FromClass", "requests": ["main/big", "side"], "opaque": parameters("class")},
                    {"source": "FromClaim", "requests": ["main"], "opaque": parameters("claim")},
                    {"source": "FromClaim", "opaque": parameters("all")},
                ],
            },
            "nodeSelector": {"nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]},
        });
        assert_eq!(serde_json::to_value(built).unwrap(), expected);
    }
}
