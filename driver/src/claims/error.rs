//! Why a claim could not be prepared or unprepared. Each text is one line: kubelet shows it in the pod's event
//! `FailedPrepareDynamicResources`, after the claim's name.

use cluster::call::CallError;

use super::checkpoint::CheckpointError;
use super::reserve::Held;
use crate::cdi::CdiError;

/// Why a claim could not be prepared or unprepared.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The UID would not be a file name.
    #[error("claim UID {0:?} is not a UID; nothing was done")]
    Uid(String),
    /// Another call for the same claim takes too long.
    #[error("another call for this claim is still at work after {0} s; it is tried again")]
    Busy(u64),
    /// The API server gave no answer.
    #[error("cannot read the claim from the API server: {0}; it is tried again")]
    Read(#[source] CallError),
    /// There is no such claim.
    #[error("the claim does not exist any more; delete the pod that uses it")]
    Gone,
    /// A claim of the same name with another UID.
    #[error("the claim was replaced by another one of the same name (UID {0}); delete the pod that uses the old one")]
    Replaced(String),
    /// The claim has no allocation.
    #[error("the claim is not allocated; wait for kube-scheduler, or unset spec.nodeName of a pod that bypasses it")]
    NotAllocated,
    /// A device of another pool.
    #[error(
        "the claim holds device {device} of pool {pool}, and this node serves pool {ours}; the pod was put on the wrong node, delete it"
    )]
    ForeignPool {
        /// The device.
        device: String,
        /// Its pool.
        pool: String,
        /// The pool of this node.
        ours: String,
    },
    /// A device that this node does not have.
    #[error(
        "device {0} is not on this node (any more); delete the pod and its claim, so that another device is allocated"
    )]
    UnknownDevice(String),
    /// The cards were not read yet.
    #[error("the GPUs of this node have not been read yet; it is tried again")]
    Unread,
    /// Nobody can tell whether the device works.
    #[error("device {device} cannot be checked: {why}; it is tried again")]
    Unchecked {
        /// The device.
        device: String,
        /// Why not.
        why: String,
    },
    /// The device does not answer.
    #[error(
        "device {device} does not answer: {why}; delete the pod and its claim, so that another device is allocated"
    )]
    Lost {
        /// The device.
        device: String,
        /// What says so.
        why: String,
    },
    /// Somebody else gives the device away too.
    #[error(
        "device {device} is offered by {owner} too, and a GPU has one owner: no new claim is prepared on it; take the other owner off this node, or start \
         gpu-driver with {}; or delete the pod and its claim, so that another device is allocated",
        crate::owner::FLAG
    )]
    OtherOwner {
        /// The device.
        device: String,
        /// Who that is.
        owner: String,
    },
    /// The name means other hardware now (field report F20).
    #[error(
        "device {device} is not the hardware that the claim was prepared with: {difference}; delete the pod and its claim"
    )]
    OtherHardware {
        /// The device.
        device: String,
        /// What differs.
        difference: String,
    },
    /// Another claim holds the device.
    #[error(transparent)]
    Held(#[from] Held),
    /// The claim has other devices than it was prepared with, and its old containers may still run.
    #[error(
        "the claim was allocated anew ({now}) while it is still prepared with {before}; it is tried again once the old pod has ended on this node"
    )]
    Reallocated {
        /// Devices of the checkpoint.
        before: String,
        /// Devices of the allocation.
        now: String,
    },
    /// The checkpoint could not be written.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The CDI spec could not be written.
    #[error(transparent)]
    Cdi(#[from] CdiError),
    /// The work panicked or was torn down.
    #[error("the agent is stopping; it is tried again by its successor")]
    Stopping,
}
