//! The scheduler: an HTTP client that binds pods to nodes and devices to claims.
//!
//! What flows through: watches of pods, nodes, claims, classes, slices and rules -> the view -> [`place`] for each pending pod, a
//! pure decision -> patches of claims, a binding, or the pod's condition with the reason. Every change of anything leads to a new
//! look at all pending pods. Resources such as cpu and memory are not modelled: every node has room. Nor are
//! consumable capacity, counters, pod groups and extended resources.

mod allocation;
pub(crate) mod fit;
mod message;
mod place;
mod request;
pub(crate) mod selector;
mod selectors;
mod view;

use std::collections::HashMap;
use std::sync::Arc;

use cluster::call::CallError;
use cluster::{Kind, Server, watch};
use k8s_openapi::api::core::v1::{Binding, ObjectReference, Pod};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use kube::api::{Patch, PatchParams, PostParams};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt};
use serde_json::json;
use taints::object::Key;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::place::{Placement, place};
use self::selectors::Selectors;
use self::view::{Notice, View};
use crate::actor::event::{Told, tell};
use crate::actor::reference::{self, FINALIZER};
use crate::actor::watch::{QUEUE, follow};
use crate::actor::{Backoff, call, key, now, patch_object, patch_status, seconds, uid};

/// The name under which pods ask for this scheduler: the default one.
const NAME: &str = "default-scheduler";

/// Runs until cancelled. An API server that is away is waited for.
pub async fn run(client: Client, cancel: CancellationToken) {
    let _: Option<()> = cancel.run_until_cancelled(schedule(client)).await;
}

async fn schedule(client: Client) {
    let mut tasks = JoinSet::new();
    let mut notices = watch_all(&client, &mut tasks).await;
    let mut scheduler = Scheduler {
        client,
        view: View::default(),
        selectors: Selectors::default(),
        told: HashMap::new(),
        bound: HashMap::new(),
    };
    let mut waits = Backoff::of_calls();
    let mut again: Option<Instant> = None;
    loop {
        let notice = match again {
            None => notices.recv().await,
            Some(at) => tokio::time::timeout_at(at, notices.recv()).await.unwrap_or_default(),
        };
        let mut next = notice;
        while let Some(notice) = next {
            scheduler.view.apply(notice, &mut scheduler.selectors);
            next = notices.try_recv().ok();
        }
        if !scheduler.view.synced() {
            continue;
        }
        again = if scheduler.pass().await {
            waits.reset();
            None
        } else {
            Some(Instant::now() + waits.wait())
        };
    }
}

/// Starts all watches; waits for the server to say in which version it has rules.
async fn watch_all(client: &Client, tasks: &mut JoinSet<()>) -> mpsc::Receiver<Notice> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let all = watcher::Config::default;
    follow(tasks, Api::all(client.clone()), all(), sender.clone(), |event| Notice::Pod(Box::new(event)));
    follow(tasks, Api::all(client.clone()), all(), sender.clone(), |event| Notice::Node(Box::new(event)));
    follow(tasks, Api::all(client.clone()), all(), sender.clone(), |event| Notice::Claim(Box::new(event)));
    follow(tasks, Api::all(client.clone()), all(), sender.clone(), |event| Notice::Class(Box::new(event)));
    let server = discover(client).await;
    let (devices, mut from_devices) = mpsc::channel(QUEUE);
    for kind in [Kind::Slice, Kind::Rule] {
        match server.resource(kind) {
            Some(resource) => drop(tasks.spawn(watch::run(kind, client.clone(), resource, devices.clone()))),
            None => drop(sender.send(Notice::Device(watch::Notice::NotServed(kind))).await),
        }
    }
    tasks.spawn(async move {
        while let Some(notice) = from_devices.recv().await {
            if sender.send(Notice::Device(notice)).await.is_err() {
                return;
            }
        }
    });
    receiver
}

async fn discover(client: &Client) -> Server {
    let mut waits = Backoff::of_calls();
    loop {
        match Server::discover(client).await {
            Ok(server) => return server,
            Err(error) => tracing::debug!(%error, "the API server does not say yet what it serves"),
        }
        tokio::time::sleep(waits.wait()).await;
    }
}

struct Scheduler {
    client: Client,
    view: View,
    selectors: Selectors,
    /// The message that each pending pod was told last, by UID.
    told: HashMap<String, String>,
    /// Bindings that were accepted and that the watch has not shown yet, by UID.
    bound: HashMap<String, String>,
}

impl Scheduler {
    /// Looks at every pending pod. Returns false when something failed and has to be tried again without any news.
    async fn pass(&mut self) -> bool {
        let mut done = true;
        self.forget();
        for pod in self.pending() {
            if let Err(error) = self.schedule_one(&pod).await {
                tracing::debug!(pod = %key(pod.as_ref()), %error, "placing failed; the pod is looked at again");
                done = false;
            }
        }
        done
    }

    /// Drops what concerns pods that are not pending any more.
    fn forget(&mut self) {
        let pending: HashMap<&str, bool> = self
            .view
            .pods
            .iter()
            .map(|pod| (uid(pod.as_ref()), pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some())))
            .collect();
        self.told.retain(|uid, _| pending.get(uid.as_str()) == Some(&false));
        self.bound.retain(|uid, _| pending.get(uid.as_str()) == Some(&false));
    }

    /// The pods that wait for this scheduler: the most important first, then the oldest.
    fn pending(&self) -> Vec<Arc<Pod>> {
        let mut pending: Vec<&Arc<Pod>> = self
            .view
            .pods
            .iter()
            .filter(|pod| waits_for_us(pod) && !self.bound.contains_key(uid(pod.as_ref())))
            .collect();
        pending.sort_by_key(|pod| {
            let priority = pod.spec.as_ref().and_then(|spec| spec.priority).unwrap_or(0);
            (std::cmp::Reverse(priority), pod.metadata.creation_timestamp.clone(), key(pod.as_ref()))
        });
        pending.into_iter().cloned().collect()
    }

    async fn schedule_one(&mut self, pod: &Pod) -> Result<(), CallError> {
        match place(pod, &self.view, &mut self.selectors, now()) {
            Placement::Wait => Ok(()),
            Placement::Unschedulable { message, release } => {
                if let Some(claim) = release {
                    self.release(&claim).await?;
                }
                self.tell_unschedulable(pod, message).await
            }
            Placement::Bind { node, allocations, reserve } => {
                for (claim, allocation) in allocations {
                    self.allocate(pod, &claim, allocation).await?;
                }
                for claim in reserve {
                    self.reserve(pod, &claim).await?;
                }
                self.bind(pod, &node).await
            }
        }
    }

    /// Writes an allocation and the first reservation in one patch, after the finalizer that guards both.
    async fn allocate(&mut self, pod: &Pod, name: &Key, allocation: AllocationResult) -> Result<(), CallError> {
        let Some(claim) = self.view.claims.get(name).cloned() else { return Ok(()) };
        let api = self.claims(name);
        let mut claim = claim.as_ref().clone();
        let finalizers = claim.metadata.finalizers.clone().unwrap_or_default();
        if !finalizers.iter().any(|finalizer| finalizer == FINALIZER) {
            let finalizers: Vec<String> = finalizers.into_iter().chain([FINALIZER.to_owned()]).collect();
            let patched = patch_object(&api, &claim, json!({"metadata": {"finalizers": finalizers}})).await;
            claim = self.adopt(&claim, patched).await?;
        }
        let status = json!({"allocation": allocation, "reservedFor": [reference::consumer(pod)]});
        let patched = patch_status(&api, &claim, status).await;
        self.adopt(&claim, patched).await.map(drop)
    }

    /// Adds the pod to the consumers of a claim that is allocated already.
    async fn reserve(&mut self, pod: &Pod, name: &Key) -> Result<(), CallError> {
        let Some(claim) = self.view.claims.get(name).cloned() else { return Ok(()) };
        let mut consumers = reference::consumers(&claim).to_vec();
        consumers.push(reference::consumer(pod));
        let patched = patch_status(&self.claims(name), claim.as_ref(), json!({"reservedFor": consumers})).await;
        self.adopt(&claim, patched).await.map(drop)
    }

    /// Frees a claim whose devices keep its only pod from any node.
    async fn release(&mut self, name: &Key) -> Result<(), CallError> {
        let Some(claim) = self.view.claims.get(name).cloned() else { return Ok(()) };
        tracing::info!(claim = %name, "deallocating: its devices are where its pod cannot go");
        let patched =
            patch_status(&self.claims(name), claim.as_ref(), json!({"allocation": null, "reservedFor": null})).await;
        self.adopt(&claim, patched).await.map(drop)
    }

    /// Takes the answer of a write into the view. After a conflict the claim is read again, so that the next look decides anew.
    async fn adopt(
        &mut self,
        claim: &ResourceClaim,
        answer: Result<ResourceClaim, CallError>,
    ) -> Result<ResourceClaim, CallError> {
        let error = match answer {
            Ok(written) => {
                self.view.put_claim(written.clone());
                return Ok(written);
            }
            Err(error) => error,
        };
        if error.is_conflict() || error.is_not_found() {
            match call(self.claims(&key(claim)).get_opt(&claim.name_any())).await? {
                Some(current) => self.view.put_claim(current),
                None => self.view.remove_claim(claim),
            }
        }
        Err(error)
    }

    async fn bind(&mut self, pod: &Pod, node: &str) -> Result<(), CallError> {
        let Key { namespace, name } = key(pod);
        let target = ObjectReference {
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            ..ObjectReference::default()
        };
        let mut binding = Binding { target, ..Binding::default() };
        binding.metadata.name = Some(name.clone());
        binding.metadata.namespace = Some(namespace.clone());
        binding.metadata.uid = pod.uid();
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &namespace);
        let bound: Result<serde_json::Value, CallError> =
            call(api.create_subresource("binding", &name, &PostParams::default(), &binding)).await;
        match bound {
            Ok(_) => {}
            // Gone, or bound by somebody else: the watch will say which.
            Err(error) if error.is_not_found() || error.is_conflict() => {
                tracing::debug!(pod = %key(pod), %error, "not bound");
                return self.look_again(pod).await;
            }
            Err(error) => return Err(error),
        }
        tracing::info!(pod = %key(pod), node, "bound");
        self.bound.insert(uid(pod).to_owned(), node.to_owned());
        let told = Told { component: NAME, reason: "Scheduled", kind: "Normal" };
        tell(&self.client, None, pod, told, &format!("Successfully assigned {namespace}/{name} to {node}"), now());
        Ok(())
    }

    /// The pod that a binding was refused for, as it is now.
    async fn look_again(&mut self, pod: &Pod) -> Result<(), CallError> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key(pod).namespace);
        match call(api.get_opt(&pod.name_any())).await? {
            Some(current) => drop(self.view.pods.put(current)),
            None => drop(self.view.pods.remove(pod)),
        }
        Err(CallError::Transport("the binding was refused".to_owned()))
    }

    /// Says on the pod why it waits, when that is something new.
    async fn tell_unschedulable(&mut self, pod: &Pod, message: String) -> Result<(), CallError> {
        let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let old = conditions.iter().find(|condition| condition.type_ == "PodScheduled");
        let known = old.is_some_and(|old| old.status == "False" && old.message.as_deref() == Some(&message));
        if known || self.told.get(uid(pod)) == Some(&message) {
            return Ok(());
        }
        let since = old.filter(|old| old.status == "False").and_then(|old| old.last_transition_time.clone());
        let condition = json!({
            "type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message,
            "lastProbeTime": null, "lastTransitionTime": since.unwrap_or_else(|| seconds(now())),
        });
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"conditions": [condition]}});
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &key(pod).namespace);
        let patched = call(api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch))).await;
        match patched {
            Ok(pod) => drop(self.view.pods.put(pod)),
            Err(error) if error.is_not_found() => return Ok(()),
            Err(error) => return Err(error),
        }
        let told = Told { component: NAME, reason: "FailedScheduling", kind: "Warning" };
        tell(&self.client, None, pod, told, &message, now());
        self.told.insert(uid(pod).to_owned(), message);
        Ok(())
    }

    fn claims(&self, claim: &Key) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), &claim.namespace)
    }
}

/// Not bound, not ended, not asked to end, without gates, and meant for the default scheduler.
fn waits_for_us(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    let ours = spec.scheduler_name.as_deref().is_none_or(|name| name.is_empty() || name == NAME);
    let gated = spec.scheduling_gates.as_ref().is_some_and(|gates| !gates.is_empty());
    ours && !gated
        && spec.node_name.as_deref().unwrap_or_default().is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && !reference::is_finished(pod)
}
