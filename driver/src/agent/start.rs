//! From flags to tasks that are ready to run. Nothing here waits for the API server, for kubelet, or for NVML.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cluster::connect::{ConnectOptions, connect};
use jiff::SignedDuration;
use kube::Client;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::AgentError;
use super::core::Core;
use super::lock::{Lock, Place};
use super::post::{Post, Seen};
use super::remembered::Remembered;
use super::saver::Saver;
use super::telling::{Contests, TaintsOff};
use super::watcher::{Outputs, Watcher, now};
use crate::cdi::Cdi;
use crate::claims::keep::Disk;
use crate::claims::{Checkpoints, Claims, ClaimsConfig, Devices, Scope};
use crate::config::Config;
use crate::health::{Health, HealthConfig};
use crate::http::{self, Web};
use crate::http_checks::{Level, Readiness};
use crate::inventory::Inventory;
use crate::marks::{Following, Marks};
use crate::metrics::Metrics;
use crate::notices::{self, Notice};
use crate::nvml::{self, Known, Supervisor, Timing};
use crate::owner::{Looker, Offer, Others};
use crate::plugin::health::Report;
use crate::plugin::{Paths, Plugin, Registration};
use crate::policy::Policy;
use crate::slices::{Owner, Published, Publisher, SliceApi};
use crate::state::{Memory, State};

/// Told by an agent that has nothing to do yet.
const STANDBY: &str = "another gpu-driver serves this node; this one takes over when that one ends";
/// How long the marks of people may take before the first publish. A server that does not answer takes no slices either, so that this
/// matters only where marks alone cannot be read.
const FIRST_MARKS: Duration = Duration::from_secs(5);

/// What is there before the state directory may be used: enough to answer probes.
pub(super) struct Front {
    pub(super) web: Web,
    pub(super) listener: TcpListener,
    pub(super) back: Back,
}

/// What waits for its turn.
pub(super) struct Back {
    policy: Policy,
    boot_id: String,
    client: Client,
    metrics: Arc<Metrics>,
    outputs: Outputs,
    inputs: Inputs,
    published: watch::Sender<Published>,
    registration: watch::Sender<Registration>,
    claims: watch::Sender<Option<Claims>>,
    standby: watch::Sender<Option<Level>>,
    marks: watch::Sender<Marks>,
    state: watch::Sender<Level>,
    owner: watch::Sender<Level>,
    disk: Disk,
}

/// Every task, ready to run.
pub(super) struct Prepared {
    pub(super) watcher: Watcher,
    pub(super) publisher: Publisher,
    pub(super) saver: Saver,
    pub(super) claims: Claims,
    pub(super) marks: Following,
    pub(super) disk: Disk,
    /// How often what claims need on disk is looked at.
    pub(super) look: Duration,
    pub(super) looker: Looker,
    pub(super) notices: (SliceApi, mpsc::Receiver<Notice>),
}

/// The channels between the tasks: the ends that are read.
struct Inputs {
    wanted: watch::Receiver<Option<crate::slices::Pool>>,
    devices: watch::Receiver<Option<Arc<Devices>>>,
    report: watch::Receiver<Arc<Report>>,
    memory: watch::Receiver<Memory>,
    nvml: watch::Receiver<Level>,
    heartbeat: watch::Receiver<Instant>,
}

/// Reads what the flags name, and takes the address of the HTTP server.
pub(super) async fn front(config: &Config, listening: impl FnOnce(SocketAddr)) -> Result<Front, AgentError> {
    let policy = policy(config.policy.as_deref())?;
    let boot_id = read("--boot-id-file", &config.boot_id_file)?.trim().to_owned();
    let client = connect(&ConnectOptions {
        kubeconfig: config.kubeconfig.clone(),
        context: None,
        user_agent: concat!("gpu-driver/", env!("CARGO_PKG_VERSION")).to_owned(),
    })
    .await?;
    let listener = http::bind(config.listen).await?;
    listening(listener.local_addr().map_err(http::HttpError::Address)?);

    let metrics = Arc::new(Metrics::new());
    let (outputs, inputs) = channels(&config.node_name);
    let published = watch::Sender::new(Published::default());
    let registration = watch::Sender::new(Registration::default());
    let marks = watch::Sender::new(Marks::default());
    let (state, owner) = (watch::Sender::new(Level::Good), watch::Sender::new(Level::Good));
    let (claims, standby) = (watch::Sender::new(None), watch::Sender::new(None));
    let untried = || watch::Sender::new(Level::Degraded("not tried yet".to_owned()));
    let disk = Disk { cdi: untried(), checkpoints: untried() };
    let readiness = Readiness {
        standby: standby.subscribe(),
        registration: registration.subscribe(),
        published: published.subscribe(),
        nvml: inputs.nvml.clone(),
        owner: owner.subscribe(),
        marks: marks.subscribe(),
        state: state.subscribe(),
        cdi: disk.cdi.subscribe(),
        checkpoints: disk.checkpoints.subscribe(),
        heartbeat: inputs.heartbeat.clone(),
    };
    let web = Web { metrics: metrics.clone(), readiness };
    let back = Back {
        policy,
        boot_id,
        client,
        metrics,
        outputs,
        inputs,
        published,
        registration,
        claims,
        marks,
        standby,
        state,
        owner,
        disk,
    };
    Ok(Front { web, listener, back })
}

impl Back {
    /// Waits until no other agent serves the node. Meanwhile this one is alive and stands by: ready, for whoever rolls out waits for that before
    /// ending the other one.
    pub(super) async fn post(&self, config: &Config) -> Result<Post, AgentError> {
        let dir = config.state_dir.display();
        let post = Post::take(&config.state_dir, |place| {
            let level = match place {
                Place::Next => Level::Failed(format!("another gpu-driver with {dir} is about to serve this node")),
                Place::Serving | Place::State => Level::Degraded(STANDBY.to_owned()),
            };
            if self.standby.send_replace(Some(level)).is_none() {
                tracing::info!(%dir, "another gpu-driver serves this node; waiting until it ends");
            }
            self.outputs.heartbeat.send_replace(Instant::now());
        });
        let post = post.await?;
        self.standby.send_replace(None);
        Ok(post)
    }

    /// What kubelet is served with. Its calls wait for the claims.
    pub(super) fn plugin(&self, config: &Config, instance: &str) -> (Plugin, Seen) {
        let reached = watch::Sender::new(false);
        let seen = Seen { registration: self.registration.subscribe(), reached: reached.subscribe() };
        let plugin = Plugin {
            driver: config.driver_name.clone(),
            paths: Paths::new(&config.kubelet_root, &config.driver_name, Some(instance)),
            claims: self.claims.subscribe(),
            reports: self.inputs.report.clone(),
            registration: self.registration.clone(),
            reached,
            metrics: self.metrics.plugin.clone(),
        };
        (plugin, seen)
    }

    /// Waits until the agent that served before has let go of the state directory.
    pub(super) async fn lock(&self, config: &Config) -> Result<Lock, AgentError> {
        let dir = config.state_dir.display();
        let lock = Lock::take(&config.state_dir, Place::State, || {
            let why =
                format!("the gpu-driver before this one still uses {dir}; this one begins when that one has ended");
            self.state.send_replace(Level::Failed(why));
            self.outputs.heartbeat.send_replace(Instant::now());
        });
        let lock = lock.await?;
        self.state.send_replace(Level::Good);
        Ok(lock)
    }

    /// Reads what is remembered, and makes the tasks.
    pub(super) fn prepare(self, config: &Config) -> Result<Prepared, AgentError> {
        let (state, memory, set_aside) = State::load(&config.state_dir)?;
        for entry in &set_aside {
            tracing::error!("{entry}");
        }
        let Self { policy, boot_id, client, metrics, outputs, inputs, published, marks, owner, disk, .. } = self;
        let claims = claims(config, &boot_id, client.clone(), inputs.devices, &metrics)?;
        self.claims.send_replace(Some(claims.clone()));
        let (looker, others) = looker(config, client.clone(), memory.others.clone(), &metrics);
        let (tell, notices) = notices::channel();
        let taints_off = TaintsOff { notices: tell.clone(), told: false };
        let contests = Contests {
            level: owner,
            metrics: metrics.owner.clone(),
            notices: tell,
            told: None,
            announced: BTreeSet::new(),
        };
        let heard = Heard { published: published.subscribe(), others, marks: marks.subscribe(), contests, taints_off };
        let marks = following(config, client.clone(), marks);
        let api = SliceApi::new(client, ours(config));
        let publisher = Publisher::new(api.clone(), inputs.wanted, published, metrics.slices.clone());
        let saved = watch::Sender::new(memory.inventory.clone());
        let remembered = Remembered::new(saved.subscribe());
        let failures = metrics.health.save_failures.clone();
        let saver = Saver { state, memory: inputs.memory, saved, level: self.state, failures };
        let watcher = watcher(config, boot_id, policy, (memory, remembered), outputs, heard, &metrics);
        let (look, notices) = (config.poll_interval.0, (api, notices));
        Ok(Prepared { watcher, publisher, saver, claims, marks, disk, look, looker, notices })
    }
}

/// What the watcher hears of the API server.
struct Heard {
    published: watch::Receiver<Published>,
    others: watch::Receiver<Option<Others>>,
    marks: watch::Receiver<Marks>,
    contests: Contests,
    taints_off: TaintsOff,
}

fn ours(config: &Config) -> Owner {
    Owner { driver: config.driver_name.clone(), node: config.node_name.clone() }
}

fn following(config: &Config, client: Client, marks: watch::Sender<Marks>) -> Following {
    let Owner { driver, node: pool } = ours(config);
    Following { driver, pool, client, marks }
}

fn looker(
    config: &Config,
    client: Client,
    remembered: BTreeSet<Offer>,
    metrics: &Metrics,
) -> (Looker, watch::Receiver<Option<Others>>) {
    let (others, known) = watch::channel(None);
    let looker = Looker {
        client,
        ours: ours(config),
        grace: config.other_owner_grace.0,
        remembered,
        look: !config.ignore_other_owners,
        others,
        metrics: metrics.owner.clone(),
    };
    (looker, known)
}

fn watcher(
    config: &Config,
    boot_id: String,
    policy: Policy,
    (memory, remembered): (Memory, Remembered),
    outputs: Outputs,
    Heard { published, others, marks, contests, taints_off }: Heard,
    metrics: &Metrics,
) -> Watcher {
    let poll = config.poll_interval.0;
    let health_config = HealthConfig {
        domain: config.driver_name.clone(),
        boot_id,
        quiet_period: signed(config.quiet_period.0),
        stale_after: signed(poll * 2 + Duration::from_secs(5)),
    };
    let inventory = Inventory::restore(memory.inventory);
    let health = Health::restore(health_config, memory.health, &policy, now());
    let known: Vec<_> =
        inventory.cards().map(|card| Known { pci: card.pci, uuid: card.identity.uuid.clone() }).collect();
    let timing = Timing { poll, rescan: (poll * 4).min(Duration::from_secs(60)), ..Timing::default() };
    let libraries = config.nvml_library.clone();
    let (supervisor, updates) =
        Supervisor::spawn(nvml::Config { libraries, known: known.clone(), timing, ..nvml::Config::default() });
    Watcher {
        core: Core::new(&config.node_name, inventory, health, policy)
            .remembering_marks(memory.marks)
            .remembering_others(memory.others),
        supervisor,
        updates,
        known,
        published,
        others,
        heeded: None,
        contests,
        taints_off,
        marks,
        marks_by: Instant::now() + FIRST_MARKS,
        outputs,
        metrics: metrics.health.clone(),
        sysfs_root: config.sysfs_root.clone(),
        sysfs_interval: poll,
        sysfs_look: None,
        unshared: false,
        remembered,
        read_by: Instant::now(),
    }
}

fn claims(
    config: &Config,
    boot_id: &str,
    client: Client,
    devices: watch::Receiver<Option<Arc<Devices>>>,
    metrics: &Metrics,
) -> Result<Claims, AgentError> {
    Ok(Claims::load(ClaimsConfig {
        scope: Scope {
            driver: config.driver_name.clone(),
            pool: config.node_name.clone(),
            boot_id: boot_id.to_owned(),
        },
        client,
        devices,
        checkpoints: Checkpoints::open(&config.state_dir.join("claims"))?,
        cdi: Cdi::new(&config.cdi_root, &config.dev_root, &config.driver_name),
        metrics: metrics.claims.clone(),
    })?)
}

fn channels(pool: &str) -> (Outputs, Inputs) {
    let (wanted_sender, wanted) = watch::channel(None);
    let (devices_sender, devices) = watch::channel(None);
    let empty = Report { pool: pool.to_owned(), devices: Vec::new() };
    let (report_sender, report) = watch::channel(Arc::new(empty));
    let (memory_sender, memory) = watch::channel(Memory::default());
    let (nvml_sender, nvml) = watch::channel(Level::Degraded("not opened yet".to_owned()));
    let (heartbeat_sender, heartbeat) = watch::channel(Instant::now());
    let outputs = Outputs {
        wanted: wanted_sender,
        devices: devices_sender,
        report: report_sender,
        memory: memory_sender,
        nvml: nvml_sender,
        heartbeat: heartbeat_sender,
    };
    (outputs, Inputs { wanted, devices, report, memory, nvml, heartbeat })
}

fn policy(file: Option<&Path>) -> Result<Policy, AgentError> {
    let shipped = Policy::default_table()?;
    match file {
        Some(path) => Ok(shipped.with_file(&path.display().to_string(), &read("--policy", path)?)?),
        None => Ok(shipped),
    }
}

fn read(flag: &'static str, path: &Path) -> Result<String, AgentError> {
    std::fs::read_to_string(path).map_err(|source| AgentError::File { flag, path: path.to_owned(), source })
}

fn signed(span: Duration) -> SignedDuration {
    SignedDuration::try_from(span).unwrap_or(SignedDuration::MAX)
}
