//! Somebody else offers cards of the node: from its slice, or its Node object, to ours.

use super::*;

fn foreign(name: &str, attribute: &str, value: &str) -> Value {
    let device = json!({"name": "gpu-0", "attributes": {attribute: {"string": value}}});
    json!({"metadata": {"name": name}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "node-a", "devices": [device]}})
}

/// Names of the devices in our own slices.
fn ours(slices: &[Value]) -> Vec<String> {
    let own = slices.iter().filter(|slice| slice["spec"]["driver"] == "gpu.devicetaint.dev");
    let devices = own.flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default());
    devices.map(|device| device["name"].as_str().unwrap_or_default().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_another_driver_lists_is_left_to_it_until_it_goes() {
    let node = Node::new().await;
    node.server.put_slice(foreign("theirs", "gpu.nvidia.com/pcieBusID", "00000000:3B:00.0"));
    let agent = node.start().await;
    let slices = node.server.until(|slices| !ours(slices).is_empty()).await;
    assert_eq!(ours(&slices).len(), 7, "from the first slice on");
    assert!(!ours(&slices).contains(&name(1)));
    let told =
        agent.until_told("/readyz", |_, text| text.contains("[!]owner degraded: 1 of 8 GPUs (0000:3b:00.0)")).await;
    assert!(told.contains("driver gpu.nvidia.com") && told.contains("--ignore-other-owners"), "{told}");
    agent.until_told("/metrics", |_, text| text.contains("gpu_driver_contested_cards{by=\"driver\"} 1")).await;
    node.server.until_events(1).await;

    node.server.set_allocatable(json!({"nvidia.com/gpu": "8"}));
    node.server.until(|slices| ours(slices).is_empty()).await;
    agent.until_told("/metrics", |_, text| text.contains("contested_cards{by=\"device-plugin\"} 8")).await;
    node.server.until_events(2).await;

    node.server.set_allocatable(json!({"nvidia.com/gpu": "0"}));
    node.server.remove_slice("theirs");
    node.server.until(|slices| ours(slices).len() == 8).await;
    agent.until_told("/readyz", |_, text| text.contains("[+]owner ok")).await;
    let events = node.server.events();
    assert_eq!(events.iter().filter(|event| event["reason"] == "GPUHasAnotherOwner").count(), events.len());
    agent.end().await;
}

/// As after a boot, when the network comes late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stumbles_at_the_start_does_not_get_a_contested_card() {
    let node = Node::new().await;
    node.server.put_slice(foreign("theirs", "uuid", &node.control.gpu(CARDS[1]).unwrap().effective_uuid()));
    node.server.plan("list-others", Fault::Cut, 4);
    node.server.plan("list-node", Fault::Status(500), 2);
    let agent = node.start().await;
    let slices = node.server.until(|slices| !ours(slices).is_empty()).await;
    assert_eq!((ours(&slices).len(), ours(&slices).contains(&name(1))), (7, false));
    agent.end().await;
}

/// A boot: kubelet has wiped the node's slices, and the other owner is not back yet.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_of_another_owner_is_not_offered_when_the_agent_starts_before_that_one() {
    let node = Node::new().await;
    node.server.put_slice(foreign("theirs", "gpu.nvidia.com/pcieBusID", "00000000:3B:00.0"));
    let agent = node.start().await;
    node.server.until(|slices| ours(slices).len() == 7).await;
    agent.end().await;
    node.server.wipe();
    let agent = node.start_with(|config| config.other_owner_grace.0 = Duration::from_secs(3600)).await;
    let slices = node.server.until(|slices| !ours(slices).is_empty()).await;
    assert_eq!((ours(&slices).len(), ours(&slices).contains(&name(1))), (7, false));
    agent.until_told("/readyz", |_, text| text.contains("[!]owner degraded: 1 of 8 GPUs (0000:3b:00.0)")).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_the_flag_other_owners_are_not_looked_for() {
    let node = Node::new().await;
    node.server.put_slice(foreign("theirs", "uuid", "x"));
    node.server.set_allocatable(json!({"nvidia.com/gpu": "8"}));
    let agent = node.start_with(|config| config.ignore_other_owners = true).await;
    node.server.until(|slices| ours(slices).len() == 8).await;
    agent.until_told("/readyz", |_, text| text.contains("[+]owner ok")).await;
    assert_eq!(node.server.count("list-node") + node.server.count("list-others"), 0);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_be_read_stops_no_work() {
    let node = Node::new().await;
    node.server.plan("list-node", Fault::Status(403), 100_000);
    node.server.plan("watch-others", Fault::Cut, 100_000);
    let agent = node.start().await;
    node.server.until(|slices| ours(slices).len() == 8).await;
    let told = |_, text: &str| text.contains("[!]owner degraded: cannot tell whether somebody else offers");
    agent.until_told("/readyz", told).await;
    agent.end().await;
}
