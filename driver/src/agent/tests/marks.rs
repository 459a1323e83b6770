//! Marks of people, from the API server to the slice, and over a start at which they are slow or cannot be read.

use serde_json::json;

use super::*;

fn mark(name: &str, card: usize, uuid: Option<&str>) -> Value {
    let annotations = uuid.map(|uuid| json!({"devicetaint.dev/uuid": uuid})).unwrap_or_default();
    json!({
        "metadata": {"name": name, "creationTimestamp": "2026-11-01T10:00:00Z", "annotations": annotations},
        "spec": {
            "deviceSelector": {"driver": "gpu.devicetaint.dev", "pool": "node-a", "device": self::name(card)},
            "taint": {"key": "devicetaint.dev/maintenance", "value": "fan", "effect": "NoSchedule"},
        },
    })
}

/// As [`taints`] has it.
fn marked(card: usize) -> String {
    format!("{} devicetaint.dev/maintenance=fan:NoSchedule @2026-11-01T10:00:00Z", name(card))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mark_becomes_a_taint_and_goes_with_the_mark() {
    let node = Node::new().await;
    node.server.put_mark(mark("dt-other", 2, Some("GPU-of-another-time")));
    let agent = node.start().await;
    let first = node.server.until(|slices| devices(slices) == 8).await;
    assert_eq!(taints(&first), Vec::<String>::new());
    assert_eq!(first[0]["metadata"]["labels"]["devicetaint.dev/follows-marks"], "v1alpha1");
    node.server.put_mark(mark("dt-1", 1, None));
    node.server.until(|slices| taints(slices) == [marked(1)]).await;
    let metrics =
        agent.until_told("/metrics", |_, text| text.contains("gpu_driver_marks{standing=\"published\"} 1")).await;
    assert!(metrics.contains("gpu_driver_marks{standing=\"other_card\"} 1"), "{metrics}");
    assert!(metrics.contains("gpu_driver_taints{key=\"mark\",effect=\"NoSchedule\"} 1"), "{metrics}");
    node.server.remove_mark("dt-1");
    node.server.until(|slices| taints(slices).is_empty()).await;
    agent.end().await;
}

/// A slice without a taint that a person asked for would let work onto the device for a moment.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_starts_publishes_nothing_before_it_knows_the_marks() {
    let node = Node::new().await;
    node.server.put_mark(mark("dt-1", 1, None));
    node.server.plan("marks", Fault::Slow(Duration::from_millis(700)), 1);
    let agent = node.start().await;
    let first = node.server.until(|slices| devices(slices) == 8).await;
    assert_eq!(taints(&first), [marked(1)]);
    let remembered = node.path("state/marks.json");
    agent.until_told("/readyz", |_, _| fs::read_to_string(&remembered).is_ok_and(|text| text.contains("dt-1"))).await;
    agent.kill().await;

    // Nobody can read marks now: what is remembered stands.
    let before = node.server.version();
    node.server.wipe();
    node.server.plan("marks", Fault::Status(403), usize::MAX);
    let agent = node.start().await;
    node.server.until(|slices| devices(slices) == 8).await;
    agent.until_told("/readyz", |_, text| text.contains("[!]marks degraded: DeviceMarks cannot be read")).await;
    for slice in node.server.written_since(before) {
        assert_eq!(taints(&[slice]), [marked(1)]);
    }
    agent.end().await;
}

/// Kubelet asks again for a pod's claims only after a minute, and what is prepared does not depend on marks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_does_not_wait_for_marks() {
    let node = Node::new().await;
    node.server.plan("marks", Fault::Silent, usize::MAX);
    let agent = node.start().await;
    let mut kubelet = v1::dra_plugin_client::DraPluginClient::new(dial(node.register().await.into()).await);
    let claim = v1::Claim { namespace: "ns".to_owned(), uid: "u".to_owned(), name: "c".to_owned() };
    let request = v1::NodePrepareResourcesRequest { claims: vec![claim] };
    let answer = kubelet.node_prepare_resources(request).await.unwrap().into_inner();
    // It came as far as the API server, which has no such claim.
    assert!(answer.claims["u"].error.contains("does not exist"), "{answer:?}");
    // Nothing is published yet, and will not be for some seconds.
    agent.until_told("/metrics", |_, text| text.contains("gpu_driver_devices 0")).await;
    agent.end().await;
}
