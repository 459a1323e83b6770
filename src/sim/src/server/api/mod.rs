//! What the API does with objects, without HTTP: a request comes in as a `Target` and a body, runs under one lock as a
//! transaction (decode, defaults, rules, ownership, store, what follows from it), and gives the stored object.

mod binding;
mod budget;
mod commit;
mod create;
mod decode;
mod delete;
mod eviction;
mod read;
mod update;

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::json;

pub(crate) use decode::{Validation, deleted, present};
pub(crate) use delete::DeleteOptions;
pub(crate) use read::{Page, Query, RevisionMatch, expired};

use super::error::ApiError;
use super::kinds::{Kinds, Resource, Rules};
use super::store::{Key, Object, Store};
use super::world::World;

/// What a request is about.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) resource: Arc<Resource>,
    pub(crate) version: String,
    /// Empty for cluster-scoped kinds, and for lists over all namespaces.
    pub(crate) namespace: String,
    /// Empty for collections.
    pub(crate) name: String,
    /// Empty for the object itself.
    pub(crate) subresource: String,
}

impl Target {
    pub(crate) fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }

    pub(crate) fn api_version(&self) -> String {
        self.resource.api_version(&self.version)
    }

    fn of(resource: &Arc<Resource>, key: &Key) -> Self {
        Self {
            resource: resource.clone(),
            version: resource.versions.first().cloned().unwrap_or_default(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            subresource: String::new(),
        }
    }
}

/// How a write is to be done.
#[derive(Debug, Clone, Default)]
pub(crate) struct WriteOptions {
    /// Who writes, for `managedFields`.
    pub(crate) manager: String,
    /// Do everything but the write itself.
    pub(crate) dry_run: bool,
    /// What to do about unknown fields.
    pub(crate) validation: Validation,
    /// Server-side apply takes fields from other managers.
    pub(crate) force: bool,
}

/// Everything behind the lock.
pub(crate) struct State {
    pub(crate) store: Store,
    pub(crate) kinds: Kinds,
    /// Whether the taints of devices in slices are stored: the gate `DRADeviceTaints`.
    pub(crate) device_taints: bool,
}

/// The cluster's objects and the rules for changing them.
pub(crate) struct Cluster {
    state: Mutex<State>,
    world: Box<dyn World>,
}

/// One write and all that follows from it, under the lock.
pub(crate) struct Txn<'a> {
    state: &'a mut State,
    world: &'a dyn World,
    now: Timestamp,
    options: &'a WriteOptions,
    /// For the client's eyes, sent as `Warning` headers.
    pub(crate) warnings: Vec<String>,
    follow: VecDeque<Follow>,
}

/// What still has to happen after a write.
enum Follow {
    /// An object is gone: those that name it as their owner may have to go too.
    OwnerGone { uid: String },
    /// A namespace on its way out may be empty now.
    NamespaceEmptied { name: String },
    /// Pods or budgets of a namespace changed.
    Budgets { namespace: String },
}

impl std::fmt::Debug for Cluster {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cluster").field("revision", &self.revision()).finish_non_exhaustive()
    }
}

impl Cluster {
    /// A cluster with the namespaces that every cluster has, which keeps the last `history` writes of each kind.
    pub(crate) fn new(rules: Rules, history: usize, world: Box<dyn World>) -> Self {
        let state = State { store: Store::new(history), kinds: Kinds::new(rules), device_taints: true };
        let cluster = Self { state: Mutex::new(state), world };
        let options = WriteOptions { manager: "kube-apiserver".to_owned(), ..WriteOptions::default() };
        for name in ["default", "kube-node-lease", "kube-public", "kube-system"] {
            let made = cluster.write(&options, |txn| {
                let Some(resource) = txn.state.kinds.builtin("Namespace") else { return Ok(()) };
                let target = Target { name: String::new(), ..Target::of(&resource, &Key::new("", "")) };
                txn.create(&target, json!({"metadata": {"name": name}})).map(|_| ())
            });
            if let Err(error) = made {
                tracing::error!(%error, name, "a namespace could not be made");
            }
        }
        cluster
    }

    /// The time of this cluster.
    pub(crate) fn now(&self) -> Timestamp {
        self.world.now()
    }

    /// The number of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.read(|state| state.store.revision())
    }

    /// Looks at the state under the lock.
    pub(crate) fn read<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.state.lock())
    }

    /// Runs a write under the lock, with all that follows from it; gives warnings for the client beside the result.
    pub(crate) fn write<T>(
        &self,
        options: &WriteOptions,
        work: impl FnOnce(&mut Txn<'_>) -> Result<T, ApiError>,
    ) -> Result<(T, Vec<String>), ApiError> {
        let mut state = self.state.lock();
        let world = &*self.world;
        let mut txn =
            Txn { state: &mut state, world, now: world.now(), options, warnings: Vec::new(), follow: VecDeque::new() };
        let result = work(&mut txn)?;
        txn.settle();
        Ok((result, txn.warnings))
    }
}

impl Txn<'_> {
    fn current(&self, target: &Target) -> Result<Object, ApiError> {
        let found = self.state.store.get(&target.resource.table, &target.key());
        found.cloned().ok_or_else(|| ApiError::not_found(&target.resource, &target.name))
    }
}
