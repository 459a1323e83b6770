//! Another driver than ours, Kubernetes' own DRA test driver: what people and our controller do works with its devices too.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::resource::v1::DeviceClass;
use kube::api::{Api, DeleteParams};

use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{FOREIGN_DRIVER, MAINTENANCE, claim, foreign_class, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;
use crate::wait::{SOON, until};

/// How many devices it simulates.
const DEVICES: usize = 4;
/// What it calls the first of them.
const FIRST: &str = "device-00";

/// A driver that knows nothing of us.
pub const FOREIGN: Scenario = Scenario {
    name: "foreign-driver",
    about: "a device of Kubernetes' DRA test driver is listed and marked like ours, and its pod is evicted",
    needs: &[Need::Rules, Need::TestDriver],
    plan: one_node,
    steps: &[
        step!("The test driver runs beside ours: its devices are published under its name, and listed.", publish),
        step!("A pod gets one of its devices, another pod one of ours; both see what their driver brings.", prepare),
        step!("The foreign device is marked NoExecute: its pod goes, ours stays.", mark),
        step!("The mark is taken away: a pod gets all four devices, and stays.", unmark),
        step!("The test driver is stopped; nobody else is concerned.", stop),
    ],
};

fn one_node() -> Plan {
    Plan { nodes: vec!["n1".to_owned()], ..Plan::default() }
}

fn first() -> String {
    format!("n1/{FIRST}")
}

async fn publish(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    stage.lab.start_foreign_driver("n1", DEVICES)?;
    // A broken run may have left it.
    stage.lab.create_unless_there(foreign_class()).await?;
    until(stage.lab.slices(), "the test driver to publish its devices", SOON, |slices| {
        let of_it = slices.values().filter(|slice| slice.spec.driver == FOREIGN_DRIVER);
        let have: usize = of_it.map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum();
        if have == DEVICES { Ok(()) } else { Err(format!("it has published {have}")) }
    })
    .await?;
    stage.published(8 + DEVICES).await?;
    let listed = list(stage).await?;
    let foreign = listed.iter().filter(|line| line.contains(FOREIGN_DRIVER)).count();
    ensure!(foreign == DEVICES, "the plugin should list {DEVICES} devices of {FOREIGN_DRIVER}: {listed:?}");
    Ok(listed)
}

async fn prepare(stage: &mut Stage) -> Result<Notes> {
    let selector = format!("device.driver == \"{FOREIGN_DRIVER}\"");
    stage.lab.create(claim("foreign").of_class(FOREIGN_DRIVER).selector(&selector).build()).await?;
    stage.lab.create(claim("own").build()).await?;
    for name in ["foreign", "own"] {
        stage.lab.create(pod(name).claim(name).tells().build()).await?;
    }
    stage.running(&["foreign", "own"]).await?;
    let held = stage.only_device("foreign").await?;
    ensure!(held == ("n1".to_owned(), FIRST.to_owned()), "the pod should hold {}, it holds {held:?}", first());
    let seen = stage.lab.inside("foreign").await?;
    let of_it = "claim_foreign_gpu=true";
    ensure!(seen.environment.contains(of_it), "the test driver brings {of_it}, the container has {seen:?}");
    ensure!(seen.devices.is_empty(), "a pod without a GPU sees {:?}", seen.devices);
    Ok(Notes::new())
}

async fn mark(stage: &mut Stage) -> Result<Notes> {
    let taint = format!("{MAINTENANCE}=fan:NoExecute");
    let said = stage.lab.kubectl_device(&["taint", &first(), &taint, "--reason", "replace a fan"]).await?;
    ensure!(said.contains(FIRST), "the plugin should name the device: {said}");
    stage.gone("foreign", SOON).await?;
    let words = ["Marking", MAINTENANCE, FOREIGN_DRIVER, "replace a fan"];
    let event = stage.event("foreign", "DeviceTaintManagerEviction", &words).await?;
    stage.running(&["own"]).await?;
    stage.witness.exactly(&["foreign"])?;
    let listed = list(stage).await?;
    let marked = |line: &&String| line.contains(FIRST) && line.contains(&taint);
    ensure!(listed.iter().any(|line| marked(&line)), "the plugin should list the mark: {listed:?}");
    Ok(vec![event])
}

async fn unmark(stage: &mut Stage) -> Result<Notes> {
    stage.lab.kubectl_device(&["untaint", &first(), MAINTENANCE]).await?;
    let count = u64::try_from(DEVICES)?;
    stage.lab.create(claim("all").of_class(FOREIGN_DRIVER).count(count).build()).await?;
    stage.lab.create(pod("all").claim("all").build()).await?;
    stage.running(&["all", "own"]).await?;
    let got: BTreeSet<String> = stage.devices("all").await?.into_iter().map(|(_, device)| device).collect();
    ensure!(got.len() == DEVICES && got.contains(FIRST), "the pod should hold all devices, it holds {got:?}");
    stage.witness.exactly(&["foreign"])?;
    Ok(Notes::new())
}

async fn stop(stage: &mut Stage) -> Result<Notes> {
    stage.end("all").await?;
    stage.lab.stop_foreign_driver().await?;
    let classes: Api<DeviceClass> = Api::all(stage.lab.client.clone());
    classes.delete(FOREIGN_DRIVER, &DeleteParams::default()).await.context("cannot delete the class")?;
    stage.running(&["own"]).await?;
    stage.driver_ready("n1", 200).await?;
    stage.witness.exactly(&["foreign"])?;
    Ok(Notes::new())
}

async fn list(stage: &Stage) -> Result<Notes> {
    let table = stage.lab.kubectl_device(&["list", "n1", "--output", "wide"]).await?;
    Ok(table.lines().map(str::to_owned).collect())
}
