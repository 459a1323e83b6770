//! What the scheduler knows of the cluster.

use std::collections::HashMap;

use cluster::Kind;
use cluster::watch::Notice as RuleNotice;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim};
use kube::runtime::watcher::Event;
use taints::fleet::{Change, Fleet};
use taints::object::{Allocated, Claim, DeviceId};

use super::selectors::Selectors;
use crate::actor::cache::{Cache, Delta};
use crate::actor::{key, reference, uid};

/// What a watch tells.
#[derive(Debug)]
pub(super) enum Notice {
    Pod(Box<Event<Pod>>),
    Node(Box<Event<Node>>),
    Claim(Box<Event<ResourceClaim>>),
    Class(Box<Event<DeviceClass>>),
    /// Slices and rules come as what the rules read.
    Device(RuleNotice),
}

/// All objects that a placement depends on.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) pods: Cache<Pod>,
    pub(super) nodes: Cache<Node>,
    pub(super) claims: Cache<ResourceClaim>,
    pub(super) classes: Cache<DeviceClass>,
    /// Slices and rules, and which claim has which device.
    pub(super) fleet: Fleet,
    slices_synced: bool,
    rules_synced: bool,
}

impl View {
    /// Takes a notice. Answers about devices are forgotten when a slice changed.
    pub(super) fn apply(&mut self, notice: Notice, selectors: &mut Selectors) {
        match notice {
            Notice::Pod(event) => drop(self.pods.apply(*event)),
            Notice::Node(event) => drop(self.nodes.apply(*event)),
            Notice::Class(event) => drop(self.classes.apply(*event)),
            Notice::Claim(event) => {
                let deltas = self.claims.apply(*event);
                self.track(deltas);
            }
            Notice::Device(RuleNotice::Change(change)) => {
                if matches!(*change, Change::Slice(_) | Change::SliceGone(_)) {
                    selectors.forget_answers();
                }
                self.fleet.apply(*change);
            }
            Notice::Device(RuleNotice::Synced(Kind::Slice)) => self.slices_synced = true,
            Notice::Device(RuleNotice::Synced(Kind::Rule) | RuleNotice::NotServed(Kind::Rule)) => {
                self.rules_synced = true;
            }
            // The watch's own log, which names the object, is off by default: it also tells every attempt of an outage.
            Notice::Device(RuleNotice::Malformed(kind)) => {
                tracing::warn!(%kind, "an object that cannot be understood is left out; RUST_LOG=info,cluster::watch=warn names it");
            }
            Notice::Device(_) => {}
        }
    }

    /// Takes the answer of a write.
    pub(super) fn put_claim(&mut self, claim: ResourceClaim) {
        let deltas = self.claims.put(claim);
        self.track(deltas);
    }

    /// A claim is not there, whatever the watch told last.
    pub(super) fn remove_claim(&mut self, claim: &ResourceClaim) {
        let deltas = self.claims.remove(claim);
        self.track(deltas);
    }

    fn track(&mut self, deltas: Vec<Delta<ResourceClaim>>) {
        for delta in deltas {
            self.fleet.apply(match delta {
                Delta::Now(claim) => Change::Claim(usage(&claim)),
                Delta::Gone(claim) => Change::ClaimGone(key(claim.as_ref())),
            });
        }
    }

    /// Whether everything was told once: before that, a free device may not be free.
    pub(super) fn synced(&self) -> bool {
        self.pods.synced()
            && self.nodes.synced()
            && self.claims.synced()
            && self.classes.synced()
            && self.slices_synced
            && self.rules_synced
    }

    /// A class by name.
    pub(super) fn class(&self, name: &str) -> Option<&DeviceClass> {
        self.classes.named(name).map(AsRef::as_ref)
    }

    /// How many pods that have not ended each node has.
    pub(super) fn pods_per_node(&self) -> HashMap<String, usize> {
        let mut counts = HashMap::new();
        for pod in self.pods.iter().filter(|pod| !reference::is_finished(pod)) {
            if let Some(node) = pod.spec.as_ref().and_then(|spec| spec.node_name.clone()) {
                *counts.entry(node).or_default() += 1;
            }
        }
        counts
    }
}

/// The devices of a claim, as the fleet counts their use.
fn usage(claim: &ResourceClaim) -> Claim {
    let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
    let results = allocation.map(|allocation| {
        let results = allocation.devices.iter().filter_map(|devices| devices.results.as_ref()).flatten();
        let allocated = results.map(|result| Allocated {
            id: DeviceId { driver: result.driver.clone(), pool: result.pool.clone(), device: result.device.clone() },
            request: result.request.clone(),
            tolerations: None,
            admin_access: result.admin_access.unwrap_or(false),
            share_id: result.share_id.clone(),
        });
        allocated.collect()
    });
    Claim { key: key(claim), uid: uid(claim).to_owned(), results, ..Claim::default() }
}
