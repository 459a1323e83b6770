//! Preparing and unpreparing claims: the order of the steps, and what stands after each.
//!
//! ```text
//!  prepare:   wait for the claim's turn ─► read the claim ─► decide ─► hold the devices
//!             ─► checkpoint Started ─► CDI spec ─► checkpoint Completed ─► answer
//!  unprepare: wait for the claim's turn ─► remove the CDI spec ─► remove the checkpoint ─► let go of the devices
//! ```
//!
//! Only the last checkpoint is synced to the disk: the first one guards against a crash of this process.
//! A crash between two steps leaves a checkpoint from which preparing again, or unpreparing, gets to the same end. The work is
//! done in tasks of its own: a call that kubelet gives up does not stop it half way.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::call::{CallError, within};
use kube::Client;
use kube::api::GetParams;
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedMutexGuard, watch};
use tokio::time::Instant;
use tokio_util::task::TaskTracker;

use super::checkpoint::{CheckpointError, Checkpoints};
use super::decide::{Decision, Scope, decide, ours, replay};
use super::error::ClaimError;
use super::hardware::Devices;
use super::locks::Locks;
use super::record::{PreparedDevice, Record, State, VERSION};
use super::reserve::{Holder, Reservations, Want};
use super::wire::Claim;
use crate::cdi::{Cdi, CdiDevice};
use crate::metrics::ClaimMetrics;

/// Reading one claim. Kubelet gives the whole call 45 s.
const READ: Duration = Duration::from_secs(10);
/// Waiting for another call of the same claim.
const TURN: Duration = Duration::from_secs(25);
/// Waiting for the first look at the cards after a start.
const FIRST_LOOK: Duration = Duration::from_secs(5);

/// A claim as kubelet names it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ClaimRef {
    /// The UID: what everything is kept under.
    pub uid: String,
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

/// What a prepared claim answers, or why it is not.
pub type Prepared = Result<Vec<PreparedDevice>, ClaimError>;

/// The claims of this node. Cheap to clone.
#[derive(Clone)]
pub struct Claims(Arc<Inner>);

/// What the claims need from their surroundings.
pub struct ClaimsConfig {
    /// Who we are.
    pub scope: Scope,
    /// Reads claims.
    pub client: Client,
    /// The devices of this node; `None` until they were read once.
    pub devices: watch::Receiver<Option<Arc<Devices>>>,
    /// Where checkpoints are.
    pub checkpoints: Checkpoints,
    /// Where CDI specs are.
    pub cdi: Cdi,
    /// Counters.
    pub metrics: ClaimMetrics,
}

/// What came of trying to write, with what to do where that failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskTrial {
    /// The directory of CDI specs.
    pub cdi: Result<(), String>,
    /// The directory of checkpoints.
    pub checkpoints: Result<(), String>,
}

struct Inner {
    config: ClaimsConfig,
    disk_refused: Notify,
    locks: Locks,
    book: Mutex<Book>,
    tasks: TaskTracker,
}

/// What is prepared, in memory. The checkpoints are the truth; this is read at start and kept equal.
#[derive(Default)]
struct Book {
    records: BTreeMap<String, Record>,
    reservations: Reservations,
}

impl Claims {
    /// Reads the checkpoints. One that cannot be read is set aside and reported, and the others are served.
    ///
    /// # Errors
    /// When the directory cannot be read, or a checkpoint is of a newer version.
    pub fn load(config: ClaimsConfig) -> Result<Self, CheckpointError> {
        let loaded = config.checkpoints.load()?;
        for path in &loaded.quarantined {
            tracing::error!(path = %path.display(), "a claim checkpoint cannot be read and was set aside; its devices are not held back from other claims until the node is drained");
            config.metrics.quarantined.inc();
        }
        let mut book = Book::default();
        for record in loaded.records {
            if let Err(held) = book.reservations.take(&holder(&record), &wants(&record.devices)) {
                tracing::error!(claim = %record.claim(), error = %held, "two checkpoints hold the same device");
            }
            book.records.insert(record.uid.clone(), record);
        }
        config.metrics.prepared.set(i64::try_from(book.records.len()).unwrap_or(i64::MAX));
        let (locks, book, tasks) = (Locks::default(), Mutex::new(book), TaskTracker::new());
        Ok(Self(Arc::new(Inner { config, disk_refused: Notify::new(), locks, book, tasks })))
    }

    /// Prepares each claim on its own: one that fails does not harm the others. Ends even when the caller does not wait.
    pub async fn prepare(&self, claims: Vec<ClaimRef>) -> BTreeMap<String, Prepared> {
        self.each(claims, |inner, claim| async move { inner.prepare(&claim).await }).await
    }

    /// Unprepares each claim. Never needs the API server; a claim that is not known is done already.
    pub async fn unprepare(&self, claims: Vec<ClaimRef>) -> BTreeMap<String, Result<(), ClaimError>> {
        self.each(claims, |inner, claim| async move { inner.unprepare(&claim.uid).await }).await
    }

    /// All claims that have a checkpoint.
    #[must_use]
    pub fn known(&self) -> Vec<ClaimRef> {
        let book = self.0.book.lock();
        let named = |record: &Record| ClaimRef {
            uid: record.uid.clone(),
            namespace: record.namespace.clone(),
            name: record.name.clone(),
        };
        book.records.values().map(named).collect()
    }

    /// Whether the API server says that there is no claim of this UID any more.
    ///
    /// # Errors
    /// When the API server gives no answer.
    pub async fn is_gone(&self, claim: &ClaimRef) -> Result<bool, ClaimError> {
        match self.0.read(claim).await {
            Ok(found) => Ok(found.metadata.uid != claim.uid),
            Err(ClaimError::Gone) => Ok(true),
            Err(error) => Err(error),
        }
    }

    /// Writes the CDI specs anew that somebody removed while their claims are prepared. Kubelet remembers the ids that it was answered and does
    /// not ask again, so no container that starts later would find them. Returns the claims whose specs cannot be written.
    pub async fn restore_specs(&self) -> Vec<(ClaimRef, ClaimError)> {
        let mut failed = Vec::new();
        for claim in self.known().into_iter().filter(|claim| self.0.is_bare(&claim.uid)) {
            if let Err(error) = self.0.clone().restore_spec(&claim).await {
                failed.push((claim, error));
            }
        }
        failed
    }

    /// Tries to write where preparing a claim writes: the directory of CDI specs, and that of checkpoints.
    pub async fn try_disk(&self) -> DiskTrial {
        let inner = self.0.clone();
        let trial = tokio::task::spawn_blocking(move || DiskTrial {
            cdi: inner.config.cdi.try_write().map_err(|error| error.to_string()),
            checkpoints: inner.config.checkpoints.try_write().map_err(|error| error.to_string()),
        });
        trial.await.unwrap_or_else(|_| {
            let broken =
                Err("the trial of the disk broke off; this is a defect, please report it with the log".to_owned());
            DiskTrial { cdi: broken.clone(), checkpoints: broken }
        })
    }

    /// Waits until the disk refused something that a claim needs.
    pub async fn disk_refused(&self) {
        self.0.disk_refused.notified().await;
    }

    /// Waits until all work that was begun is done.
    pub async fn drain(&self) {
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }

    async fn each<T, F, W>(&self, claims: Vec<ClaimRef>, work: F) -> BTreeMap<String, Result<T, ClaimError>>
    where
        F: Fn(Arc<Inner>, ClaimRef) -> W,
        W: Future<Output = Result<T, ClaimError>> + Send + 'static,
        T: Send + 'static,
    {
        let running = claims.into_iter().map(|claim| {
            let uid = claim.uid.clone();
            let task = self.0.tasks.spawn(work(self.0.clone(), claim));
            async move { (uid, task.await.unwrap_or(Err(ClaimError::Stopping))) }
        });
        futures::future::join_all(running).await.into_iter().collect()
    }
}

impl Inner {
    async fn prepare(self: Arc<Self>, claim: &ClaimRef) -> Prepared {
        let began = Instant::now();
        let result = self.prepare_in_turn(claim).await;
        self.config.metrics.prepare_seconds.observe(began.elapsed().as_secs_f64());
        self.count("prepare", result.is_ok());
        match &result {
            Ok(devices) => tracing::info!(claim = %claim, devices = devices.len(), "prepared"),
            Err(error) => tracing::warn!(claim = %claim, %error, "not prepared"),
        }
        if matches!(result, Err(ClaimError::Cdi(_) | ClaimError::Checkpoint(_))) {
            self.disk_refused.notify_one();
        }
        result
    }

    async fn prepare_in_turn(self: &Arc<Self>, claim: &ClaimRef) -> Prepared {
        let _turn = self.turn(&claim.uid).await?;
        let devices = self.devices().await?;
        let record = self.book.lock().records.get(&claim.uid).cloned();
        let decision = match self.read(claim).await {
            Ok(found) => {
                let results = ours(&found, &claim.uid, &self.config.scope)?;
                let scope = &self.config.scope;
                decide(&claim.uid, &results, record.as_ref(), &devices, scope, &self.config.cdi)?
            }
            Err(ClaimError::Read(error)) => Decision::Replay(self.answer_without_server(record, &devices, error)?),
            Err(error) => return Err(error),
        };
        match decision {
            Decision::NotOurs => Ok(Vec::new()),
            Decision::Replay(record) => self.repeat(record).await,
            Decision::Prepare(devices) => self.carry_out(claim, devices).await,
        }
    }

    /// A claim that was prepared already can be answered without the API server: its allocation cannot change while it is in use.
    fn answer_without_server(
        &self,
        record: Option<Record>,
        devices: &Devices,
        error: CallError,
    ) -> Result<Record, ClaimError> {
        match record.filter(|record| record.state == State::Completed) {
            Some(record) => replay(&record, devices, &self.config.scope),
            None => Err(ClaimError::Read(error)),
        }
    }

    /// Repeats the side effects of a prepared claim: the CDI directory is emptied by every reboot.
    async fn repeat(self: &Arc<Self>, record: Record) -> Prepared {
        let old = self.book.lock().records.get(&record.uid).cloned();
        let (inner, changed) = (self.clone(), old.as_ref() != Some(&record));
        let record = blocking(move || {
            inner.effects(&record)?;
            if changed {
                inner.config.checkpoints.write(&record)?;
            }
            Ok(record)
        })
        .await?;
        let devices = record.devices.clone();
        self.remember(record);
        Ok(devices)
    }

    async fn restore_spec(self: Arc<Self>, claim: &ClaimRef) -> Result<(), ClaimError> {
        let _turn = self.turn(&claim.uid).await?;
        let scope = &self.config.scope;
        let record = self.book.lock().records.get(&claim.uid).cloned();
        // A call that had its turn before may have changed it.
        let Some(record) = record.filter(|record| self.is_bare(&record.uid)) else { return Ok(()) };
        let record = replay(&record, &*self.devices().await?, scope)?;
        self.repeat(record).await?;
        tracing::warn!(%claim, "somebody removed the claim's CDI spec; wrote it anew");
        Ok(())
    }

    /// Whether a claim is prepared and its spec is gone. Of this boot only: after a reboot no container runs, and kubelet asks again for each
    /// that is to start.
    fn is_bare(&self, uid: &str) -> bool {
        let stands = |record: &Record| record.state == State::Completed && record.boot_id == self.config.scope.boot_id;
        self.book.lock().records.get(uid).is_some_and(stands) && !self.config.cdi.has(uid)
    }

    async fn carry_out(self: &Arc<Self>, claim: &ClaimRef, devices: Vec<PreparedDevice>) -> Prepared {
        let record = Record {
            version: VERSION,
            uid: claim.uid.clone(),
            namespace: claim.namespace.clone(),
            name: claim.name.clone(),
            boot_id: self.config.scope.boot_id.clone(),
            state: State::Started,
            devices,
            extra: serde_json::Map::new(),
        };
        self.hold(&record)?;
        self.remember(record.clone());
        let inner = self.clone();
        let done = blocking(move || match inner.all_steps(record.clone()) {
            Ok(done) => Ok(done),
            Err(error) => {
                inner.take_back(&record);
                Err(error)
            }
        });
        let done = done.await?;
        let devices = done.devices.clone();
        self.remember(done);
        Ok(devices)
    }

    fn all_steps(&self, record: Record) -> Result<Record, ClaimError> {
        self.config.checkpoints.note(&record)?;
        self.effects(&record)?;
        let done = Record { state: State::Completed, ..record };
        self.config.checkpoints.write(&done)?;
        Ok(done)
    }

    /// What preparing changes outside of the state directory.
    fn effects(&self, record: &Record) -> Result<(), ClaimError> {
        let devices: Vec<_> = record.devices.iter().map(cdi_device).collect();
        Ok(self.config.cdi.write(&record.uid, &devices)?)
    }

    /// Undoes a preparation that failed half way. What cannot be undone stays in the book, for unprepare.
    fn take_back(&self, record: &Record) {
        match self.undo(&record.uid) {
            Ok(()) => self.forget(&record.uid),
            Err(error) => tracing::warn!(claim = %record.claim(), %error, "a failed preparation cannot be undone yet"),
        }
    }

    async fn unprepare(self: Arc<Self>, uid: &str) -> Result<(), ClaimError> {
        let result = self.unprepare_in_turn(uid).await;
        self.count("unprepare", result.is_ok());
        match &result {
            Ok(()) => tracing::info!(claim = uid, "unprepared"),
            Err(error) => tracing::warn!(claim = uid, %error, "not unprepared"),
        }
        result
    }

    async fn unprepare_in_turn(self: &Arc<Self>, uid: &str) -> Result<(), ClaimError> {
        let _turn = self.turn(uid).await?;
        let (inner, owned) = (self.clone(), uid.to_owned());
        blocking(move || inner.undo(&owned)).await?;
        self.forget(uid);
        Ok(())
    }

    /// The spec first: while the checkpoint stands, a crash in between is cleaned up by the next unprepare.
    fn undo(&self, uid: &str) -> Result<(), ClaimError> {
        self.config.cdi.remove(uid)?;
        Ok(self.config.checkpoints.remove(uid)?)
    }

    async fn turn(&self, uid: &str) -> Result<OwnedMutexGuard<()>, ClaimError> {
        if !is_uid(uid) {
            return Err(ClaimError::Uid(uid.chars().take(64).collect()));
        }
        tokio::time::timeout(TURN, self.locks.lock(uid)).await.map_err(|_| ClaimError::Busy(TURN.as_secs()))
    }

    async fn devices(&self) -> Result<Arc<Devices>, ClaimError> {
        let mut devices = self.config.devices.clone();
        let read = tokio::time::timeout(FIRST_LOOK, devices.wait_for(Option::is_some)).await;
        let read = read.map_err(|_| ClaimError::Unread)?.map_err(|_| ClaimError::Stopping)?;
        read.clone().ok_or(ClaimError::Unread)
    }

    async fn read(&self, claim: &ClaimRef) -> Result<Claim, ClaimError> {
        let path = format!("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims", claim.namespace);
        let request = kube::core::Request::new(path)
            .get(&claim.name, &GetParams::default())
            .map_err(|error| ClaimError::Read(CallError::Answer(error.to_string())))?;
        match within(READ, self.config.client.request::<Claim>(request)).await {
            Ok(claim) => Ok(claim),
            Err(error) if error.is_not_found() => Err(ClaimError::Gone),
            Err(error) => Err(ClaimError::Read(error)),
        }
    }

    fn hold(&self, record: &Record) -> Result<(), ClaimError> {
        let mut book = self.book.lock();
        // A claim that was allocated anew lets go of what it held before.
        let before = book.records.get(&record.uid).map(|old| wants(&old.devices));
        book.reservations.release(&record.uid);
        let taken = book.reservations.take(&holder(record), &wants(&record.devices));
        if let (Err(_), Some(before)) = (&taken, before) {
            // Its own devices are free again, so this cannot fail.
            book.reservations.take(&holder(record), &before)?;
        }
        Ok(taken?)
    }

    fn remember(&self, record: Record) {
        let mut book = self.book.lock();
        book.records.insert(record.uid.clone(), record);
        self.config.metrics.prepared.set(i64::try_from(book.records.len()).unwrap_or(i64::MAX));
    }

    fn forget(&self, uid: &str) {
        let mut book = self.book.lock();
        book.records.remove(uid);
        book.reservations.release(uid);
        self.config.metrics.prepared.set(i64::try_from(book.records.len()).unwrap_or(i64::MAX));
    }

    fn count(&self, operation: &'static str, good: bool) {
        let outcome = if good { "ok" } else { "error" };
        self.config.metrics.operations.with(&[("operation", operation), ("outcome", outcome)]).inc();
    }
}

impl std::fmt::Display for ClaimRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{} ({})", self.namespace, self.name, self.uid)
    }
}

/// A UID becomes part of file names: nothing that could lead out of a directory.
fn is_uid(text: &str) -> bool {
    !text.is_empty() && text.len() <= 64 && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-')
}

fn holder(record: &Record) -> Holder {
    Holder { uid: record.uid.clone(), claim: record.claim() }
}

fn wants(devices: &[PreparedDevice]) -> Vec<Want> {
    devices.iter().map(|device| Want { device: device.device.clone(), exclusive: device.exclusive }).collect()
}

fn cdi_device(device: &PreparedDevice) -> CdiDevice<'_> {
    CdiDevice {
        device: &device.device,
        share_id: device.share_id.as_deref(),
        uuid: device.identity.uuid.as_deref(),
        minor: device.minor,
    }
}

/// Disk work, off the threads that serve.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ClaimError> + Send + 'static,
) -> Result<T, ClaimError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(ClaimError::Stopping))
}

#[cfg(test)]
mod tests;
