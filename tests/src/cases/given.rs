//! What cases give, and our objects made of it. Times are plain seconds.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use taints::object::{
    Allocated, Claim, ClaimRef, ClaimRefKind, Consumer, Device, DeviceId, Identity, Key, Owner, Phase, Pod, Rule,
    Selector, Slice,
};
use taints::{Effect, Taint, Toleration};

/// The namespace of what names none.
pub(super) const NAMESPACE: &str = "default";

/// A moment, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct At(pub(super) Timestamp);

impl At {
    pub(super) fn seconds(self) -> f64 {
        self.0.as_duration().as_secs_f64()
    }
}

impl<'de> Deserialize<'de> for At {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let seconds = f64::deserialize(deserializer)?;
        let duration = jiff::SignedDuration::try_from_secs_f64(seconds).map_err(serde::de::Error::custom)?;
        Timestamp::from_duration(duration).map(Self).map_err(serde::de::Error::custom)
    }
}

/// A taint whose time is in seconds.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GivenTaint {
    #[serde(default)]
    key: String,
    #[serde(default)]
    value: String,
    #[serde(default)]
    effect: String,
    time_added: Option<At>,
}

impl From<GivenTaint> for Taint {
    fn from(given: GivenTaint) -> Self {
        Self {
            key: given.key,
            value: given.value,
            effect: Effect::from(given.effect),
            time_added: given.time_added.map(|at| at.0),
        }
    }
}

pub(super) fn taints(given: Vec<GivenTaint>) -> Vec<Taint> {
    given.into_iter().map(Taint::from).collect()
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GivenSlice {
    #[serde(default)]
    name: String,
    #[serde(default = "driver")]
    driver: String,
    #[serde(default = "pool")]
    pool: String,
    generation: i64,
    /// Absent, the pool is complete with what is given.
    resource_slice_count: Option<i64>,
    #[serde(default)]
    devices: Vec<GivenDevice>,
}

fn driver() -> String {
    "gpu.vendor.test".to_owned()
}

fn pool() -> String {
    "rack7".to_owned()
}

#[derive(Clone, Debug, Deserialize)]
struct GivenDevice {
    name: String,
    #[serde(default)]
    taints: Vec<GivenTaint>,
}

/// Slices that do not say how many their pool has at their generation are taken to be all.
pub(super) fn complete(slices: &mut [GivenSlice]) {
    let mut counts: BTreeMap<(String, String, i64), i64> = BTreeMap::new();
    for slice in slices.iter() {
        *counts.entry(slice.of()).or_default() += 1;
    }
    for slice in slices {
        slice.resource_slice_count = slice.resource_slice_count.or_else(|| counts.get(&slice.of()).copied());
    }
}

impl GivenSlice {
    fn of(&self) -> (String, String, i64) {
        (self.driver.clone(), self.pool.clone(), self.generation)
    }

    /// The object; one without a name is called by its position, and one without a count stands alone in its generation.
    pub(super) fn object(self, position: usize) -> Slice {
        let name = if self.name.is_empty() { format!("slice-{position:03}") } else { self.name };
        let devices = self.devices.into_iter().map(|device| Device {
            name: device.name,
            taints: taints(device.taints),
            ..Device::default()
        });
        Slice {
            uid: format!("uid-{name}"),
            name,
            driver: self.driver,
            pool: self.pool,
            generation: self.generation,
            slice_count: self.resource_slice_count.unwrap_or(1),
            all_nodes: true,
            devices: devices.collect(),
            ..Slice::default()
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GivenRule {
    name: String,
    #[serde(default)]
    uid: String,
    taint: GivenTaint,
    device_selector: Option<GivenSelector>,
}

#[derive(Clone, Debug, Deserialize)]
struct GivenSelector {
    driver: Option<String>,
    pool: Option<String>,
    device: Option<String>,
}

impl From<GivenRule> for Rule {
    fn from(given: GivenRule) -> Self {
        let selector = given.device_selector.map(|selector| Selector {
            driver: selector.driver,
            pool: selector.pool,
            device: selector.device,
        });
        Self {
            name: given.name,
            uid: given.uid,
            selector,
            taint: given.taint.into(),
            careful: false,
            identity: Identity::default(),
            expires_at: None,
            managed: false,
            reason: None,
            by: None,
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GivenClaim {
    name: String,
    namespace: Option<String>,
    #[serde(default)]
    uid: String,
    #[serde(default)]
    results: Vec<GivenResult>,
    #[serde(default)]
    reserved_for: Vec<GivenConsumer>,
    controller_owner: Option<GivenOwner>,
    #[serde(default)]
    spec_tolerations: BTreeMap<String, Vec<Toleration>>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenResult {
    driver: String,
    pool: String,
    device: String,
    request: String,
    tolerations: Option<Vec<Toleration>>,
    #[serde(default)]
    admin_access: bool,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenConsumer {
    #[serde(default)]
    api_group: String,
    resource: String,
    name: String,
    uid: String,
}

#[derive(Clone, Debug, Deserialize)]
struct GivenOwner {
    kind: String,
    name: String,
    uid: String,
}

impl From<GivenResult> for Allocated {
    fn from(given: GivenResult) -> Self {
        Self {
            id: DeviceId { driver: given.driver, pool: given.pool, device: given.device },
            request: given.request,
            tolerations: given.tolerations,
            admin_access: given.admin_access,
            share_id: None,
        }
    }
}

impl From<GivenClaim> for Claim {
    fn from(given: GivenClaim) -> Self {
        let consumer = |given: GivenConsumer| Consumer {
            api_group: given.api_group,
            resource: given.resource,
            name: given.name,
            uid: given.uid,
        };
        Self {
            key: Key::new(given.namespace.unwrap_or_else(|| NAMESPACE.to_owned()), given.name),
            uid: given.uid,
            controller: given.controller_owner.map(|owner| Owner {
                kind: owner.kind,
                name: owner.name,
                uid: owner.uid,
            }),
            requests: given.spec_tolerations,
            results: Some(given.results.into_iter().map(Allocated::from).collect()),
            reserved_for: given.reserved_for.into_iter().map(consumer).collect(),
        }
    }
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct GivenPod {
    pub(super) name: String,
    namespace: Option<String>,
    pub(super) uid: String,
    #[serde(default)]
    node: String,
    #[serde(default)]
    tolerations: Vec<Toleration>,
    #[serde(default)]
    resource_claims: Vec<GivenClaimRef>,
    extended_resource_claim: Option<String>,
    pod_group: Option<String>,
    #[serde(default)]
    phase: GivenPhase,
    #[serde(default)]
    terminating: bool,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
enum GivenPhase {
    Pending,
    #[default]
    Running,
    Succeeded,
    Failed,
    Unknown,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenClaimRef {
    claim: Option<String>,
    template: Option<String>,
    status_claim: Option<String>,
}

impl From<GivenPhase> for Phase {
    fn from(given: GivenPhase) -> Self {
        match given {
            GivenPhase::Pending => Self::Pending,
            GivenPhase::Running => Self::Running,
            GivenPhase::Succeeded => Self::Succeeded,
            GivenPhase::Failed => Self::Failed,
            GivenPhase::Unknown => Self::Unknown,
        }
    }
}

impl From<GivenClaimRef> for ClaimRef {
    fn from(given: GivenClaimRef) -> Self {
        match given.template {
            Some(_) => Self { claim: given.status_claim, kind: ClaimRefKind::Template },
            None => Self { claim: given.claim, kind: ClaimRefKind::Named },
        }
    }
}

impl GivenPod {
    /// The object, as it is at `now`.
    pub(super) fn object(self, bound_at: Option<Timestamp>, now: Timestamp) -> Pod {
        let extended = self
            .extended_resource_claim
            .map(|claim| ClaimRef { claim: Some(claim), kind: ClaimRefKind::ExtendedResource });
        Pod {
            key: Key::new(self.namespace.unwrap_or_else(|| NAMESPACE.to_owned()), self.name),
            uid: self.uid,
            node: (!self.node.is_empty()).then_some(self.node),
            bound_at,
            phase: self.phase.into(),
            deleted_at: self.terminating.then_some(now),
            tolerations: self.tolerations,
            claims: self.resource_claims.into_iter().map(ClaimRef::from).chain(extended).collect(),
            pod_group: self.pod_group,
            ..Pod::default()
        }
    }

    pub(super) fn is_bound(&self) -> bool {
        !self.node.is_empty()
    }
}
