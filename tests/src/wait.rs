//! Waiting for a state of the cluster: a watch, a condition, a deadline, and the difference when it does not come.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use anyhow::{Result, bail};
use futures::{StreamExt, pin_mut};
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;

/// How long a state may take to come, unless a step says otherwise. Generous: machines are noisy, and a state that comes
/// early is not waited for.
pub const SOON: Duration = Duration::from_secs(30);

/// The objects of one kind, by `namespace/name`.
pub type Seen<K> = BTreeMap<String, K>;

/// Waits until `check` accepts the objects of a kind.
///
/// # Errors
/// When the state does not come within `within`: what was waited for, and what `check` last missed.
pub async fn until<K, T>(
    api: Api<K>,
    what: &str,
    within: Duration,
    check: impl FnMut(&Seen<K>) -> Result<T, String>,
) -> Result<T>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let mut missed = String::from("nothing was listed yet");
    let found = tokio::time::timeout(within, watch_until(api, check, &mut missed)).await;
    match found {
        Ok(found) => found,
        Err(_) => bail!("waited {within:?} for {what}, in vain: {missed}"),
    }
}

async fn watch_until<K, T>(
    api: Api<K>,
    mut check: impl FnMut(&Seen<K>) -> Result<T, String>,
    missed: &mut String,
) -> Result<T>
where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    K::DynamicType: Default + Eq + Hash + Clone,
{
    let events = watcher::watcher(api, watcher::Config::default()).default_backoff();
    pin_mut!(events);
    let mut seen = Seen::new();
    let mut fresh = Seen::new();
    let mut listed = false;
    while let Some(event) = events.next().await {
        match event {
            Ok(Event::Init) => fresh.clear(),
            Ok(Event::InitApply(object)) => drop(fresh.insert(key(&object), object)),
            Ok(Event::InitDone) => {
                seen = std::mem::take(&mut fresh);
                listed = true;
            }
            Ok(Event::Apply(object)) => drop(seen.insert(key(&object), object)),
            Ok(Event::Delete(object)) => drop(seen.remove(&key(&object))),
            Err(error) => *missed = format!("the watch failed: {error}"),
        }
        if listed {
            match check(&seen) {
                Ok(found) => return Ok(found),
                Err(difference) => *missed = difference,
            }
        }
    }
    bail!("the watch ended: {missed}")
}

fn key<K: Resource>(object: &K) -> String {
    match object.namespace() {
        Some(namespace) => format!("{namespace}/{}", object.name_any()),
        None => object.name_any(),
    }
}
