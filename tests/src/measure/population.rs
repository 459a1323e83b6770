//! A cluster full of pods that hold devices of a driver that does not run: only objects, for the controller to read.

use anyhow::{Context, Result};
use futures::stream::{self, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::ResourceExt;
use kube::api::{Api, Patch, PatchParams, PostParams};
use serde_json::json;

use crate::lab::Lab;
use crate::objects::{NAMESPACE, claim, pod};

/// How many writes run at a time.
const AT_ONCE: usize = 32;
/// Devices in a slice.
const PER_SLICE: usize = 64;
/// The driver of the devices.
pub(super) const DRIVER: &str = "example.org";

/// Makes `count` devices in pool `pool`, and for each a claim and a running pod that holds it.
pub(super) async fn populate(lab: &Lab, pool: &str, count: usize) -> Result<()> {
    lab.create(json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": pool}})).await?;
    let slices = count.div_ceil(PER_SLICE);
    for number in 0..slices {
        let first = number * PER_SLICE;
        let devices: Vec<_> =
            (first..count.min(first + PER_SLICE)).map(|index| json!({"name": format!("d{index}")})).collect();
        let of = json!({"name": pool, "generation": 1, "resourceSliceCount": slices});
        let slice = json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": format!("{pool}-{number}")},
            "spec": {"driver": DRIVER, "nodeName": pool, "pool": of, "devices": devices},
        });
        lab.create(slice).await?;
    }
    stream::iter(0..count).map(|index| holder(lab, pool, index)).buffer_unordered(AT_ONCE).try_collect().await
}

async fn holder(lab: &Lab, pool: &str, index: usize) -> Result<()> {
    let name = format!("{pool}-{index}");
    let mut object = pod(&name).claim(&name).build();
    object["spec"]["nodeName"] = json!(pool);
    let pods: Api<Pod> = lab.pods();
    let made = pods.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    let running = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
    pods.patch_status(&name, &PatchParams::default(), &Patch::Merge(running)).await?;
    let claims: Api<ResourceClaim> = lab.claims();
    claims.create(&PostParams::default(), &serde_json::from_value(claim(&name).build())?).await?;
    let uid = made.uid().context("a pod without UID")?;
    let result = json!({"request": "gpu", "driver": DRIVER, "pool": pool, "device": format!("d{index}")});
    let status = json!({"status": {
        "allocation": {"devices": {"results": [result]}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }});
    claims.patch_status(&name, &PatchParams::default(), &Patch::Merge(status)).await?;
    Ok(())
}

/// A rule that taints every device of a pool NoExecute.
pub(super) async fn taint(lab: &Lab, pool: &str) -> Result<()> {
    let rule = json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceTaintRule", "metadata": {"name": format!("all-of-{pool}")},
        "spec": {"deviceSelector": {"driver": DRIVER, "pool": pool}, "taint": {"key": "example.org/bad", "effect": "NoExecute"}},
    });
    lab.create(rule).await
}

/// The names of the pods of a pool.
pub(super) fn names(pool: &str, count: usize) -> Vec<String> {
    (0..count).map(|index| format!("{pool}-{index}")).collect()
}

/// The path of a pod in a set of watched pods.
pub(super) fn is_of(key: &str, pool: &str) -> bool {
    key.strip_prefix(NAMESPACE)
        .and_then(|rest| rest.strip_prefix('/'))
        .is_some_and(|name| name.starts_with(&format!("{pool}-")))
}
