//! An agent is replaced by another one, as an update does, while pods come.

use std::collections::BTreeSet;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams};

use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{NAMESPACE, claim, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;
use crate::wait::SOON;

/// What kubelet tells of a pod whose claims it could not prepare.
const NOT_PREPARED: &str = "FailedPrepareDynamicResources";

/// A second agent stands by, and the first one is told to end.
pub const TAKEOVER: Scenario = Scenario {
    name: "an-agent-takes-over",
    about: "a second agent of a node takes over from the first: no pod waits, no claim is forgotten, no slice goes",
    needs: &[Need::AgentProcess],
    plan: || Plan { nodes: vec!["n1".to_owned()], ..Plan::default() },
    steps: &[
        step!("A pod holds a GPU. A second agent starts and stands by, and a pod still runs at once.", stand_by),
        step!("The first agent is told to end while pods come: each of them runs at once.", take_over),
        step!("The second agent ends what the first one prepared.", tidy),
    ],
};

async fn stand_by(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    come(stage, "holder").await?;
    stage.memory.insert("claim", stage.lab.claims().get("holder").await?.uid().unwrap_or_default());
    stage.memory.insert("slices", slices(stage).await?);
    stage.lab.start_successor("n1").await?;
    stage.driver_says("n1", "/readyz", "takes over when that one ends").await?;
    stage.driver_ready("n1", 200).await?;
    come(stage, "before").await?;
    Ok(Notes::new())
}

async fn take_over(stage: &mut Stage) -> Result<Notes> {
    let mut first = stage.lab.node("n1")?.predecessor()?;
    let stage_now = &*stage;
    let pods = async {
        for name in ["during-1", "during-2", "during-3", "after-1", "after-2"] {
            come(stage_now, name).await?;
        }
        Ok(())
    };
    tokio::try_join!(first.stop(), pods)?;
    stage.driver_says("n1", "/readyz", "[+]registration ok").await?;
    stage.driver_ready("n1", 200).await?;
    let events: Api<Event> = Api::namespaced(stage.lab.client.clone(), NAMESPACE);
    let refused = events
        .list(&ListParams::default())
        .await?
        .items
        .into_iter()
        .find(|event| event.reason.as_deref() == Some(NOT_PREPARED));
    ensure!(refused.is_none(), "kubelet could not prepare a claim: {refused:?}");
    let (before, now) = (stage.recall("slices")?, slices(stage).await?);
    ensure!(before == now, "the slices were {before}, they are {now}");
    Ok(Notes::new())
}

async fn tidy(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n1")?.sockets()?;
    let claim = stage.recall("claim")?.to_owned();
    ensure!(!stage.cdi_files("n1", &claim)?.is_empty(), "the CDI file of claim {claim} is gone");
    for name in ["holder", "before", "after-2"] {
        stage.end(name).await?;
    }
    let left = stage.cdi_files("n1", &claim)?;
    ensure!(left.is_empty(), "the claim's pod is gone, and its CDI files are still there: {left:?}");
    Ok(Notes::new())
}

/// A pod with a claim for one GPU, which runs sooner than a kubelet would look at it a second time.
async fn come(stage: &Stage, name: &str) -> Result<()> {
    stage.lab.create(claim(name).build()).await?;
    stage.lab.create(pod(name).claim(name).build()).await?;
    stage.running_within(&[name], SOON).await
}

/// The UIDs of all slices.
async fn slices(stage: &Stage) -> Result<String> {
    let uids: BTreeSet<_> =
        stage.lab.slices().list(&ListParams::default()).await?.items.iter().filter_map(ResourceExt::uid).collect();
    Ok(format!("{uids:?}"))
}
