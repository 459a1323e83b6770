//! The node agent: memory, size, start, and the way from an event of a GPU to a taint in the API.

use std::collections::BTreeMap;

use anyhow::{Context, Result, bail};
use futures::{StreamExt, stream::BoxStream};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::runtime::watcher::{self, Event};
use kube::{Resource, ResourceExt};
use serde_json::json;
use tokio::time::Instant;

use super::{Figure, figure, megabytes, percentile, resident};
use crate::lab::{Lab, Plan, Site};
use crate::programs::Programs;
use crate::wait::SOON;

/// How often the agent is started anew: each start gives eight events.
const ROUNDS: usize = 13;
/// The node that is measured.
const NODE: &str = "n1";

/// Takes the figures.
pub(super) async fn figures() -> Result<Vec<Figure>> {
    let plan = Plan { nodes: vec![NODE.to_owned()], ..Plan::default() };
    let mut lab = Lab::bare(plan, &Site::Small).await?;
    lab.add_node(NODE)?;
    let mut watched = Watched::start(lab.slices()).await?;
    let (mut starts, mut events, mut memory) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        starts.push(start(&mut lab, &mut watched).await?);
        memory.push(resident(lab.node(NODE)?.driver()?)?);
        for index in 0..8 {
            events.push(event(&mut lab, &mut watched, index).await?);
        }
        reset(&mut lab, &mut watched).await?;
    }
    let mut plain = round_trips(&lab, &mut watched).await?;
    let (p50, p99) = (percentile(&mut events, 0.5)?, percentile(&mut events, 0.99)?);
    let memory = memory.into_iter().fold(0.0, f64::max);
    Ok(vec![
        figure("driver_rss_mib", memory, "MiB"),
        figure("driver_binary_mb", megabytes(&Programs::build()?.gpu_driver())?, "MB"),
        figure("driver_start_to_slice_s", percentile(&mut starts, 0.5)? / 1e3, "s"),
        figure("event_to_taint_p50_ms", p50, "ms").against(percentile(&mut plain, 0.5)?),
        figure("event_to_taint_p99_ms", p99, "ms").against(percentile(&mut plain, 0.99)?),
    ])
}

/// From the start of the process to a slice with eight devices, in seconds.
async fn start(lab: &mut Lab, watched: &mut Watched) -> Result<f64> {
    let began = Instant::now();
    lab.start_driver(NODE).await?;
    watched.until("eight devices", |slices| slices.iter().map(|slice| devices(slice)).sum::<usize>() == 8).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// From an XID of a GPU to its taint in the API, in seconds.
async fn event(lab: &mut Lab, watched: &mut Watched, index: usize) -> Result<f64> {
    let node = lab.node(NODE)?;
    let device = node.gpus.device(index);
    node.gpus.xid(index, 79)?;
    let began = Instant::now();
    watched.until("the taint", |slices| slices.iter().any(|slice| is_tainted(slice, &device))).await?;
    Ok(began.elapsed().as_secs_f64())
}

/// The agent, its state and its slices are gone; the GPUs are well.
async fn reset(lab: &mut Lab, watched: &mut Watched) -> Result<()> {
    lab.kill_driver(NODE).await?;
    let node = lab.node(NODE)?;
    std::fs::remove_dir_all(node.folder().join("state")).context("cannot remove the state directory")?;
    node.gpus.change(|control| control.gpus.iter_mut().for_each(|gpu| gpu.events.clear()))?;
    lab.slices().delete_collection(&DeleteParams::default(), &ListParams::default()).await?;
    watched.until("no slices", |slices| slices.is_empty()).await
}

/// The baseline: a patch of a slice of the same size, until its watch event is here, in seconds.
async fn round_trips(lab: &Lab, watched: &mut Watched) -> Result<Vec<f64>> {
    let taints: Vec<_> =
        (0..8).map(|index| json!({"name": format!("gpu-{index}"), "attributes": attributes()})).collect();
    let pool = json!({"name": "plain", "generation": 1, "resourceSliceCount": 1});
    let slice = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "plain"},
        "spec": {"driver": "example.org", "nodeName": NODE, "pool": pool, "devices": taints},
    });
    lab.create(slice).await?;
    let mut times = Vec::new();
    for number in 0..100 {
        let value = number.to_string();
        let patch = json!({"metadata": {"labels": {"number": value}}});
        let began = Instant::now();
        lab.slices().patch("plain", &PatchParams::default(), &Patch::Merge(patch)).await?;
        let arrived =
            |slices: &[&ResourceSlice]| slices.iter().any(|slice| slice.labels().get("number") == Some(&value));
        watched.until("the label", arrived).await?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(times)
}

fn attributes() -> serde_json::Value {
    let texts = (0..10)
        .map(|number| (format!("attribute{number}"), json!({"string": "0123456789012345678901234567890123456789"})));
    serde_json::Value::Object(texts.collect())
}

fn devices(slice: &ResourceSlice) -> usize {
    slice.spec.devices.as_ref().map_or(0, Vec::len)
}

fn is_tainted(slice: &ResourceSlice, name: &str) -> bool {
    let mut devices = slice.spec.devices.iter().flatten().filter(|device| device.name == name);
    devices.any(|device| device.taints.as_ref().is_some_and(|taints| !taints.is_empty()))
}

/// The slices as a watch that stays open tells them: no list stands between a change and its sight.
struct Watched {
    events: BoxStream<'static, watcher::Result<Event<ResourceSlice>>>,
    seen: BTreeMap<String, ResourceSlice>,
}

impl Watched {
    async fn start(api: Api<ResourceSlice>) -> Result<Self> {
        let mut watched =
            Self { events: watcher::watcher(api, watcher::Config::default()).boxed(), seen: BTreeMap::new() };
        loop {
            match watched.events.next().await.context("the watch ended")?? {
                Event::InitDone => return Ok(watched),
                other => watched.take(other),
            }
        }
    }

    async fn until(&mut self, what: &str, mut done: impl FnMut(&[&ResourceSlice]) -> bool) -> Result<()> {
        let wait = async {
            while !done(&self.seen.values().collect::<Vec<_>>()) {
                let event = self.events.next().await.context("the watch ended")??;
                self.take(event);
            }
            Ok(())
        };
        match tokio::time::timeout(SOON, wait).await {
            Ok(found) => found,
            Err(_) => bail!("waited {SOON:?} for {what}, in vain"),
        }
    }

    fn take(&mut self, event: Event<ResourceSlice>) {
        match event {
            Event::Init => self.seen.clear(),
            Event::InitApply(slice) | Event::Apply(slice) => drop(self.seen.insert(slice.name_any(), slice)),
            Event::Delete(slice) => drop(self.seen.remove(slice.meta().name.as_deref().unwrap_or_default())),
            Event::InitDone => {}
        }
    }
}
