//! core/v1 `Pod`: where it runs, what it tolerates, and which claims it references by any of the three ways.

use jiff::Timestamp;
use serde::Deserialize;
use taints::Toleration;
use taints::fleet::Change;
use taints::object::{ClaimRef, ClaimRefKind, Key, Phase, Pod};

use super::Wire;
use super::meta::{Meta, nullable};
use crate::kind::Kind;

/// The part of a Pod that we read.
#[derive(Debug, Deserialize)]
pub struct PodWire {
    metadata: Meta,
    #[serde(default, deserialize_with = "nullable")]
    spec: Spec,
    #[serde(default, deserialize_with = "nullable")]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Spec {
    #[serde(deserialize_with = "nullable")]
    node_name: String,
    #[serde(deserialize_with = "nullable")]
    tolerations: Vec<Toleration>,
    #[serde(deserialize_with = "nullable")]
    resource_claims: Vec<PodClaim>,
    scheduling_group: Option<SchedulingGroup>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PodClaim {
    name: String,
    resource_claim_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SchedulingGroup {
    pod_group_name: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    #[serde(deserialize_with = "nullable")]
    phase: String,
    #[serde(deserialize_with = "nullable")]
    conditions: Vec<Condition>,
    #[serde(deserialize_with = "nullable")]
    resource_claim_statuses: Vec<PodClaim>,
    extended_resource_claim_status: Option<ExtendedClaim>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Condition {
    r#type: String,
    status: String,
    last_transition_time: Option<Timestamp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ExtendedClaim {
    resource_claim_name: Option<String>,
}

impl Wire for PodWire {
    const KIND: Kind = Kind::Pod;
    type Object = Pod;

    fn into_object(self) -> Result<Pod, String> {
        let Self { metadata, spec, status } = self;
        let node = Some(spec.node_name).filter(|name| !name.is_empty());
        let bound_at = node.as_ref().and(status.bound_at().or(metadata.creation_timestamp));
        Ok(Pod {
            controller: metadata.controller(),
            key: Key::new(metadata.namespace, metadata.name),
            uid: metadata.uid,
            resource_version: metadata.resource_version,
            node,
            bound_at,
            phase: phase(&status.phase)?,
            deleted_at: metadata.deletion_timestamp,
            tolerations: spec.tolerations,
            claims: claims(spec.resource_claims, &status),
            pod_group: spec.scheduling_group.and_then(|group| group.pod_group_name),
        })
    }

    fn applied(object: Pod) -> Change {
        Change::Pod(object)
    }

    fn gone(key: Key) -> Change {
        Change::PodGone(key)
    }
}

impl Status {
    /// The scheduler (or kubelet, for a pod bound by hand) sets `PodScheduled` when the pod has a node.
    fn bound_at(&self) -> Option<Timestamp> {
        let scheduled = |condition: &&Condition| condition.r#type == "PodScheduled" && condition.status == "True";
        self.conditions.iter().find(scheduled)?.last_transition_time
    }

    /// The claim that was made from a template for one entry of the spec.
    fn generated(&self, entry: &str) -> Option<String> {
        let status = self.resource_claim_statuses.iter().find(|status| status.name == entry)?;
        status.resource_claim_name.clone().filter(|name| !name.is_empty())
    }
}

fn claims(entries: Vec<PodClaim>, status: &Status) -> Vec<ClaimRef> {
    let of_spec = entries.into_iter().map(|entry| match entry.resource_claim_name {
        Some(name) => ClaimRef { claim: Some(name), kind: ClaimRefKind::Named },
        None => ClaimRef { claim: status.generated(&entry.name), kind: ClaimRefKind::Template },
    });
    let extended = status.extended_resource_claim_status.iter();
    let extended = extended.filter_map(|extended| extended.resource_claim_name.clone());
    let extended = extended.map(|name| ClaimRef { claim: Some(name), kind: ClaimRefKind::ExtendedResource });
    of_spec.chain(extended).collect()
}

/// An unknown phase is an error and not "running": what we do not understand is not acted on.
fn phase(text: &str) -> Result<Phase, String> {
    match text {
        "" | "Pending" => Ok(Phase::Pending),
        "Running" => Ok(Phase::Running),
        "Succeeded" => Ok(Phase::Succeeded),
        "Failed" => Ok(Phase::Failed),
        "Unknown" => Ok(Phase::Unknown),
        other => Err(format!("status.phase: unknown phase {other:?}")),
    }
}
