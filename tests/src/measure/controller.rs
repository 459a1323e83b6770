//! The controller: how long 300 evictions take, and its memory with 1000 pods.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, EvictParams};
use tokio::time::Instant;

use super::population::{is_of, names, populate, taint};
use super::{Figure, figure, resident};
use crate::http;
use crate::lab::{Lab, Plan, Site};
use crate::wait::{Seen, until};

/// How many pods are evicted.
const EVICTED: usize = 300;
/// How many pods stand by, for the memory.
const PODS: usize = 1000;
/// How long any of this may take at most.
const LIMIT: Duration = Duration::from_secs(60);

/// Takes the figures.
pub(super) async fn figures() -> Result<Vec<Figure>> {
    let mut lab = Lab::bare(Plan { nodes: Vec::new(), ..Plan::default() }, &Site::Small).await?;
    populate(&lab, "naive", EVICTED).await?;
    let naive = one_by_one(&lab).await?;
    populate(&lab, "big", PODS - EVICTED).await?;
    populate(&lab, "gone", EVICTED).await?;
    lab.start_controller().await?;
    ready(&lab).await?;
    let memory = resident(lab.controller()?)?;
    let began = Instant::now();
    taint(&lab, "gone").await?;
    left(&lab, "gone").await?;
    let seconds = began.elapsed().as_secs_f64();
    Ok(vec![figure("evict_300_s", seconds, "s").against(naive), figure("controller_rss_1000_pods_mib", memory, "MiB")])
}

/// The baseline: 300 evictions, each after the one before, in seconds.
async fn one_by_one(lab: &Lab) -> Result<f64> {
    let pods: Api<Pod> = lab.pods();
    let began = Instant::now();
    for name in names("naive", EVICTED) {
        pods.evict(&name, &EvictParams::default()).await?;
    }
    Ok(began.elapsed().as_secs_f64())
}

async fn ready(lab: &Lab) -> Result<()> {
    let address = lab.controller_address()?;
    let mut pace = tokio::time::interval(Duration::from_millis(20));
    let wait = async {
        loop {
            pace.tick().await;
            if http::get(address, "/readyz").await?.0 == 200 {
                return Ok(());
            }
        }
    };
    tokio::time::timeout(LIMIT, wait).await?
}

/// Waits until every pod of a pool was asked to leave.
async fn left(lab: &Lab, pool: &str) -> Result<()> {
    let leaving = |pods: &Seen<Pod>| {
        let of_pool = pods.iter().filter(|(key, _)| is_of(key, pool));
        of_pool.filter(|(_, pod)| pod.metadata.deletion_timestamp.is_none()).count()
    };
    until(lab.pods(), "300 pods to leave", LIMIT, |pods| match leaving(pods) {
        0 => Ok(()),
        more => Err(format!("{more} still stay")),
    })
    .await
}
