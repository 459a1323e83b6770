//! Which pods hold which claims.
//!
//! A pod holds a claim when it is bound, refers to it, and the claim is allocated and reserved for it. One side alone is not
//! enough: a reference without a reservation waits, a reservation without a reference is left over.

use std::fmt;

use super::Fleet;
use crate::object::{Claim, ClaimRef, ClaimRefKind, Consumer, Key, Owner, Pod};

/// How a pod and a claim are linked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Link {
    /// The pod holds the claim.
    Holds(Via),
    /// It does not, for this reason.
    Not(NotHolding),
}

/// By what a claim is reserved for a pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Via {
    /// By the pod's UID.
    Pod,
    /// By the pod's group.
    Group,
}

/// Why a pod that is linked with a claim on one side does not hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotHolding {
    /// The claim is reserved for the pod, and the pod does not refer to it.
    NotReferenced,
    /// The pod refers to the claim as its own, and the claim belongs to another.
    NotOwner,
    /// The pod is not bound to a node.
    NotBound,
    /// The claim has no devices.
    NotAllocated,
    /// The claim is not reserved for the pod.
    NotReserved,
    /// The claim is reserved for a pod that is not there, or for an earlier pod of that name.
    Gone,
}

impl fmt::Display for NotHolding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotReferenced => "the pod does not refer to the claim",
            Self::NotOwner => "the claim belongs to another",
            Self::NotBound => "the pod is not bound to a node",
            Self::NotAllocated => "the claim has no devices",
            Self::NotReserved => "the claim is not reserved for the pod",
            Self::Gone => "the pod is gone, or another pod has its name now",
        })
    }
}

impl Fleet {
    /// How a pod and a claim are linked.
    #[must_use]
    pub fn link(pod: &Pod, claim: &Claim) -> Link {
        match reservation(pod, claim).map_or_else(|| Err(unreserved(pod, claim)), |via| held(pod, claim).map(|()| via))
        {
            Ok(via) => Link::Holds(via),
            Err(why) => Link::Not(why),
        }
    }

    /// Every pod that is linked with a claim on either side, in the order of their names.
    #[must_use]
    pub fn links(&self, claim: &Key) -> Vec<(Key, Link)> {
        let Some(claim) = self.claim(claim) else { return Vec::new() };
        let mut pods: Vec<&Key> = self.referring(&claim.key).collect();
        let mut links: Vec<(Key, Link)> = Vec::new();
        for consumer in claim.reserved_for.iter().filter(|consumer| is_pod(consumer)) {
            let key = Key::new(claim.key.namespace.clone(), consumer.name.clone());
            match self.pods.get_key_value(&key) {
                Some((key, pod)) if pod.uid == consumer.uid => pods.push(key),
                _ => links.push((key, Link::Not(NotHolding::Gone))),
            }
        }
        pods.sort();
        pods.dedup();
        let known = pods.into_iter().filter_map(|key| self.pods.get(key));
        links.extend(known.map(|pod| (pod.key.clone(), Self::link(pod, claim))));
        links.sort_by(|a, b| a.0.cmp(&b.0));
        links
    }

    /// The pods that hold a claim, in the order of their names.
    #[must_use]
    pub fn holders(&self, claim: &Key) -> Vec<&Pod> {
        let Some(claim) = self.claim(claim) else { return Vec::new() };
        let pods = self.referring(&claim.key).filter_map(|key| self.pods.get(key));
        pods.filter(|pod| matches!(Self::link(pod, claim), Link::Holds(_))).collect()
    }

    /// The claims that a pod refers to and that are there, each once, in the pod's order.
    #[must_use]
    pub fn claims_of(&self, pod: &Pod) -> Vec<&Claim> {
        let mut claims: Vec<&Claim> = Vec::new();
        for name in pod.claims.iter().filter_map(|reference| reference.claim.as_ref()) {
            let key = Key::new(pod.key.namespace.clone(), name.clone());
            if let Some(claim) = self.claims.get(&key)
                && !claims.iter().any(|known| known.key == claim.key)
            {
                claims.push(claim);
            }
        }
        claims
    }

    /// Who a claim is reserved for, beside pods and pod groups: who uses its devices then is not known here.
    pub fn unresolved(claim: &Claim) -> impl Iterator<Item = &Consumer> {
        claim.reserved_for.iter().filter(|consumer| !is_pod(consumer) && !is_group(consumer))
    }
}

fn is_pod(consumer: &Consumer) -> bool {
    consumer.api_group.is_empty() && consumer.resource == "pods"
}

fn is_group(consumer: &Consumer) -> bool {
    consumer.api_group == "scheduling.k8s.io" && consumer.resource == "podgroups"
}

fn reservation(pod: &Pod, claim: &Claim) -> Option<Via> {
    if claim.reserved_for.iter().any(|consumer| is_pod(consumer) && consumer.uid == pod.uid) {
        return Some(Via::Pod);
    }
    let group = pod.pod_group.as_ref()?;
    let reserved = claim.reserved_for.iter().any(|consumer| is_group(consumer) && consumer.name == *group);
    reserved.then_some(Via::Group)
}

fn unreserved(pod: &Pod, claim: &Claim) -> NotHolding {
    held(pod, claim).err().unwrap_or(NotHolding::NotReserved)
}

/// Everything but the reservation.
fn held(pod: &Pod, claim: &Claim) -> Result<(), NotHolding> {
    if pod.key.namespace != claim.key.namespace {
        return Err(NotHolding::NotReferenced);
    }
    let names = |reference: &&ClaimRef| reference.claim.as_ref() == Some(&claim.key.name);
    let mut references = pod.claims.iter().filter(names).peekable();
    if references.peek().is_none() {
        return Err(NotHolding::NotReferenced);
    }
    if !references.any(|reference| owned(pod, claim.controller.as_ref(), reference.kind)) {
        return Err(NotHolding::NotOwner);
    }
    if pod.node.is_none() {
        return Err(NotHolding::NotBound);
    }
    if claim.results.is_none() {
        return Err(NotHolding::NotAllocated);
    }
    Ok(())
}

/// Whether the kind of reference is satisfied with the claim's owner.
fn owned(pod: &Pod, owner: Option<&Owner>, kind: ClaimRefKind) -> bool {
    let by_pod = || owner.is_some_and(|owner| owner.uid == pod.uid);
    let by_group =
        || owner.is_some_and(|owner| owner.kind == "PodGroup" && pod.pod_group.as_ref() == Some(&owner.name));
    match kind {
        ClaimRefKind::Named => true,
        ClaimRefKind::Template => by_pod() || by_group(),
        ClaimRefKind::ExtendedResource => by_pod(),
    }
}
