//! A real Kubernetes as a lab's ground: `cargo xtask kube up` started it and describes it in a file `cluster.json`.
//!
//! One node has a real kubelet with containers; the scenarios' further nodes are kubelets of the sim at the same API server. The cluster lives on, so a
//! lab takes away what it made, and first what a broken run left.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::process::Command;

use super::create;
use crate::objects::NAMESPACE;
use crate::wait::until;

/// How long a cluster may take to forget what a scenario made.
const CLEAN_WITHIN: Duration = Duration::from_secs(60);

/// A running cluster, as `cluster.json` describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct RealCluster {
    /// The version of Kubernetes: `v1.37.2`.
    pub version: String,
    /// A kubeconfig with all rights.
    pub kubeconfig: PathBuf,
    /// The node with the real kubelet.
    pub node: String,
    /// That kubelet's root folder.
    pub kubelet_root: PathBuf,
    /// Where its container runtime looks for CDI files.
    pub cdi_root: PathBuf,
    /// The folder of all logs.
    pub logs: PathBuf,
    /// The command that ends and starts the kubelet: its words, to which `stop` or `start` is added.
    pub kubelet_command: Vec<String>,
}

impl RealCluster {
    /// Reads `cluster.json`.
    ///
    /// # Errors
    /// When it cannot be read or does not parse.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}; `cargo xtask kube up` writes it", file.display()))?;
        serde_json::from_str(&text).with_context(|| format!("{} does not describe a cluster", file.display()))
    }

    /// Cleans, and makes the namespace and what else stays from one scenario to the next.
    pub(super) async fn prepare(&self, client: &Client, objects: Vec<Value>) -> Result<()> {
        self.clean(client).await?;
        for object in objects {
            match create(client, object).await {
                Err(error) if !already_there(&error) => return Err(error),
                _ => {}
            }
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
        until(accounts, "the namespace's default service account", CLEAN_WITHIN, |accounts| {
            let key = format!("{NAMESPACE}/default");
            accounts.contains_key(&key).then_some(()).ok_or_else(|| "it is not there".to_owned())
        })
        .await
    }

    /// Deletes all that scenarios make, and waits until it is gone.
    pub(super) async fn clean(&self, client: &Client) -> Result<()> {
        self.start_kubelet().await?;
        remove_all::<DeviceTaintRule>(Api::all(client.clone())).await?;
        remove_taints(client, &self.node).await?;
        remove_all::<Pod>(Api::namespaced(client.clone(), NAMESPACE)).await?;
        remove_all::<ResourceClaim>(Api::namespaced(client.clone(), NAMESPACE)).await?;
        remove_all::<ResourceClaimTemplate>(Api::namespaced(client.clone(), NAMESPACE)).await?;
        remove_all::<PodDisruptionBudget>(Api::namespaced(client.clone(), NAMESPACE)).await?;
        remove_all::<Event>(Api::namespaced(client.clone(), NAMESPACE)).await?;
        self.remove_nodes(client).await?;
        remove_all::<ResourceSlice>(Api::all(client.clone())).await
    }

    /// Deletes the nodes whose kubelets are the sim's.
    async fn remove_nodes(&self, client: &Client) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        for node in nodes.list_metadata(&ListParams::default()).await?.items {
            if node.name_any() != self.node {
                gone_is_fine(nodes.delete(&node.name_any(), &DeleteParams::default()).await)?;
            }
        }
        Ok(())
    }

    /// Starts the kubelet where it does not run.
    pub(super) async fn start_kubelet(&self) -> Result<()> {
        self.kubelet("start").await
    }

    /// Ends the kubelet as a crash would.
    pub(super) async fn kill_kubelet(&self) -> Result<()> {
        self.kubelet("stop").await
    }

    async fn kubelet(&self, verb: &str) -> Result<()> {
        let (program, arguments) =
            self.kubelet_command.split_first().context("cluster.json gives no kubelet_command")?;
        let output = Command::new(program).args(arguments).arg(verb).output().await;
        let output = output.with_context(|| format!("cannot run {program}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{} {verb}: {}: {said}", self.kubelet_command.join(" "), output.status);
        Ok(())
    }
}

fn already_there(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 409)
}

/// Deletes every object that an API gives, and waits until none is left. A pod that nobody looks after any more is taken off by force: its node is gone.
async fn remove_all<K>(api: Api<K>) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let listed = match api.list_metadata(&ListParams::default()).await {
        // A version of Kubernetes that does not serve the kind has none.
        Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
        listed => listed.with_context(|| format!("cannot list {}", K::plural(&())))?.items,
    };
    let old: BTreeSet<String> = listed.iter().filter_map(ResourceExt::uid).collect();
    for object in listed {
        gone_is_fine(api.delete(&object.name_any(), &DeleteParams::default()).await)?;
    }
    until(api, &format!("all {} to be gone", K::plural(&())), CLEAN_WITHIN, |left| {
        // A controller or an agent that lives on may make new ones.
        let names: Vec<&String> =
            left.iter().filter(|(_, object)| is_one_of(*object, &old)).map(|(name, _)| name).collect();
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?} are left")) }
    })
    .await
}

fn is_one_of<K: Resource>(object: &K, uids: &BTreeSet<String>) -> bool {
    object.meta().uid.as_ref().is_some_and(|uid| uids.contains(uid))
}

fn gone_is_fine<T>(deleted: kube::Result<T>) -> Result<()> {
    match deleted {
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
        Err(error) => bail!(error),
        Ok(_) => Ok(()),
    }
}

async fn remove_taints(client: &Client, node: &str) -> Result<()> {
    let nodes: Api<Node> = Api::all(client.clone());
    let patch = json!({"spec": {"taints": []}});
    nodes
        .patch(node, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .context("cannot take the node's taints away")?;
    Ok(())
}
