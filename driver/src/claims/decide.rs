//! What a claim's allocation means on this node, and whether a prepared claim may be answered again. Pure.

use super::error::ClaimError;
use super::hardware::{Condition, Devices, Hardware};
use super::record::{PreparedDevice, Record, State};
use super::wire::{AllocationResult, Claim};
use crate::cdi::{Cdi, CdiDevice};

/// Who we are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    /// The DRA driver.
    pub driver: String,
    /// The pool of this node: its name.
    pub pool: String,
    /// The current boot.
    pub boot_id: String,
}

/// What to do for a claim that was asked for.
#[derive(Clone, Debug, PartialEq)]
pub enum Decision {
    /// None of the claim's devices is ours: nothing is done or remembered.
    NotOurs,
    /// Answer what the record says, after its side effects were repeated.
    Replay(Record),
    /// Prepare these devices.
    Prepare(Vec<PreparedDevice>),
}

/// The claim's results that this driver serves.
///
/// # Errors
/// When the claim is another one, is not allocated, or names a pool that is not this node's.
pub fn ours(claim: &Claim, uid: &str, scope: &Scope) -> Result<Vec<AllocationResult>, ClaimError> {
    if claim.metadata.uid != uid {
        return Err(ClaimError::Replaced(claim.metadata.uid.clone()));
    }
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = &allocation.ok_or(ClaimError::NotAllocated)?.devices.results;
    let ours: Vec<_> = results.iter().filter(|result| result.driver == scope.driver).cloned().collect();
    match ours.iter().find(|result| result.pool != scope.pool) {
        Some(foreign) => Err(ClaimError::ForeignPool {
            device: foreign.device.clone(),
            pool: foreign.pool.clone(),
            ours: scope.pool.clone(),
        }),
        None => Ok(ours),
    }
}

/// What to do for a claim with these results of ours, of which `record` is the checkpoint.
///
/// # Errors
/// When a device is unknown, lost, cannot be checked, is other hardware than before, or has another owner; when the claim was allocated anew
/// while old containers may still run.
pub fn decide(
    uid: &str,
    results: &[AllocationResult],
    record: Option<&Record>,
    devices: &Devices,
    scope: &Scope,
    cdi: &Cdi,
) -> Result<Decision, ClaimError> {
    if results.is_empty() {
        return Ok(Decision::NotOurs);
    }
    let wanted: Vec<_> = results.iter().map(|result| outline(uid, result, cdi)).collect();
    match record {
        Some(record) if record.same_devices(&wanted) => {
            // One that was only begun may have been answered as well, and the disk forgot: its hardware is checked all the same.
            let checked = replay(record, devices, scope)?;
            if record.state == State::Completed {
                return Ok(Decision::Replay(checked));
            }
        }
        // After a reboot no container of before can run; within a boot one may.
        Some(record) if record.state == State::Completed && record.boot_id == scope.boot_id => {
            return Err(ClaimError::Reallocated { before: names(&record.devices), now: names(&wanted) });
        }
        Some(_) | None => {}
    }
    results.iter().map(|result| fresh(uid, result, devices, cdi)).collect::<Result<_, _>>().map(Decision::Prepare)
}

/// The record as it is to be answered now: checked against the hardware of today, with today's boot and device nodes.
///
/// # Errors
/// When a device is gone, lost, or other hardware; after a reboot also when it cannot be checked.
pub fn replay(record: &Record, devices: &Devices, scope: &Scope) -> Result<Record, ClaimError> {
    let mut record = record.clone();
    for prepared in &mut record.devices {
        let hardware = find(devices, &prepared.device)?;
        match &hardware.condition {
            Condition::Lost(why) => return Err(lost(&prepared.device, why)),
            Condition::Unknown(why) if record.boot_id != scope.boot_id => return Err(unchecked(&prepared.device, why)),
            Condition::Unknown(_) | Condition::Ready => {}
        }
        if let Some(difference) = prepared.identity.difference(&hardware.identity) {
            return Err(ClaimError::OtherHardware { device: prepared.device.clone(), difference });
        }
        prepared.minor = hardware.minor.or(prepared.minor);
        prepared.identity.uuid = prepared.identity.uuid.take().or_else(|| hardware.identity.uuid.clone());
        prepared.identity.serial = prepared.identity.serial.take().or_else(|| hardware.identity.serial.clone());
    }
    record.boot_id.clone_from(&scope.boot_id);
    Ok(record)
}

fn fresh(uid: &str, result: &AllocationResult, devices: &Devices, cdi: &Cdi) -> Result<PreparedDevice, ClaimError> {
    let hardware = find(devices, &result.device)?;
    if let Some(owner) = &hardware.other_owner {
        return Err(ClaimError::OtherOwner { device: result.device.clone(), owner: owner.clone() });
    }
    match &hardware.condition {
        Condition::Ready => Ok(PreparedDevice {
            identity: hardware.identity.clone(),
            minor: hardware.minor,
            ..outline(uid, result, cdi)
        }),
        Condition::Lost(why) => Err(lost(&result.device, why)),
        Condition::Unknown(why) => Err(unchecked(&result.device, why)),
    }
}

/// A prepared device without what only the hardware tells.
fn outline(uid: &str, result: &AllocationResult, cdi: &Cdi) -> PreparedDevice {
    let device = CdiDevice { device: &result.device, share_id: result.share_id.as_deref(), uuid: None, minor: None };
    PreparedDevice {
        request: result.main_request().to_owned(),
        pool: result.pool.clone(),
        device: result.device.clone(),
        cdi_ids: vec![cdi.id(uid, &device)],
        share_id: result.share_id.clone(),
        exclusive: result.is_exclusive(),
        identity: super::hardware::Identity::default(),
        minor: None,
        extra: serde_json::Map::new(),
    }
}

fn find<'a>(devices: &'a Devices, name: &str) -> Result<&'a Hardware, ClaimError> {
    devices.0.get(name).ok_or_else(|| ClaimError::UnknownDevice(name.to_owned()))
}

fn lost(device: &str, why: &str) -> ClaimError {
    ClaimError::Lost { device: device.to_owned(), why: why.to_owned() }
}

fn unchecked(device: &str, why: &str) -> ClaimError {
    ClaimError::Unchecked { device: device.to_owned(), why: why.to_owned() }
}

fn names(devices: &[PreparedDevice]) -> String {
    devices.iter().map(|device| device.device.as_str()).collect::<Vec<_>>().join(", ")
}
