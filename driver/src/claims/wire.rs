//! The parts of a ResourceClaim (resource.k8s.io/v1) that preparing needs.

use serde::Deserialize;

/// A ResourceClaim as it is read. Its spec is not looked at: what counts is the allocation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Claim {
    /// The part of the metadata that says which claim it is.
    pub metadata: ClaimMeta,
    /// The status; empty while nothing was allocated.
    #[serde(default)]
    pub status: Option<ClaimStatus>,
}

/// The part of a claim's metadata that says which claim it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ClaimMeta {
    /// The UID: a claim of the same name with another one is another claim.
    #[serde(default)]
    pub uid: String,
}

/// `status` of a ResourceClaim.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct ClaimStatus {
    /// The devices that the scheduler gave to the claim; absent while it has none.
    #[serde(default)]
    pub allocation: Option<Allocation>,
}

/// `status.allocation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct Allocation {
    /// The devices.
    #[serde(default)]
    pub devices: AllocatedDevices,
}

/// `status.allocation.devices`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
pub struct AllocatedDevices {
    /// One entry a device.
    #[serde(default)]
    pub results: Vec<AllocationResult>,
}

/// One allocated device (`DeviceRequestAllocationResult`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllocationResult {
    /// The request: `main`, or `main/sub` of a prioritised list.
    pub request: String,
    /// The DRA driver.
    pub driver: String,
    /// The pool.
    pub pool: String,
    /// The device.
    pub device: String,
    /// Held for administration: does not count as use.
    #[serde(default)]
    pub admin_access: Option<bool>,
    /// The share of a device that several claims use (consumable capacity).
    #[serde(default, rename = "shareID")]
    pub share_id: Option<String>,
}

impl AllocationResult {
    /// The request's main name, which is the one that kubelet compares with.
    #[must_use]
    pub fn main_request(&self) -> &str {
        self.request.split_once('/').map_or(self.request.as_str(), |(main, _)| main)
    }

    /// Whether nobody else may hold the device at the same time.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        !self.admin_access.unwrap_or(false) && self.share_id.is_none()
    }
}
