//! Preparing and unpreparing the claims of a pod: kubelet's DRA manager.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use cluster::call::CallError;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::resource::v1::ResourceClaim;
use kube::{Api, Client};
use kubelet_api::dra::v1::{Claim, NodePrepareResourceResponse};
use parking_lot::Mutex;
use taints::object::Key;

use super::drivers::{DriverError, Drivers};
use super::prepared::{Busy, Entry, Prepared, PreparedDevice};
use super::service;
use crate::actor::reference::{self, ClaimName};
use crate::actor::{call, key, uid};

/// Why a pod's claims are not prepared. The text ends in the pod's event.
#[derive(Debug, thiserror::Error)]
pub(super) enum PrepareError {
    #[error("pod \"{0}\": ResourceClaim not created yet")]
    NotCreated(Key),
    #[error("failed to fetch ResourceClaim {claim}: {source}")]
    Fetch { claim: String, source: CallError },
    #[error("ResourceClaim {claim} was not created for pod {pod} (pod is not owner)")]
    NotOwner { claim: Key, pod: Key },
    #[error("pod {pod} is not allowed to use ResourceClaim {claim}: the claim is not reserved for it")]
    NotReserved { claim: Key, pod: Key },
    #[error("ResourceClaim {0} is not allocated")]
    NotAllocated(Key),
    #[error("prepare dynamic resources: {0}")]
    Busy(#[from] Busy),
    #[error("prepare dynamic resources: get gRPC client for DRA driver {driver}: {source}")]
    Driver { driver: String, source: DriverError },
    #[error("prepare dynamic resources: NodePrepareResources: {0}")]
    Call(String),
    #[error("prepare dynamic resources: NodePrepareResources failed for ResourceClaim {claim}: {problem}")]
    Claim { claim: String, problem: String },
    #[error("prepare dynamic resources: NodePrepareResources skipped {0} ResourceClaims")]
    Skipped(usize),
    #[error("prepare dynamic resources: NodePrepareResources returned result for unknown claim UID {0}")]
    Unknown(String),
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] std::io::Error),
}

/// Why a pod's claims are not unprepared.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnprepareError {
    #[error("unprepare dynamic resources: get gRPC client for DRA driver {driver}: {source}")]
    Driver { driver: String, source: DriverError },
    #[error("unprepare dynamic resources: NodeUnprepareResources: {0}")]
    Call(String),
    #[error("unprepare dynamic resources: NodeUnprepareResources failed for ResourceClaim {claim}: {problem}")]
    Claim { claim: String, problem: String },
    #[error("unprepare dynamic resources: NodeUnprepareResources skipped ResourceClaim {0}")]
    Skipped(String),
    #[error("checkpoint: {0}")]
    Checkpoint(#[from] std::io::Error),
}

/// See the module.
pub(super) struct Dynamic {
    pub(super) client: Client,
    pub(super) drivers: Arc<Drivers>,
    pub(super) prepared: Mutex<Prepared>,
    pub(super) checkpoint: PathBuf,
}

/// A claim that was read and may be used.
struct Checked {
    key: Key,
    uid: String,
    drivers: BTreeSet<String>,
}

impl Dynamic {
    /// Prepares all claims of a pod, driver after driver; the first error ends it.
    pub(super) async fn prepare(&self, pod: &Pod) -> Result<(), PrepareError> {
        let claims = self.check(pod).await?;
        if claims.is_empty() {
            return Ok(());
        }
        let mut by_driver: BTreeMap<&str, Vec<&Checked>> = BTreeMap::new();
        for claim in &claims {
            let ask = self.prepared.lock().enter(&claim.key, &claim.uid, uid(pod), &claim.drivers)?;
            for driver in claim.drivers.iter().filter(|_| ask) {
                by_driver.entry(driver).or_default().push(claim);
            }
        }
        self.prepared.lock().save(&self.checkpoint)?;
        for (driver, claims) in by_driver {
            self.prepare_by(driver, &claims).await?;
        }
        // Not in the checkpoint: after a restart drivers are asked again.
        self.prepared.lock().set_ready(claims.iter().map(|claim| &claim.key));
        Ok(())
    }

    /// Reads every claim of the pod from the server, and checks that the pod may use it.
    async fn check(&self, pod: &Pod) -> Result<Vec<Checked>, PrepareError> {
        let mut checked = Vec::new();
        for (_, name) in reference::references(pod) {
            let key = match &name {
                ClaimName::NotNeeded => continue,
                ClaimName::NotYet => return Err(PrepareError::NotCreated(key(pod))),
                ClaimName::Named(key) | ClaimName::Generated(key) => key,
            };
            let api: Api<ResourceClaim> = Api::namespaced(self.client.clone(), &key.namespace);
            let read = call(api.get(&key.name)).await;
            let claim = read.map_err(|source| PrepareError::Fetch { claim: key.name.clone(), source })?;
            check_claim(pod, &claim, key, &name)?;
            checked.push(Checked { key: key.clone(), uid: uid(&claim).to_owned(), drivers: drivers_of(&claim) });
        }
        Ok(checked)
    }

    async fn prepare_by(&self, driver: &str, claims: &[&Checked]) -> Result<(), PrepareError> {
        let wrong = |source| PrepareError::Driver { driver: driver.to_owned(), source };
        let (channel, version) = self.drivers.get(driver).map_err(wrong)?;
        let request = claims.iter().map(|claim| wire(&claim.key, &claim.uid)).collect();
        let answer = service::prepare(channel, version, request).await;
        let mut answers = answer.map_err(|status| PrepareError::Call(status_text(&status)))?.claims;
        let mut skipped = 0;
        for claim in claims {
            match answers.remove(&claim.uid) {
                None => skipped += 1,
                Some(answer) if !answer.error.is_empty() => {
                    return Err(PrepareError::Claim { claim: claim.key.name.clone(), problem: answer.error });
                }
                Some(answer) => self.prepared.lock().set_devices(&claim.key, driver, devices(answer)),
            }
        }
        if let Some(unknown) = answers.into_keys().next() {
            return Err(PrepareError::Unknown(unknown));
        }
        if skipped > 0 {
            return Err(PrepareError::Skipped(skipped));
        }
        Ok(self.prepared.lock().save(&self.checkpoint)?)
    }

    /// Lets the claims go that no other pod of this node uses. The claim objects may be gone by now.
    pub(super) async fn unprepare(&self, pod_uid: &str) -> Result<(), UnprepareError> {
        let last = {
            let mut prepared = self.prepared.lock();
            if !prepared.is_used_by(pod_uid) {
                return Ok(());
            }
            let last = prepared.leave(pod_uid);
            prepared.save(&self.checkpoint)?;
            last
        };
        for entry in &last {
            for driver in entry.drivers.keys() {
                self.unprepare_by(driver, entry).await?;
            }
            let mut prepared = self.prepared.lock();
            prepared.remove(&entry.key());
            prepared.save(&self.checkpoint)?;
        }
        Ok(())
    }

    async fn unprepare_by(&self, driver: &str, entry: &Entry) -> Result<(), UnprepareError> {
        let wrong = |source| UnprepareError::Driver { driver: driver.to_owned(), source };
        let (channel, version) = self.drivers.get(driver).map_err(wrong)?;
        let answer = service::unprepare(channel, version, vec![wire(&entry.key(), &entry.uid)]).await;
        let answers = answer.map_err(|status| UnprepareError::Call(status_text(&status)))?;
        match answers.into_iter().find(|(uid, _)| *uid == entry.uid) {
            None => Err(UnprepareError::Skipped(entry.name.clone())),
            Some((_, problem)) if problem.is_empty() => Ok(()),
            Some((_, problem)) => Err(UnprepareError::Claim { claim: entry.name.clone(), problem }),
        }
    }

    /// The devices that a container gets through one of its claims: those whose requests are empty or hold the one it names.
    pub(super) fn devices(&self, claim: &Key, request: Option<&str>) -> Vec<(String, PreparedDevice)> {
        let prepared = self.prepared.lock();
        let Some(entry) = prepared.get(claim) else { return Vec::new() };
        let wanted = |device: &PreparedDevice| {
            request.is_none_or(|request| device.requests.is_empty() || device.requests.iter().any(|own| own == request))
        };
        let all = entry.drivers.iter().flat_map(|(driver, devices)| devices.iter().map(move |device| (driver, device)));
        all.filter(|(_, device)| wanted(device)).map(|(driver, device)| (driver.clone(), device.clone())).collect()
    }
}

fn check_claim(pod: &Pod, claim: &ResourceClaim, name: &Key, reference: &ClaimName) -> Result<(), PrepareError> {
    if matches!(reference, ClaimName::Generated(_)) && !reference::is_owned_by(claim, pod) {
        return Err(PrepareError::NotOwner { claim: name.clone(), pod: key(pod) });
    }
    if !reference::is_reserved_for(claim, pod) {
        return Err(PrepareError::NotReserved { claim: name.clone(), pod: key(pod) });
    }
    if reference::is_allocated(claim) { Ok(()) } else { Err(PrepareError::NotAllocated(name.clone())) }
}

fn drivers_of(claim: &ResourceClaim) -> BTreeSet<String> {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.and_then(|allocation| allocation.devices.as_ref()?.results.as_ref());
    results.into_iter().flatten().map(|result| result.driver.clone()).collect()
}

fn wire(key: &Key, uid: &str) -> Claim {
    Claim { namespace: key.namespace.clone(), name: key.name.clone(), uid: uid.to_owned() }
}

fn devices(answer: NodePrepareResourceResponse) -> Vec<PreparedDevice> {
    let prepared = |device: kubelet_api::dra::v1::Device| PreparedDevice {
        requests: device.request_names,
        pool: device.pool_name,
        device: device.device_name,
        cdi_ids: device.cdi_device_ids,
        share_id: device.share_id,
    };
    answer.devices.into_iter().map(prepared).collect()
}

/// As Go's gRPC writes a status.
fn status_text(status: &tonic::Status) -> String {
    format!("rpc error: code = {:?} desc = {}", status.code(), status.message())
}
