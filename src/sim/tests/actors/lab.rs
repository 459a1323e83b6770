//! A cluster of parts that a test can stop and start one by one.

use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::runtime::wait::await_condition;
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sim::server::{Options, Running, Server};
use sim::{claims, kubelet, scheduler, up};
use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::PATIENCE;
use super::driver::{DRIVER, Driver};

/// How long a Node may be gone before its pods are deleted.
const ORPHAN_GRACE: Duration = Duration::from_millis(400);

pub(crate) struct Lab {
    pub(crate) client: Client,
    server: Running,
    folder: TempDir,
    parts: CancellationToken,
}

/// A kubelet that a test can stop.
pub(crate) struct Kubelet {
    stop: CancellationToken,
    task: JoinHandle<Result<(), kubelet::KubeletError>>,
}

impl Kubelet {
    pub(crate) async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.parts.cancel();
    }
}

impl Lab {
    /// A server with a scheduler and a claim controller, and a class for the test driver.
    pub(crate) async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let server = Server::start(Options::new(folder.path())).await.unwrap();
        let parts = CancellationToken::new();
        let client = up::client(&server.kubeconfig, "tester").await.unwrap();
        let scheduler_client = up::client(&server.kubeconfig, "sim-scheduler").await.unwrap();
        let claims_client = up::client(&server.kubeconfig, "sim-claims").await.unwrap();
        tokio::spawn(scheduler::run(scheduler_client, parts.clone()));
        tokio::spawn(claims::run(claims_client, ORPHAN_GRACE, parts.clone()));
        let lab = Self { client, server, folder, parts };
        let selector = json!([{"cel": {"expression": format!("device.driver == '{DRIVER}'")}}]);
        lab.create_global::<DeviceClass>(json!({"metadata": {"name": "gpu"}, "spec": {"selectors": selector}})).await;
        let spec = json!({"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu"}}]}});
        lab.create::<ResourceClaimTemplate>(json!({"metadata": {"name": "one-gpu"}, "spec": {"spec": spec}})).await;
        lab.create::<ResourceClaim>(json!({"metadata": {"name": "shared"}, "spec": spec})).await;
        lab
    }

    pub(crate) fn kubelet_root(&self, node: &str) -> PathBuf {
        self.folder.path().join("nodes").join(node).join("kubelet")
    }

    pub(crate) async fn kubelet(&self, node: &str) -> Kubelet {
        let client = up::client(&self.server.kubeconfig, "sim-kubelet").await.unwrap();
        let mut config = kubelet::Config::new(node, self.kubelet_root(node));
        config.wipe_grace = Duration::from_millis(400);
        let stop = self.parts.child_token();
        let task = tokio::spawn(kubelet::run(config, client, stop.clone()));
        self.global::<k8s_openapi::api::core::v1::Node>(node, "ready", |node| {
            let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
            conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
        })
        .await;
        Kubelet { stop, task }
    }

    pub(crate) fn driver(&self, node: &str) -> Driver {
        self.other_driver(DRIVER, node)
    }

    pub(crate) fn other_driver(&self, name: &str, node: &str) -> Driver {
        Driver::new(self.client.clone(), name, node, &self.kubelet_root(node))
    }

    pub(crate) fn api<K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>>(&self) -> Api<K> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create<K>(&self, object: Value) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + serde::Serialize
            + Clone
            + std::fmt::Debug,
    {
        self.api().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await.unwrap()
    }

    pub(crate) async fn create_global<K>(&self, object: Value) -> K
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + serde::Serialize + Clone + std::fmt::Debug,
    {
        Api::all(self.client.clone())
            .create(&PostParams::default(), &serde_json::from_value(object).unwrap())
            .await
            .unwrap()
    }

    /// A pod with one container that uses the shared claim, or one that is made for it; `more` is merged in.
    pub(crate) async fn pod(&self, name: &str, claim: Option<&str>, more: Value) -> Pod {
        let entry = match claim {
            Some(claim) => json!({"name": "gpu", "resourceClaimName": claim}),
            None => json!({"name": "gpu", "resourceClaimTemplateName": "one-gpu"}),
        };
        let container = json!({"name": "main", "image": "none", "resources": {"claims": [{"name": "gpu"}]}});
        let mut pod = json!({
            "metadata": {"name": name},
            "spec": {"containers": [container], "resourceClaims": [entry], "terminationGracePeriodSeconds": 5},
        });
        json_patch::merge(&mut pod, &more);
        self.create(pod).await
    }

    pub(crate) async fn wait_pod(&self, name: &str, what: &str, is: impl Fn(&Pod) -> bool) -> Pod {
        self.wait(name, what, is).await
    }

    pub(crate) async fn running(&self, name: &str) -> Pod {
        self.wait_pod(name, "running", |pod| phase(pod) == "Running").await
    }

    pub(crate) async fn wait<K>(&self, name: &str, what: &str, is: impl Fn(&K) -> bool) -> K
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug
            + Send
            + 'static,
    {
        wait_in(self.api(), name, what, is).await
    }

    pub(crate) async fn global<K>(&self, name: &str, what: &str, is: impl Fn(&K) -> bool) -> K
    where
        K: Resource<DynamicType = ()> + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static,
    {
        wait_in(Api::all(self.client.clone()), name, what, is).await
    }

    pub(crate) async fn gone<K>(&self, name: &str)
    where
        K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
            + DeserializeOwned
            + Clone
            + std::fmt::Debug
            + Send
            + 'static,
    {
        let waiting = await_condition(self.api::<K>(), name, |object: Option<&K>| object.is_none());
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "{name} is still there");
    }

    pub(crate) async fn slice_gone(&self, name: &str) {
        let api: Api<ResourceSlice> = Api::all(self.client.clone());
        let waiting = await_condition(api, name, |object: Option<&ResourceSlice>| object.is_none());
        assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "{name} is still there");
    }

    pub(crate) async fn delete_pod(&self, name: &str) {
        self.api::<Pod>().delete(name, &DeleteParams::default()).await.unwrap();
    }

    pub(crate) async fn patch<K>(&self, api: Api<K>, name: &str, patch: Value)
    where
        K: Resource + DeserializeOwned + Clone + std::fmt::Debug,
    {
        api.patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.unwrap();
    }

    /// Waits for an event of the reason; gives its message.
    pub(crate) async fn event(&self, reason: &str, contains: &str) -> String {
        let api: Api<Event> = self.api();
        let look = async {
            loop {
                let events = api.list(&ListParams::default()).await.unwrap();
                let mut fitting = events.items.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
                if let Some(message) = fitting.find_map(|e| e.message.filter(|message| message.contains(contains))) {
                    return message;
                }
                let newer = events.metadata.resource_version.unwrap();
                let mut changes = Box::pin(api.watch(&kube::api::WatchParams::default(), &newer).await.unwrap());
                futures::StreamExt::next(&mut changes).await;
            }
        };
        tokio::time::timeout(PATIENCE, look).await.unwrap_or_else(|_| panic!("no event {reason} with {contains}"))
    }

    /// Has the server answer matching calls with an error a few times.
    pub(crate) async fn fault(&self, fault: Value) {
        let request = http::Request::post("/sim/faults").body(fault.to_string().into_bytes()).unwrap();
        let answer: Value = self.client.request(request).await.unwrap();
        assert!(answer.get("id").is_some(), "{answer}");
    }
}

async fn wait_in<K>(api: Api<K>, name: &str, what: &str, is: impl Fn(&K) -> bool) -> K
where
    K: Resource + DeserializeOwned + Clone + std::fmt::Debug + Send + 'static,
{
    let waiting = await_condition(api.clone(), name, |object: Option<&K>| object.is_some_and(&is));
    match tokio::time::timeout(PATIENCE, waiting).await {
        Ok(found) => found.unwrap().unwrap(),
        Err(_) => panic!("{name} is not {what}: {:#?}", api.get_opt(name).await),
    }
}

pub(crate) fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or_default()
}

/// The name of the claim that was made for a pod.
pub(crate) fn generated(pod: &Pod) -> String {
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_ref()).unwrap();
    statuses[0].resource_claim_name.clone().unwrap()
}

/// The devices of a claim.
pub(crate) fn devices(claim: &ResourceClaim) -> Vec<String> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    results.into_iter().flatten().map(|result| format!("{}/{}", result.pool, result.device)).collect()
}
