//! A real Kubernetes as a lab's ground: `cargo xtask kube up` started it and describes it in a file `cluster.json`.
//!
//! One node has a real kubelet with containers; the scenarios' further nodes are kubelets of the sim at the same API server. The cluster lives on, so a
//! lab takes away what it made, and first what a broken run left.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::fs::File;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use k8s_openapi::api::core::v1::{Event, Node, Pod, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, Resource, ResourceExt};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::rules::{marks, rules};
use super::{already_there, create};
use crate::objects::{DRIVER, NAMESPACE};
use crate::wait::until;

/// The component that scenarios end and start.
const KUBELET: &str = "kubelet";
/// How long a cluster may take to forget what a scenario made.
const CLEAN_WITHIN: Duration = Duration::from_secs(60);

/// A running cluster, as `cluster.json` describes it.
#[derive(Clone, Debug, Deserialize)]
pub struct RealCluster {
    /// The version of Kubernetes: `1.37.2`.
    pub version: String,
    /// A kubeconfig with all rights.
    pub kubeconfig: PathBuf,
    /// The node with the real kubelet.
    pub node: String,
    /// That kubelet's root folder.
    pub kubelet_root: PathBuf,
    /// Where its container runtime looks for CDI files.
    pub cdi_root: PathBuf,
    /// Whether our programs run as helm installs them, where that is possible.
    #[serde(skip)]
    pub installed: bool,
    /// The node's address, on this machine only.
    pub(super) node_address: String,
    /// `https://HOST:PORT`
    pub(super) server: String,
    /// The authority of the server's certificate.
    pub(super) ca: PathBuf,
    pub(super) helm: PathBuf,
    /// Whether kube-controller-manager evicts for device taints itself.
    #[serde(default)]
    pub upstream_evictor: bool,
    /// Kubernetes' DRA test driver, where this version has it.
    #[serde(default)]
    pub dra_test_driver: Option<PathBuf>,
    /// The programs that it consists of.
    components: BTreeMap<String, Component>,
    /// The description's own file: it is kept true when a component is started again.
    #[serde(skip)]
    file: PathBuf,
}

/// A program of the cluster: all that is needed to start it again as it was.
#[derive(Clone, Debug, Deserialize)]
struct Component {
    pid: i32,
    program: PathBuf,
    arguments: Vec<String>,
    environment: BTreeMap<String, String>,
    log: PathBuf,
}

impl RealCluster {
    /// Reads `cluster.json`.
    ///
    /// # Errors
    /// When it cannot be read or does not parse.
    pub fn read(file: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(file)
            .with_context(|| format!("cannot read {}; `cargo xtask kube up` writes it", file.display()))?;
        let cluster: Self =
            serde_json::from_str(&text).with_context(|| format!("{} does not describe a cluster", file.display()))?;
        Ok(Self { file: file.to_owned(), ..cluster })
    }

    /// Where the logs of its programs are.
    pub(super) fn logs(&self) -> String {
        let logs = self.components.values().map(|component| component.log.display().to_string());
        format!("the cluster's own logs: {}", logs.collect::<Vec<_>>().join(" "))
    }

    /// Where the logs of its pods are, a folder each.
    pub(super) fn pod_logs(&self) -> PathBuf {
        self.file.with_file_name("logs").join("pods")
    }

    /// Cleans, and makes the namespace and what else stays from one scenario to the next.
    pub(super) async fn prepare(&self, client: &Client, objects: Vec<Value>) -> Result<()> {
        // No agent runs at this moment: what a broken run left is taken off the server, and kubelet tidies up when the next agent is there.
        self.node_is_there(client).await?;
        self.remove(client, &DeleteParams::default().grace_period(0)).await?;
        for object in objects {
            match create(client, object).await {
                Err(error) if !already_there(&error) => return Err(error),
                _ => {}
            }
        }
        // Where helm installs us, it makes the kind later, and waits for it itself.
        if !self.installed {
            serves_marks(client).await?;
        }
        let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), NAMESPACE);
        until(accounts, "the namespace's default service account", CLEAN_WITHIN, |accounts| {
            let key = format!("{NAMESPACE}/default");
            accounts.contains_key(&key).then_some(()).ok_or_else(|| "it is not there".to_owned())
        })
        .await
    }

    /// Deletes all that scenarios make while kubelets and agents are there to help, and waits until it is gone.
    pub(super) async fn clean(&self, client: &Client) -> Result<()> {
        self.node_is_there(client).await?;
        self.remove(client, &DeleteParams::default()).await
    }

    /// Starts the kubelet where it does not run, and waits for its Node. A kubelet registers once in its life: one whose Node was deleted starts anew.
    async fn node_is_there(&self, client: &Client) -> Result<()> {
        let nodes: Api<Node> = Api::all(client.clone());
        if self.kubelet_runs()? && nodes.get_metadata_opt(&self.node).await?.is_none() {
            self.kill_kubelet().await?;
        }
        self.start_kubelet()?;
        let name = &self.node;
        until(nodes, &format!("node {name} to be Ready"), CLEAN_WITHIN, |nodes| {
            nodes.get(name).filter(|node| is_ready(node)).map(drop).ok_or_else(|| "it is not".to_owned())
        })
        .await
    }

    async fn remove(&self, client: &Client, pods: &DeleteParams) -> Result<()> {
        let with = DeleteParams::default();
        remove_rules(client).await?;
        remove_taints(client, &self.node).await?;
        remove_all::<Pod>(Api::namespaced(client.clone(), NAMESPACE), pods).await?;
        remove_all::<ResourceClaim>(Api::namespaced(client.clone(), NAMESPACE), &with).await?;
        remove_all::<ResourceClaimTemplate>(Api::namespaced(client.clone(), NAMESPACE), &with).await?;
        remove_all::<PodDisruptionBudget>(Api::namespaced(client.clone(), NAMESPACE), &with).await?;
        remove_all::<Event>(Api::namespaced(client.clone(), NAMESPACE), &with).await?;
        self.remove_nodes(client).await?;
        let slices = Api::all(client.clone());
        if self.installed {
            return remove_some(slices, &with, is_foreign, |slice| is_foreign(slice) || !self.is_here(slice)).await;
        }
        remove_all::<ResourceSlice>(slices, &with).await
    }

    /// Whether a slice is of the node whose agent is installed, and so lives on.
    fn is_here(&self, slice: &ResourceSlice) -> bool {
        slice.spec.node_name.as_deref() == Some(self.node.as_str())
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
    pub(super) fn start_kubelet(&self) -> Result<()> {
        if self.kubelet_runs()? {
            return Ok(());
        }
        let folder = self.file.parent().context("cluster.json is in no folder")?;
        let started = self.kubelet()?.start(folder)?;
        self.note_pid(started)
    }

    fn kubelet_runs(&self) -> Result<bool> {
        Ok(self.kubelet()?.running()?.is_some())
    }

    /// As it is now: a restart gives it another number.
    fn kubelet(&self) -> Result<Component> {
        let mut now = Self::read(&self.file)?;
        now.components.remove(KUBELET).context("cluster.json names no kubelet")
    }

    /// Ends the kubelet as a crash would, and waits until it has ended.
    pub(super) async fn kill_kubelet(&self) -> Result<()> {
        let running = self.kubelet()?.running()?.context("the kubelet does not run")?;
        pidfd_send_signal(&running, Signal::KILL).context("cannot kill the kubelet")?;
        let within = Timespec::try_from(CLEAN_WITHIN)?;
        let ended = tokio::task::spawn_blocking(move || has_ended(&running, &within)).await??;
        ensure!(ended, "the kubelet does not end, {CLEAN_WITHIN:?} after it was killed");
        Ok(())
    }

    fn note_pid(&self, pid: u32) -> Result<()> {
        let mut text: Value = serde_json::from_str(&std::fs::read_to_string(&self.file)?)?;
        text["components"][KUBELET]["pid"] = json!(pid);
        let beside = self.file.with_extension("json.new");
        std::fs::write(&beside, serde_json::to_vec_pretty(&text)?)?;
        std::fs::rename(&beside, &self.file).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

impl Component {
    /// A handle of it, where it runs. Its number may be another program's by now, and one that has ended and waits to be collected does not run.
    fn running(&self) -> Result<Option<OwnedFd>> {
        let pid = Pid::from_raw(self.pid).context("cluster.json gives no process number")?;
        let Ok(handle) = pidfd_open(pid, PidfdFlags::NONBLOCK) else { return Ok(None) };
        let ours = std::fs::read(format!("/proc/{}/cmdline", self.pid)).is_ok_and(|line| line == self.command_line());
        Ok((ours && !has_ended(&handle, &Timespec::default())?).then_some(handle))
    }

    /// As `/proc` shows it.
    fn command_line(&self) -> Vec<u8> {
        let words =
            std::iter::once(self.program.as_os_str().as_bytes()).chain(self.arguments.iter().map(String::as_bytes));
        words.flat_map(|word| word.iter().copied().chain([0])).collect()
    }

    /// Starts it as `cargo xtask kube up` did, in the cluster's folder; it lives on when this program ends, and `cargo xtask kube down` finds it by its
    /// environment.
    fn start(&self, folder: &Path) -> Result<u32> {
        let log = File::options().create(true).append(true).open(&self.log);
        let log = log.with_context(|| format!("cannot open {}", self.log.display()))?;
        let mut command = std::process::Command::new(&self.program);
        command.args(&self.arguments).env_clear().envs(&self.environment).current_dir(folder).process_group(0);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("cannot start {}", self.program.display()))?;
        Ok(child.id())
    }
}

/// Waits until a process has ended, or the time is over. A pidfd is readable once the process has ended.
fn has_ended(process: &OwnedFd, within: &Timespec) -> Result<bool> {
    let mut look = [PollFd::new(process, PollFlags::IN)];
    // A child that ends interrupts.
    Ok(retry_on_intr(|| poll(&mut look, Some(within))).context("cannot look at a process")? > 0)
}

fn is_ready(node: &Node) -> bool {
    let conditions = node.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

/// Where the chart is installed, nobody but the agents and Kubernetes itself may delete the slices of our driver.
fn is_foreign(slice: &ResourceSlice) -> bool {
    slice.spec.driver != DRIVER
}

/// Deletes every object that an API gives, and waits until none of them is left.
async fn remove_all<K>(api: Api<K>, how: &DeleteParams) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    remove_some(api, how, |_| true, |_| true).await
}

/// Deletes the objects of an API that are ours to delete, and waits until those that are to go are gone.
async fn remove_some<K>(
    api: Api<K>,
    how: &DeleteParams,
    ours: impl Fn(&K) -> bool,
    goes: impl Fn(&K) -> bool,
) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let listed = api.list(&ListParams::default()).await;
    let listed = listed.with_context(|| format!("cannot list {}", K::plural(&())))?.items;
    let old: BTreeSet<String> = listed.iter().filter(|object| goes(object)).filter_map(ResourceExt::uid).collect();
    for object in listed.iter().filter(|object| ours(object)) {
        gone_is_fine(api.delete(&object.name_any(), how).await)?;
    }
    until(api, &format!("all {} to be gone", K::plural(&())), CLEAN_WITHIN, |left| {
        // A controller or an agent that lives on may make new ones.
        let names: Vec<&String> =
            left.iter().filter(|(_, object)| is_one_of(*object, &old)).map(|(name, _)| name).collect();
        if names.is_empty() { Ok(()) } else { Err(format!("{names:?} are left")) }
    })
    .await
}

/// Rules and marks are gone with their deletion: nothing holds them.
async fn remove_rules(client: &Client) -> Result<()> {
    for api in rules(client).await?.into_iter().chain([marks(client)]) {
        let listed = match api.list_metadata(&ListParams::default()).await {
            Err(kube::Error::Api(status)) if status.code == 404 => continue,
            listed => listed.context("cannot list marks")?,
        };
        for rule in listed.items {
            gone_is_fine(api.delete(&rule.name_any(), &DeleteParams::default()).await)?;
        }
    }
    Ok(())
}

/// Waits until our own kind is served: an agent that misses it at its start looks for it again only after a while.
async fn serves_marks(client: &Client) -> Result<()> {
    let kinds: Api<CustomResourceDefinition> = Api::all(client.clone());
    until(kinds, "the kind DeviceMark to be served", CLEAN_WITHIN, |kinds| {
        let kind = kinds.get("devicemarks.devicetaint.dev").ok_or("it is not there")?;
        let conditions = kind.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let is_established = conditions.into_iter().any(|one| one.type_ == "Established" && one.status == "True");
        is_established.then_some(()).ok_or_else(|| "it is not established".to_owned())
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
