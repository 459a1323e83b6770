//! Events: how an actor tells people what it does, or why it does not. A courtesy that nothing waits for.

use std::time::Duration;

use cluster::call::within;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference, Pod};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use uuid::Uuid;

use super::{key, seconds, uid};

/// How long one event may take to be written.
const LIMIT: Duration = Duration::from_secs(5);
/// Longer messages are cut: events.k8s.io allows no more.
const LONGEST: usize = 1024;

/// Who tells, and whether it is a warning.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Told {
    /// The component, such as `kubelet`.
    pub(crate) component: &'static str,
    /// The reason, such as `FailedScheduling`.
    pub(crate) reason: &'static str,
    /// `Normal` or `Warning`.
    pub(crate) kind: &'static str,
}

/// Writes an event about a pod in the background; a failure is logged.
pub(crate) fn tell(client: &Client, host: Option<&str>, pod: &Pod, told: Told, message: &str, now: Timestamp) {
    let event = build(pod, host, told, message, now, &Uuid::new_v4().simple().to_string());
    let api: Api<Event> = Api::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or("default"));
    tokio::spawn(async move {
        if let Err(error) = within(LIMIT, api.create(&PostParams::default(), &event)).await {
            tracing::debug!(%error, reason = told.reason, "event not written");
        }
    });
}

fn build(pod: &Pod, host: Option<&str>, told: Told, message: &str, now: Timestamp, suffix: &str) -> Event {
    let pod_key = key(pod);
    let mut name: String = pod_key.name.chars().take(230).collect();
    name.push('.');
    name.extend(suffix.chars().take(16));
    let involved_object = ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(pod_key.namespace.clone()),
        name: Some(pod_key.name),
        uid: Some(uid(pod).to_owned()),
        resource_version: pod.meta().resource_version.clone(),
        field_path: None,
    };
    let mut event = Event { involved_object, ..Event::default() };
    event.metadata.namespace = Some(pod_key.namespace);
    event.metadata.name = Some(name);
    event.reason = Some(told.reason.to_owned());
    event.message = Some(message.chars().take(LONGEST).collect());
    event.type_ = Some(told.kind.to_owned());
    event.source = Some(EventSource { component: Some(told.component.to_owned()), host: host.map(str::to_owned) });
    event.reporting_component = Some(told.component.to_owned());
    event.reporting_instance = host.map(str::to_owned);
    event.first_timestamp = Some(seconds(now));
    event.last_timestamp = Some(seconds(now));
    event.count = Some(1);
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_names_its_pod_and_keeps_its_bounds() {
        let mut pod = Pod::default();
        pod.metadata.name = Some("p".repeat(250));
        pod.metadata.namespace = Some("team".to_owned());
        pod.metadata.uid = Some("u".to_owned());
        let told = Told { component: "kubelet", reason: "Started", kind: "Normal" };
        let event = build(&pod, Some("node-a"), told, &"m".repeat(2000), Timestamp::UNIX_EPOCH, &"0".repeat(32));
        assert_eq!(event.metadata.name.as_ref().map(String::len), Some(247));
        assert_eq!(event.message.as_ref().map(String::len), Some(LONGEST));
        assert_eq!(event.involved_object.uid.as_deref(), Some("u"));
        assert_eq!(event.source.and_then(|source| source.host).as_deref(), Some("node-a"));
    }
}
