//! The plan over a view that is filled by hand.

use serde_json::{Value, json};

use super::*;

fn read<T: serde::de::DeserializeOwned>(value: &Value) -> T {
    serde_json::from_value(value.clone()).unwrap()
}

fn pod(name: &str, more: &Value) -> Pod {
    let mut pod = json!({
        "metadata": {"name": name, "namespace": "ns", "uid": format!("{name}-uid"), "resourceVersion": "1"},
        "spec": {"containers": [], "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}]},
        "status": {"phase": "Pending"},
    });
    json_patch::merge(&mut pod, more);
    read(&pod)
}

fn claim(name: &str, owner: Option<&str>, status: &Value) -> ResourceClaim {
    let owners: Vec<Value> = owner
        .iter()
        .map(|pod| json!({"apiVersion": "v1", "kind": "Pod", "name": pod, "uid": format!("{pod}-uid"), "controller": true}))
        .collect();
    read(&json!({
        "metadata": {
            "name": name, "namespace": "ns", "uid": name, "resourceVersion": "1", "ownerReferences": owners,
            "annotations": {POD_CLAIM_ANNOTATION: "gpu"}, "finalizers": [FINALIZER],
        },
        "spec": {}, "status": status,
    }))
}

fn used_by(pods: &[&str]) -> Value {
    let consumers: Vec<Value> =
        pods.iter().map(|pod| json!({"resource": "pods", "name": pod, "uid": format!("{pod}-uid")})).collect();
    json!({"allocation": {}, "reservedFor": consumers})
}

fn made(name: &str, more: &Value) -> Pod {
    let mut pod = serde_json::to_value(pod(name, more)).unwrap();
    let statuses = json!([{"name": "gpu", "resourceClaimName": format!("{name}-gpu")}]);
    json_patch::merge(&mut pod, &json!({"status": {"resourceClaimStatuses": statuses}}));
    read(&pod)
}

fn name(text: &str) -> Key {
    Key::new("ns", text)
}

fn view(pods: Vec<Pod>, claims: Vec<ResourceClaim>) -> View {
    let mut view = View::default();
    for pod in pods {
        view.pods.put(pod);
    }
    for claim in claims {
        view.claims.put(claim);
    }
    view
}

#[test]
fn a_template_becomes_a_claim_which_is_then_recorded() {
    let mut view = view(vec![pod("p", &json!({}))], vec![]);
    let (entry, template) = ("gpu".to_owned(), "t".to_owned());
    let complaint = Action::Complain { pod: name("p"), entry: entry.clone(), template: template.clone() };
    assert_eq!(plan(&view), [complaint]);
    view.templates.put(read(&json!({"metadata": {"name": "t", "namespace": "ns", "uid": "t"}, "spec": {"spec": {}}})));
    assert_eq!(plan(&view), [Action::Create { pod: name("p"), entry: entry.clone(), template }]);
    view.claims.put(claim("p-gpu", Some("p"), &json!({})));
    assert_eq!(plan(&view), [Action::Record { pod: name("p"), entry, claim: "p-gpu".to_owned() }]);
    view.pods.put(made("p", &json!({"metadata": {"resourceVersion": "2"}})));
    assert_eq!(plan(&view), []);
}

#[test]
fn a_claim_of_another_pod_of_the_same_name_is_not_taken() {
    let mut other = claim("p-gpu", Some("p"), &json!({}));
    other.metadata.owner_references.as_mut().unwrap()[0].uid = "older".to_owned();
    let view = view(vec![pod("p", &json!({}))], vec![other]);
    let actions = plan(&view);
    assert!(
        matches!(&actions[..], [Action::Complain { .. }, Action::Delete { pod_uid, .. }] if pod_uid == "older"),
        "{actions:?}"
    );
}

#[test]
fn finished_deleted_and_missing_pods_lose_their_reservation() {
    let finished = made("a", &json!({"status": {"phase": "Succeeded"}, "spec": {"nodeName": "n"}}));
    let running = made("b", &json!({"spec": {"nodeName": "n"}}));
    let terminating =
        made("c", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {"nodeName": "n"}}));
    let never_ran = made("d", &json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}));
    let shared = claim("shared", None, &used_by(&["a", "b", "c", "d", "gone"]));
    let view = view(vec![finished, running, terminating, never_ran], vec![shared]);
    let keep = vec!["b-uid".to_owned(), "c-uid".to_owned()];
    assert_eq!(plan(&view), [Action::Release { claim: name("shared"), keep }]);
}

#[test]
fn a_generated_claim_is_freed_then_deleted_then_let_go() {
    let mut view = view(vec![], vec![claim("p-gpu", Some("p"), &used_by(&["p"]))]);
    assert_eq!(plan(&view), [Action::Release { claim: name("p-gpu"), keep: vec![] }]);
    let with = |more: Value, status: &Value| -> ResourceClaim {
        let mut object = serde_json::to_value(claim("p-gpu", Some("p"), status)).unwrap();
        json_patch::merge(&mut object, &json!({ "metadata": more }));
        read(&object)
    };
    view.claims.put(with(json!({"resourceVersion": "2"}), &json!({})));
    let delete = Action::Delete { claim: name("p-gpu"), pod: name("p"), pod_uid: "p-uid".to_owned() };
    assert_eq!(plan(&view), [delete]);
    let deleting = json!({"resourceVersion": "3", "deletionTimestamp": "2026-01-01T00:00:00Z"});
    view.claims.put(with(deleting, &json!({})));
    assert_eq!(plan(&view), [Action::RemoveFinalizer { claim: name("p-gpu") }]);
}

#[test]
fn a_claim_of_a_person_stays_and_one_that_is_used_keeps_its_devices() {
    let waiting = claim("own", None, &json!({"allocation": {}}));
    let used = claim("p-gpu", Some("p"), &used_by(&["p"]));
    let view = view(vec![made("p", &json!({"spec": {"nodeName": "n"}}))], vec![waiting, used]);
    assert_eq!(plan(&view), []);
}

#[test]
fn a_pod_bound_by_hand_gets_its_reservation() {
    let by_hand = made("p", &json!({"spec": {"nodeName": "n"}}));
    let unreserved = claim("p-gpu", Some("p"), &json!({"allocation": {}}));
    let planned = plan(&view(vec![by_hand.clone()], vec![unreserved]));
    assert_eq!(planned, [Action::Reserve { claim: name("p-gpu"), pod: name("p") }]);
    let unallocated = claim("p-gpu", Some("p"), &json!({}));
    assert_eq!(plan(&view(vec![by_hand], vec![unallocated])), [], "nobody allocates for it");
}

#[test]
fn slices_of_a_node_that_is_gone_are_collected() {
    let mut view = View::default();
    let owner = json!({"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "old", "controller": true});
    view.slices.put(read(&json!({
        "metadata": {"name": "s", "uid": "s", "ownerReferences": [owner]},
        "spec": {"driver": "d", "pool": {"name": "n", "generation": 1, "resourceSliceCount": 1}},
    })));
    view.nodes.put(read(&json!({"metadata": {"name": "n", "uid": "new"}})));
    let expected = Action::DeleteSlice { slice: "s".to_owned(), node: "n".to_owned(), node_uid: "old".to_owned() };
    assert_eq!(plan(&view), [expected]);
}
