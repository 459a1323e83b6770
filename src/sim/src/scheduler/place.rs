//! Where a pod goes: a pure decision over everything that the scheduler knows.
//!
//! Device taints are looked at while devices are allocated, and never again: a claim that is allocated keeps its devices, and its
//! pod goes where they are, whatever happened to them since. That is what kube-scheduler does.

use std::collections::HashMap;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{AllocationResult, ResourceClaim};
use taints::alloc::{Outcome, Pick, allocate};
use taints::object::Key;

use super::message::{Reasons, rejected};
use super::request::{Question, ask, split};
use super::selectors::Selectors;
use super::view::View;
use super::{allocation, fit, selector};
use crate::actor::reference::{self, ClaimName};
use crate::actor::{self, convert, key, uid};

/// What to do with a pod.
#[derive(Debug, PartialEq)]
pub(super) enum Placement {
    /// Write these allocations, reserve all its claims, and bind it.
    Bind {
        /// The node.
        node: String,
        /// What each claim that has none gets.
        allocations: Vec<(Key, AllocationResult)>,
        /// Claims that are allocated already, and not reserved for the pod yet.
        reserve: Vec<Key>,
    },
    /// A claim is still to be made: nothing to tell anybody.
    Wait,
    /// No node can take it.
    Unschedulable {
        /// Why, for the pod's condition.
        message: String,
        /// A claim whose devices are in the way and that nobody else uses: free it, and try again.
        release: Option<Key>,
    },
}

/// Decides for one pod.
pub(super) fn place(pod: &Pod, view: &View, selectors: &mut Selectors, now: Timestamp) -> Placement {
    let reject =
        |reason: &str| Placement::Unschedulable { message: rejected(view.nodes.iter().count(), reason), release: None };
    let claims = match claims(pod, view) {
        Ok(claims) => claims,
        Err(Missing::NotYet) => return Placement::Wait,
        Err(Missing::Because(reason)) => return reject(&reason),
    };
    let (allocated, open): (Vec<_>, Vec<_>) = claims.into_iter().partition(|claim| reference::is_allocated(claim));
    if allocated.iter().any(|claim| is_full(claim, pod)) {
        return reject("resourceclaim in use");
    }
    let open: Vec<&ResourceClaim> = open.iter().map(AsRef::as_ref).collect();
    let question = match ask(&open, |name| view.class(name)) {
        Ok(question) => question,
        Err(reason) => return reject(&reason),
    };
    Attempt { pod, view, allocated: &allocated, open: &open, question: &question, now }.run(selectors)
}

/// Why a pod's claims cannot be looked at.
enum Missing {
    NotYet,
    Because(String),
}

/// The claims of a pod, each of which exists and is meant for it.
fn claims(pod: &Pod, view: &View) -> Result<Vec<Arc<ResourceClaim>>, Missing> {
    let mut claims = Vec::new();
    for (_, name) in reference::references(pod) {
        let key = match &name {
            ClaimName::NotNeeded => continue,
            ClaimName::NotYet => return Err(Missing::NotYet),
            ClaimName::Named(key) | ClaimName::Generated(key) => key,
        };
        let Some(claim) = view.claims.get(key) else {
            // A generated claim is on its way here: the pod's status names it already.
            let generated = matches!(name, ClaimName::Generated(_));
            let reason = format!("resourceclaim.resource.k8s.io \"{}\" not found", key.name);
            return Err(if generated { Missing::NotYet } else { Missing::Because(reason) });
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return Err(Missing::Because(format!("resourceclaim \"{}\" is being deleted", key.name)));
        }
        if matches!(name, ClaimName::Generated(_)) && !reference::is_owned_by(claim, pod) {
            let reason = format!("ResourceClaim {key} was not created for pod {} (pod is not owner)", actor::key(pod));
            return Err(Missing::Because(reason));
        }
        claims.push(Arc::clone(claim));
    }
    Ok(claims)
}

fn is_full(claim: &ResourceClaim, pod: &Pod) -> bool {
    reference::consumers(claim).len() >= reference::MOST_CONSUMERS && !reference::is_reserved_for(claim, pod)
}

/// One pod, tried on every node.
struct Attempt<'a> {
    pod: &'a Pod,
    view: &'a View,
    allocated: &'a [Arc<ResourceClaim>],
    open: &'a [&'a ResourceClaim],
    question: &'a Question,
    now: Timestamp,
}

impl<'a> Attempt<'a> {
    fn run(&self, selectors: &mut Selectors) -> Placement {
        let tolerations = convert::tolerations(self.pod);
        let mut reasons = Reasons::default();
        let mut unavailable = None;
        let mut nodes = Vec::new();
        for node in self.view.nodes.iter() {
            if let Some(reason) = fit::refusal(self.pod, &tolerations, node) {
                reasons.add(reason);
            } else if let Some(claim) = self.allocated.iter().find(|claim| !is_available_on(claim, node)) {
                reasons.add("resourceclaim not available on the node");
                unavailable = unavailable.or_else(|| self.releasable(claim));
            } else {
                nodes.push(node.as_ref());
            }
        }
        for node in self.ranked(nodes, &tolerations) {
            match self.allocate_on(node, selectors) {
                Ok(picks) => return self.bind(node, picks),
                Err(outcome) => {
                    tracing::debug!(pod = %key(self.pod), node, ?outcome, "no devices");
                    reasons.add("cannot allocate all claims");
                }
            }
        }
        let has_claims = !(self.allocated.is_empty() && self.open.is_empty());
        Placement::Unschedulable { message: reasons.message(has_claims), release: unavailable }
    }

    /// The best node first: the fewest disliked taints, then the fewest pods, then by name.
    fn ranked(&self, nodes: Vec<&'a Node>, tolerations: &[taints::Toleration]) -> Vec<&'a str> {
        let pods: HashMap<String, usize> = self.view.pods_per_node();
        let rank = |node: &'a Node| {
            let name = node.metadata.name.as_deref()?;
            Some((fit::dislikes(tolerations, node), pods.get(name).copied().unwrap_or(0), name))
        };
        let mut ranked: Vec<(usize, usize, &str)> = nodes.into_iter().filter_map(rank).collect();
        ranked.sort_unstable();
        ranked.into_iter().map(|(_, _, name)| name).collect()
    }

    /// A claim that only this pod may be using can be freed, so that it is allocated anew elsewhere.
    fn releasable(&self, claim: &ResourceClaim) -> Option<Key> {
        let others = reference::consumers(claim).iter().any(|consumer| consumer.uid != uid(self.pod));
        (!others).then(|| key(claim))
    }

    fn allocate_on(&self, node: &str, selectors: &mut Selectors) -> Result<Vec<Pick>, Box<Outcome>> {
        if self.question.requests.is_empty() {
            return Ok(Vec::new());
        }
        let fleet = &self.view.fleet;
        let mut candidates = fleet.candidates(Some(node));
        candidates.retain(|candidate| candidate.reachable);
        let mut selector = |request: &str, candidate: &taints::alloc::Candidate<'_>| {
            let expressions = self.question.selectors.get(request).map(Vec::as_slice).unwrap_or_default();
            selectors.all_match(expressions, candidate)
        };
        let taken = |id: &taints::object::DeviceId| fleet.taken_by(id).map(|claim| claim.key.clone());
        let mut outcome =
            allocate(&self.question.requests, &self.question.constraints, &candidates, &mut selector, &taken);
        match std::mem::replace(&mut outcome.picks, Ok(Vec::new())) {
            Ok(picks) => Ok(picks),
            Err(failure) => Err(Box::new(Outcome { picks: Err(failure), ..outcome })),
        }
    }

    fn bind(&self, node: &str, picks: Vec<Pick>) -> Placement {
        let mut by_claim: Vec<Vec<Pick>> = vec![Vec::new(); self.open.len()];
        for mut pick in picks {
            let Some((index, request)) = split(&pick.request) else { continue };
            let request = request.to_owned();
            if let Some(own) = by_claim.get_mut(index) {
                pick.request = request;
                own.push(pick);
            }
        }
        let class = |name: &str| self.view.class(name);
        let allocations = self.open.iter().zip(by_claim).map(|(claim, picks)| {
            let local = picks.iter().any(|pick| self.is_local(pick));
            (key(*claim), allocation::build(claim, &picks, local.then_some(node), class, self.now))
        });
        let unreserved = self.allocated.iter().filter(|claim| !reference::is_reserved_for(claim, self.pod));
        Placement::Bind {
            node: node.to_owned(),
            allocations: allocations.collect(),
            reserve: unreserved.map(|claim| key(claim.as_ref())).collect(),
        }
    }

    fn is_local(&self, pick: &Pick) -> bool {
        self.view.fleet.device(&pick.device).is_none_or(|listed| !listed.slice.all_nodes)
    }
}

fn is_available_on(claim: &ResourceClaim, node: &Node) -> bool {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let selector = allocation.and_then(|allocation| allocation.node_selector.as_ref());
    selector.is_none_or(|selector| selector::selects(selector, node))
}

#[cfg(test)]
#[path = "place_tests.rs"]
mod tests;
