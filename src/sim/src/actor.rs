//! What the scheduler, the claim controller and the kubelets share: each is an HTTP client of an API server, this one or a real one.
//!
//! What flows through: [`watch`] follows kinds into one bounded channel, [`cache`] keeps what was seen and what was written since,
//! a pure function of the actor decides, and a patch with a precondition acts. Nothing polls. A conflict means that the cache was
//! old: the actor reads again and decides anew.

pub(crate) mod cache;
pub(crate) mod convert;
pub(crate) mod event;
pub(crate) mod outage;
pub(crate) mod reference;
pub(crate) mod watch;

use std::time::Duration;

use cluster::call::{CallError, within};
use cluster::connect::CALL_TIMEOUT;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};
use kube::api::{Patch, PatchParams};
use kube::{Api, Resource, ResourceExt};
use serde::de::DeserializeOwned;
use serde_json::Value;
use taints::object::Key;

/// The time.
#[expect(clippy::disallowed_methods, reason = "this is the edge where the actors read a clock")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A time with the precision of the API's `Time`: whole seconds.
pub(crate) fn seconds(now: Timestamp) -> Time {
    Time(Timestamp::from_second(now.as_second()).unwrap_or(now))
}

/// A time with the precision of the API's `MicroTime`.
pub(crate) fn micros(now: Timestamp) -> MicroTime {
    MicroTime(Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now))
}

/// A call with an end.
pub(crate) async fn call<T>(call: impl Future<Output = Result<T, kube::Error>>) -> Result<T, CallError> {
    within(CALL_TIMEOUT, call).await
}

/// Namespace and name of an object; the namespace of one that has none is empty.
pub(crate) fn key(object: &impl Resource) -> Key {
    let meta = object.meta();
    Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

/// The UID, empty where an object has none yet.
pub(crate) fn uid(object: &impl Resource) -> &str {
    object.meta().uid.as_deref().unwrap_or_default()
}

/// A merge patch of an object's status, refused with a conflict when the object is another one or has changed since it was read.
pub(crate) async fn patch_status<K>(api: &Api<K>, read: &K, status: Value) -> Result<K, CallError>
where
    K: Resource + DeserializeOwned,
{
    let patch = with_preconditions(read, serde_json::json!({ "status": status }));
    call(api.patch_status(&read.name_any(), &PatchParams::default(), &Patch::Merge(&patch))).await
}

/// A merge patch of the object itself, with the same preconditions.
pub(crate) async fn patch_object<K>(api: &Api<K>, read: &K, patch: Value) -> Result<K, CallError>
where
    K: Resource + DeserializeOwned + Clone + std::fmt::Debug,
{
    let patch = with_preconditions(read, patch);
    call(api.patch(&read.name_any(), &PatchParams::default(), &Patch::Merge(&patch))).await
}

/// Adds the UID and the resourceVersion that were read.
fn with_preconditions(read: &impl Resource, mut patch: Value) -> Value {
    let preconditions =
        serde_json::json!({"metadata": {"uid": read.meta().uid, "resourceVersion": read.meta().resource_version}});
    json_patch::merge(&mut patch, &preconditions);
    patch
}

/// Waits between attempts: short at first, doubled each time.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    first: Duration,
    longest: Duration,
}

impl Backoff {
    pub(crate) const fn new(first: Duration, longest: Duration) -> Self {
        Self { next: first, first, longest }
    }

    /// For calls of an API server that failed.
    pub(crate) const fn of_calls() -> Self {
        Self::new(Duration::from_millis(20), Duration::from_secs(5))
    }

    /// How long to wait now.
    pub(crate) fn wait(&mut self) -> Duration {
        let wait = self.next;
        self.next = (wait * 2).min(self.longest);
        wait
    }

    /// It went well: the next failure waits shortly again.
    pub(crate) const fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Pod;

    use super::*;

    #[test]
    fn a_patch_carries_what_was_read() {
        let pod: Pod =
            serde_json::from_value(serde_json::json!({"metadata": {"name": "a", "uid": "u", "resourceVersion": "7"}}))
                .unwrap();
        let patch = with_preconditions(&pod, serde_json::json!({"metadata": {"labels": {"x": "y"}}}));
        let expected = serde_json::json!({"metadata": {"labels": {"x": "y"}, "uid": "u", "resourceVersion": "7"}});
        assert_eq!(patch, expected);
    }

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew() {
        let second = Duration::from_secs(1);
        let mut backoff = Backoff::new(second, 3 * second);
        let waits: Vec<Duration> = (0..4).map(|_| backoff.wait()).collect();
        assert_eq!(waits, [second, 2 * second, 3 * second, 3 * second]);
        backoff.reset();
        assert_eq!(backoff.wait(), second);
    }

    #[test]
    fn times_have_the_precision_of_the_api() {
        let time: Timestamp = "2026-11-30T10:00:00.123456789Z".parse().unwrap();
        assert_eq!(seconds(time).0.to_string(), "2026-11-30T10:00:00Z");
        assert_eq!(micros(time).0.to_string(), "2026-11-30T10:00:00.123456Z");
    }
}
