//! A witness: sees every pod that is asked to leave during a scenario, so that "exactly these, and no others" can be said.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use anyhow::{Result, bail};
use futures::{StreamExt, pin_mut};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, ResourceExt};
use tokio::task::JoinHandle;

/// A pod that was evicted (condition `DisruptionTarget`), by UID.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Eviction {
    /// The pod's name.
    pub pod: String,
    /// When its condition `DisruptionTarget` was set, by the API server's clock.
    pub at: Option<Timestamp>,
    /// The condition's reason.
    pub reason: String,
}

/// The reason of pod garbage collection.
const NODE_GONE: &str = "DeletionByPodGC";

type Record = Arc<Mutex<BTreeMap<String, Eviction>>>;

/// Watches the pods of a namespace from its start on.
#[derive(Debug)]
pub struct Witness {
    record: Record,
    task: JoinHandle<()>,
}

impl Witness {
    /// Starts to watch.
    #[must_use]
    pub fn start(pods: Api<Pod>) -> Self {
        let record = Record::default();
        let task = tokio::spawn(watch(pods, Arc::clone(&record)));
        Self { record, task }
    }

    /// The pods that were evicted so far, by name; a name twice is two pods.
    #[must_use]
    pub fn evicted(&self) -> Vec<Eviction> {
        let record = self.record.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut evicted: Vec<Eviction> = record.values().cloned().collect();
        evicted.sort_by(|a, b| (a.at, &a.pod).cmp(&(b.at, &b.pod)));
        evicted
    }

    /// Checks that exactly these pods were evicted so far, in any order.
    ///
    /// # Errors
    /// When others were, or one of them was not, or one was twice: with what was expected and what was seen.
    pub fn exactly(&self, names: &[&str]) -> Result<()> {
        let mut seen: Vec<String> = self.evicted().into_iter().map(|eviction| eviction.pod).collect();
        let mut wanted: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        seen.sort();
        wanted.sort();
        if seen != wanted {
            let mut text = String::new();
            write!(text, "evicted so far should be exactly {wanted:?}, but is {seen:?}")?;
            bail!(text);
        }
        Ok(())
    }
}

impl Drop for Witness {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn watch(pods: Api<Pod>, record: Record) {
    // A broken watch is taken up again by the watcher itself; without a pause it would spin while the server is away.
    let events = watcher::watcher(pods, watcher::Config::default()).default_backoff();
    pin_mut!(events);
    while let Some(event) = events.next().await {
        if let Ok(Event::Apply(pod) | Event::InitApply(pod) | Event::Delete(pod)) = event {
            note(&pod, &record);
        }
    }
}

fn note(pod: &Pod, record: &Record) {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    let target = conditions.into_iter().flatten().find(|condition| condition.type_ == "DisruptionTarget");
    let (Some(target), Some(uid)) = (target, pod.uid()) else { return };
    // Nobody asked a pod to leave whose Node is gone.
    if target.reason.as_deref() == Some(NODE_GONE) {
        return;
    }
    let eviction = Eviction {
        pod: pod.name_any(),
        at: target.last_transition_time.as_ref().map(|time| time.0),
        reason: target.reason.clone().unwrap_or_default(),
    };
    record.lock().unwrap_or_else(std::sync::PoisonError::into_inner).insert(uid, eviction);
}
