//! A worker for each pod that is bound to this node.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::runtime::watcher::{self, Event};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::Shared;
use super::worker::{Worker, address, name, restarts};
use crate::actor::cache::{Cache, Delta};
use crate::actor::watch::{QUEUE, follow};

/// Follows the pods of the node until it is dropped; workers end with it.
pub(super) async fn manage(shared: Arc<Shared>) {
    let (sender, mut notices) = mpsc::channel(QUEUE);
    let mut watches = JoinSet::new();
    let bound = watcher::Config::default().fields(&format!("spec.nodeName={}", shared.node));
    follow(&mut watches, Api::all(shared.client.clone()), bound, sender, Box::<Event<Pod>>::new);
    let mut manager = Manager { shared, cache: Cache::default(), pods: HashMap::new(), workers: JoinSet::new() };
    let mut looked_for_orphans = false;
    loop {
        tokio::select! {
            Some(event) = notices.recv() => {
                let deltas = manager.cache.apply(*event);
                manager.tell(deltas);
            }
            Some(ended) = manager.workers.join_next() => match ended {
                Ok(uid) => drop(manager.pods.remove(&uid)),
                Err(error) => tracing::error!(%error, "a pod's worker broke"),
            },
        }
        if manager.cache.synced() && !looked_for_orphans {
            looked_for_orphans = true;
            manager.clean_up_orphans();
        }
    }
}

struct Manager {
    shared: Arc<Shared>,
    cache: Cache<Pod>,
    /// The newest object of each pod, for its worker.
    pods: HashMap<String, watch::Sender<Option<Arc<Pod>>>>,
    workers: JoinSet<String>,
}

impl Manager {
    fn tell(&mut self, deltas: Vec<Delta<Pod>>) {
        for delta in deltas {
            match delta {
                Delta::Gone(pod) => {
                    if let Some(sender) = self.pods.get(&name(&pod)) {
                        sender.send_replace(None);
                    }
                }
                Delta::Now(pod) => match self.pods.get(&name(&pod)) {
                    Some(sender) => drop(sender.send_replace(Some(pod))),
                    None => self.begin(name(&pod), Some(pod)),
                },
            }
        }
    }

    fn begin(&mut self, uid: String, pod: Option<Arc<Pod>>) {
        let (ip, restarts) = match &pod {
            Some(pod) => (address(pod).unwrap_or_else(|| self.shared.next_address()), restarts(pod)),
            None => (String::new(), 0),
        };
        let (sender, receiver) = watch::channel(pod);
        self.pods.insert(uid.clone(), sender);
        let worker = Worker { shared: Arc::clone(&self.shared), uid: uid.clone(), pod: receiver, ip, restarts };
        self.workers.spawn(async move {
            worker.run().await;
            uid
        });
    }

    /// Claims of pods that vanished while no kubelet ran are let go.
    fn clean_up_orphans(&mut self) {
        let users = self.shared.dynamic.prepared.lock().pods();
        for uid in users.into_iter().filter(|uid| !self.pods.contains_key(uid)).collect::<Vec<_>>() {
            tracing::info!(pod = uid, "gone while no kubelet ran: its claims are unprepared");
            self.begin(uid, None);
        }
    }
}
