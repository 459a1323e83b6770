//! A kubelet without containers: an HTTP client that speaks the real gRPC to drivers and runs pods as state only.
//!
//! What flows through: the plugin registry -> [`dial`] (the registration, as grpc-go speaks it) -> the drivers, their connections and
//! their health; pods that are bound to the node -> a worker each -> claims are checked and prepared -> the pod's status -> the end of
//! the pod: unprepare, status, final delete. The node is registered and kept Ready.
//!
//! Nothing really runs, so annotations of a pod say what its containers do. Times are written `500ms`, `2s`, `1m`.
//!
//! | annotation | meaning |
//! |---|---|
//! | `sim.devicetaint.dev/exit-after` | the containers end by themselves after this time; without it they run until they are stopped |
//! | `sim.devicetaint.dev/exit-code` | with which code they end (0); given alone, they end at once |
//! | `sim.devicetaint.dev/stop-after` | how long they need to stop (0s); the pod's grace ends it earlier, with code 137 |
//! | `sim.devicetaint.dev/cdi-env` | written by the kubelet: the environment that CDI brings, by container, as JSON |
//!
//! Long-lived tasks: the node's heartbeat, the plugin manager with one task a socket and one a driver's connection, the pod manager
//! with one worker a pod. All end with the cancellation; prepared claims stay prepared, as they do when a kubelet stops.

mod admission;
mod behaviour;
mod cdi;
mod connection;
pub mod dial;
mod drivers;
mod dynamic;
mod frame;
mod health;
mod node;
mod plugins;
mod pods;
mod prepared;
mod registration;
mod registry;
mod service;
mod status;
mod worker;

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use self::drivers::Drivers;
use self::dynamic::Dynamic;
use self::health::Reports;
use self::prepared::Prepared;
use self::registry::Registry;
use crate::actor::cache::Cache;
use crate::actor::watch::{QUEUE, follow};

/// How long a driver may be away before its slices are deleted: kubelet's own time.
pub const WIPE_GRACE: Duration = Duration::from_secs(30);

/// Settings of one kubelet.
#[derive(Clone, Debug)]
pub struct Config {
    /// The node's name.
    pub node: String,
    /// Kubelet's folder: `plugins_registry` and `plugins` are in it, and `sim-kubelet` with the checkpoint.
    pub root: PathBuf,
    /// Where drivers write CDI specs. When given, the ids that drivers answer are looked up there as a runtime would, and the
    /// environment that they bring is shown in the pod's annotation `sim.devicetaint.dev/cdi-env`.
    pub cdi_root: Option<PathBuf>,
    /// How long a driver may be away before its slices are deleted.
    pub wipe_grace: Duration,
}

impl Config {
    /// A node with kubelet's own times and without a look at CDI.
    pub fn new(node: impl Into<String>, root: impl Into<PathBuf>) -> Self {
        Self { node: node.into(), root: root.into(), cdi_root: None, wipe_grace: WIPE_GRACE }
    }
}

/// Why a kubelet did not start.
#[derive(Debug, thiserror::Error)]
pub enum KubeletError {
    /// A folder cannot be made.
    #[error("kubelet of node {node}: cannot make the folder {path}: {source}; check --root")]
    Folder {
        /// The node.
        node: String,
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The registry cannot be watched.
    #[error("kubelet of node {node}: cannot watch {path}: {source}; inotify may have no watches left")]
    Watch {
        /// The node.
        node: String,
        /// The folder.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The checkpoint cannot be read.
    #[error(
        "kubelet of node {node}: cannot read the checkpoint {path}: {source}; remove it if no pod of this node runs"
    )]
    Checkpoint {
        /// The node.
        node: String,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        source: io::Error,
    },
}

/// What the tasks of one kubelet share.
struct Shared {
    client: Client,
    node: String,
    host_ip: String,
    cdi_root: Option<PathBuf>,
    dynamic: Dynamic,
    reports: Arc<Reports>,
    node_object: watch::Receiver<Option<Arc<Node>>>,
    next_ip: AtomicU32,
}

impl Shared {
    /// An address for a pod: its own within the node, and most likely within the cluster.
    fn next_address(&self) -> String {
        let number = self.next_ip.fetch_add(1, Ordering::Relaxed);
        let node = self.node.bytes().fold(0_u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte));
        format!("10.{node}.{}.{}", (number / 250) % 256, number % 250 + 1)
    }
}

/// Runs a kubelet until cancelled. An API server that is away is waited for.
///
/// # Errors
/// When its folders, its registry or its checkpoint cannot be used.
pub async fn run(config: Config, client: Client, cancel: CancellationToken) -> Result<(), KubeletError> {
    let registry_root = config.root.join("plugins_registry");
    let state_root = config.root.join("sim-kubelet");
    for folder in [&registry_root, &config.root.join("plugins"), &state_root] {
        make_folder(&config.node, folder)?;
    }
    let registry = Registry::watch(&registry_root).map_err(|source| KubeletError::Watch {
        node: config.node.clone(),
        path: registry_root,
        source,
    })?;
    let checkpoint = state_root.join("claims.json");
    let prepared = Prepared::load(&checkpoint).map_err(|source| KubeletError::Checkpoint {
        node: config.node.clone(),
        path: checkpoint.clone(),
        source,
    })?;
    let reports = Arc::new(Reports::default());
    let drivers = Drivers::new(client.clone(), config.node.clone(), config.wipe_grace, Arc::clone(&reports));
    let (node_sender, node_object) = watch::channel(None);
    let shared = Arc::new(Shared {
        client: client.clone(),
        node: config.node.clone(),
        host_ip: "127.0.0.1".to_owned(),
        cdi_root: config.cdi_root,
        dynamic: Dynamic {
            client: client.clone(),
            drivers: Arc::clone(&drivers),
            prepared: Mutex::new(prepared),
            checkpoint,
        },
        reports,
        node_object,
        next_ip: AtomicU32::new(0),
    });
    let mut work = pin!(work(shared, registry, Arc::clone(&drivers), node_sender));
    tokio::select! {
        () = cancel.cancelled() => {}
        () = &mut work => {}
    }
    drivers.shut_down();
    Ok(())
}

fn make_folder(node: &str, path: &Path) -> Result<(), KubeletError> {
    let wrong = |source| KubeletError::Folder { node: node.to_owned(), path: path.to_owned(), source };
    std::fs::create_dir_all(path).map_err(wrong)
}

/// Everything at once, after the slices of a former life are gone: drivers publish them anew.
async fn work(
    shared: Arc<Shared>,
    registry: Registry,
    drivers: Arc<Drivers>,
    node_object: watch::Sender<Option<Arc<Node>>>,
) {
    node::register(&shared.client, &shared.node).await;
    drivers::wipe(&shared.client, &shared.node, None).await;
    tokio::join!(
        node::keep(shared.client.clone(), shared.node.clone()),
        follow_node(shared.client.clone(), shared.node.clone(), node_object),
        plugins::manage(registry, drivers),
        pods::manage(shared),
    );
}

/// Keeps the node's newest object for admission.
async fn follow_node(client: Client, name: String, newest: watch::Sender<Option<Arc<Node>>>) {
    let (sender, mut notices) = mpsc::channel(QUEUE);
    let mut watches = JoinSet::new();
    let own = watcher::Config::default().fields(&format!("metadata.name={name}"));
    follow(&mut watches, Api::all(client), own, sender, Box::<Event<Node>>::new);
    let mut cache: Cache<Node> = Cache::default();
    while let Some(event) = notices.recv().await {
        cache.apply(*event);
        newest.send_replace(cache.named(&name).cloned());
    }
}
