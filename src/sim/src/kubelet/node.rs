//! The node: registered when it is not there, Ready, with a lease that is renewed.

use std::time::Duration;

use cluster::call::CallError;
use jiff::Timestamp;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::actor::{Backoff, call, micros, now, seconds};

/// How often the lease is renewed.
const RENEW: Duration = Duration::from_secs(10);
/// How often the conditions are written anew although nothing changed, in renewals of the lease.
const HEARTBEAT: u32 = 30;
/// How long a lease holds: kubelet's default.
const LEASE_SECONDS: i32 = 40;
const LEASES: &str = "kube-node-lease";

/// Keeps a registered node alive until it is dropped.
pub(super) async fn keep(client: Client, name: String) {
    let mut beats = 0_u32;
    loop {
        if let Err(error) = renew(&client, &name).await {
            tracing::debug!(node = name, %error, "lease not renewed");
        }
        tokio::time::sleep(RENEW).await;
        beats = beats.wrapping_add(1);
        if beats.is_multiple_of(HEARTBEAT)
            && let Err(error) = write_status(&client, &name).await
        {
            tracing::debug!(node = name, %error, "status not written");
        }
    }
}

/// Creates the node if it is absent, and makes it Ready; tries until both went well.
pub(super) async fn register(client: &Client, name: &str) {
    let mut waits = Backoff::of_calls();
    let mut told = None;
    loop {
        match create_and_report(client, name).await {
            Ok(()) => return,
            // A refusal is told, once; a server that is away is told by the client.
            Err(error) if error.status().is_some() && told.as_ref() != Some(&error.to_string()) => {
                tracing::warn!(node = name, %error, "not registered; it is tried again");
                told = Some(error.to_string());
            }
            Err(error) => tracing::debug!(node = name, %error, "node not registered yet"),
        }
        tokio::time::sleep(waits.wait()).await;
    }
}

async fn create_and_report(client: &Client, name: &str) -> Result<(), CallError> {
    let nodes: Api<Node> = Api::all(client.clone());
    if call(nodes.get_opt(name)).await?.is_none() {
        match call(nodes.create(&PostParams::default(), &object(name))).await {
            Ok(_) => tracing::info!(node = name, "registered"),
            Err(error) if error.is_conflict() => {}
            Err(error) => return Err(error),
        }
    }
    write_status(client, name).await
}

fn object(name: &str) -> Node {
    let mut node = Node::default();
    node.metadata.name = Some(name.to_owned());
    let labels = [
        ("kubernetes.io/hostname", name),
        ("kubernetes.io/os", "linux"),
        ("kubernetes.io/arch", "amd64"),
        ("type", "sim"),
    ];
    node.metadata.labels = Some(labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into());
    node
}

async fn write_status(client: &Client, name: &str) -> Result<(), CallError> {
    let nodes: Api<Node> = Api::all(client.clone());
    let node = call(nodes.get(name)).await?;
    let patch = json!({ "status": status(&node, now()) });
    call(nodes.patch_status(name, &PatchParams::default(), &Patch::Strategic(patch))).await.map(drop)
}

fn status(node: &Node, now: Timestamp) -> Value {
    let entries = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        ("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
    ];
    let condition = |(name, status, reason, message): (&str, &str, &str, &str)| {
        let old = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let since = old
            .into_iter()
            .find(|old| old.type_ == name && old.status == status)
            .and_then(|old| old.last_transition_time.clone())
            .unwrap_or_else(|| seconds(now));
        json!({
            "type": name, "status": status, "reason": reason, "message": message,
            "lastHeartbeatTime": seconds(now), "lastTransitionTime": since,
        })
    };
    let room = json!({"cpu": "64", "memory": "512Gi", "pods": "1000", "ephemeral-storage": "1Ti"});
    json!({
        "conditions": entries.map(condition),
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}, {"type": "Hostname", "address": node.name_any()}],
        "capacity": room,
        "allocatable": room,
        "nodeInfo": {
            "architecture": "amd64", "operatingSystem": "linux", "kubeletVersion": "v1.37.0-sim", "osImage": "sim",
            "containerRuntimeVersion": "sim://0", "kernelVersion": "sim", "kubeProxyVersion": "", "bootID": "",
            "machineID": "", "systemUUID": "",
        },
    })
}

async fn renew(client: &Client, name: &str) -> Result<(), CallError> {
    let leases: Api<Lease> = Api::namespaced(client.clone(), LEASES);
    let spec = json!({"holderIdentity": name, "leaseDurationSeconds": LEASE_SECONDS, "renewTime": micros(now())});
    let patch = json!({ "spec": spec });
    let patched = call(leases.patch(name, &PatchParams::default(), &Patch::Merge(&patch))).await;
    match patched {
        Ok(_) => return Ok(()),
        Err(error) if error.is_not_found() => {}
        Err(error) => return Err(error),
    }
    let nodes: Api<Node> = Api::all(client.clone());
    let node = call(nodes.get(name)).await?;
    let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.uid()}]);
    let lease = json!({"metadata": {"name": name, "namespace": LEASES, "ownerReferences": owner}, "spec": spec});
    let lease: Lease = serde_json::from_value(lease).map_err(|error| CallError::Answer(error.to_string()))?;
    call(leases.create(&PostParams::default(), &lease)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_stays_ready_keeps_its_time() {
        let mut node = object("node-a");
        assert_eq!(
            node.metadata.labels.as_ref().and_then(|labels| labels.get("kubernetes.io/hostname")).unwrap(),
            "node-a"
        );
        let first = status(&node, "2026-11-30T10:00:00Z".parse().unwrap());
        node.status = Some(serde_json::from_value(first).unwrap());
        let later = status(&node, "2026-11-30T10:05:00Z".parse().unwrap());
        let ready = &later["conditions"][3];
        assert_eq!((&ready["type"], &ready["status"]), (&json!("Ready"), &json!("True")));
        assert_eq!(ready["lastTransitionTime"], "2026-11-30T10:00:00Z");
        assert_eq!(ready["lastHeartbeatTime"], "2026-11-30T10:05:00Z");
    }
}
