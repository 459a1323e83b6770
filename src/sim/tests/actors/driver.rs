//! A small DRA driver for tests: real sockets, real gRPC, devices that exist only as names.

use std::collections::{BTreeMap, VecDeque};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use futures::{Stream, StreamExt};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::PostParams;
use kube::{Api, Client};
use kubelet_api::dra::v1::dra_plugin_server::{DraPlugin, DraPluginServer};
use kubelet_api::dra::v1::{
    Claim, Device, NodePrepareResourceResponse, NodePrepareResourcesRequest, NodePrepareResourcesResponse,
    NodeUnprepareResourceResponse, NodeUnprepareResourcesRequest, NodeUnprepareResourcesResponse,
};
use kubelet_api::health::v1::dra_resource_health_server::{DraResourceHealth, DraResourceHealthServer};
use kubelet_api::health::v1::{DeviceHealth, DeviceIdentifier, NodeWatchResourcesRequest, NodeWatchResourcesResponse};
use kubelet_api::registration::v1::registration_server::{Registration, RegistrationServer};
use kubelet_api::registration::v1::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use serde_json::{Value, json};
use tokio::net::UnixListener;
use tokio::sync::watch;
use tokio_stream::wrappers::WatchStream;
use tokio_util::sync::{CancellationToken, DropGuard};
use tonic::{Request, Response, Status};

pub(crate) const DRIVER: &str = "test.devicetaint.dev";

/// What the driver did and knows.
#[derive(Default)]
pub(crate) struct Book {
    /// `prepare NAME`, `unprepare NAME`, `registered`, in order.
    pub(crate) calls: Vec<String>,
    /// Claims that are prepared, by UID.
    pub(crate) prepared: BTreeMap<String, String>,
    /// Errors for the next prepare calls.
    pub(crate) fail_prepare: VecDeque<String>,
    /// Errors for the next unprepare calls.
    pub(crate) fail_unprepare: VecDeque<String>,
}

/// The state outlives the sockets, as a driver's checkpoint does.
#[derive(Clone)]
pub(crate) struct Driver {
    name: String,
    client: Client,
    node: String,
    root: PathBuf,
    versions: Vec<String>,
    pub(crate) book: Arc<Mutex<Book>>,
    pub(crate) moved: Arc<watch::Sender<u64>>,
    pub(crate) health: Arc<watch::Sender<Vec<(String, i32)>>>,
}

/// Sockets that are served; they are closed and removed when this is dropped.
pub(crate) struct Running {
    _stop: DropGuard,
    sockets: [PathBuf; 2],
}

impl Drop for Running {
    fn drop(&mut self) {
        for socket in &self.sockets {
            std::fs::remove_file(socket).unwrap();
        }
    }
}

impl Driver {
    pub(crate) fn new(client: Client, name: &str, node: &str, root: &Path) -> Self {
        let versions = ["v1.DRAPlugin", "v1.DRAResourceHealth"].map(str::to_owned).to_vec();
        let (book, root) = (Arc::default(), root.to_owned());
        let (moved, health) = (Arc::new(watch::Sender::new(0)), Arc::new(watch::Sender::new(Vec::new())));
        Self { name: name.to_owned(), client, node: node.to_owned(), root, versions, book, moved, health }
    }

    /// Binds both sockets and serves them.
    pub(crate) fn serve(&self) -> Running {
        let plugin = self.root.join("plugins").join(&self.name);
        std::fs::create_dir_all(&plugin).unwrap();
        let service = plugin.join("dra.sock");
        let registration = self.root.join("plugins_registry").join(format!("{}-reg.sock", self.name));
        let stop = CancellationToken::new();
        let services = tonic::transport::Server::builder()
            .add_service(DraPluginServer::new(self.clone()))
            .add_service(DraResourceHealthServer::new(self.clone()));
        self.spawn(services, &service, &stop);
        let registrations = tonic::transport::Server::builder().add_service(RegistrationServer::new(self.clone()));
        self.spawn(registrations, &registration, &stop);
        Running { _stop: stop.drop_guard(), sockets: [service, registration] }
    }

    fn spawn(&self, router: tonic::transport::server::Router, socket: &Path, stop: &CancellationToken) {
        let incoming = kubelet_api::authority::incoming(UnixListener::bind(socket).unwrap());
        let stop = stop.clone();
        tokio::spawn(async move { stop.run_until_cancelled(router.serve_with_incoming(incoming)).await });
    }

    /// The name of its slice.
    pub(crate) fn slice(&self) -> String {
        format!("{}-{}", self.node, self.name)
    }

    /// Publishes `gpu-0`, `gpu-1`, ... of the node, the first with taints.
    pub(crate) async fn publish(&self, devices: usize, taints: &Value) {
        let device = |index: usize| {
            let taints = if index == 0 { taints.clone() } else { json!([]) };
            json!({"name": format!("gpu-{index}"), "taints": taints})
        };
        let slice = json!({
            "metadata": {"name": self.slice()},
            "spec": {
                "driver": self.name, "nodeName": self.node,
                "pool": {"name": self.node, "generation": 1, "resourceSliceCount": 1},
                "devices": (0..devices).map(device).collect::<Vec<_>>(),
            },
        });
        let slice: ResourceSlice = serde_json::from_value(slice).unwrap();
        Api::all(self.client.clone()).create(&PostParams::default(), &slice).await.unwrap();
    }

    /// Waits until what the driver wrote down is so.
    pub(crate) async fn wait(&self, what: &str, is: impl Fn(&Book) -> bool) {
        let mut moved = self.moved.subscribe();
        let waiting = moved.wait_for(|_| is(&self.book.lock().unwrap()));
        let waited = tokio::time::timeout(super::PATIENCE, waiting).await;
        assert!(waited.is_ok(), "{what}; the driver saw {:?}", self.book.lock().unwrap().calls);
    }

    pub(crate) fn calls(&self) -> Vec<String> {
        self.book.lock().unwrap().calls.clone()
    }

    fn note(&self, change: impl FnOnce(&mut Book)) {
        change(&mut self.book.lock().unwrap());
        self.moved.send_modify(|count| *count += 1);
    }

    async fn prepare_one(&self, claim: &Claim) -> Result<Vec<Device>, String> {
        let failure = {
            let mut book = self.book.lock().unwrap();
            book.calls.push(format!("prepare {}", claim.name));
            book.fail_prepare.pop_front()
        };
        self.note(|_| {});
        if let Some(failure) = failure {
            return Err(failure);
        }
        let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &claim.namespace);
        let found = api.get(&claim.name).await.map_err(|error| error.to_string())?;
        let allocation = found.status.and_then(|status| status.allocation).ok_or("not allocated")?;
        let results = allocation.devices.and_then(|devices| devices.results).unwrap_or_default();
        let device = |result: k8s_openapi::api::resource::v1::DeviceRequestAllocationResult| Device {
            request_names: vec![result.request],
            pool_name: result.pool,
            cdi_device_ids: vec![format!("{}/claim={}-{}", self.name, claim.uid, result.device)],
            device_name: result.device,
            share_id: None,
        };
        self.note(|book| drop(book.prepared.insert(claim.uid.clone(), claim.name.clone())));
        Ok(results.into_iter().map(device).collect())
    }

    fn unprepare_one(&self, claim: &Claim) -> String {
        let mut error = String::new();
        self.note(|book| {
            book.calls.push(format!("unprepare {}", claim.name));
            error = book.fail_unprepare.pop_front().unwrap_or_default();
            if error.is_empty() {
                book.prepared.remove(&claim.uid);
            }
        });
        error
    }
}

#[tonic::async_trait]
impl DraPlugin for Driver {
    async fn node_prepare_resources(
        &self,
        request: Request<NodePrepareResourcesRequest>,
    ) -> Result<Response<NodePrepareResourcesResponse>, Status> {
        let mut claims = BTreeMap::new();
        for claim in request.into_inner().claims {
            let answer = match self.prepare_one(&claim).await {
                Ok(devices) => NodePrepareResourceResponse { devices, error: String::new() },
                Err(error) => NodePrepareResourceResponse { devices: Vec::new(), error },
            };
            claims.insert(claim.uid, answer);
        }
        Ok(Response::new(NodePrepareResourcesResponse { claims }))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<NodeUnprepareResourcesRequest>,
    ) -> Result<Response<NodeUnprepareResourcesResponse>, Status> {
        let claims = request.into_inner().claims.into_iter();
        let claims = claims.map(|claim| {
            let error = self.unprepare_one(&claim);
            (claim.uid, NodeUnprepareResourceResponse { error })
        });
        Ok(Response::new(NodeUnprepareResourcesResponse { claims: claims.collect() }))
    }
}

#[tonic::async_trait]
impl DraResourceHealth for Driver {
    type NodeWatchResourcesStream = Pin<Box<dyn Stream<Item = Result<NodeWatchResourcesResponse, Status>> + Send>>;

    async fn node_watch_resources(
        &self,
        _: Request<NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        let node = self.node.clone();
        let stream = WatchStream::new(self.health.subscribe()).map(move |devices| {
            let device = |(name, health): (String, i32)| DeviceHealth {
                device: Some(DeviceIdentifier { pool_name: node.clone(), device_name: name }),
                health,
                message: "as told".to_owned(),
                ..DeviceHealth::default()
            };
            Ok(NodeWatchResourcesResponse { devices: devices.into_iter().map(device).collect() })
        });
        Ok(Response::new(Box::pin(stream)))
    }
}

#[tonic::async_trait]
impl Registration for Driver {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        let endpoint = self.root.join("plugins").join(&self.name).join("dra.sock");
        Ok(Response::new(PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: self.name.clone(),
            endpoint: endpoint.to_string_lossy().into_owned(),
            supported_versions: self.versions.clone(),
        }))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let text = if status.plugin_registered { "registered".to_owned() } else { status.error };
        self.note(|book| book.calls.push(text));
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
