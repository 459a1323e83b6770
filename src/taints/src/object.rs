//! The objects that rules read, as plain data: a node, a slice, a rule, a claim, a pod. The edge makes them from what it watches.
//!
//! Absent and empty are kept apart where Kubernetes does: a rule without a selector selects nothing, an empty selector every
//! device; an allocation result of an old scheduler has no tolerations at all, which is not an empty list.

use std::collections::BTreeMap;

use jiff::Timestamp;

use crate::taint::Taint;
use crate::toleration::Toleration;

/// Namespace and name of a namespaced object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// The namespace.
    pub namespace: String,
    /// The name.
    pub name: String,
}

impl Key {
    /// A key from its two parts.
    pub fn new(namespace: impl Into<String>, name: impl Into<String>) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }
}

impl std::fmt::Display for Key {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// The name of one device: unique by driver, pool and device (resource/v1 `DeviceRequestAllocationResult`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeviceId {
    /// The DRA driver.
    pub driver: String,
    /// The pool, which for a node's own devices is the node's name.
    pub pool: String,
    /// The device's name in the pool.
    pub device: String,
}

impl std::fmt::Display for DeviceId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}/{}", self.driver, self.pool, self.device)
    }
}

/// What hardware a name means: it travels with every intent, so that a name which now means another card is not acted on.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Identity {
    /// The UUID, such as `GPU-2b8c...`.
    pub uuid: Option<String>,
    /// The board's serial number.
    pub serial: Option<String>,
}

impl Identity {
    /// Whether anything is known.
    #[must_use]
    pub const fn is_known(&self) -> bool {
        self.uuid.is_some() || self.serial.is_some()
    }

    /// Whether both are the same hardware: the UUIDs decide, else the serial numbers; `None` where neither can be compared.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> Option<bool> {
        let agree = |a: &Option<String>, b: &Option<String>| Some(a.as_ref()? == b.as_ref()?);
        agree(&self.uuid, &other.uuid).or_else(|| agree(&self.serial, &other.serial))
    }
}

/// A node, as far as taints need it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Node {
    /// The name.
    pub name: String,
    /// The UID: a node of the same name with another UID is another node.
    pub uid: String,
    /// Its labels, for selectors of pods.
    pub labels: BTreeMap<String, String>,
    /// Its taints, in the object's order.
    pub taints: Vec<Taint>,
    /// When `spec.taints` was last changed, from `managedFields`; absent when nobody recorded it.
    pub taints_changed: Option<Timestamp>,
}

/// One ResourceSlice: a part of a pool's devices.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Slice {
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// When the object was created: a slice older than a higher generation that was seen is stale.
    pub created: Option<Timestamp>,
    /// The DRA driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// The pool's generation that this slice belongs to.
    pub generation: i64,
    /// How many slices a complete pool has at this generation.
    pub slice_count: i64,
    /// The node whose devices these are; absent for devices that are reached in another way.
    pub node_name: Option<String>,
    /// Whether its driver makes taints of DeviceMarks.
    pub follows_marks: bool,
    /// Whether every node may use the devices.
    pub all_nodes: bool,
    /// The devices, in the object's order, which is the order of preference.
    pub devices: Vec<Device>,
}

/// One device of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The name in the pool, a DNS label.
    pub name: String,
    /// The driver's own taints. Taints of rules come on top.
    pub taints: Vec<Taint>,
    /// What hardware it is, from the attributes.
    pub identity: Identity,
    /// Attributes by qualified name (`domain/name`; a bare name is of the driver's domain), for selectors and tables.
    pub attributes: BTreeMap<String, Attribute>,
    /// Capacity by qualified name, as the quantity that the driver wrote.
    pub capacity: BTreeMap<String, String>,
    /// Whether more than one claim may share it (consumable capacity).
    pub allow_multiple_allocations: bool,
}

/// The value of a device's attribute (resource/v1 `DeviceAttribute`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A truth value.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text.
    String(String),
    /// A semantic version, as written.
    Version(String),
}

/// A DeviceTaintRule: a taint that an administrator puts on devices, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The object's name.
    pub name: String,
    /// The object's UID.
    pub uid: String,
    /// The selector; absent selects nothing.
    pub selector: Option<Selector>,
    /// The taint.
    pub taint: Taint,
    /// Whether the rule carries `devicetaint.dev/evict: careful`: a NoSchedule taint of it evicts, with budgets and pace.
    pub careful: bool,
    /// The hardware that the rule was written for; a device that is another card now is not acted on.
    pub identity: Identity,
    /// When a mark of ours ends (`devicetaint.dev/expires-at`).
    pub expires_at: Option<Timestamp>,
    /// Whether it is a mark of ours (`devicetaint.dev/managed-by: kubectl-device`).
    pub managed: bool,
    /// Why it was put there, in the words of who did (`devicetaint.dev/reason`).
    pub reason: Option<String>,
    /// Who put it there (`devicetaint.dev/by`).
    pub by: Option<String>,
}

/// Which devices a rule selects, by name. All present fields must agree; an empty selector selects every device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Selector {
    /// The DRA driver.
    pub driver: Option<String>,
    /// The pool.
    pub pool: Option<String>,
    /// The device's name in the pool.
    pub device: Option<String>,
}

impl Selector {
    /// Whether the device's name is selected.
    #[must_use]
    pub fn matches(&self, id: &DeviceId) -> bool {
        let agrees = |want: &Option<String>, have: &String| want.as_ref().is_none_or(|want| want == have);
        agrees(&self.driver, &id.driver) && agrees(&self.pool, &id.pool) && agrees(&self.device, &id.device)
    }
}

/// A ResourceClaim, as far as eviction needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// Namespace and name.
    pub key: Key,
    /// The UID.
    pub uid: String,
    /// The controller that owns it, if any.
    pub controller: Option<Owner>,
    /// What each request tolerates by the claim's spec, by request name (`main` or `main/sub`).
    pub requests: BTreeMap<String, Vec<Toleration>>,
    /// The allocated devices; absent when the claim has none.
    pub results: Option<Vec<Allocated>>,
    /// Who may use it now.
    pub reserved_for: Vec<Consumer>,
}

impl Default for Key {
    fn default() -> Self {
        Self::new("", "")
    }
}

/// The controlling owner of an object.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Owner {
    /// Its kind, such as `Pod` or `ReplicaSet`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// One allocated device of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Allocated {
    /// Which device.
    pub id: DeviceId,
    /// The request that it was allocated for (`main` or `main/sub`).
    pub request: String,
    /// What was tolerated when it was allocated; absent where the scheduler did not record it (Kubernetes 1.33 and 1.34, F04).
    pub tolerations: Option<Vec<Toleration>>,
    /// Whether it is held for administration only.
    pub admin_access: bool,
    /// The share of a device that several claims use.
    pub share_id: Option<String>,
}

/// Who a claim is reserved for (resource/v1 `ResourceClaimConsumerReference`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Consumer {
    /// The API group; empty for pods.
    pub api_group: String,
    /// The resource, such as `pods` or `podgroups`.
    pub resource: String,
    /// The name, in the claim's namespace.
    pub name: String,
    /// The UID.
    pub uid: String,
}

/// A pod's phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Not started yet.
    #[default]
    Pending,
    /// At least one container runs.
    Running,
    /// All containers ended well.
    Succeeded,
    /// All containers ended, at least one badly.
    Failed,
    /// The node cannot be asked.
    Unknown,
}

impl Phase {
    /// Whether the pod has ended: it is left alone.
    #[must_use]
    pub const fn is_finished(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// A pod, as far as eviction needs it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pod {
    /// Namespace and name.
    pub key: Key,
    /// The UID: every delete carries it.
    pub uid: String,
    /// The version that was judged: every delete carries it.
    pub resource_version: String,
    /// The controller that owns it and would recreate it, if any.
    pub controller: Option<Owner>,
    /// The node it is bound to.
    pub node: Option<String>,
    /// When it was bound (`PodScheduled` condition, else its creation): node countdowns never begin before.
    pub bound_at: Option<Timestamp>,
    /// The phase.
    pub phase: Phase,
    /// When it was asked to end; such a pod is left alone.
    pub deleted_at: Option<Timestamp>,
    /// Its tolerations of node taints, in the object's order: the first match decides.
    pub tolerations: Vec<Toleration>,
    /// The claims it references.
    pub claims: Vec<ClaimRef>,
    /// Its pod group (`spec.schedulingGroup.podGroupName`).
    pub pod_group: Option<String>,
}

/// A reference of a pod to a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRef {
    /// The claim's name; absent while a template's claim is not made yet.
    pub claim: Option<String>,
    /// Where the reference stands, which decides whether the claim's owner is checked.
    pub kind: ClaimRefKind,
}

/// Where a pod names a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimRefKind {
    /// `spec.resourceClaims[].resourceClaimName`: no owner check.
    Named,
    /// `status.resourceClaimStatuses`: the pod, or its pod group, must own the claim.
    Template,
    /// `status.extendedResourceClaimStatus`: the pod must own the claim.
    ExtendedResource,
}
