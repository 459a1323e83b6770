//! Placement over a view that is filled by hand.

use k8s_openapi::api::resource::v1::DeviceClass;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use taints::Taint;
use taints::fleet::Change;
use taints::object::{Device, Slice};

use super::*;
use crate::scheduler::view::Notice;

struct World {
    view: View,
    selectors: Selectors,
}

fn read<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

impl World {
    /// Two ready nodes with two devices each, and a class for them.
    fn new() -> Self {
        let mut world = Self { view: View::default(), selectors: Selectors::default() };
        for name in ["node-a", "node-b"] {
            world.node(json!({"metadata": {"name": name}, "spec": {}}));
            world.slice(name, &[]);
        }
        let selector = json!([{"cel": {"expression": "device.driver == 'd'"}}]);
        let class: DeviceClass = read(json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selector}}));
        world.apply(Notice::Class(Box::new(Event::Apply(class))));
        world
    }

    fn apply(&mut self, notice: Notice) {
        self.view.apply(notice, &mut self.selectors);
    }

    fn node(&mut self, mut node: Value) {
        json_patch::merge(&mut node, &json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}}));
        self.apply(Notice::Node(Box::new(Event::Apply(read(node)))));
    }

    fn slice(&mut self, node: &str, taint_on_first: &[&str]) {
        let taint = |text: &&str| Taint {
            key: (*text).into(),
            value: String::new(),
            effect: "NoSchedule".into(),
            time_added: None,
        };
        let device = |name: &str, taints: Vec<Taint>| Device { name: name.into(), taints, ..Device::default() };
        let slice = Slice {
            name: node.into(),
            driver: "d".into(),
            pool: node.into(),
            generation: 1,
            slice_count: 1,
            node_name: Some(node.into()),
            devices: vec![device("gpu-0", taint_on_first.iter().map(taint).collect()), device("gpu-1", Vec::new())],
            ..Slice::default()
        };
        self.apply(Notice::Device(cluster::watch::Notice::Change(Box::new(Change::Slice(slice)))));
    }

    fn claim(&mut self, name: &str, exactly: &Value, status: &Value) {
        let mut exact = json!({"deviceClassName": "gpu"});
        json_patch::merge(&mut exact, exactly);
        let claim = json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": exact}]}}, "status": status,
        });
        self.apply(Notice::Claim(Box::new(Event::Apply(read(claim)))));
    }

    fn place(&mut self, pod: &Pod) -> Placement {
        place(pod, &self.view, &mut self.selectors, Timestamp::UNIX_EPOCH)
    }
}

fn pod(claims: &[&str]) -> Pod {
    let claims: Vec<Value> = claims.iter().map(|claim| json!({"name": claim, "resourceClaimName": claim})).collect();
    read(json!({
        "metadata": {"name": "p", "namespace": "ns", "uid": "pod-uid"},
        "spec": {"containers": [], "resourceClaims": claims},
    }))
}

fn allocated(node: &str, device: &str, consumers: &[&str]) -> Value {
    let consumers: Vec<Value> =
        consumers.iter().map(|uid| json!({"resource": "pods", "name": uid, "uid": uid})).collect();
    json!({
        "allocation": {
            "devices": {"results": [{"request": "gpu", "driver": "d", "pool": node, "device": device}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]},
        },
        "reservedFor": consumers,
    })
}

/// Node and devices (`claim=device`) of a binding.
fn bound(placement: &Placement) -> (String, Vec<String>) {
    let Placement::Bind { node, allocations, .. } = placement else { panic!("{placement:?}") };
    let devices = allocations.iter().flat_map(|(claim, allocation)| {
        let results = allocation.devices.clone().and_then(|devices| devices.results).unwrap_or_default();
        results.into_iter().map(|result| format!("{}={}", claim.name, result.device)).collect::<Vec<_>>()
    });
    (node.clone(), devices.collect())
}

fn refused(placement: &Placement) -> (&str, Option<&str>) {
    let Placement::Unschedulable { message, release } = placement else { panic!("{placement:?}") };
    (message, release.as_ref().map(|key| key.name.as_str()))
}

#[test]
fn a_pod_without_claims_goes_to_the_emptier_node() {
    let mut world = World::new();
    let other: Pod = read(
        json!({"metadata": {"name": "o", "namespace": "ns", "uid": "o"}, "spec": {"containers": [], "nodeName": "node-a"}}),
    );
    world.apply(Notice::Pod(Box::new(Event::Apply(other))));
    assert_eq!(bound(&world.place(&pod(&[]))).0, "node-b");
}

#[test]
fn two_claims_of_a_pod_get_two_devices_of_one_node() {
    let mut world = World::new();
    world.claim("one", &json!({}), &json!({}));
    world.claim("two", &json!({}), &json!({}));
    let (node, devices) = bound(&world.place(&pod(&["one", "two"])));
    assert_eq!(node, "node-a");
    assert_eq!(devices, ["one=gpu-0", "two=gpu-1"]);
    world.claim("three", &json!({}), &json!({}));
    let placement = world.place(&pod(&["one", "two", "three"]));
    assert!(refused(&placement).0.starts_with("0/2 nodes are available: 2 cannot allocate all claims. still not"));
}

#[test]
fn a_device_in_use_or_tainted_is_passed_over() {
    let mut world = World::new();
    world.slice("node-a", &["lost"]);
    world.claim("used", &json!({}), &allocated("node-a", "gpu-1", &["x"]));
    world.claim("new", &json!({}), &json!({}));
    assert_eq!(bound(&world.place(&pod(&["new"]))), ("node-b".to_owned(), vec!["new=gpu-0".to_owned()]));
    world.claim("new", &json!({"tolerations": [{"key": "lost", "operator": "Exists"}]}), &json!({}));
    assert_eq!(bound(&world.place(&pod(&["new"]))), ("node-a".to_owned(), vec!["new=gpu-0".to_owned()]));
}

#[test]
fn an_allocated_claim_is_not_checked_again_and_binds_its_pod_to_its_node() {
    let mut world = World::new();
    world.slice("node-b", &["lost"]);
    world.claim("shared", &json!({}), &allocated("node-b", "gpu-0", &["other"]));
    let placement = world.place(&pod(&["shared"]));
    assert_eq!(bound(&placement), ("node-b".to_owned(), vec![]));
    assert!(matches!(placement, Placement::Bind { reserve, .. } if reserve == [Key::new("ns", "shared")]));
}

#[test]
fn a_claim_on_an_unfit_node_is_freed_unless_somebody_else_has_it() {
    let mut world = World::new();
    let tainted = json!({"metadata": {"name": "node-b"}, "spec": {"taints": [{"key": "k", "effect": "NoSchedule"}]}});
    world.node(tainted);
    world.claim("c", &json!({}), &allocated("node-b", "gpu-0", &["pod-uid"]));
    let placement = world.place(&pod(&["c"]));
    let (message, release) = refused(&placement);
    assert_eq!(release, Some("c"));
    assert!(
        message.contains("1 node(s) had untolerated taint {k: }, 1 resourceclaim not available on the node"),
        "{message}"
    );
    world.claim("c", &json!({}), &allocated("node-b", "gpu-0", &["pod-uid", "other"]));
    assert_eq!(refused(&world.place(&pod(&["c"]))).1, None);
}

#[test]
fn what_is_missing_is_named_and_what_is_on_its_way_is_waited_for() {
    let mut world = World::new();
    let placement = world.place(&pod(&["none"]));
    assert!(refused(&placement).0.contains("resourceclaim.resource.k8s.io \"none\" not found"));
    world.claim("bad", &json!({"deviceClassName": "none"}), &json!({}));
    let placement = world.place(&pod(&["bad"]));
    assert!(refused(&placement).0.contains("request gpu: device class none does not exist"));
    let mut template = pod(&[]);
    let entry = read(json!([{"name": "gpu", "resourceClaimTemplateName": "t"}]));
    template.spec.as_mut().unwrap().resource_claims = Some(entry);
    assert_eq!(world.place(&template), Placement::Wait);
    template.status = Some(read(json!({"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "used"}]})));
    assert_eq!(world.place(&template), Placement::Wait, "the claim is written, our watch is behind");
    world.claim("used", &json!({}), &json!({}));
    assert!(refused(&world.place(&template)).0.contains("pod is not owner"));
}

#[test]
fn a_claim_has_at_most_256_consumers() {
    let mut world = World::new();
    let consumers: Vec<String> = (0..256).map(|n| format!("u{n}")).collect();
    let consumers: Vec<&str> = consumers.iter().map(String::as_str).collect();
    world.claim("c", &json!({}), &allocated("node-b", "gpu-0", &consumers));
    assert!(refused(&world.place(&pod(&["c"]))).0.contains("resourceclaim in use"));
}

#[test]
fn a_selector_that_fails_is_no_device() {
    let mut world = World::new();
    let selector = json!({"selectors": [{"cel": {"expression": "device.attributes['d'].none == 1"}}]});
    world.claim("c", &selector, &json!({}));
    assert!(refused(&world.place(&pod(&["c"]))).0.contains("2 cannot allocate all claims"));
}
