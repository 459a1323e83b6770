//! Who must not be evicted: a pod of the same name but another UID, a pod that has finished.

use std::time::Duration;

use anyhow::{Result, ensure};

use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{MAINTENANCE, claim, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;
use crate::wait::SOON;

/// A pod is replaced by another of its name while the countdown runs.
pub const SAME_NAME: Scenario = Scenario {
    name: "same-name-other-uid",
    about: "a pod of the same name but another UID is spared",
    needs: &[Need::Rules],
    plan: one_node,
    steps: &[
        step!("Two pods share a claim that tolerates a taint for 4 s; the taint comes.", share),
        step!("One is replaced by a pod of the same name without the claim; only the other one goes.", replace),
    ],
};

/// A pod finishes, and then its device is tainted.
pub const FINISHED: Scenario = Scenario {
    name: "finished-pods-are-spared",
    about: "a pod that has ended is left alone, its log with it",
    needs: &[Need::Rules],
    plan: one_node,
    steps: &[
        step!("A pod with a GPU finishes; another one runs on.", finish),
        step!("Every GPU of the node is tainted NoExecute: only the one that runs goes.", taint_all),
    ],
};

fn one_node() -> Plan {
    Plan { nodes: vec!["n1".to_owned()], ..Plan::default() }
}

async fn share(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    stage.lab.create(claim("shared").tolerates(MAINTENANCE, Some(4)).build()).await?;
    for name in ["job", "other"] {
        stage.lab.create(pod(name).claim("shared").build()).await?;
    }
    stage.running(&["job", "other"]).await?;
    let (node, device) = stage.only_device("shared").await?;
    stage.lab.kubectl_device(&["taint", &format!("{node}/{device}"), &format!("{MAINTENANCE}=fan:NoExecute")]).await?;
    stage.controller_counts(2).await?;
    Ok(Notes::new())
}

async fn replace(stage: &mut Stage) -> Result<Notes> {
    let old = stage.uid("job").await?;
    stage.end("job").await?;
    stage.lab.create(pod("job").build()).await?;
    stage.running(&["job"]).await?;
    let new = stage.uid("job").await?;
    ensure!(old != new, "the replacement has the UID of the pod that it replaces");
    stage.gone("other", Duration::from_secs(20)).await?;
    stage.running(&["job"]).await?;
    ensure!(stage.uid("job").await? == new, "the replacement was replaced");
    stage.witness.exactly(&["other"])?;
    Ok(Notes::new())
}

async fn finish(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    stage.lab.create(claim("done").build()).await?;
    stage.lab.create(claim("busy").build()).await?;
    stage
        .lab
        .create(pod("done").claim("done").annotate("sim.devicetaint.dev/exit-after", "100ms").finishes().build())
        .await?;
    stage.lab.create(pod("busy").claim("busy").build()).await?;
    stage.running(&["busy"]).await?;
    stage.succeeded("done").await?;
    Ok(Notes::new())
}

async fn taint_all(stage: &mut Stage) -> Result<Notes> {
    let taint = format!("{MAINTENANCE}=all:NoExecute");
    for index in 0..8 {
        let target = format!("n1/{}", stage.lab.node("n1")?.gpus.device(index));
        stage.lab.kubectl_device(&["taint", &target, &taint]).await?;
    }
    stage.gone("busy", SOON).await?;
    stage.succeeded("done").await?;
    stage.witness.exactly(&["busy"])?;
    Ok(Notes::new())
}
