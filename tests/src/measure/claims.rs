//! Preparing one claim through the agent's socket, as kubelet would, with every file synced.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;
use kube::api::{Patch, PatchParams, PostParams};
use kubelet_api::dra::v1::dra_plugin_client::DraPluginClient;
use kubelet_api::dra::v1::{Claim, NodePrepareResourcesRequest, NodeUnprepareResourcesRequest};
use serde_json::json;
use tokio::net::UnixStream;
use tokio::time::Instant;
use tonic::transport::{Channel, Endpoint, Uri};

use super::{Figure, figure, percentile};
use crate::lab::{Lab, Plan, Site};
use crate::objects::{DRIVER, claim};
use crate::stage::Stage;

/// How often the claim is prepared and unprepared.
const TIMES: usize = 100;

/// Takes the figure.
pub(super) async fn figures() -> Result<Vec<Figure>> {
    let plan = Plan { nodes: vec!["n1".to_owned()], ..Plan::default() };
    let mut stage = Stage::open(plan, &Site::Small).await?;
    stage.published(8).await?;
    let claim = allocated(&mut stage.lab).await?;
    let [_, socket] = stage.lab.node("n1")?.sockets()?;
    let mut plugin = DraPluginClient::new(channel(&socket).await?);
    let mut times = Vec::new();
    for _ in 0..TIMES {
        times.push(prepare(&mut plugin, &claim).await?);
        let request = NodeUnprepareResourcesRequest { claims: vec![claim.clone()] };
        plugin.node_unprepare_resources(request).await?;
    }
    let mut plain = synced_writes(stage.lab.folder())?;
    Ok(vec![figure("prepare_p50_ms", percentile(&mut times, 0.5)?, "ms").against(percentile(&mut plain, 0.5)?)])
}

async fn prepare(plugin: &mut DraPluginClient<Channel>, claim: &Claim) -> Result<f64> {
    let began = Instant::now();
    let answer = plugin.node_prepare_resources(NodePrepareResourcesRequest { claims: vec![claim.clone()] }).await?;
    let seconds = began.elapsed().as_secs_f64();
    let prepared = answer.into_inner().claims.remove(&claim.uid).context("no answer for the claim")?;
    ensure!(prepared.error.is_empty() && prepared.devices.len() == 1, "the claim was not prepared: {prepared:?}");
    Ok(seconds)
}

/// A claim that is allocated the first GPU, without a scheduler.
async fn allocated(lab: &mut Lab) -> Result<Claim> {
    let device = lab.node("n1")?.gpus.device(0);
    let object: ResourceClaim = serde_json::from_value(claim("measured").build())?;
    let made = lab.claims().create(&PostParams::default(), &object).await?;
    let result = json!({"request": "gpu", "driver": DRIVER, "pool": "n1", "device": device});
    let status = json!({"status": {"allocation": {"devices": {"results": [result]}}}});
    lab.claims().patch_status("measured", &PatchParams::default(), &Patch::Merge(status)).await?;
    let namespace = made.namespace().context("a claim without namespace")?;
    Ok(Claim { namespace, name: made.name_any(), uid: made.uid().context("a claim without UID")? })
}

async fn channel(socket: &Path) -> Result<Channel> {
    let socket = socket.to_path_buf();
    let connect = tower::service_fn(move |_: Uri| {
        let socket = socket.clone();
        async move { UnixStream::connect(socket).await.map(TokioIo::new) }
    });
    // The address is never used: the connector knows the socket.
    Endpoint::from_static("http://localhost")
        .connect_with_connector(connect)
        .await
        .context("cannot reach the agent's socket")
}

/// The baseline: one small file, written, synced and renamed, and its folder synced, as every record of a prepared claim must be.
fn synced_writes(folder: &Path) -> Result<Vec<f64>> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let began = Instant::now();
        let path = folder.join("baseline.tmp");
        let mut file = File::create(&path)?;
        file.write_all(&[b'x'; 1024])?;
        file.sync_all()?;
        std::fs::rename(&path, folder.join("baseline"))?;
        File::open(folder)?.sync_all()?;
        times.push(began.elapsed().as_secs_f64());
    }
    Ok(times)
}
