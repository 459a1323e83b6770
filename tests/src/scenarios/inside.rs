//! What a pod with a GPU gets to see: exactly the changes that CDI brings, and the health that the driver reports.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Pod, ResourceHealth};

use crate::lab::{Inside, Plan};
use crate::objects::{NAMESPACE, claim, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;
use crate::wait::{SOON, until};

/// Which GPU the pod gets.
const GPU: usize = 2;
/// Nodes that belong to no card; every container with a card gets them.
const CONTROL_NODES: [&str; 4] = ["/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"];

/// A container sees its device and no other, and its pod's status follows the device's health.
pub const CONTAINER: Scenario = Scenario {
    name: "container-sees-its-device",
    about: "a container gets its card's nodes and variable and nothing else; the pod's status shows the card's health",
    needs: &[],
    plan: one_node,
    steps: &[
        step!("Of two pods one has a GPU; it sees that card's device nodes and variables, and nothing else.", see),
        step!("The pod's status says that its device is healthy.", healthy),
        step!("The card is lost: the status says so, and the pod runs on.", lose),
        step!("The card is back: the status says that, too.", recover),
    ],
};

fn one_node() -> Plan {
    Plan { nodes: vec!["n1".to_owned()], ..Plan::default() }
}

async fn see(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    let gpus = &stage.lab.node("n1")?.gpus;
    let (uuid, device) = (gpus.uuid(GPU), gpus.device(GPU));
    stage.lab.create(claim("holder").uuid(&uuid).build()).await?;
    stage.lab.create(pod("holder").claim("holder").tells().build()).await?;
    stage.lab.create(pod("plain").tells().build()).await?;
    stage.running(&["holder", "plain"]).await?;
    let seen = stage.lab.inside("holder").await?.beyond(&stage.lab.inside("plain").await?);
    let variable = format!("DEVICETAINT_{}={uuid}", device.replace('-', "_").to_uppercase());
    let nodes = CONTROL_NODES.iter().map(|node| (*node).to_owned());
    let wanted = Inside {
        environment: BTreeSet::from([variable, "NVIDIA_VISIBLE_DEVICES=void".to_owned()]),
        devices: nodes.chain([format!("/dev/nvidia{GPU}")]).collect(),
        // The driver's CDI edits mount nothing.
        mounts: BTreeSet::new(),
    };
    ensure!(seen == wanted, "a pod with a GPU should see {wanted:?} beyond one without, it sees {seen:?}");
    Ok(Notes::new())
}

async fn healthy(stage: &mut Stage) -> Result<Notes> {
    health(stage, "Healthy").await
}

async fn lose(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n1")?.gpus.lose(GPU)?;
    let notes = health(stage, "Unhealthy").await?;
    let lost = ("n1".to_owned(), stage.lab.node("n1")?.gpus.device(GPU));
    stage.slice_taints(&[(lost, "gpu.devicetaint.dev/lost:NoSchedule")]).await?;
    stage.running(&["holder", "plain"]).await?;
    Ok(notes)
}

async fn recover(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n1")?.gpus.restore(GPU)?;
    let notes = health(stage, "Healthy").await?;
    stage.slice_taints(&[]).await?;
    stage.running(&["holder", "plain"]).await?;
    stage.witness.exactly(&[])?;
    Ok(notes)
}

/// Waits until the pod's status shows this health of its one device, where kubelet shows any.
async fn health(stage: &mut Stage, wanted: &str) -> Result<Notes> {
    if !stage.lab.offer().health_status {
        return Ok(vec!["this kubelet does not show the health of a claim that a pod names".to_owned()]);
    }
    let device = stage.lab.node("n1")?.gpus.device(GPU);
    let key = format!("{NAMESPACE}/holder");
    let what = format!("the status of pod holder to say {wanted}");
    let shown = until(stage.lab.pods(), &what, SOON, |pods| {
        let shown = pods.get(&key).map(resources).unwrap_or_default();
        match &shown[..] {
            [one] if one.health.as_deref() == Some(wanted) && one.resource_id.contains(&device) => Ok(one.clone()),
            _ => Err(format!("it says {shown:?}")),
        }
    });
    Ok(vec![format!("{}: {wanted}", shown.await?.resource_id)])
}

/// The devices of the claim in the status of a pod's container.
fn resources(pod: &Pod) -> Vec<ResourceHealth> {
    let containers = pod.status.iter().flat_map(|status| status.container_statuses.iter().flatten());
    let resources = containers.flat_map(|container| container.allocated_resources_status.iter().flatten());
    let of_claim = resources.filter(|resource| resource.name == "claim:gpu");
    of_claim.flat_map(|resource| resource.resources.iter().flatten().cloned()).collect()
}
