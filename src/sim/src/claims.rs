//! The claim controller: an HTTP client that makes claims from templates, and frees and deletes them when their pods are done
//! (kube-controller-manager's `resourceclaim` controller, and the parts of its garbage collectors that slices and pods of a deleted
//! node need).
//!
//! What flows through: watches of pods, claims, templates, nodes and slices -> the view -> [`plan`], a pure list of steps, and
//! [`orphans`] -> one patch, create or delete with preconditions for each.

mod orphans;
mod plan;

use std::collections::HashSet;
use std::time::Duration;

use cluster::call::CallError;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::runtime::watcher::{self, Event};
use kube::{Api, Client, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use taints::object::Key;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use self::orphans::{Quarantine, node_of};
use self::plan::{Action, View, is_active_pod, plan};
use crate::actor::event::{Told, tell};
use crate::actor::reference::{self, FINALIZER, POD_CLAIM_ANNOTATION};
use crate::actor::watch::{QUEUE, follow};
use crate::actor::{Backoff, call, key, now, patch_object, patch_status, seconds, uid};

/// A pod needs a few steps: create, record, reserve. More passes in a row than this mean that something is wrong.
const MOST_PASSES: usize = 16;
/// The longest prefix of a generated name: five letters are added, and a name has at most 253.
const LONGEST_PREFIX: usize = 248;

/// How long a Node may be gone before its pods are deleted, as long as kube-controller-manager waits.
pub const ORPHAN_GRACE: Duration = Duration::from_secs(40);

/// Runs until cancelled; pods whose Node is gone for `orphan_grace` are deleted. An API server that is away is waited for.
pub async fn run(client: Client, orphan_grace: Duration, cancel: CancellationToken) {
    let _: Option<()> = cancel.run_until_cancelled(control(client, orphan_grace)).await;
}

enum Notice {
    Pod(Box<Event<Pod>>),
    Claim(Box<Event<ResourceClaim>>),
    Template(Box<Event<ResourceClaimTemplate>>),
    Node(Box<Event<Node>>),
    Slice(Box<Event<ResourceSlice>>),
}

async fn control(client: Client, orphan_grace: Duration) {
    let mut tasks = JoinSet::new();
    let mut notices = watch_all(&client, &mut tasks);
    let (view, quarantine) = (View::default(), Quarantine::new(orphan_grace));
    let mut controller = Controller { client, view, complained: HashSet::new(), quarantine };
    let mut waits = Backoff::of_calls();
    let mut again: Option<Instant> = None;
    loop {
        let mut next = match again {
            None => notices.recv().await,
            Some(at) => tokio::time::timeout_at(at, notices.recv()).await.unwrap_or_default(),
        };
        while let Some(notice) = next {
            controller.apply(notice);
            next = notices.try_recv().ok();
        }
        if !controller.synced() {
            continue;
        }
        let (worked, collected) = (controller.work().await, controller.collect_orphans().await);
        again = if worked && collected {
            waits.reset();
            controller.quarantine.wake(Instant::now())
        } else {
            Some(Instant::now() + waits.wait())
        };
    }
}

fn watch_all(client: &Client, tasks: &mut JoinSet<()>) -> mpsc::Receiver<Notice> {
    let (sender, receiver) = mpsc::channel(QUEUE);
    let all = watcher::Config::default;
    follow(tasks, Api::all(client.clone()), all(), sender.clone(), |event| Notice::Pod(Box::new(event)));
    follow(tasks, Api::all(client.clone()), all(), sender.clone(), |event| Notice::Claim(Box::new(event)));
    follow(tasks, Api::all(client.clone()), all(), sender.clone(), |event| Notice::Template(Box::new(event)));
    follow(tasks, Api::all(client.clone()), all(), sender.clone(), |event| Notice::Node(Box::new(event)));
    follow(tasks, Api::all(client.clone()), all(), sender, |event| Notice::Slice(Box::new(event)));
    receiver
}

struct Controller {
    client: Client,
    view: View,
    /// Pods (by UID) and entries whose missing template was told.
    complained: HashSet<(String, String)>,
    quarantine: Quarantine,
}

impl Controller {
    fn apply(&mut self, notice: Notice) {
        match notice {
            Notice::Pod(event) => drop(self.view.pods.apply(*event)),
            Notice::Claim(event) => drop(self.view.claims.apply(*event)),
            Notice::Template(event) => drop(self.view.templates.apply(*event)),
            Notice::Node(event) => drop(self.view.nodes.apply(*event)),
            Notice::Slice(event) => drop(self.view.slices.apply(*event)),
        }
    }

    fn synced(&self) -> bool {
        let View { pods, claims, templates, nodes, slices } = &self.view;
        pods.synced() && claims.synced() && templates.synced() && nodes.synced() && slices.synced()
    }

    /// Works until nothing is left to do. Returns false when something failed and has to be tried again without any news.
    async fn work(&mut self) -> bool {
        for _ in 0..MOST_PASSES {
            let actions = plan(&self.view);
            let (mut acted, mut failed) = (false, false);
            for action in actions {
                match self.act(&action).await {
                    Ok(progress) => acted |= progress,
                    Err(error) => {
                        tracing::debug!(?action, %error, "failed; it is tried again");
                        failed = true;
                    }
                }
            }
            if failed || !acted {
                return !failed;
            }
        }
        false
    }

    /// One step. Returns whether the view is another one now.
    async fn act(&mut self, action: &Action) -> Result<bool, CallError> {
        match action {
            Action::Create { pod, entry, template } => self.create(pod, entry, template).await,
            Action::Complain { pod, entry, template } => Ok(self.complain(pod, entry, template)),
            Action::Record { pod, entry, claim } => self.record(pod, entry, claim).await,
            Action::Reserve { claim, pod } => self.reserve(claim, pod).await,
            Action::Release { claim, keep } => self.release(claim, keep).await,
            Action::RemoveFinalizer { claim } => self.remove_finalizer(claim).await,
            Action::Delete { claim, pod, pod_uid } => self.delete(claim, pod, pod_uid).await,
            Action::DeleteSlice { slice, node, node_uid } => self.delete_slice(slice, node, node_uid).await,
        }
    }

    fn api<K>(&self, namespace: &str) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), namespace)
    }

    async fn create(&mut self, pod: &Key, entry: &str, template: &str) -> Result<bool, CallError> {
        let template = self.view.templates.get(&Key::new(pod.namespace.clone(), template));
        let (Some(pod), Some(template)) = (self.view.pods.get(pod), template) else { return Ok(false) };
        let claim = from_template(pod, entry, template);
        let created = call(self.api(&key(pod.as_ref()).namespace).create(&PostParams::default(), &claim)).await?;
        tracing::info!(claim = %key(&created), "made from a template");
        self.view.claims.put(created);
        Ok(true)
    }

    fn complain(&mut self, pod: &Key, entry: &str, template: &str) -> bool {
        let Some(pod) = self.view.pods.get(pod) else { return false };
        if self.complained.insert((uid(pod.as_ref()).to_owned(), entry.to_owned())) {
            let told = Told { component: "resourceclaim", reason: "FailedResourceClaimCreation", kind: "Warning" };
            let message =
                format!("PodResourceClaim {entry}: resourceclaimtemplate.resource.k8s.io \"{template}\" not found");
            tell(&self.client, None, pod, told, &message, now());
        }
        false
    }

    async fn record(&mut self, pod: &Key, entry: &str, claim: &str) -> Result<bool, CallError> {
        let Some(pod) = self.view.pods.get(pod) else { return Ok(false) };
        let statuses = json!([{"name": entry, "resourceClaimName": claim}]);
        let patch = json!({"metadata": {"uid": pod.uid()}, "status": {"resourceClaimStatuses": statuses}});
        let api: Api<Pod> = self.api(&key(pod.as_ref()).namespace);
        let patched = call(api.patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch))).await;
        let pod = pod.clone();
        self.adopt_pod(&pod, patched).await
    }

    async fn reserve(&mut self, claim: &Key, pod: &Key) -> Result<bool, CallError> {
        let (Some(claim), Some(pod)) = (self.view.claims.get(claim).cloned(), self.view.pods.get(pod)) else {
            return Ok(false);
        };
        let mut consumers = reference::consumers(&claim).to_vec();
        consumers.push(reference::consumer(pod));
        self.patch_claim_status(&claim, json!({"reservedFor": consumers})).await
    }

    /// Drops the consumers that are not to be kept, but none whose pod exists after all: the watch of pods may be behind.
    async fn release(&mut self, claim: &Key, keep: &[String]) -> Result<bool, CallError> {
        let Some(claim) = self.view.claims.get(claim).cloned() else { return Ok(false) };
        let namespace = key(claim.as_ref()).namespace;
        let mut kept = Vec::new();
        for consumer in reference::consumers(&claim) {
            let pod = Key::new(namespace.clone(), consumer.name.clone());
            if keep.contains(&consumer.uid) || self.is_there(&pod, &consumer.uid).await? {
                kept.push(consumer.clone());
            }
        }
        if kept.len() == reference::consumers(&claim).len() && !kept.is_empty() {
            return Ok(true);
        }
        let status = if kept.is_empty() {
            tracing::info!(claim = %key(claim.as_ref()), "unused: its devices are free");
            json!({"reservedFor": null, "allocation": null, "devices": null})
        } else {
            json!({ "reservedFor": kept })
        };
        self.patch_claim_status(&claim, status).await
    }

    /// Asks the server about a pod that the watch does not show, or does not show any more.
    async fn is_there(&mut self, pod: &Key, pod_uid: &str) -> Result<bool, CallError> {
        if let Some(known) = self.view.pods.get(pod).filter(|known| uid(known.as_ref()) == pod_uid) {
            return Ok(is_active_pod(known));
        }
        let found: Option<Pod> = call(self.api(&pod.namespace).get_opt(&pod.name)).await?;
        let Some(found) = found else { return Ok(false) };
        let active = uid(&found) == pod_uid && is_active_pod(&found);
        self.view.pods.put(found);
        Ok(active)
    }

    async fn remove_finalizer(&mut self, claim: &Key) -> Result<bool, CallError> {
        let Some(claim) = self.view.claims.get(claim).cloned() else { return Ok(false) };
        let finalizers: Vec<&String> =
            claim.metadata.finalizers.iter().flatten().filter(|finalizer| *finalizer != FINALIZER).collect();
        let api = self.api(&key(claim.as_ref()).namespace);
        let patched = patch_object(&api, claim.as_ref(), json!({"metadata": {"finalizers": finalizers}})).await;
        self.adopt_claim(&claim, patched).await
    }

    async fn delete(&mut self, claim: &Key, pod: &Key, pod_uid: &str) -> Result<bool, CallError> {
        if self.is_there(pod, pod_uid).await? {
            return Ok(true);
        }
        let Some(claim) = self.view.claims.get(claim).cloned() else { return Ok(false) };
        let api: Api<ResourceClaim> = self.api(&key(claim.as_ref()).namespace);
        match delete(&api, claim.as_ref()).await? {
            Some(deleting) => drop(self.view.claims.put(deleting)),
            None => drop(self.view.claims.remove(&claim)),
        }
        Ok(true)
    }

    async fn delete_slice(&mut self, slice: &str, node: &str, node_uid: &str) -> Result<bool, CallError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        if let Some(found) = call(nodes.get_opt(node)).await? {
            let same = uid(&found) == node_uid;
            self.view.nodes.put(found);
            if same {
                return Ok(true);
            }
        }
        let Some(slice) = self.view.slices.named(slice).cloned() else { return Ok(false) };
        delete(&Api::<ResourceSlice>::all(self.client.clone()), slice.as_ref()).await?;
        self.view.slices.remove(&slice);
        Ok(true)
    }

    /// Deletes the pods whose Node is gone for good. Returns false when one has to be tried again.
    async fn collect_orphans(&mut self) -> bool {
        let mut all = true;
        for pod in self.quarantine.orphans(&self.view, Instant::now()) {
            if let Err(error) = self.collect(&pod).await {
                tracing::debug!(pod = %key(pod.as_ref()), %error, "a pod whose node is gone is not deleted yet");
                all = false;
            }
        }
        all
    }

    /// The server is asked about the Node once more: the watch may be behind.
    async fn collect(&mut self, pod: &Pod) -> Result<(), CallError> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        if let Some(found) = call(nodes.get_opt(node_of(pod).unwrap_or_default())).await? {
            self.view.nodes.put(found);
            return Ok(());
        }
        let api: Api<Pod> = self.api(&key(pod).namespace);
        if !reference::is_finished(pod) {
            let patch = Patch::Strategic(lost(uid(pod)));
            match call(api.patch_status(&pod.name_any(), &PatchParams::default(), &patch)).await {
                Err(error) if !error.is_not_found() && !error.is_conflict() => return Err(error),
                _ => {}
            }
        }
        tracing::info!(pod = %key(pod), "its node is gone: deleted");
        delete_with(&api, pod, DeleteParams::default().grace_period(0)).await?;
        self.view.pods.remove(pod);
        Ok(())
    }

    async fn patch_claim_status(&mut self, claim: &ResourceClaim, status: Value) -> Result<bool, CallError> {
        let patched = patch_status(&self.api(&key(claim).namespace), claim, status).await;
        self.adopt_claim(claim, patched).await
    }

    /// Takes the answer of a write into the view; after a conflict, what the server has now.
    async fn adopt_claim(
        &mut self,
        claim: &ResourceClaim,
        answer: Result<ResourceClaim, CallError>,
    ) -> Result<bool, CallError> {
        match current(&self.api(&key(claim).namespace), claim, answer).await? {
            // A finalizer that goes lets a deleted object vanish with the same write.
            Some(now) if now.metadata.deletion_timestamp.is_some() && now.finalizers().is_empty() => {
                self.view.claims.remove(&now);
            }
            Some(now) => drop(self.view.claims.put(now)),
            None => drop(self.view.claims.remove(claim)),
        }
        Ok(true)
    }

    async fn adopt_pod(&mut self, pod: &Pod, answer: Result<Pod, CallError>) -> Result<bool, CallError> {
        match current(&self.api(&key(pod).namespace), pod, answer).await? {
            Some(now) => drop(self.view.pods.put(now)),
            None => drop(self.view.pods.remove(pod)),
        }
        Ok(true)
    }
}

/// What a write left, or what is there instead when it came too late.
async fn current<K>(api: &Api<K>, object: &K, answer: Result<K, CallError>) -> Result<Option<K>, CallError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    match answer {
        Ok(written) => Ok(Some(written)),
        Err(error) if error.is_conflict() || error.is_not_found() => {
            let found = call(api.get_opt(&object.name_any())).await?;
            let unchanged =
                found.as_ref().is_some_and(|found| found.meta().resource_version == object.meta().resource_version);
            // The same version again: the server said no for another reason, and would say so at once again.
            if unchanged { Err(error) } else { Ok(found) }
        }
        Err(error) => Err(error),
    }
}

/// Deletes exactly this object. Returns it when it stays until a finalizer goes.
async fn delete<K>(api: &Api<K>, object: &K) -> Result<Option<K>, CallError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    delete_with(api, object, DeleteParams::default()).await
}

/// The same, in another way than usual.
async fn delete_with<K>(api: &Api<K>, object: &K, params: DeleteParams) -> Result<Option<K>, CallError>
where
    K: Resource + Clone + DeserializeOwned + std::fmt::Debug,
{
    let preconditions = Preconditions { uid: object.uid(), resource_version: None };
    let params = DeleteParams { preconditions: Some(preconditions), ..params };
    match call(api.delete(&object.name_any(), &params)).await {
        Ok(answer) => Ok(answer.left().filter(|left| !left.finalizers().is_empty())),
        Err(error) if error.is_not_found() || error.is_conflict() => Ok(None),
        Err(error) => Err(error),
    }
}

/// What is written on a pod whose Node is gone before it is deleted.
fn lost(uid: &str) -> Value {
    json!({
        "metadata": {"uid": uid},
        "status": {"phase": "Failed", "conditions": [{
            "type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC",
            "message": "PodGC: node no longer exists", "lastTransitionTime": seconds(now()),
        }]},
    })
}

/// The claim for one entry of a pod, owned by the pod and named after both.
fn from_template(pod: &Pod, entry: &str, template: &ResourceClaimTemplate) -> ResourceClaim {
    let pod_key = key(pod);
    let spec = template.spec.clone().unwrap_or_default();
    let wanted = spec.metadata.unwrap_or_default();
    let mut annotations = wanted.annotations.unwrap_or_default();
    annotations.insert(POD_CLAIM_ANNOTATION.to_owned(), entry.to_owned());
    let owner = OwnerReference {
        api_version: "v1".to_owned(),
        kind: "Pod".to_owned(),
        name: pod_key.name.clone(),
        uid: uid(pod).to_owned(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    };
    let prefix: String = format!("{}-{entry}-", pod_key.name).chars().take(LONGEST_PREFIX).collect();
    let metadata = ObjectMeta {
        generate_name: Some(prefix),
        namespace: Some(pod_key.namespace),
        labels: wanted.labels,
        annotations: Some(annotations),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    ResourceClaim { metadata, spec: spec.spec, status: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_generated_claim_names_its_pod_and_its_entry() {
        let pod: Pod =
            serde_json::from_value(json!({"metadata": {"name": "p", "namespace": "ns", "uid": "u"}})).unwrap();
        let template: ResourceClaimTemplate = serde_json::from_value(json!({
            "metadata": {"name": "t"},
            "spec": {"metadata": {"labels": {"a": "b"}}, "spec": {"devices": {"requests": [{"name": "gpu"}]}}},
        }))
        .unwrap();
        let claim = serde_json::to_value(from_template(&pod, "gpu", &template)).unwrap();
        let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true, "blockOwnerDeletion": true});
        let metadata = json!({
            "generateName": "p-gpu-", "namespace": "ns", "labels": {"a": "b"},
            "annotations": {"resource.kubernetes.io/pod-claim-name": "gpu"}, "ownerReferences": [owner],
        });
        assert_eq!(claim["metadata"], metadata);
        assert_eq!(claim["spec"], json!({"devices": {"requests": [{"name": "gpu"}]}}));
    }
}
