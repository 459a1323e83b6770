//! What a lab stands on: its own small cluster, or a real Kubernetes. Everything that differs between the two is decided here.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::{Api, Client};
use serde_json::Value;

use super::{Inside, Node, RealCluster, Site, create};
use crate::objects;
use crate::process::Process;
use crate::programs::Programs;
use crate::wait::SOON;

/// Within this time a real kubelet looks at a pod again whose claims it could not prepare.
const KUBELET_RETRY: Duration = Duration::from_secs(120);

/// The small cluster's controllers, and their flags: pods of a Node that is gone go soon.
const ACTORS: [(&str, &[&str]); 2] = [("scheduler", &[]), ("claims", &["--orphan-grace", "2"])];

/// What a lab stands on.
pub(super) enum Ground {
    Small(Box<Small>),
    Real(Box<RealCluster>),
}

/// The small cluster: API server, scheduler and claim controller are processes of the lab.
pub(super) struct Small {
    server: Process,
    server_url: String,
    actors: BTreeMap<&'static str, Process>,
    kubeconfig: PathBuf,
}

impl Ground {
    /// Starts the small cluster, or looks whether the real one is there.
    pub(super) async fn open(site: &Site, programs: &Programs, folder: &Path, server: &[String]) -> Result<Self> {
        match site {
            Site::Small => Ok(Self::Small(Box::new(Small::start(programs, folder, server).await?))),
            Site::Real(cluster) => Ok(Self::Real(cluster.clone())),
        }
    }

    /// Makes the namespace and the device classes; a real cluster is first cleaned of what a broken run left.
    pub(super) async fn prepare(&self, client: &Client) -> Result<()> {
        let mut objects = vec![objects::namespace()];
        if !self.is_installed() {
            objects.extend(classes()?);
            objects.push(kind_of_marks()?);
        }
        match self {
            Self::Small(_) => {
                for object in objects {
                    create(client, object).await?;
                }
                Ok(())
            }
            Self::Real(cluster) => cluster.prepare(client, objects).await,
        }
    }

    /// Takes away what a scenario made, where the cluster lives on.
    pub(super) async fn clean(&self, client: &Client) -> Result<()> {
        match self {
            Self::Small(_) => Ok(()),
            Self::Real(cluster) => cluster.clean(client).await,
        }
    }

    pub(super) fn kubeconfig(&self) -> &Path {
        match self {
            Self::Small(small) => &small.kubeconfig,
            Self::Real(cluster) => &cluster.kubeconfig,
        }
    }

    pub(super) fn pods_run_within(&self) -> Duration {
        match self {
            Self::Small(_) => SOON,
            Self::Real(_) => SOON + KUBELET_RETRY,
        }
    }

    pub(super) fn fault_layer(&self) -> Result<&str> {
        match self {
            Self::Small(small) => {
                Ok(small.server_url.split_once("://").map_or(small.server_url.as_str(), |(_, address)| address))
            }
            Self::Real(_) => {
                bail!("a real API server has no fault layer: mark the scenario as one for the small cluster")
            }
        }
    }

    /// The kubelet's root folder and the folder of CDI files of a node.
    pub(super) fn roots(&self, node: &str, folder: &Path) -> (PathBuf, PathBuf) {
        match self.real_kubelet_of(node) {
            Some(cluster) => (cluster.kubelet_root.clone(), cluster.cdi_root.clone()),
            None => (folder.join("kubelet"), folder.join("cdi")),
        }
    }

    /// Whether real containers run on a node, so that its device files have to be real ones.
    pub(super) fn device_nodes(&self, node: &str) -> bool {
        self.real_kubelet_of(node).is_some()
    }

    pub(super) fn start_kubelet(&self, node: &mut Node, programs: &Programs) -> Result<()> {
        if let Some(cluster) = self.real_kubelet_of(&node.name) {
            return cluster.start_kubelet();
        }
        let process = Process::start("kubelet", &programs.sim(), &node.folder, |command| {
            command.args(["kubelet", "--node", &node.name, "--kubeconfig"]).arg(self.kubeconfig());
            command.arg("--root").arg(&node.kubelet_root).arg("--cdi-root").arg(&node.cdi_root);
        })?;
        node.kubelet = Some(process);
        Ok(())
    }

    pub(super) async fn kill_kubelet(&self, node: &mut Node) -> Result<()> {
        match self.real_kubelet_of(&node.name) {
            Some(cluster) => cluster.kill_kubelet().await,
            // It is none of those that must run any more.
            None => {
                let mut kubelet = node.kubelet.take().with_context(|| format!("no kubelet runs on {}", node.name))?;
                kubelet.kill().await
            }
        }
    }

    /// The cluster on which our programs run as helm installs them.
    pub(super) fn installed(&self) -> Option<&RealCluster> {
        match self {
            Self::Real(cluster) if cluster.installed => Some(cluster),
            _ => None,
        }
    }

    /// Kubernetes' own DRA test driver, where it is there.
    pub(super) fn test_driver(&self) -> Option<&Path> {
        match self {
            Self::Small(_) => None,
            Self::Real(cluster) => cluster.dra_test_driver.as_deref(),
        }
    }

    fn is_installed(&self) -> bool {
        self.installed().is_some()
    }

    /// What the container of a running pod sees, on the node of this machine that has real containers, or by what the sim's kubelet wrote down.
    pub(super) async fn inside(&self, pods: &Api<Pod>, name: &str) -> Result<Inside> {
        let pod = pods.get(name).await?;
        let node = pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref()).unwrap_or_default();
        match self.real_kubelet_of(node) {
            Some(_) => Inside::of_log(pods, name).await,
            None => Inside::of_annotations(&pod),
        }
    }

    fn real_kubelet_of(&self, node: &str) -> Option<&RealCluster> {
        match self {
            Self::Real(cluster) if cluster.node == node => Some(cluster),
            _ => None,
        }
    }

    pub(super) fn check(&mut self) -> Result<()> {
        match self {
            Self::Small(small) => {
                std::iter::once(&mut small.server).chain(small.actors.values_mut()).try_for_each(Process::check)
            }
            Self::Real(_) => Ok(()),
        }
    }

    pub(super) fn logs(&self) -> Vec<String> {
        match self {
            Self::Small(small) => {
                std::iter::once(&small.server).chain(small.actors.values()).map(Process::log_tail).collect()
            }
            Self::Real(cluster) => vec![cluster.logs()],
        }
    }
}

impl Small {
    async fn start(programs: &Programs, folder: &Path, flags: &[String]) -> Result<Self> {
        let mut server = Process::start("server", &programs.sim(), folder, |command| {
            command.args(["server", "--root"]).arg(folder).args(flags);
        })?;
        let ready = server.line("ready ").await?;
        let kubeconfig = PathBuf::from(field(&ready, "kubeconfig=")?);
        let server_url = field(&ready, "server=")?;
        let mut actors = BTreeMap::new();
        for (actor, flags) in ACTORS {
            let process = Process::start(actor, &programs.sim(), folder, |command| {
                command.args([actor, "--kubeconfig"]).arg(&kubeconfig).args(flags);
            })?;
            actors.insert(actor, process);
        }
        Ok(Self { server, server_url, actors, kubeconfig })
    }
}

/// Our own kind, as helm installs it.
fn kind_of_marks() -> Result<Value> {
    let kind: CustomResourceDefinition =
        serde_saphyr::from_str(include_str!("../../../deploy/chart/crds/devicemarks.yaml"))
            .context("deploy/chart/crds/devicemarks.yaml")?;
    Ok(serde_json::to_value(kind)?)
}

fn classes() -> Result<Vec<Value>> {
    let documents = include_str!("../../../deploy/deviceclasses.yaml").split("\n---\n");
    let class = |document: &str| -> Result<Value> {
        let class: DeviceClass = serde_saphyr::from_str(document).context("deploy/deviceclasses.yaml")?;
        Ok(serde_json::to_value(class)?)
    };
    documents.map(class).collect()
}

pub(super) fn field(line: &str, prefix: &str) -> Result<String> {
    let found = line.split(' ').find_map(|word| word.strip_prefix(prefix));
    Ok(found.with_context(|| format!("no {prefix} in `{line}`"))?.to_owned())
}
