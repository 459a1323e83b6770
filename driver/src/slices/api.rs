//! The calls that the publisher makes, each with an end. The only place of `slices` that talks to the API server.

use std::time::Duration;

use cluster::call::{CallError, within};
use cluster::connect::WATCH_SECONDS;
use cluster::mark::{FOLLOWS_MARKS, VERSION};
use futures::{Stream, StreamExt, TryStreamExt};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceSlice;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Client;
use kube::api::{
    Api, DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions, WatchEvent, WatchParams,
};
use kube::core::{ApiResource, DeserializeGuard, NotUsed, Object, ResourceExt, TypeMeta};
use taints::{Effect, Taint};

use super::limits::Limits;
use super::model::{Device, PoolRef, SliceSpec};
use super::plan::{Stored, generate_name};

/// One call, write or read: longer than a healthy server needs, short enough to try again soon.
const CALL: Duration = Duration::from_secs(5);

type SliceObject = Object<SliceSpec, NotUsed>;
type Guarded = DeserializeGuard<SliceObject>;

/// Whose slices they are: all of one driver on one node.
#[derive(Clone, Debug)]
pub struct Owner {
    /// The DRA driver.
    pub driver: String,
    /// The node, which is also the pool.
    pub node: String,
}

/// The API of this driver's slices on this node.
#[derive(Clone)]
pub struct SliceApi {
    client: Client,
    resource: ApiResource,
    owner: Owner,
}

/// What a watch told.
#[derive(Clone, Debug)]
pub enum News {
    /// A slice is there, or changed.
    There(Box<Stored>),
    /// A slice is gone.
    Gone {
        /// Its name.
        name: String,
        /// Its UID.
        uid: String,
    },
    /// Nothing changed up to now.
    Nothing,
}

/// What a watch told, and the version from which to watch on.
#[derive(Clone, Debug)]
pub struct Heard {
    /// What happened.
    pub news: News,
    /// The version at which it did.
    pub version: String,
}

/// A call of the publisher that failed.
#[derive(Debug, thiserror::Error)]
pub enum SliceError {
    /// The node's UID could not be read.
    #[error("cannot read node {node}: {source}{}", node_hint(source))]
    Node {
        /// The node.
        node: String,
        /// What came back.
        source: CallError,
    },
    /// The server's version could not be read.
    #[error("cannot read the version of the API server: {0}")]
    Version(#[source] CallError),
    /// The slices that are there could not be read.
    #[error("cannot read the ResourceSlices of this node: {0}{hint}", hint = list_hint(.0))]
    List(#[source] CallError),
    /// The watch broke off.
    #[error("the watch of the ResourceSlices of this node ended: {0}")]
    Watch(#[source] CallError),
    /// The server closed a watch as soon as it was opened.
    #[error("the API server closes the watch of the ResourceSlices of this node at once")]
    Closed,
    /// A slice could not be written.
    #[error("cannot {verb} ResourceSlice {name}: {source}")]
    Write {
        /// `create`, `patch` or `delete`.
        verb: &'static str,
        /// The object's name, or the beginning of it.
        name: String,
        /// What came back.
        source: CallError,
    },
    /// Every plan leads to another one.
    #[error("the ResourceSlices of this node do not settle: another writer changes them")]
    Unsettled,
}

impl SliceError {
    /// Whether the next step is to read again at once: somebody else wrote in between.
    #[must_use]
    pub fn is_stale(&self) -> bool {
        matches!(self, Self::Write { source, .. } if source.is_conflict() || source.is_not_found())
    }

    /// Whether only watching failed, which says nothing about writes.
    #[must_use]
    pub fn is_of_watch(&self) -> bool {
        matches!(self, Self::Watch(_) | Self::Closed)
    }
}

fn list_hint(error: &CallError) -> &'static str {
    if error.is_not_found() { "; resource.k8s.io/v1 is needed, which Kubernetes serves from 1.34 on" } else { "" }
}

fn node_hint(error: &CallError) -> &'static str {
    if error.is_not_found() { "; --node-name must be the name of this machine's Node object" } else { "" }
}

impl SliceApi {
    /// Through this client, for this driver on this node.
    #[must_use]
    pub fn new(client: Client, owner: Owner) -> Self {
        Self { client, resource: ApiResource::erase::<ResourceSlice>(&()), owner }
    }

    /// The client that calls go through.
    #[must_use]
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Whose slices they are.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        &self.owner
    }

    /// The UID of the Node object, which owns the slices: they go with it.
    ///
    /// # Errors
    /// When the call fails, or there is no such node.
    pub async fn node_uid(&self) -> Result<String, SliceError> {
        let api: Api<Node> = Api::all(self.client.clone());
        let meta = within(CALL, api.get_metadata(&self.owner.node))
            .await
            .map_err(|source| SliceError::Node { node: self.owner.node.clone(), source })?;
        Ok(meta.metadata.uid.unwrap_or_default())
    }

    /// What this server accepts.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn limits(&self) -> Result<Limits, SliceError> {
        let info = within(CALL, self.client.apiserver_version()).await.map_err(SliceError::Version)?;
        Ok(Limits::of_version(&info.major, &info.minor))
    }

    /// All slices of this driver on this node, and the version at which that holds.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn list(&self) -> Result<(Vec<Stored>, String), SliceError> {
        let api: Api<Guarded> = Api::all_with(self.client.clone(), &self.resource);
        let list =
            within(CALL, api.list(&ListParams::default().fields(&self.selector()))).await.map_err(SliceError::List)?;
        let version = list.metadata.resource_version.unwrap_or_default();
        Ok((list.items.into_iter().map(stored).collect(), version))
    }

    /// What happens to those slices after that version. The stream ends when the server closes it, or nothing came for too long.
    ///
    /// # Errors
    /// When the watch cannot be opened.
    pub async fn watch(
        &self,
        version: &str,
    ) -> Result<impl Stream<Item = Result<Heard, SliceError>> + Send + use<>, SliceError> {
        let api: Api<Guarded> = Api::all_with(self.client.clone(), &self.resource);
        let params = WatchParams::default().fields(&self.selector()).timeout(WATCH_SECONDS);
        let events = within(CALL, api.watch(&params, version)).await.map_err(SliceError::Watch)?;
        Ok(events.map_err(|error| SliceError::Watch(error.into())).map(|event| event.and_then(heard)).boxed())
    }

    /// Creates a slice and returns what the server stored.
    ///
    /// # Errors
    /// When the call fails. Whether the slice was created is then not always known.
    pub async fn create(
        &self,
        node_uid: &str,
        index: usize,
        pool: PoolRef,
        devices: Vec<Device>,
    ) -> Result<Stored, SliceError> {
        let api: Api<SliceObject> = Api::all_with(self.client.clone(), &self.resource);
        let metadata =
            ObjectMeta { owner_references: Some(vec![self.node_reference(node_uid)]), ..ObjectMeta::default() };
        let object = self.object(metadata, index, pool, devices);
        let name = object.metadata.generate_name.clone().unwrap_or_default();
        within(CALL, api.create(&PostParams::default(), &object))
            .await
            .map(|object| stored(DeserializeGuard(Ok(object))))
            .map_err(|source| SliceError::Write { verb: "create", name, source })
    }

    /// Whether this server stores the taints of devices. Asked by creating a slice with one on trial: nothing is stored, and nobody else sees it.
    ///
    /// # Errors
    /// When the call fails, which says nothing about taints.
    pub async fn stores_taints(&self) -> Result<bool, SliceError> {
        let api: Api<SliceObject> = Api::all_with(self.client.clone(), &self.resource);
        let taint = Taint {
            key: format!("{}/trial", self.owner.driver),
            value: String::new(),
            effect: Effect::NoSchedule,
            time_added: None,
        };
        let device = Device { name: "trial".to_owned(), taints: vec![taint], ..Device::default() };
        let pool = PoolRef { name: self.owner.node.clone(), generation: 1, resource_slice_count: 1 };
        let object = self.object(ObjectMeta::default(), 0, pool, vec![device]);
        let on_trial = PostParams { dry_run: true, ..PostParams::default() };
        let name = object.metadata.generate_name.clone().unwrap_or_default();
        let answer = within(CALL, api.create(&on_trial, &object)).await;
        let stored = answer.map_err(|source| SliceError::Write { verb: "create on trial", name, source })?;
        Ok(stored.spec.devices.iter().any(|device| !device.taints.is_empty()))
    }

    /// Rewrites our part of a slice, if it is still at this version, and returns what the server stored.
    ///
    /// # Errors
    /// When the call fails; with a conflict when the slice is at another version.
    pub async fn update(
        &self,
        name: &str,
        resource_version: &str,
        pool: PoolRef,
        devices: Vec<Device>,
    ) -> Result<Stored, SliceError> {
        let api: Api<Guarded> = Api::all_with(self.client.clone(), &self.resource);
        let patch = serde_json::json!({
            "metadata": { "resourceVersion": resource_version, "labels": { FOLLOWS_MARKS: VERSION } },
            "spec": self.spec(pool, devices),
        });
        within(CALL, api.patch(name, &PatchParams::default(), &Patch::Merge(patch)))
            .await
            .map(stored)
            .map_err(|source| SliceError::Write { verb: "patch", name: name.to_owned(), source })
    }

    /// Deletes a slice, if it is still the one that was seen. One that is gone already is fine.
    ///
    /// # Errors
    /// When the call fails; with a conflict when the slice is another one or at another version.
    pub async fn delete(&self, name: &str, uid: &str, resource_version: &str) -> Result<(), SliceError> {
        let api: Api<Guarded> = Api::all_with(self.client.clone(), &self.resource);
        let preconditions =
            Preconditions { uid: Some(uid.to_owned()), resource_version: Some(resource_version.to_owned()) };
        let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() };
        match within(CALL, api.delete(name, &params)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_not_found() => Ok(()),
            Err(source) => Err(SliceError::Write { verb: "delete", name: name.to_owned(), source }),
        }
    }

    fn selector(&self) -> String {
        format!("spec.driver={},spec.nodeName={}", self.owner.driver, self.owner.node)
    }

    fn object(&self, metadata: ObjectMeta, index: usize, pool: PoolRef, devices: Vec<Device>) -> SliceObject {
        let name = generate_name(index, &self.owner.driver, &self.owner.node);
        SliceObject {
            types: Some(TypeMeta { api_version: self.resource.api_version.clone(), kind: self.resource.kind.clone() }),
            metadata: ObjectMeta {
                generate_name: Some(name),
                labels: Some([(FOLLOWS_MARKS.to_owned(), VERSION.to_owned())].into()),
                ..metadata
            },
            spec: self.spec(pool, devices),
            status: None,
        }
    }

    fn spec(&self, pool: PoolRef, devices: Vec<Device>) -> SliceSpec {
        SliceSpec { driver: self.owner.driver.clone(), pool, node_name: Some(self.owner.node.clone()), devices }
    }

    fn node_reference(&self, uid: &str) -> OwnerReference {
        OwnerReference {
            api_version: "v1".to_owned(),
            kind: "Node".to_owned(),
            name: self.owner.node.clone(),
            uid: uid.to_owned(),
            controller: Some(true),
            ..OwnerReference::default()
        }
    }
}

/// An object that cannot be read is kept without a pool: it is in the way, and will be deleted.
fn stored(object: Guarded) -> Stored {
    let (name, uid) = (object.name_any(), object.uid().unwrap_or_default());
    let resource_version = object.resource_version().unwrap_or_default();
    match object.0 {
        Ok(object) => {
            Stored { name, uid, resource_version, pool: Some(object.spec.pool), devices: object.spec.devices }
        }
        Err(invalid) => {
            tracing::warn!(slice = %name, error = %invalid.error, "a ResourceSlice of this node cannot be read; it will be replaced");
            Stored { name, uid, resource_version, pool: None, devices: Vec::new() }
        }
    }
}

fn heard(event: WatchEvent<Guarded>) -> Result<Heard, SliceError> {
    match event {
        WatchEvent::Added(object) | WatchEvent::Modified(object) => {
            let slice = stored(object);
            Ok(Heard { version: slice.resource_version.clone(), news: News::There(Box::new(slice)) })
        }
        WatchEvent::Deleted(object) => Ok(Heard {
            version: object.resource_version().unwrap_or_default(),
            news: News::Gone { name: object.name_any(), uid: object.uid().unwrap_or_default() },
        }),
        WatchEvent::Bookmark(bookmark) => {
            Ok(Heard { version: bookmark.metadata.resource_version, news: News::Nothing })
        }
        WatchEvent::Error(status) => Err(SliceError::Watch(CallError::Status(status))),
    }
}
