//! Programs are killed in the middle of things: deadlines are kept, nobody is evicted twice, claims stay prepared.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::ResourceExt;
use kube::api::ListParams;
use serde_json::json;

use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{MAINTENANCE, claim, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;

/// How long the pods of these scenarios put up with a taint, in seconds. Long enough for a program to be killed and started.
const PATIENCE: i64 = 6;
/// How late an eviction may be on a noisy machine, in seconds.
const SLACK: i64 = 4;
/// How long until such a pod must be gone.
const WITHIN: Duration = Duration::from_secs(30);
/// The driver's taint of a GPU that is gone.
const LOST: &str = "gpu.devicetaint.dev/lost";
/// A node taint.
const RACK: &str = "example.org/rack-work";

/// The controller is killed in the middle of two countdowns.
pub const CONTROLLER: Scenario = Scenario {
    name: "controller-killed-in-a-countdown",
    about: "a deadline survives the controller, for a device and for a node, and nobody is evicted twice",
    needs: &[Need::Rules],
    plan: one_node,
    steps: &[
        step!("A pod tolerates a device taint for 6 s, another a node taint, a third neither is concerned.", countdown),
        step!("The controller is killed and started again; both pods go at their old deadlines.", kill_controller),
    ],
};

/// The agent is killed in the middle of a countdown that its own taint started.
pub const DRIVER: Scenario = Scenario {
    name: "driver-killed-in-a-countdown",
    about: "a taint keeps its time over the agent's death, and so does the deadline",
    needs: &[Need::Taints],
    plan: lost_evicts,
    steps: &[
        step!("A GPU is lost, with a policy that evicts; its pod tolerates that for 6 s.", lose_with_countdown),
        step!("The agent is killed and started again: same taint, same time, same deadline.", kill_driver),
    ],
};

/// The kubelet restarts, which wipes the slices of its node.
pub const KUBELET: Scenario = Scenario {
    name: "kubelet-restarts",
    about: "the agent registers again, publishes again with the old times, and prepared claims stay",
    needs: &[],
    plan: one_node,
    steps: &[
        step!("A pod holds a GPU, and another GPU is lost.", hold_and_lose),
        step!(
            "The kubelet is killed and started again: slices come back with the old taint, the claim stays.",
            kill_kubelet
        ),
        step!("A new pod is prepared by the agent that registered again.", prepare_again),
    ],
};

fn one_node() -> Plan {
    Plan { nodes: vec!["n1".to_owned()], ..Plan::default() }
}

fn lost_evicts() -> Plan {
    Plan { policy: Some("version: 1\nsignals:\n  lost: {effect: NoExecute}\n"), ..one_node() }
}

async fn countdown(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    stage.lab.create(claim("patient").tolerates(MAINTENANCE, Some(PATIENCE)).build()).await?;
    let pods = [
        pod("patient").claim("patient").tolerates(RACK, None),
        pod("walker").tolerates(RACK, Some(PATIENCE)),
        pod("bystander").tolerates(RACK, None),
    ];
    for pod in pods {
        stage.lab.create(pod.build()).await?;
    }
    stage.running(&["patient", "walker", "bystander"]).await?;
    let (node, device) = stage.only_device("patient").await?;
    stage.lab.kubectl_device(&["taint", &format!("{node}/{device}"), &format!("{MAINTENANCE}=fan:NoExecute")]).await?;
    stage.lab.taint_node("n1", json!([{"key": RACK, "effect": "NoExecute"}])).await?;
    stage.controller_counts(2).await?;
    Ok(Notes::new())
}

async fn kill_controller(stage: &mut Stage) -> Result<Notes> {
    let tainted = stage.rule_added_at(MAINTENANCE).await?;
    stage.lab.kill_controller().await?;
    stage.witness.exactly(&[])?;
    stage.lab.start_controller().await?;
    stage.gone("patient", WITHIN).await?;
    stage.gone("walker", WITHIN).await?;
    after(stage, "patient", tainted)?;
    after(stage, "walker", tainted)?;
    stage.running(&["bystander"]).await?;
    stage.witness.exactly(&["patient", "walker"])?;
    Ok(Notes::new())
}

async fn lose_with_countdown(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    stage.lab.create(claim("patient").tolerates(LOST, Some(PATIENCE)).build()).await?;
    stage.lab.create(claim("neighbour").build()).await?;
    stage.lab.create(pod("patient").claim("patient").build()).await?;
    stage.running(&["patient"]).await?;
    stage.lab.create(pod("neighbour").claim("neighbour").build()).await?;
    stage.running(&["neighbour"]).await?;
    let held = stage.only_device("patient").await?;
    ensure!(held.1 == stage.lab.node("n1")?.gpus.device(0), "the patient should hold the first GPU, it holds {held:?}");
    stage.lab.node("n1")?.gpus.lose(0)?;
    stage.slice_taints(&[(held, "gpu.devicetaint.dev/lost:NoExecute")]).await?;
    stage.controller_counts(1).await?;
    Ok(Notes::new())
}

async fn kill_driver(stage: &mut Stage) -> Result<Notes> {
    let before = taint_time(stage).await?;
    stage.lab.kill_driver("n1").await?;
    stage.lab.start_driver("n1").await?;
    let device = ("n1".to_owned(), stage.lab.node("n1")?.gpus.device(0));
    stage.gone("patient", WITHIN).await?;
    after(stage, "patient", before)?;
    stage.slice_taints(&[(device, "gpu.devicetaint.dev/lost:NoExecute")]).await?;
    let now = taint_time(stage).await?;
    ensure!(now == before, "the taint was added at {before}, after the restart it says {now}");
    stage.running(&["neighbour"]).await?;
    stage.witness.exactly(&["patient"])?;
    Ok(Notes::new())
}

async fn hold_and_lose(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    stage.lab.create(claim("holder").build()).await?;
    stage.lab.create(pod("holder").claim("holder").build()).await?;
    stage.running(&["holder"]).await?;
    let lost = ("n1".to_owned(), stage.lab.node("n1")?.gpus.device(7));
    stage.lab.node("n1")?.gpus.lose(7)?;
    stage.slice_taints(&[(lost, "gpu.devicetaint.dev/lost:NoSchedule")]).await?;
    let uid = stage.lab.claims().get("holder").await?.uid().unwrap_or_default();
    ensure!(!stage.cdi_files("n1", &uid)?.is_empty(), "no CDI file names the claim {uid}");
    stage.memory.insert("claim", uid);
    Ok(Notes::new())
}

async fn kill_kubelet(stage: &mut Stage) -> Result<Notes> {
    let (time, slices) = (kept_time(stage).await?, uids(stage).await?);
    let registered = stage.registrations("n1").await?;
    stage.lab.kill_kubelet("n1").await?;
    stage.lab.start_kubelet("n1")?;
    stage.slices_replaced(&slices).await?;
    // A pod that comes before that waits a minute for kubelet's next look at it.
    stage.registered_again("n1", registered).await?;
    let lost = ("n1".to_owned(), stage.lab.node("n1")?.gpus.device(7));
    stage.published(8).await?;
    stage.slice_taints(&[(lost, "gpu.devicetaint.dev/lost:NoSchedule")]).await?;
    let now = kept_time(stage).await?;
    ensure!(now == time, "the taint was added at {time:?}, after the wipe it says {now:?}");
    let claim = stage.recall("claim")?.to_owned();
    ensure!(!stage.cdi_files("n1", &claim)?.is_empty(), "the CDI file of claim {claim} is gone");
    stage.running(&["holder"]).await?;
    stage.witness.exactly(&[])?;
    Ok(Notes::new())
}

async fn prepare_again(stage: &mut Stage) -> Result<Notes> {
    stage.lab.create(claim("late").build()).await?;
    stage.lab.create(pod("late").claim("late").build()).await?;
    stage.running(&["holder", "late"]).await?;
    ensure!(stage.devices("late").await?.is_disjoint(&stage.devices("holder").await?), "two claims hold one GPU");
    stage.end("holder").await?;
    let claim = stage.recall("claim")?.to_owned();
    let left = stage.cdi_files("n1", &claim)?;
    ensure!(left.is_empty(), "the claim's pod is gone, and its CDI files are still there: {left:?}");
    Ok(Notes::new())
}

/// Checks that a pod went when its time was over, and not much later.
fn after(stage: &Stage, pod: &str, since: Timestamp) -> Result<()> {
    let stayed = stage.evicted_at(pod)?.duration_since(since).as_secs();
    let right = PATIENCE..=PATIENCE + SLACK;
    ensure!(right.contains(&stayed), "{pod} should go {PATIENCE} s after the taint, it went after {stayed} s");
    Ok(())
}

async fn slices(stage: &Stage) -> Result<Vec<ResourceSlice>> {
    Ok(stage.lab.slices().list(&ListParams::default()).await?.items)
}

async fn uids(stage: &Stage) -> Result<BTreeSet<String>> {
    Ok(slices(stage).await?.iter().filter_map(ResourceExt::uid).collect())
}

/// The time of the one taint that the slices carry, where the server keeps taints.
async fn kept_time(stage: &Stage) -> Result<Option<Timestamp>> {
    Ok(if stage.lab.offer().taints { Some(taint_time(stage).await?) } else { None })
}

/// The time of the one taint that the slices carry.
pub(super) async fn taint_time(stage: &Stage) -> Result<Timestamp> {
    let slices = slices(stage).await?;
    let devices = slices.iter().flat_map(|slice| slice.spec.devices.iter().flatten());
    let mut times = devices.flat_map(|device| device.taints.iter().flatten()).map(|taint| taint.time_added.clone());
    match (times.next(), times.next()) {
        (Some(Some(time)), None) => Ok(time.0),
        other => anyhow::bail!("expected one taint with a time, found {other:?}"),
    }
}
