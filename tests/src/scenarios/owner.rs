//! Somebody else offers the GPUs of a node: another DRA driver, and a device plugin.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use crate::lab::Plan;
use crate::objects::{DRIVER, claim, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;
use crate::wait::{SOON, until};

/// The slice of the other driver.
const SLICE: &str = "other-owner-n1";
const RESOURCE: &str = "nvidia.com/gpu";

/// A GPU is offered by one owner only, and comes back when the other one goes.
pub const ONE_OWNER: Scenario = Scenario {
    name: "one-owner-a-gpu",
    about: "a GPU that another driver or a device plugin offers too is neither published nor given away, until that one goes",
    needs: &[],
    plan,
    steps: &[
        step!("A pod runs on a GPU of n1.", first_pod),
        step!(
            "Another driver lists that GPU by its PCI address and the next one by its UUID: both leave the pool.",
            other_driver
        ),
        step!("The pod that runs is not touched, and a pod that wants all of n1 waits.", who_runs_stays),
        step!("A claim that was given one of them before is not prepared, and its pod says why.", refused),
        step!("A device plugin offers GPUs on n2: nothing of n2 is offered any more.", device_plugin),
        step!("Both go: all GPUs are back, and the waiting pod gets what is free.", both_go),
    ],
};

fn plan() -> Plan {
    let mut plan = Plan::default();
    plan.driver.extend(["--other-owner-grace", "1s"].map(str::to_owned));
    plan
}

async fn first_pod(stage: &mut Stage) -> Result<Notes> {
    stage.pool_size("n1", 8).await?;
    let uuid = stage.lab.node("n1")?.gpus.uuid(0);
    stage.lab.create(claim("before").uuid(&uuid).build()).await?;
    stage.lab.create(pod("before").claim("before").build()).await?;
    stage.running(&["before"]).await?;
    let (have, want) = (stage.only_device("before").await?, stage.lab.node("n1")?.gpus.device(0));
    ensure!(have.1 == want, "the pod should have {want}, it has {have:?}");
    let uid = stage.uid("before").await?;
    stage.memory.insert("before", uid);
    Ok(Notes::new())
}

async fn other_driver(stage: &mut Stage) -> Result<Notes> {
    let gpus = &stage.lab.node("n1")?.gpus;
    let (address, uuid) = (gpus.address(0), gpus.uuid(1));
    let device =
        |name: &str, attribute: &str, value: &str| json!({"name": name, "attributes": {attribute: {"string": value}}});
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": SLICE},
        "spec": {
            "driver": "gpu.other.example.org", "nodeName": "n1",
            "pool": {"name": "other-n1", "generation": 1, "resourceSliceCount": 1},
            "devices": [device("a", "pcieBusID", &address), device("b", "example.org/uuid", &uuid)],
        },
    });
    stage.lab.create(slice).await?;
    stage.pool_size("n1", 6).await?;
    stage.driver_says("n1", "/readyz", "[!]owner degraded: 2 of 8 GPUs").await?;
    stage.driver_says("n1", "/metrics", "gpu_driver_contested_cards{by=\"driver\"} 2").await?;
    stage.driver_ready("n1", 200).await?;
    node_event(stage, "n1", "gpu.other.example.org").await
}

async fn who_runs_stays(stage: &mut Stage) -> Result<Notes> {
    stage.lab.create(claim("all").count(7).build()).await?;
    stage.lab.create(pod("all").claim("all").on("n1").build()).await?;
    let said = stage.unschedulable("all", "cannot allocate all claims").await?;
    stage.running(&["before"]).await?;
    ensure!(stage.uid("before").await? == stage.recall("before")?, "the pod is another one");
    ensure!(stage.witness.evicted().is_empty(), "nobody should be evicted: {:?}", stage.witness.evicted());
    Ok(vec![format!("all is pending: {said}")])
}

/// The scheduler gave a claim its GPU, and the other owner came before kubelet: put together by hand, for it is a matter of milliseconds.
async fn refused(stage: &mut Stage) -> Result<Notes> {
    let device = stage.lab.node("n1")?.gpus.device(1);
    stage.lab.create(claim("late").build()).await?;
    let mut late = pod("late").claim("late").build();
    late["spec"]["schedulerName"] = json!("by-hand");
    stage.lab.create(late).await?;
    let result = json!({"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device});
    let status = json!({"status": {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": "late", "uid": stage.uid("late").await?}],
    }});
    stage.lab.claims().patch_status("late", &PatchParams::default(), &Patch::Merge(status)).await?;
    let binding = json!({
        "apiVersion": "v1", "kind": "Binding", "metadata": {"name": "late"},
        "target": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
    });
    let (pods, with) = (stage.lab.pods(), PostParams::default());
    let bound = pods.create_subresource::<Value, Value>("binding", "late", &with, &binding).await;
    bound.context("cannot bind the pod")?;
    let words = ["gpu.other.example.org", "--ignore-other-owners"];
    let said = stage.event("late", "FailedPrepareDynamicResources", &words).await?;
    stage.end("late").await?;
    stage.lab.claims().delete("late", &DeleteParams::default()).await?;
    Ok(vec![format!("late: {said}")])
}

async fn device_plugin(stage: &mut Stage) -> Result<Notes> {
    allocatable(stage, "n2", json!("8")).await?;
    stage.pool_size("n2", 0).await?;
    stage
        .driver_says("n2", "/readyz", "every GPU is offered by a device plugin (nvidia.com/gpu is allocatable")
        .await?;
    stage.driver_says("n2", "/metrics", "gpu_driver_contested_cards{by=\"device-plugin\"} 8").await?;
    stage.pool_size("n1", 6).await?;
    node_event(stage, "n2", RESOURCE).await
}

async fn both_go(stage: &mut Stage) -> Result<Notes> {
    stage.lab.slices().delete(SLICE, &DeleteParams::default()).await?;
    allocatable(stage, "n2", Value::Null).await?;
    stage.pool_size("n1", 8).await?;
    stage.pool_size("n2", 8).await?;
    for node in ["n1", "n2"] {
        stage.driver_says(node, "/readyz", "[+]owner ok").await?;
    }
    stage.running(&["before", "all"]).await?;
    let held = stage.only_device("before").await?;
    ensure!(!stage.devices("all").await?.contains(&held), "{held:?} is given away twice");
    ensure!(stage.uid("before").await? == stage.recall("before")?, "the pod is another one");
    Ok(Notes::new())
}

/// What kubelet says of a device plugin's resource; null takes it away.
async fn allocatable(stage: &Stage, node: &str, amount: Value) -> Result<()> {
    let nodes: Api<Node> = Api::all(stage.lab.client.clone());
    let patch = json!({"status": {"capacity": {RESOURCE: amount}, "allocatable": {RESOURCE: amount}}});
    let patched = nodes.patch_status(node, &PatchParams::default(), &Patch::Merge(patch)).await;
    patched.with_context(|| format!("cannot change what {node} has"))?;
    Ok(())
}

/// Waits for the one event on the Node about another owner.
async fn node_event(stage: &Stage, node: &str, owner: &str) -> Result<Notes> {
    let events: Api<Event> = Api::namespaced(stage.lab.client.clone(), "default");
    let uid = Api::<Node>::all(stage.lab.client.clone()).get_metadata(node).await?.metadata.uid;
    let said: String = until(events, &format!("an event on {node} about {owner}"), SOON, |events| {
        let of_node =
            |event: &&Event| event.involved_object.uid == uid && event.reason.as_deref() == Some("GPUHasAnotherOwner");
        let said: Vec<String> = events.values().filter(of_node).filter_map(|event| event.message.clone()).collect();
        match &said[..] {
            [one] if one.contains(owner) => Ok(one.clone()),
            other => Err(format!("there are {other:?}")),
        }
    })
    .await?;
    Ok(vec![format!("{node}: {said}")])
}
