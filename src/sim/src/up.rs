//! The whole cluster in one process: the API server, and a scheduler, a claim controller and kubelets as its clients.
//!
//! Long-lived tasks: the server's, one for each of the others. The first one that ends by itself ends the cluster.

use std::path::{Path, PathBuf};
use std::time::Duration;

use cluster::connect::{ConnectError, ConnectOptions, connect};
use k8s_openapi::api::core::v1::Node;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, Client, Config};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::actor::outage;
use crate::kubelet::{self, KubeletError};
use crate::server::{Options, Running, Server, StartError, dns_subdomain};
use crate::{claims, scheduler};

/// How long the nodes may take until they are ready.
const NODES_READY: Duration = Duration::from_secs(30);

/// What a cluster consists of.
#[derive(Debug, Clone)]
pub struct Cluster {
    /// The API server; its root holds the folders of the nodes too.
    pub server: Options,
    /// The names of the nodes. The kubelet of node N has `ROOT/nodes/N/kubelet` as its root.
    pub nodes: Vec<String>,
    /// Look up the CDI ids that drivers answer in `ROOT/nodes/N/cdi`, as a container runtime would.
    pub cdi: bool,
    /// How long a driver may be away before a kubelet deletes its slices; kubelet's own 30 s when absent.
    pub wipe_grace: Option<Duration>,
    /// How long a Node may be gone before its pods are deleted.
    pub orphan_grace: Duration,
}

/// Why a cluster did not start, or ended by itself.
#[derive(Debug, thiserror::Error)]
pub enum UpError {
    /// The API server did not start.
    #[error(transparent)]
    Server(#[from] StartError),
    /// A part cannot reach the server.
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// A kubelet did not start.
    #[error(transparent)]
    Kubelet(#[from] KubeletError),
    /// A node is not ready in time.
    #[error("node {node} is not ready after {} s; the log of its kubelet says why", NODES_READY.as_secs())]
    NotReady {
        /// The node.
        node: String,
    },
    /// A part ended, and nobody asked it to.
    #[error("a part of the cluster ended by itself: {0}")]
    Ended(String),
}

impl Cluster {
    /// A cluster of these nodes, everything else as usual.
    pub fn new(root: impl Into<PathBuf>, nodes: Vec<String>) -> Self {
        Self { server: Options::new(root), nodes, cdi: false, wipe_grace: None, orphan_grace: claims::ORPHAN_GRACE }
    }

    /// The root of a node's kubelet.
    pub fn kubelet_root(&self, node: &str) -> PathBuf {
        self.server.root.join("nodes").join(node).join("kubelet")
    }

    /// Runs the cluster until cancelled; calls `ready` once, when all nodes are ready.
    ///
    /// # Errors
    /// When a part does not start, or ends by itself.
    pub async fn run<E>(
        &self,
        ready: impl FnOnce(&Running) -> Result<(), E>,
        cancel: CancellationToken,
    ) -> Result<(), UpError>
    where
        E: std::fmt::Display,
    {
        let running = Server::start(self.server.clone()).await?;
        let parts = cancel.child_token();
        let mut tasks = JoinSet::new();
        let outcome = self.watch_over(&running, &mut tasks, ready, &cancel, &parts).await;
        parts.cancel();
        while let Some(ended) = tasks.join_next().await {
            log_end(ended);
        }
        running.stop().await;
        outcome
    }

    async fn watch_over<E: std::fmt::Display>(
        &self,
        running: &Running,
        tasks: &mut JoinSet<Result<(), UpError>>,
        ready: impl FnOnce(&Running) -> Result<(), E>,
        cancel: &CancellationToken,
        parts: &CancellationToken,
    ) -> Result<(), UpError> {
        self.spawn(running, tasks, parts).await?;
        let client = client(&running.kubeconfig, "sim").await?;
        // The order matters: parts that end because all were told to are no failure.
        tokio::select! {
            biased;
            () = cancel.cancelled() => return Ok(()),
            ended = tasks.join_next() => return Err(ended_early(ended)),
            all = self.nodes_ready(&client) => all?,
        }
        ready(running).map_err(|error| UpError::Ended(error.to_string()))?;
        tokio::select! {
            biased;
            () = cancel.cancelled() => Ok(()),
            ended = tasks.join_next() => Err(ended_early(ended)),
        }
    }

    async fn spawn(
        &self,
        running: &Running,
        tasks: &mut JoinSet<Result<(), UpError>>,
        parts: &CancellationToken,
    ) -> Result<(), UpError> {
        let scheduler_client = client(&running.kubeconfig, "sim-scheduler").await?;
        let claims_client = client(&running.kubeconfig, "sim-claims").await?;
        let (token, other, orphan_grace) = (parts.clone(), parts.clone(), self.orphan_grace);
        tasks.spawn(async move {
            scheduler::run(scheduler_client, token).await;
            Ok(())
        });
        tasks.spawn(async move {
            claims::run(claims_client, orphan_grace, other).await;
            Ok(())
        });
        for node in &self.nodes {
            let client = client(&running.kubeconfig, "sim-kubelet").await?;
            let (config, token) = (self.kubelet(node), parts.clone());
            tasks.spawn(async move { Ok(kubelet::run(config, client, token).await?) });
        }
        Ok(())
    }

    fn kubelet(&self, node: &str) -> kubelet::Config {
        let mut config = kubelet::Config::new(node, self.kubelet_root(node));
        config.cdi_root = self.cdi.then(|| self.server.root.join("nodes").join(node).join("cdi"));
        config.wipe_grace = self.wipe_grace.unwrap_or(kubelet::WIPE_GRACE);
        config
    }

    async fn nodes_ready(&self, client: &Client) -> Result<(), UpError> {
        let nodes: Api<Node> = Api::all(client.clone());
        for node in &self.nodes {
            let waiting = await_condition(nodes.clone(), node, is_ready());
            let not_ready = || UpError::NotReady { node: node.clone() };
            match tokio::time::timeout(NODES_READY, waiting).await {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(UpError::Ended(error.to_string())),
                Err(_) => return Err(not_ready()),
            }
        }
        Ok(())
    }
}

/// A client of the cluster under this name, which tells an outage of the server once.
///
/// # Errors
/// When the kubeconfig cannot be used.
pub async fn client(kubeconfig: &Path, user_agent: &str) -> Result<Client, ConnectError> {
    let options =
        ConnectOptions { kubeconfig: Some(kubeconfig.to_owned()), context: None, user_agent: user_agent.to_owned() };
    let client = connect(&options).await?;
    let wrong = |source| ConnectError::File { path: kubeconfig.display().to_string(), source };
    let file = Kubeconfig::read_from(kubeconfig).map_err(wrong)?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.map_err(wrong)?;
    Ok(outage::telling(client, user_agent, &config.cluster_url.to_string()))
}

/// The name of a node, as the API server will take it for the Node and for its label `kubernetes.io/hostname`.
///
/// # Errors
/// What is wrong with the name.
pub fn node_name(text: &str) -> Result<String, String> {
    if dns_subdomain(text, 63) {
        Ok(text.to_owned())
    } else {
        Err("no name of a node: at most 63 lower-case letters, digits, `-` and `.`, such as n1 or rack-7.node-3"
            .to_owned())
    }
}

fn is_ready() -> impl Condition<Node> {
    |node: Option<&Node>| {
        let conditions = node.and_then(|node| node.status.as_ref()).and_then(|status| status.conditions.as_ref());
        conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
    }
}

type Ended = Result<Result<(), UpError>, JoinError>;

fn ended_early(ended: Option<Ended>) -> UpError {
    match ended {
        Some(Ok(Err(error))) => error,
        Some(Err(error)) => UpError::Ended(error.to_string()),
        Some(Ok(Ok(()))) | None => UpError::Ended("without a reason".to_owned()),
    }
}

fn log_end(ended: Ended) {
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::warn!(%error, "a part of the cluster ended with an error"),
        Err(error) => tracing::error!(%error, "a part of the cluster failed"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_no_node_can_have_are_refused() {
        for name in ["n1", "rack-7.node-3", &"a".repeat(63)] {
            assert_eq!(node_name(name), Ok(name.to_owned()));
        }
        for name in ["", "N_1", "n1.", "-n", "n 1", &"a".repeat(64)] {
            assert!(node_name(name).unwrap_err().contains("such as n1"), "{name:?}");
        }
    }

    #[tokio::test]
    async fn a_cluster_comes_up_and_goes_down() {
        let folder = tempfile::tempdir().unwrap();
        let cluster = Cluster::new(folder.path(), vec!["n1".to_owned(), "n2".to_owned()]);
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        let ready = move |running: &Running| {
            let written = running.kubeconfig.exists();
            token.cancel();
            if written { Ok(()) } else { Err("no kubeconfig") }
        };
        cluster.run(ready, cancel).await.unwrap();
        assert!(folder.path().join("nodes/n2/kubelet/plugins_registry").is_dir());
    }
}
