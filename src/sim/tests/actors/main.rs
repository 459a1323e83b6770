//! The scheduler, the claim controller and kubelets together, on the sim's own API server, with a driver on real sockets.

#![expect(clippy::unwrap_used, reason = "a helper that fails ends the test where it fails")]

mod driver;
mod lab;

use std::time::Duration;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceSlice};
use kube::Api;
use kube::api::DeleteParams;
use serde_json::json;

use crate::lab::{Lab, devices, generated, phase};

/// Longer than anything here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

fn consumers(claim: &ResourceClaim) -> usize {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_ref()).map_or(0, Vec::len)
}

#[tokio::test]
async fn a_pod_gets_its_claim_its_device_and_its_end() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([])).await;
    lab.pod("p", None, json!({})).await;
    let pod = lab.running("p").await;
    let claim: ResourceClaim = lab.api().get(&generated(&pod)).await.unwrap();
    assert!(claim.metadata.name.as_ref().is_some_and(|name| name.starts_with("p-gpu-")));
    assert_eq!(devices(&claim), ["node-a/gpu-0"]);
    assert_eq!(consumers(&claim), 1);
    let status = pod.status.unwrap();
    assert!(status.pod_ip.is_some());
    let ready = status.conditions.unwrap().into_iter().find(|condition| condition.type_ == "Ready").unwrap();
    assert_eq!(ready.status, "True");

    lab.delete_pod("p").await;
    lab.gone::<Pod>("p").await;
    let name = claim.metadata.name.unwrap();
    assert_eq!(driver.calls(), ["registered".to_owned(), format!("prepare {name}"), format!("unprepare {name}")]);
    lab.gone::<ResourceClaim>(&name).await;
}

#[tokio::test]
async fn a_shared_claim_keeps_its_pods_together_and_is_let_go_with_the_last() {
    let lab = Lab::start().await;
    let (_a, _b) = (lab.kubelet("node-a").await, lab.kubelet("node-b").await);
    let drivers = ["node-a", "node-b"].map(|node| lab.driver(node));
    let _serving = [drivers[0].serve(), drivers[1].serve()];
    for driver in &drivers {
        driver.publish(1, &json!([])).await;
    }
    for name in ["one", "two"] {
        lab.pod(name, Some("shared"), json!({})).await;
    }
    let nodes = [lab.running("one").await, lab.running("two").await].map(|pod| pod.spec.unwrap().node_name.unwrap());
    assert_eq!(nodes[0], nodes[1]);
    lab.wait("shared", "reserved for both", |claim| consumers(claim) == 2).await;
    let driver = &drivers[usize::from(nodes[0] == "node-b")];
    lab.delete_pod("one").await;
    lab.gone::<Pod>("one").await;
    assert!(!driver.calls().contains(&"unprepare shared".to_owned()), "the other pod still uses it");
    lab.delete_pod("two").await;
    lab.gone::<Pod>("two").await;
    assert!(driver.calls().contains(&"unprepare shared".to_owned()));
    lab.wait("shared", "free", |claim: &ResourceClaim| devices(claim).is_empty() && consumers(claim) == 0).await;
}

#[tokio::test]
async fn an_error_of_the_driver_is_told_and_tried_again() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    driver.book.lock().unwrap().fail_prepare.push_back("gpu-0 is busy: wait a moment".to_owned());
    driver.book.lock().unwrap().fail_unprepare.push_back("not now".to_owned());
    driver.publish(1, &json!([])).await;
    lab.pod("p", Some("shared"), json!({})).await;
    lab.event("FailedPrepareDynamicResources", "DRA driver test.devicetaint.dev is not registered").await;
    let _serving = driver.serve();
    let told = lab.event("FailedPrepareDynamicResources", "busy").await;
    let expected = "Failed to prepare dynamic resources: prepare dynamic resources: NodePrepareResources failed for \
                    ResourceClaim shared: gpu-0 is busy: wait a moment";
    assert_eq!(told, expected);
    lab.running("p").await;
    lab.delete_pod("p").await;
    lab.gone::<Pod>("p").await;
    let unprepared = driver.calls().iter().filter(|call| *call == "unprepare shared").count();
    assert_eq!(unprepared, 2, "the first one failed, and the pod stayed");
}

#[tokio::test]
async fn a_tainted_device_is_avoided_until_the_taint_goes() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([{"key": "gpu.devicetaint.dev/lost", "effect": "NoSchedule"}])).await;
    lab.pod("p", None, json!({})).await;
    let waiting = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().find(|condition| condition.type_ == "PodScheduled").cloned()
    };
    let pod = lab.wait_pod("p", "unschedulable", |pod| waiting(pod).is_some_and(|c| c.status == "False")).await;
    let message = waiting(&pod).unwrap().message.unwrap();
    assert!(message.starts_with("0/1 nodes are available: 1 cannot allocate all claims."), "{message}");
    lab.event("FailedScheduling", "cannot allocate all claims").await;
    let slices: Api<ResourceSlice> = Api::all(lab.client.clone());
    lab.patch(slices, &driver.slice(), json!({"spec": {"devices": [{"name": "gpu-0"}]}})).await;
    lab.running("p").await;

    let taint = json!({"key": "k", "effect": "NoSchedule"});
    lab.create_global::<DeviceTaintRule>(
        json!({"metadata": {"name": "r"}, "spec": {"deviceSelector": {}, "taint": taint}}),
    )
    .await;
    lab.pod("q", Some("shared"), json!({})).await;
    lab.wait_pod("q", "unschedulable", |pod| waiting(pod).is_some_and(|c| c.status == "False")).await;
    assert_eq!(phase(&lab.api::<Pod>().get("p").await.unwrap()), "Running", "allocated claims are not checked again");
}

#[tokio::test]
async fn containers_end_by_themselves_and_free_their_device() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([])).await;
    let ends = |code: &str| {
        let annotations = json!({"sim.devicetaint.dev/exit-after": "50ms", "sim.devicetaint.dev/exit-code": code});
        json!({"metadata": {"annotations": annotations}, "spec": {"restartPolicy": "OnFailure"}})
    };
    lab.pod("good", Some("shared"), ends("0")).await;
    lab.wait_pod("good", "succeeded", |pod| phase(pod) == "Succeeded").await;
    assert_eq!(driver.calls(), ["registered", "prepare shared", "unprepare shared"], "before the phase is told");
    lab.wait("shared", "free", |claim: &ResourceClaim| devices(claim).is_empty()).await;
    lab.pod("bad", None, ends("1")).await;
    let restarted = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        statuses.into_iter().flatten().any(|status| status.restart_count > 0)
    };
    lab.wait_pod("bad", "restarted", restarted).await;
    lab.delete_pod("good").await;
    lab.gone::<Pod>("good").await;
}

#[tokio::test]
async fn a_kubelet_that_starts_again_finds_its_pods_and_cleans_up_after_those_that_went() {
    let lab = Lab::start().await;
    let kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(2, &json!([])).await;
    lab.pod("stays", None, json!({})).await;
    lab.pod("goes", Some("shared"), json!({})).await;
    let stays = lab.running("stays").await;
    lab.running("goes").await;
    kubelet.stop().await;
    assert_eq!(driver.book.lock().unwrap().prepared.len(), 2, "a kubelet that ends lets nothing go");
    lab.api::<Pod>().delete("goes", &DeleteParams::default().grace_period(0)).await.unwrap();

    let _kubelet = lab.kubelet("node-a").await;
    lab.slice_gone(&driver.slice()).await;
    driver.wait("registered again", |book| book.calls.iter().filter(|call| *call == "registered").count() == 2).await;
    driver.wait("shared is let go", |book| book.calls.last().is_some_and(|call| call == "unprepare shared")).await;
    let again = format!("prepare {}", generated(&stays));
    driver.wait("prepared again", |book| book.calls.iter().filter(|call| **call == again).count() == 2).await;
    let now = lab.api::<Pod>().get("stays").await.unwrap();
    assert_eq!(now.metadata.uid, stays.metadata.uid);
    assert_eq!(phase(&now), "Running");
    lab.delete_pod("stays").await;
    lab.gone::<Pod>("stays").await;
    assert!(driver.book.lock().unwrap().prepared.is_empty());
}

#[tokio::test]
async fn a_driver_that_stays_away_loses_its_slices_and_one_that_comes_back_does_not() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let serving = driver.serve();
    driver.wait("registered", |book| book.calls == ["registered"]).await;
    driver.publish(1, &json!([])).await;
    let other = lab.other_driver("other.devicetaint.dev", "node-a");
    let other_serving = other.serve();
    other.wait("registered", |book| book.calls == ["registered"]).await;
    other.publish(1, &json!([])).await;
    drop(serving);
    let serving = driver.serve();
    driver.wait("registered again", |book| book.calls.len() == 2).await;
    drop(other_serving);
    lab.slice_gone(&other.slice()).await;
    let slices: Api<ResourceSlice> = Api::all(lab.client.clone());
    assert!(slices.get_opt(&driver.slice()).await.unwrap().is_some());
    drop(serving);
    lab.slice_gone(&driver.slice()).await;
}

#[tokio::test]
async fn a_pod_deleted_by_force_is_unprepared_too() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([])).await;
    lab.pod("p", Some("shared"), json!({})).await;
    lab.running("p").await;
    lab.api::<Pod>().delete("p", &DeleteParams::default().grace_period(0)).await.unwrap();
    driver.wait("let go", |book| book.prepared.is_empty() && book.calls.len() == 3).await;
}

#[tokio::test]
async fn pods_of_a_node_that_is_deleted_go_and_their_devices_are_free() {
    let lab = Lab::start().await;
    let kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([])).await;
    lab.pod("p", Some("shared"), json!({})).await;
    lab.running("p").await;
    kubelet.stop().await;
    Api::<Node>::all(lab.client.clone()).delete("node-a", &DeleteParams::default()).await.unwrap();
    let lost = |pod: &Pod| {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.reason.as_deref() == Some("DeletionByPodGC"))
    };
    lab.wait_pod("p", "told why it goes", lost).await;
    lab.gone::<Pod>("p").await;
    lab.wait::<ResourceClaim>("shared", "free", |claim| consumers(claim) == 0).await;
}

#[tokio::test]
async fn a_pod_takes_its_time_to_stop_but_not_more_than_its_grace() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([])).await;
    let slow = json!({"metadata": {"annotations": {"sim.devicetaint.dev/stop-after": "1h"}}});
    lab.pod("p", Some("shared"), slow).await;
    lab.running("p").await;
    lab.delete_pod("p").await;
    let pod = lab.wait_pod("p", "deleting", |pod| pod.metadata.deletion_timestamp.is_some()).await;
    assert_eq!(phase(&pod), "Running");
    assert_eq!(pod.metadata.deletion_grace_period_seconds, Some(5));
    lab.api::<Pod>().delete("p", &DeleteParams::default().grace_period(1)).await.unwrap();
    lab.gone::<Pod>("p").await;
    assert!(driver.book.lock().unwrap().prepared.is_empty());
}

#[tokio::test]
async fn a_pod_bound_by_hand_meets_the_kubelets_admission() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([])).await;
    lab.pod("first", Some("shared"), json!({})).await;
    lab.running("first").await;
    lab.pod("by-hand", Some("shared"), json!({"spec": {"nodeName": "node-a"}})).await;
    lab.running("by-hand").await;
    lab.wait("shared", "reserved for both", |claim| consumers(claim) == 2).await;

    let taint = json!({"spec": {"taints": [{"key": "maintenance", "effect": "NoExecute"}]}});
    lab.patch(Api::<Node>::all(lab.client.clone()), "node-a", taint).await;
    let rejected = |pod: &Pod| phase(pod) == "Failed";
    // The kubelet learns of the taint by its own watch: a pod that came before that was taken.
    for attempt in 0.. {
        assert!(attempt < 100, "the kubelet takes every pod");
        let name = format!("refused-{attempt}");
        lab.pod(&name, Some("shared"), json!({"spec": {"nodeName": "node-a"}})).await;
        let pod = lab.wait_pod(&name, "decided", |pod| rejected(pod) || phase(pod) == "Running").await;
        if rejected(&pod) {
            let status = pod.status.unwrap();
            assert_eq!(status.reason.as_deref(), Some("TaintToleration"));
            break;
        }
    }
}

#[tokio::test]
async fn the_health_of_a_device_is_shown_on_its_pod() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([])).await;
    lab.pod("p", Some("shared"), json!({})).await;
    lab.running("p").await;
    let shown = |pod: &Pod| {
        let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
        let resource = statuses.first()?.allocated_resources_status.as_ref()?.first()?.clone();
        let device = resource.resources?.into_iter().next()?;
        Some((resource.name, device.health?, device.resource_id))
    };
    for (code, health) in [(1, "Healthy"), (2, "Unhealthy")] {
        driver.health.send_replace(vec![("gpu-0".to_owned(), code)]);
        let pod = lab.wait_pod("p", health, |pod| shown(pod).is_some_and(|(_, shown, _)| shown == health)).await;
        let (name, _, id) = shown(&pod).unwrap();
        assert_eq!(name, "claim:gpu");
        assert!(id.starts_with("test.devicetaint.dev/claim="), "{id}");
    }
}

#[tokio::test]
async fn conflicts_and_lost_answers_do_not_lose_a_pod() {
    let lab = Lab::start().await;
    let _kubelet = lab.kubelet("node-a").await;
    let driver = lab.driver("node-a");
    let _serving = driver.serve();
    driver.publish(1, &json!([])).await;
    let claims = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims*";
    for fault in [
        json!({"match": {"method": "PATCH", "path": claims, "userAgent": "sim-scheduler*"}, "times": 2, "answer": {"status": 409}}),
        json!({"match": {"method": "POST", "path": "*/binding"}, "times": 1, "answer": {"cut": true}}),
        json!({"match": {"method": "POST", "path": claims, "userAgent": "sim-claims*"}, "times": 2, "answer": {"status": 503}}),
        json!({"match": {"method": "PATCH", "path": "*/pods/*", "userAgent": "sim-kubelet*"}, "times": 2, "answer": {"status": 500}}),
        json!({"match": {"method": "GET", "path": claims, "userAgent": "sim-kubelet*"}, "times": 1, "answer": {"status": 429}}),
    ] {
        lab.fault(fault).await;
    }
    lab.pod("p", None, json!({})).await;
    let pod = lab.running("p").await;
    let made = lab.api::<ResourceClaim>().list(&kube::api::ListParams::default()).await.unwrap();
    let own = made.items.iter().filter(|claim| claim.metadata.owner_references.is_some()).count();
    assert_eq!(own, 1, "one claim for one entry");
    lab.delete_pod("p").await;
    lab.gone::<Pod>("p").await;
    lab.gone::<ResourceClaim>(&generated(&pod)).await;
}
