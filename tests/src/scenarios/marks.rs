//! Marks by people where the server keeps taints of slices and serves no rules, as Kubernetes 1.36 does as it comes.

use anyhow::{Result, ensure};
use serde_json::json;

use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{DRIVER, MAINTENANCE, claim, pod};
use crate::stage::{Device, Notes, Scenario, Stage};
use crate::step;
use crate::wait::SOON;

/// A person's mark goes through the agent's slice, and back.
pub const MARKS: Scenario = Scenario {
    name: "marks-without-rules",
    about: "where no rules are served, a mark is an object of ours that the agent publishes",
    needs: &[Need::Taints, Need::NoRules],
    plan,
    steps: &[
        step!("One of two GPUs is marked NoSchedule: of two pods the second one waits.", mark),
        step!("The agent is killed and started again: the mark stands all the while, the pod waits on.", restart),
        step!("The mark is taken away: the pod gets the GPU.", unmark),
        step!(
            "It is marked NoExecute for some seconds: the pod goes, with the person's words, and the mark ends.",
            evict
        ),
        step!("A mark for another card of this name is shown and not followed: a new pod gets the GPU.", another_card),
    ],
};

fn plan() -> Plan {
    let server = ["--rules", "none"].map(str::to_owned).to_vec();
    Plan { nodes: vec!["n1".to_owned()], gpus: 2, server, ..Plan::default() }
}

/// The first GPU.
fn device(stage: &mut Stage) -> Result<Device> {
    Ok(("n1".to_owned(), stage.lab.node("n1")?.gpus.device(0).clone()))
}

fn target((node, device): &Device) -> String {
    format!("{node}/{device}")
}

async fn work(stage: &Stage, name: &str) -> Result<()> {
    stage.lab.create(claim(name).build()).await?;
    stage.lab.create(pod(name).claim(name).build()).await
}

async fn mark(stage: &mut Stage) -> Result<Notes> {
    stage.published(2).await?;
    let marked = device(stage)?;
    let taint = format!("{MAINTENANCE}=fan:NoSchedule");
    let said = stage.lab.kubectl_device(&["taint", &target(&marked), &taint, "--reason", "replace a fan"]).await?;
    ensure!(said.contains("(DeviceMark dt-") && said.contains("serves no DeviceTaintRule"), "it said: {said}");
    stage.slice_taints(&[(marked.clone(), &taint)]).await?;
    let list = stage.lab.kubectl_device(&["list", "-o", "wide"]).await?;
    let line = list.lines().find(|line| line.contains(&marked.1)).unwrap_or_default();
    ensure!(line.contains("Healthy") && line.contains("\"replace a fan\""), "the list shows {list}");
    work(stage, "first").await?;
    stage.running(&["first"]).await?;
    ensure!(stage.only_device("first").await? != marked, "the marked GPU was given away");
    work(stage, "second").await?;
    stage.unschedulable("second", "cannot allocate all claims").await?;
    Ok(vec![said.trim().to_owned()])
}

/// A pod that waits would get the GPU in the moment in which a slice lacks the taint, and keep it.
async fn restart(stage: &mut Stage) -> Result<Notes> {
    stage.lab.kill_driver("n1").await?;
    stage.lab.start_driver("n1").await?;
    stage.driver_ready("n1", 200).await?;
    let marked = device(stage)?;
    stage.slice_taints(&[(marked, &format!("{MAINTENANCE}=fan:NoSchedule"))]).await?;
    stage.unschedulable("second", "cannot allocate all claims").await?;
    Ok(Notes::new())
}

async fn unmark(stage: &mut Stage) -> Result<Notes> {
    let marked = device(stage)?;
    stage.lab.kubectl_device(&["untaint", &target(&marked), MAINTENANCE]).await?;
    stage.slice_taints(&[]).await?;
    stage.running(&["second"]).await?;
    ensure!(stage.only_device("second").await? == marked, "another GPU was given away");
    Ok(Notes::new())
}

async fn evict(stage: &mut Stage) -> Result<Notes> {
    let marked = device(stage)?;
    let taint = format!("{MAINTENANCE}=fan:NoExecute");
    let words = ["--reason", "it smells", "--expires-in", "6s"];
    stage.lab.kubectl_device(&[&["taint", &target(&marked), &taint][..], &words].concat()).await?;
    stage.gone("second", SOON).await?;
    let said = stage.event("second", "DeviceTaintManagerEviction", &["by DeviceMark dt-", "\"it smells\""]).await?;
    stage.slice_taints(&[]).await?;
    stage.witness.exactly(&["second"])?;
    Ok(vec![format!("second: {said}")])
}

async fn another_card(stage: &mut Stage) -> Result<Notes> {
    let (pool, device) = device(stage)?;
    let mark = json!({
        "apiVersion": "devicetaint.dev/v1alpha1", "kind": "DeviceMark",
        "metadata": {
            "name": "another-card",
            "labels": {"devicetaint.dev/managed-by": "kubectl-device"},
            "annotations": {"devicetaint.dev/uuid": "GPU-of-another-time"},
        },
        "spec": {
            "deviceSelector": {"driver": DRIVER, "pool": pool, "device": device},
            "taint": {"key": MAINTENANCE, "effect": "NoSchedule"},
        },
    });
    stage.lab.create(mark).await?;
    stage.driver_says("n1", "/metrics", "gpu_driver_marks{standing=\"other_card\"} 1").await?;
    let list = stage.lab.kubectl_device(&["list", "n1"]).await?;
    ensure!(list.contains("(not applied: the name means another card now)"), "the list shows {list}");
    work(stage, "third").await?;
    stage.running(&["third"]).await?;
    Ok(Notes::new())
}
