//! Each kind from the JSON that an API server sends, with absent, null and empty told apart.

use proptest::prelude::*;
use serde_json::{Value, json};
use taints::object::{Attribute, ClaimRefKind, Phase};

use super::*;

fn read<W: Wire>(value: Value) -> W::Object {
    decode::<W>(value).unwrap()
}

#[test]
fn a_node_with_taints() {
    let node = read::<NodeWire>(json!({
        "metadata": {"name": "n1", "uid": "u1", "labels": {"zone": "a"}, "managedFields": [
            {"time": "2026-11-01T10:00:00Z", "fieldsV1": {"f:spec": {"f:taints": {}}}}]},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": [
            {"key": "a", "effect": "NoExecute", "timeAdded": "2026-11-01T10:00:00Z"},
            {"key": "b", "value": "v", "effect": "NoSchedule"}]}
    }));
    assert_eq!((node.name.as_str(), node.uid.as_str(), node.labels["zone"].as_str()), ("n1", "u1", "a"));
    let shown: Vec<String> = node.taints.iter().map(ToString::to_string).collect();
    assert_eq!(shown, ["a:NoExecute", "b=v:NoSchedule"]);
    assert_eq!(node.taints[0].time_added, node.taints_changed);
    assert_eq!(node.taints[1].time_added, None);
}

#[test]
fn a_node_without_a_spec_has_no_taints() {
    assert!(read::<NodeWire>(json!({"metadata": {"name": "n"}})).taints.is_empty());
    assert!(read::<NodeWire>(json!({"metadata": {"name": "n"}, "spec": {"taints": null}})).taints.is_empty());
}

fn full_pod() -> Value {
    json!({
        "metadata": {"namespace": "ml", "name": "train", "uid": "p1", "resourceVersion": "77",
            "creationTimestamp": "2026-11-01T09:00:00Z", "deletionTimestamp": "2026-11-01T11:00:00Z",
            "ownerReferences": [{"kind": "Job", "name": "train", "uid": "j1", "controller": true}]},
        "spec": {"nodeName": "n1", "schedulingGroup": {"podGroupName": "gang"},
            "tolerations": [{"key": "a", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 10}, {"operator": "Exists"}],
            "resourceClaims": [
                {"name": "by-name", "resourceClaimName": "shared"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "not-yet", "resourceClaimTemplateName": "t"},
                {"name": "none-needed", "resourceClaimTemplateName": "t"}]},
        "status": {"phase": "Running",
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-01T09:00:30Z"},
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-01T09:00:10Z"}],
            "resourceClaimStatuses": [{"name": "made", "resourceClaimName": "train-made-x"}, {"name": "none-needed", "resourceClaimName": null}],
            "extendedResourceClaimStatus": {"resourceClaimName": "train-ext", "requestMappings": []}}
    })
}

#[test]
fn a_pod_with_claims_of_every_sort() {
    let pod = read::<PodWire>(full_pod());
    assert_eq!(
        (pod.key.to_string().as_str(), pod.uid.as_str(), pod.resource_version.as_str()),
        ("ml/train", "p1", "77")
    );
    assert_eq!(pod.node.as_deref(), Some("n1"));
    assert_eq!(pod.bound_at, Some("2026-11-01T09:00:10Z".parse().unwrap()));
    assert_eq!((pod.phase, pod.deleted_at.is_some()), (Phase::Running, true));
    assert_eq!(pod.controller.unwrap().kind, "Job");
    assert_eq!(pod.pod_group.as_deref(), Some("gang"));
    assert_eq!(pod.tolerations.len(), 2);
    assert_eq!((pod.tolerations[0].toleration_seconds, pod.tolerations[1].effect.as_ref()), (Some(10), None));
    let claims: Vec<_> = pod.claims.iter().map(|claim| (claim.claim.as_deref(), claim.kind)).collect();
    assert_eq!(
        claims,
        [
            (Some("shared"), ClaimRefKind::Named),
            (Some("train-made-x"), ClaimRefKind::Template),
            (None, ClaimRefKind::Template),
            (None, ClaimRefKind::Template),
            (Some("train-ext"), ClaimRefKind::ExtendedResource),
        ]
    );
}

#[test]
fn a_pod_that_is_not_bound_has_no_time_of_binding() {
    let pod = read::<PodWire>(
        json!({"metadata": {"namespace": "d", "name": "p", "creationTimestamp": "2026-11-01T09:00:00Z"},
        "spec": {"nodeName": ""}}),
    );
    assert_eq!((pod.node, pod.bound_at, pod.phase), (None, None, Phase::Pending));
    let bound = read::<PodWire>(json!({"metadata": {"name": "p", "creationTimestamp": "2026-11-01T09:00:00Z"},
        "spec": {"nodeName": "n"}, "status": {"conditions": null}}));
    assert_eq!(bound.bound_at, Some("2026-11-01T09:00:00Z".parse().unwrap()));
}

#[test]
fn a_claim_keeps_absent_and_empty_tolerations_apart() {
    let claim = read::<ClaimWire>(json!({
        "metadata": {"namespace": "ml", "name": "shared", "uid": "c1"},
        "spec": {"devices": {"requests": [
            {"name": "gpu", "exactly": {"deviceClassName": "gpu", "tolerations": [{"key": "a", "operator": "Exists"}]}},
            {"name": "alt", "firstAvailable": [{"name": "big", "tolerations": []}, {"name": "small", "tolerations": [{"key": "b"}]}]}]}},
        "status": {"allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "d", "pool": "n1", "device": "gpu-0", "tolerations": []},
                {"request": "alt/small", "driver": "d", "pool": "n1", "device": "gpu-1", "adminAccess": true, "shareID": "s"}]}},
            "reservedFor": [{"resource": "pods", "name": "train", "uid": "p1"},
                {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g1"}]}
    }));
    assert_eq!(claim.requests.keys().collect::<Vec<_>>(), ["alt/big", "alt/small", "gpu"]);
    assert_eq!(claim.requests["alt/small"].len(), 1);
    let results = claim.results.unwrap();
    assert_eq!(results[0].tolerations, Some(Vec::new()));
    assert_eq!(
        (&results[1].tolerations, results[1].admin_access, results[1].share_id.as_deref()),
        (&None, true, Some("s"))
    );
    assert_eq!(results[1].id.to_string(), "d/n1/gpu-1");
    assert_eq!(
        (claim.reserved_for[0].api_group.as_str(), claim.reserved_for[1].api_group.as_str()),
        ("", "scheduling.k8s.io")
    );
}

#[test]
fn a_claim_without_an_allocation_has_no_results_and_one_without_devices_has_none_of_them() {
    let bare = read::<ClaimWire>(json!({"metadata": {"name": "c"}, "spec": null, "status": {}}));
    assert_eq!(bare.results, None);
    let empty = read::<ClaimWire>(json!({"metadata": {"name": "c"}, "status": {"allocation": {}}}));
    assert_eq!(empty.results, Some(Vec::new()));
}

#[test]
fn a_slice_with_qualified_attributes_and_identity() {
    let slice = read::<SliceWire>(json!({
        "metadata": {"name": "n1-abc", "uid": "s1", "creationTimestamp": "2026-11-01T09:00:00Z"},
        "spec": {"driver": "gpu.devicetaint.dev", "nodeName": "n1", "pool": {"name": "n1", "generation": 3, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0000-3b-00-0",
                "attributes": {"gpu.nvidia.com/uuid": {"string": "GPU-1"}, "serial": {"string": "1650"}, "numa": {"int": 1},
                    "gpu.nvidia.com/driverVersion": {"version": "580.1.0"}, "ecc": {"bool": true}, "later": {"strings": ["x"]}},
                "capacity": {"gpu.nvidia.com/memory": {"value": "80Gi"}, "slots": {"value": 4}},
                "taints": [{"key": "gpu.devicetaint.dev/lost", "effect": "NoSchedule", "timeAdded": "2026-11-01T09:30:00Z"}]}]}
    }));
    assert_eq!((slice.pool.as_str(), slice.generation, slice.slice_count, slice.all_nodes), ("n1", 3, 1, false));
    let device = &slice.devices[0];
    assert_eq!((device.identity.uuid.as_deref(), device.identity.serial.as_deref()), (Some("GPU-1"), Some("1650")));
    assert_eq!(device.attributes["gpu.devicetaint.dev/numa"], Attribute::Int(1));
    assert_eq!(device.attributes["gpu.devicetaint.dev/ecc"], Attribute::Bool(true));
    assert_eq!(device.attributes["gpu.nvidia.com/driverVersion"], Attribute::Version("580.1.0".to_owned()));
    assert!(!device.attributes.contains_key("gpu.devicetaint.dev/later"));
    assert_eq!(
        (device.capacity["gpu.nvidia.com/memory"].as_str(), device.capacity["gpu.devicetaint.dev/slots"].as_str()),
        ("80Gi", "4")
    );
    assert_eq!(device.taints[0].to_string(), "gpu.devicetaint.dev/lost:NoSchedule");
}

fn rule(spec: &Value) -> Value {
    json!({"metadata": {"name": "r"}, "spec": spec})
}

#[test]
fn a_rule_without_a_selector_is_not_one_with_an_empty_selector() {
    let taint = json!({"key": "k", "effect": "NoExecute"});
    assert_eq!(read::<RuleWire>(rule(&json!({"taint": taint}))).selector, None);
    assert_eq!(read::<RuleWire>(rule(&json!({"deviceSelector": null, "taint": taint}))).selector, None);
    let every = read::<RuleWire>(rule(&json!({"deviceSelector": {}, "taint": taint}))).selector.unwrap();
    assert_eq!((every.driver, every.pool, every.device), (None, None, None));
    let one = read::<RuleWire>(rule(&json!({"deviceSelector": {"pool": "n1", "device": "gpu-0"}, "taint": taint})));
    assert_eq!(one.selector.unwrap().device.as_deref(), Some("gpu-0"));
}

#[test]
fn a_selector_that_we_cannot_evaluate_is_refused_instead_of_widened() {
    let old =
        rule(&json!({"deviceSelector": {"deviceClassName": "gpu"}, "taint": {"key": "k", "effect": "NoExecute"}}));
    let error = decode::<RuleWire>(old).unwrap_err();
    assert!(error.to_string().starts_with("DeviceTaintRule r cannot be understood"), "{error}");
    assert!(error.problem.contains("deviceClassName"), "{error}");
}

#[test]
fn a_mark_carries_who_why_and_until_when() {
    let mark = |expires: &str| {
        read::<RuleWire>(json!({
            "metadata": {"name": "dt-1", "uid": "r1", "labels": {"devicetaint.dev/managed-by": "kubectl-device"}, "annotations": {
                "devicetaint.dev/evict": "careful", "devicetaint.dev/uuid": "GPU-1", "devicetaint.dev/serial": "",
                "devicetaint.dev/by": "ada", "devicetaint.dev/reason": "fan swap", "devicetaint.dev/expires-at": expires}},
            "spec": {"deviceSelector": {}, "taint": {"key": "k", "effect": "NoSchedule"}}
        }))
    };
    let good = mark("2026-11-02T00:00:00Z");
    assert!(good.managed && good.careful);
    assert_eq!((good.identity.uuid.as_deref(), good.identity.serial.as_deref()), (Some("GPU-1"), None));
    assert_eq!((good.by.as_deref(), good.reason.as_deref()), (Some("ada"), Some("fan swap")));
    assert_eq!(good.expires_at, Some("2026-11-02T00:00:00Z".parse().unwrap()));
    assert_eq!(mark("next tuesday").expires_at, None);
}

#[test]
fn an_object_that_cannot_be_read_is_named_with_the_field() {
    let mut pod = full_pod();
    pod["status"]["phase"] = json!("Sleeping");
    let error = decode::<PodWire>(pod).unwrap_err();
    assert_eq!((error.kind, error.name.as_str()), (Kind::Pod, "ml/train"));
    assert!(error.problem.contains("Sleeping"), "{error}");
    let mut pod = full_pod();
    pod["spec"]["tolerations"] = json!("all");
    assert_eq!(decode::<PodWire>(pod).unwrap_err().name, "ml/train");
    assert_eq!(decode::<NodeWire>(json!([])).unwrap_err().name, "");
}

#[test]
fn a_guarded_list_keeps_the_good_objects() {
    let list = json!([full_pod(), {"metadata": {"name": "bad", "namespace": "x", "uid": "u"}, "spec": 7}, full_pod()]);
    let items: Vec<Guarded<PodWire>> = serde_json::from_value(list).unwrap();
    assert_eq!(items.iter().map(|item| item.object.is_ok()).collect::<Vec<_>>(), [true, false, true]);
    assert_eq!(kube::Resource::meta(&items[1]).uid.as_deref(), Some("u"));
}

/// Any JSON, with the names that we read more likely than others.
fn json_of_any_shape() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        prop::sample::select(vec!["", "n1", "2026-11-01T10:00:00Z", "NoExecute", "Exists", "Running"])
            .prop_map(Value::from),
    ];
    let names = prop::sample::select(vec![
        "metadata",
        "name",
        "namespace",
        "uid",
        "annotations",
        "managedFields",
        "fieldsV1",
        "f:spec",
        "f:taints",
        "spec",
        "status",
        "taints",
        "taint",
        "tolerations",
        "key",
        "effect",
        "timeAdded",
        "driver",
        "pool",
        "devices",
        "deviceSelector",
        "allocation",
        "results",
        "request",
        "device",
        "reservedFor",
        "attributes",
        "capacity",
        "value",
        "phase",
        "nodeName",
    ]);
    leaf.prop_recursive(6, 64, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(names.clone(), inner, 0..6)
                .prop_map(|map| map.into_iter().map(|(name, value)| (name.to_owned(), value)).collect::<Value>()),
        ]
    })
}

proptest! {
    #[test]
    fn no_json_makes_a_watch_fail(value in json_of_any_shape()) {
        fn read<W: Wire>(value: &Value) -> bool {
            serde_json::from_value::<Guarded<W>>(value.clone()).is_ok()
        }
        prop_assert!(read::<NodeWire>(&value) && read::<PodWire>(&value) && read::<ClaimWire>(&value));
        prop_assert!(read::<SliceWire>(&value) && read::<RuleWire>(&value));
    }
}
