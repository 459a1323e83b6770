//! Which claims a pod uses, and whether a claim is meant for it (component-helpers `resourceclaim`).

use k8s_openapi::api::core::v1::{Pod, PodResourceClaim};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceClaimConsumerReference};
use taints::object::Key;

use super::{key, uid};

/// Says on a generated claim which entry of the pod it was made for.
pub(crate) const POD_CLAIM_ANNOTATION: &str = "resource.kubernetes.io/pod-claim-name";
/// Keeps a claim that is allocated from being deleted.
pub(crate) const FINALIZER: &str = "resource.kubernetes.io/delete-protection";
/// How many consumers a claim may be reserved for.
pub(crate) const MOST_CONSUMERS: usize = 256;

/// The claim behind one entry of `spec.resourceClaims`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ClaimName {
    /// A claim that a person made.
    Named(Key),
    /// A claim that was made for this pod from a template; its owner must be checked.
    Generated(Key),
    /// A claim that is still to be made from a template.
    NotYet,
    /// The controller decided that no claim is needed.
    NotNeeded,
}

impl ClaimName {
    /// The claim, where there is one.
    pub(crate) const fn key(&self) -> Option<&Key> {
        match self {
            Self::Named(key) | Self::Generated(key) => Some(key),
            Self::NotYet | Self::NotNeeded => None,
        }
    }
}

/// The entries of a pod, each with its claim.
pub(crate) fn references(pod: &Pod) -> Vec<(&PodResourceClaim, ClaimName)> {
    let entries = pod.spec.as_ref().and_then(|spec| spec.resource_claims.as_deref()).unwrap_or_default();
    entries.iter().map(|entry| (entry, claim_name(pod, entry))).collect()
}

fn claim_name(pod: &Pod, entry: &PodResourceClaim) -> ClaimName {
    let namespace = key(pod).namespace;
    if let Some(name) = &entry.resource_claim_name {
        return ClaimName::Named(Key::new(namespace, name));
    }
    let statuses = pod.status.as_ref().and_then(|status| status.resource_claim_statuses.as_deref()).unwrap_or_default();
    match statuses.iter().find(|status| status.name == entry.name) {
        Some(status) => match &status.resource_claim_name {
            Some(name) => ClaimName::Generated(Key::new(namespace, name)),
            None => ClaimName::NotNeeded,
        },
        None => ClaimName::NotYet,
    }
}

/// Whether the pod is the claim's controlling owner.
pub(crate) fn is_owned_by(claim: &ResourceClaim, pod: &Pod) -> bool {
    let owners = claim.metadata.owner_references.as_deref().unwrap_or_default();
    owners.iter().any(|owner| owner.controller == Some(true) && owner.uid == uid(pod))
}

/// Who a claim is reserved for.
pub(crate) fn consumers(claim: &ResourceClaim) -> &[ResourceClaimConsumerReference] {
    claim.status.as_ref().and_then(|status| status.reserved_for.as_deref()).unwrap_or_default()
}

/// Whether a claim is reserved for the pod.
pub(crate) fn is_reserved_for(claim: &ResourceClaim, pod: &Pod) -> bool {
    consumers(claim).iter().any(|consumer| consumer.uid == uid(pod))
}

/// Whether devices are allocated.
pub(crate) fn is_allocated(claim: &ResourceClaim) -> bool {
    claim.status.as_ref().is_some_and(|status| status.allocation.is_some())
}

/// The entry of `reservedFor` for a pod.
pub(crate) fn consumer(pod: &Pod) -> ResourceClaimConsumerReference {
    ResourceClaimConsumerReference {
        api_group: None,
        resource: "pods".to_owned(),
        name: key(pod).name,
        uid: uid(pod).to_owned(),
    }
}

/// Whether a pod has ended and does not come back.
pub(crate) fn is_finished(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "namespace": "ns", "uid": "u"},
            "spec": {"containers": [], "resourceClaims": [
                {"name": "own", "resourceClaimName": "shared"},
                {"name": "made", "resourceClaimTemplateName": "t"},
                {"name": "later", "resourceClaimTemplateName": "t"},
                {"name": "none", "resourceClaimTemplateName": "t"},
            ]},
            "status": {"resourceClaimStatuses": [{"name": "made", "resourceClaimName": "p-made-x"}, {"name": "none"}]},
        }))
        .unwrap()
    }

    #[test]
    fn each_entry_has_its_claim() {
        let pod = pod();
        let names: Vec<ClaimName> = references(&pod).into_iter().map(|(_, name)| name).collect();
        let expected = [
            ClaimName::Named(Key::new("ns", "shared")),
            ClaimName::Generated(Key::new("ns", "p-made-x")),
            ClaimName::NotYet,
            ClaimName::NotNeeded,
        ];
        assert_eq!(names, expected);
    }

    #[test]
    fn owner_and_consumer_are_told_by_uid() {
        let claim = |uid: &str| -> ResourceClaim {
            let owner = json!({"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": uid, "controller": true});
            serde_json::from_value(json!({
                "metadata": {"name": "c", "ownerReferences": [owner]}, "spec": {},
                "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": uid}]},
            }))
            .unwrap()
        };
        assert!(is_owned_by(&claim("u"), &pod()) && is_reserved_for(&claim("u"), &pod()));
        assert!(!is_owned_by(&claim("v"), &pod()) && !is_reserved_for(&claim("v"), &pod()));
    }
}
