//! What is to be done about claims: a pure function of what is there. Each action brings the cluster one step nearer to the state
//! in which nothing is to be done, so the plan is made anew after every step.

use std::collections::BTreeSet;
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimTemplate, ResourceSlice};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use taints::object::Key;

use crate::actor::cache::Cache;
use crate::actor::reference::{self, ClaimName, FINALIZER, POD_CLAIM_ANNOTATION};
use crate::actor::{key, uid};

/// What the controller knows.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) pods: Cache<Pod>,
    pub(super) claims: Cache<ResourceClaim>,
    pub(super) templates: Cache<ResourceClaimTemplate>,
    pub(super) nodes: Cache<Node>,
    pub(super) slices: Cache<ResourceSlice>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Make a claim from a template.
    Create { pod: Key, entry: String, template: String },
    /// Say on the pod that its template is not there.
    Complain { pod: Key, entry: String, template: String },
    /// Write the name of a claim that was made into the pod's status.
    Record { pod: Key, entry: String, claim: String },
    /// Reserve an allocated claim for a pod that was bound by hand.
    Reserve { claim: Key, pod: Key },
    /// Keep only these consumers. Without any, the devices are free.
    Release { claim: Key, keep: Vec<String> },
    /// Let a claim without devices be deleted.
    RemoveFinalizer { claim: Key },
    /// Delete a claim that was made for a pod which does not need it any more.
    Delete { claim: Key, pod: Key, pod_uid: String },
    /// Delete a slice whose node is gone, as the garbage collector does.
    DeleteSlice { slice: String, node: String, node_uid: String },
}

/// Everything that is to be done now.
pub(super) fn plan(view: &View) -> Vec<Action> {
    let mut actions = Vec::new();
    for pod in view.pods.iter().filter(|pod| needs_claims(pod)) {
        actions.extend(for_pod(view, pod));
    }
    for claim in view.claims.iter() {
        actions.extend(for_claim(view, claim));
    }
    let nodes: BTreeSet<&str> = view.nodes.iter().map(|node| uid(node.as_ref())).collect();
    actions.extend(view.slices.iter().filter_map(|slice| orphan(slice, &nodes)));
    actions
}

fn needs_claims(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_none() && !reference::is_finished(pod)
}

fn for_pod(view: &View, pod: &Arc<Pod>) -> Vec<Action> {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref().is_some_and(|name| !name.is_empty()));
    let pod_key = key(pod.as_ref());
    let mut actions = Vec::new();
    for (entry, name) in reference::references(pod) {
        if name == ClaimName::NotYet {
            actions.extend(generate(view, pod, &entry.name, entry.resource_claim_template_name.as_deref()));
        }
        let Some(claim) = name.key().and_then(|key| view.claims.get(key)).filter(|_| bound) else { continue };
        let ours = matches!(name, ClaimName::Named(_)) || reference::is_owned_by(claim, pod);
        let room = reference::consumers(claim).len() < reference::MOST_CONSUMERS;
        if ours && room && reference::is_allocated(claim) && !reference::is_reserved_for(claim, pod) {
            actions.push(Action::Reserve { claim: key(claim.as_ref()), pod: pod_key.clone() });
        }
    }
    actions
}

/// A claim that was made for the entry already is taken, so that a crash between two writes leaves no second one.
fn generate(view: &View, pod: &Pod, entry: &str, template: Option<&str>) -> Option<Action> {
    let (pod_key, entry) = (key(pod), entry.to_owned());
    let made = view.claims.iter().find(|claim| {
        let annotations = claim.metadata.annotations.as_ref();
        let named = annotations.and_then(|annotations| annotations.get(POD_CLAIM_ANNOTATION));
        key(claim.as_ref()).namespace == pod_key.namespace
            && named == Some(&entry)
            && reference::is_owned_by(claim, pod)
    });
    if let Some(claim) = made {
        return Some(Action::Record { pod: pod_key, entry, claim: key(claim.as_ref()).name });
    }
    let template = template?.to_owned();
    let exists = view.templates.get(&Key::new(pod_key.namespace.clone(), template.clone())).is_some();
    Some(if exists {
        Action::Create { pod: pod_key, entry, template }
    } else {
        Action::Complain { pod: pod_key, entry, template }
    })
}

fn for_claim(view: &View, claim: &Arc<ResourceClaim>) -> Option<Action> {
    let name = key(claim.as_ref());
    let consumers = reference::consumers(claim);
    let keep: Vec<String> = consumers
        .iter()
        .filter(|consumer| {
            let of_pod = consumer.resource == "pods" && consumer.api_group.as_deref().unwrap_or_default().is_empty();
            !of_pod || is_active(view, &Key::new(name.namespace.clone(), consumer.name.clone()), &consumer.uid)
        })
        .map(|consumer| consumer.uid.clone())
        .collect();
    let deleting = claim.metadata.deletion_timestamp.is_some();
    let unused = keep.is_empty();
    if keep.len() < consumers.len() || (deleting && unused && reference::is_allocated(claim)) {
        return Some(Action::Release { claim: name, keep });
    }
    if !unused {
        return None;
    }
    let guarded = claim.metadata.finalizers.iter().flatten().any(|finalizer| finalizer == FINALIZER);
    let owner = owning_pod(claim).filter(|owner| {
        let pod = Key::new(name.namespace.clone(), owner.name.clone());
        !deleting && !is_active(view, &pod, &owner.uid)
    });
    if let Some(owner) = owner {
        let pod = Key::new(name.namespace.clone(), owner.name.clone());
        return Some(Action::Delete { claim: name, pod, pod_uid: owner.uid.clone() });
    }
    (guarded && deleting && !reference::is_allocated(claim)).then_some(Action::RemoveFinalizer { claim: name })
}

/// Whether the pod is there and still needs its claims. One that was never bound and is being deleted will not run.
fn is_active(view: &View, pod: &Key, pod_uid: &str) -> bool {
    view.pods.get(pod).is_some_and(|pod| uid(pod.as_ref()) == pod_uid && is_active_pod(pod))
}

/// The same question about a pod that was just read.
pub(super) fn is_active_pod(pod: &Pod) -> bool {
    let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.as_deref().is_some_and(|name| !name.is_empty()));
    !reference::is_finished(pod) && (bound || pod.metadata.deletion_timestamp.is_none())
}

/// The pod that a claim was made for.
fn owning_pod(claim: &ResourceClaim) -> Option<&OwnerReference> {
    let owners = claim.metadata.owner_references.iter().flatten();
    owners.into_iter().find(|owner| owner.controller == Some(true) && owner.kind == "Pod" && owner.api_version == "v1")
}

fn orphan(slice: &ResourceSlice, nodes: &BTreeSet<&str>) -> Option<Action> {
    let owner = slice.metadata.owner_references.iter().flatten().find(|owner| owner.kind == "Node")?;
    (!nodes.contains(owner.uid.as_str())).then(|| Action::DeleteSlice {
        slice: key(slice).name,
        node: owner.name.clone(),
        node_uid: owner.uid.clone(),
    })
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
