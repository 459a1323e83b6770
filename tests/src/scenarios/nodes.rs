//! A Node is deleted and comes back: what was there of it goes, and what is known of its cards stays.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};

use super::crashes::taint_time;
use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{MAINTENANCE, claim, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;
use crate::wait::{SOON, Seen, until};

/// The pod garbage collector waits 40 s whether the Node comes back, and looks every 20 s.
const COLLECTED: Duration = Duration::from_secs(100);
/// Longer than the scenario: what is marked shall not evict by its deadline.
const PATIENCE: i64 = 3600;
/// Which GPU is lost all the time.
const LOST: usize = 7;

/// A Node goes away, and comes back under another UID.
pub const DELETED: Scenario = Scenario {
    name: "node-deleted",
    about: "slices and pods go with their Node and nothing else does; it returns with the same devices, taints and times",
    needs: &[Need::Taints, Need::Rules, Need::AgentProcess],
    plan: Plan::default,
    steps: &[
        step!("Pods hold GPUs of two nodes; on one a GPU is lost, and a marked one counts its pod down.", hold),
        step!("That Node is deleted: its slices and pods go, the countdown is forgotten, nobody is evicted.", delete),
        step!("The Node is back: the agent publishes the same devices, with the taint and its old time.", return_),
        step!("It goes again, and its agent dies with it: both come back, and so does all that they knew.", again),
        step!("A pod is prepared there as ever, and gets neither the lost nor the marked GPU.", prepare),
    ],
};

async fn hold(stage: &mut Stage) -> Result<Notes> {
    stage.published(16).await?;
    // Nobody else has a claim of this name: its pod is not ended in order, and kubelet forgets such a claim only when it tidies up, each minute.
    let guest = format!("guest-{}", std::process::id());
    for (name, claimed, node) in [("guest", guest.as_str(), "n1"), ("elsewhere", "elsewhere", "n2")] {
        stage.lab.create(claim(claimed).tolerates(MAINTENANCE, Some(PATIENCE)).build()).await?;
        stage.lab.create(pod(name).claim(claimed).on(node).build()).await?;
    }
    stage.running(&["guest", "elsewhere"]).await?;
    let lost = ("n1".to_owned(), stage.lab.node("n1")?.gpus.device(LOST));
    stage.lab.node("n1")?.gpus.lose(LOST)?;
    stage.slice_taints(&[(lost, "gpu.devicetaint.dev/lost:NoSchedule")]).await?;
    let (node, device) = stage.only_device(&guest).await?;
    stage.lab.kubectl_device(&["taint", &format!("{node}/{device}"), &format!("{MAINTENANCE}=fan:NoExecute")]).await?;
    stage.controller_counts(1).await?;
    let time = taint_time(stage).await?.to_string();
    stage.memory.insert("time", time);
    stage.memory.insert("marked", device);
    Ok(Notes::new())
}

async fn delete(stage: &mut Stage) -> Result<Notes> {
    go_away(stage).await?;
    stage.gone("guest", COLLECTED).await?;
    stage.controller_counts(0).await?;
    stage.running(&["elsewhere"]).await?;
    stage.pool_size("n2", 8).await?;
    stage.witness.exactly(&[])?;
    stage.driver_ready("n1", 503).await
}

async fn return_(stage: &mut Stage) -> Result<Notes> {
    let registered = stage.registrations("n1").await?;
    stage.lab.start_kubelet("n1")?;
    stage.registered_again("n1", registered).await?;
    as_before(stage).await?;
    stage.driver_ready("n1", 200).await
}

async fn again(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n1")?.driver()?.kill().await?;
    go_away(stage).await?;
    stage.lab.start_kubelet("n1")?;
    stage.lab.start_driver("n1").await?;
    as_before(stage).await?;
    stage.witness.exactly(&[])?;
    stage.driver_ready("n1", 200).await
}

async fn prepare(stage: &mut Stage) -> Result<Notes> {
    stage.lab.create(claim("late").count(6).build()).await?;
    stage.lab.create(pod("late").claim("late").on("n1").build()).await?;
    stage.running(&["late", "elsewhere"]).await?;
    let got: BTreeSet<String> = stage.devices("late").await?.into_iter().map(|(_, device)| device).collect();
    let lost = stage.lab.node("n1")?.gpus.device(LOST);
    ensure!(got.len() == 6 && !got.contains(&lost), "the pod should have six GPUs without {lost}, it has {got:?}");
    ensure!(!got.contains(stage.recall("marked")?), "the pod has the marked GPU: {got:?}");
    Ok(Notes::new())
}

/// The machine is off and its Node is deleted; returns when the garbage collector has taken the slices.
async fn go_away(stage: &mut Stage) -> Result<()> {
    stage.lab.kill_kubelet("n1").await?;
    let nodes: Api<Node> = Api::all(stage.lab.client.clone());
    nodes.delete("n1", &DeleteParams::default()).await.context("cannot delete node n1")?;
    until(stage.lab.slices(), "the slices of n1 to go with their Node", SOON, |slices| {
        let left: Vec<&String> = of_n1(slices).map(|(name, _)| name).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("{left:?} are there")) }
    })
    .await
}

/// Waits until the pool is what it was, and belongs to the Node of now.
async fn as_before(stage: &mut Stage) -> Result<()> {
    let nodes: Api<Node> = Api::all(stage.lab.client.clone());
    let owner = until(nodes, "node n1 to be there again", SOON, |nodes| {
        nodes.get("n1").and_then(ResourceExt::uid).ok_or_else(|| "it is not".to_owned())
    })
    .await?;
    let names: BTreeSet<String> = {
        let gpus = &stage.lab.node("n1")?.gpus;
        (0..gpus.count()).map(|index| gpus.device(index)).collect()
    };
    let lost = (stage.lab.node("n1")?.gpus.device(LOST), stage.recall("time")?.to_owned());
    until(stage.lab.slices(), "the pool of n1 to be as it was", SOON, |slices| {
        let devices = || of_n1(slices).flat_map(|(_, slice)| slice.spec.devices.iter().flatten());
        let have: BTreeSet<String> = devices().map(|device| device.name.clone()).collect();
        let tainted: Vec<(String, String)> = devices()
            .flat_map(|device| device.taints.iter().flatten().map(|taint| (device.name.clone(), taint)))
            .map(|(name, taint)| (name, taint.time_added.as_ref().map_or_else(String::new, |time| time.0.to_string())))
            .collect();
        let owned = |slice: &ResourceSlice| slice.owner_references().iter().any(|reference| reference.uid == owner);
        match () {
            () if have != names => Err(format!("it should have {names:?}, it has {have:?}")),
            () if tainted != [lost.clone()] => Err(format!("the one taint should be {lost:?}, there are {tainted:?}")),
            () if !of_n1(slices).all(|(_, slice)| owned(slice)) => Err("a slice is owned by the old Node".to_owned()),
            () => Ok(()),
        }
    })
    .await
}

fn of_n1(slices: &Seen<ResourceSlice>) -> impl Iterator<Item = (&String, &ResourceSlice)> {
    slices.iter().filter(|(_, slice)| slice.spec.pool.name == "n1")
}
