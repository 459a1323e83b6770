//! The story that the demo tells: one bad GPU moves exactly the right pods.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{MAINTENANCE, claim, pod};
use crate::stage::{Device, Notes, Scenario, Stage};
use crate::step;
use crate::wait::SOON;

/// What the patient pod's claim puts up with, in seconds.
const PATIENCE: i64 = 10;
/// The node taint that joins in.
const RACK: &str = "example.org/rack-work";

/// The story, as a row of the table.
pub const STORY: Scenario = Scenario {
    name: "story",
    about: "one bad GPU moves exactly the right pods, and no others",
    needs: &[Need::Taints, Need::Rules],
    plan: Plan::default,
    steps: &[
        step!("Two nodes come up, and their agents publish eight GPUs each.", publish),
        step!("Six pods start: one alone, two that share a claim, two with admin access, one without GPU.", populate),
        step!("A GPU falls off the bus: only its device is tainted, and nobody moves.", lose),
        step!("A new pod that wants seven GPUs avoids it.", avoid),
        step!("The pod on the lost GPU ends. One that waits does not get the lost GPU.", wait_for_it),
        step!(
            "The administrator taints another GPU NoExecute: the pods that share it go, who tolerates it stays.",
            mark
        ),
        step!("A node taint joins in: after its 10 s one pod goes, for both reasons.", join),
        step!("The lost GPU comes back: its taint goes on evidence, and the waiting pod starts.", recover),
        step!("The mark and the node taint are taken away: nobody else has moved.", tidy),
    ],
};

fn device(stage: &mut Stage, node: &str, index: usize) -> Result<Device> {
    Ok((node.to_owned(), stage.lab.node(node)?.gpus.device(index)))
}

async fn publish(stage: &mut Stage) -> Result<Notes> {
    stage.published(16).await?;
    stage.slice_taints(&[]).await?;
    Ok(vec!["n1 and n2 offer eight devices each, without a taint".to_owned()])
}

async fn populate(stage: &mut Stage) -> Result<Notes> {
    let shared = stage.lab.node("n1")?.gpus.uuid(0);
    let claims = [
        claim("alone"),
        claim("pair").uuid(&shared),
        claim("patient").admin().uuid(&shared).tolerates(MAINTENANCE, Some(PATIENCE)),
        claim("stoic").admin().uuid(&shared).tolerates(MAINTENANCE, None),
    ];
    for claim in claims {
        stage.lab.create(claim.build()).await?;
    }
    let pods = [
        pod("alone").claim("alone").on("n2"),
        pod("pair-a").claim("pair").on("n1"),
        pod("pair-b").claim("pair").on("n1"),
        pod("patient").claim("patient").on("n1").tolerates(RACK, Some(300)),
        pod("stoic").claim("stoic").on("n1").tolerates(RACK, None),
        pod("no-gpu").on("n1").tolerates(RACK, None),
    ];
    for pod in pods {
        stage.lab.create(pod.build()).await?;
    }
    stage.running(&["alone", "pair-a", "pair-b", "patient", "stoic", "no-gpu"]).await?;
    let shared = BTreeSet::from([device(stage, "n1", 0)?]);
    for name in ["pair", "patient", "stoic"] {
        let have = stage.devices(name).await?;
        ensure!(have == shared, "claim {name} should hold {shared:?}, it holds {have:?}");
    }
    list(stage, &[]).await
}

async fn lose(stage: &mut Stage) -> Result<Notes> {
    let lost = device(stage, "n2", 0)?;
    let held = stage.devices("alone").await?;
    ensure!(held == BTreeSet::from([lost.clone()]), "the pod alone should hold {lost:?}, it holds {held:?}");
    stage.lab.node("n2")?.gpus.lose(0)?;
    stage.slice_taints(&[(lost, "gpu.devicetaint.dev/lost:NoSchedule")]).await?;
    stage.running(&["alone", "pair-a", "pair-b", "patient", "stoic", "no-gpu"]).await?;
    stage.witness.exactly(&[])?;
    list(stage, &["n2"]).await
}

async fn avoid(stage: &mut Stage) -> Result<Notes> {
    stage.lab.create(claim("newcomer").count(7).build()).await?;
    stage.lab.create(pod("newcomer").claim("newcomer").on("n2").build()).await?;
    stage.running(&["newcomer"]).await?;
    let wanted: BTreeSet<Device> = (1..8).map(|index| device(stage, "n2", index)).collect::<Result<_>>()?;
    let have = stage.devices("newcomer").await?;
    ensure!(have == wanted, "the newcomer should hold {wanted:?}, it holds {have:?}");
    Ok(vec!["newcomer runs on the seven healthy GPUs of n2".to_owned()])
}

async fn wait_for_it(stage: &mut Stage) -> Result<Notes> {
    stage.end("alone").await?;
    stage.lab.create(claim("waiting").build()).await?;
    stage.lab.create(pod("waiting").claim("waiting").on("n2").build()).await?;
    let said = stage.unschedulable("waiting", "cannot allocate all claims").await?;
    Ok(vec![format!("waiting is pending: {said}")])
}

async fn mark(stage: &mut Stage) -> Result<Notes> {
    let (node, name) = device(stage, "n1", 0)?;
    let target = format!("{node}/{name}");
    let taint = format!("{MAINTENANCE}=fan:NoExecute");
    let said = stage.lab.kubectl_device(&["taint", &target, &taint, "--reason", "replace a fan"]).await?;
    for name in ["pair-a", "pair-b"] {
        stage.gone(name, SOON).await?;
    }
    stage.running(&["patient", "stoic", "no-gpu", "newcomer"]).await?;
    stage.witness.exactly(&["pair-a", "pair-b"])?;
    let mut notes = vec![format!("$ kubectl device taint {target} {taint} --reason \"replace a fan\"")];
    notes.extend(said.lines().map(str::to_owned));
    for name in ["pair-a", "pair-b"] {
        notes.push(format!(
            "{name}: {}",
            stage.event(name, "DeviceTaintManagerEviction", &["Marking", MAINTENANCE]).await?
        ));
    }
    notes.extend(list(stage, &["n1"]).await?);
    Ok(notes)
}

async fn join(stage: &mut Stage) -> Result<Notes> {
    stage.lab.taint_node("n1", json!([{"key": RACK, "value": "b7", "effect": "NoExecute"}])).await?;
    stage.gone("patient", Duration::from_secs(25)).await?;
    let added = stage.rule_added_at(MAINTENANCE).await?;
    let stayed = stage.evicted_at("patient")?.duration_since(added).as_secs();
    ensure!(
        (PATIENCE..PATIENCE + 3).contains(&stayed),
        "patient should go {PATIENCE} s after the taint, it went after {stayed} s"
    );
    let said = stage.event("patient", "DeviceTaintManagerEviction", &["Marking", MAINTENANCE, RACK]).await?;
    stage.running(&["stoic", "no-gpu", "newcomer"]).await?;
    stage.witness.exactly(&["pair-a", "pair-b", "patient"])?;
    Ok(vec![format!("patient, {stayed} s after the taint: {said}")])
}

async fn recover(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n2")?.gpus.restore(0)?;
    stage.slice_taints(&[]).await?;
    stage.running(&["waiting"]).await?;
    let have = stage.devices("waiting").await?;
    let wanted = BTreeSet::from([device(stage, "n2", 0)?]);
    ensure!(have == wanted, "waiting should hold {wanted:?}, it holds {have:?}");
    Ok(vec!["waiting runs on the GPU that came back".to_owned()])
}

async fn tidy(stage: &mut Stage) -> Result<Notes> {
    let (node, name) = device(stage, "n1", 0)?;
    stage.lab.kubectl_device(&["untaint", &format!("{node}/{name}"), &format!("{MAINTENANCE}:NoExecute")]).await?;
    stage.lab.taint_node("n1", json!([])).await?;
    stage.running(&["stoic", "no-gpu", "newcomer", "waiting"]).await?;
    stage.witness.exactly(&["pair-a", "pair-b", "patient"])?;
    Ok(vec!["stoic, no-gpu, newcomer and waiting run; three pods were evicted, each for a reason".to_owned()])
}

async fn list(stage: &mut Stage, nodes: &[&str]) -> Result<Notes> {
    let arguments: Vec<&str> = std::iter::once("list").chain(nodes.iter().copied()).collect();
    let table = stage.lab.kubectl_device(&arguments).await?;
    let asked = format!("$ kubectl device {}", arguments.join(" "));
    Ok(std::iter::once(asked.as_str()).chain(table.lines()).map(str::to_owned).collect())
}
