//! A pod's status as kubelet writes it. Pure: the time is an argument.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod};
use serde_json::{Value, json};

use super::admission::Rejection;
use crate::actor::{seconds, uid};

/// What the containers are doing; all of a pod do the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Containers {
    /// Not started, with reason and message.
    Waiting { reason: &'static str, message: String },
    /// Running since then.
    Running { since: Timestamp },
    /// Ended. `since` is absent when they never ran.
    Ended { code: i32, since: Option<Timestamp>, at: Timestamp },
}

/// One resource of a container, for `allocatedResourcesStatus`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ResourceHealth {
    /// `claim:<entry>` or `claim:<entry>/<request>`.
    pub(super) name: String,
    /// Id, health and the driver's words of each device.
    pub(super) devices: Vec<(String, &'static str, String)>,
}

/// Everything that a status says beyond the pod itself.
#[derive(Clone, Debug)]
pub(super) struct Facts<'a> {
    pub(super) containers: &'a Containers,
    pub(super) restarts: i32,
    pub(super) pod_ip: &'a str,
    pub(super) host_ip: &'a str,
    /// By container, in the pod's order.
    pub(super) resources: &'a [Vec<ResourceHealth>],
}

/// The status of a pod that kubelet has taken.
pub(super) fn status(pod: &Pod, facts: &Facts<'_>, now: Timestamp) -> Value {
    let (phase, ready) = match facts.containers {
        Containers::Waiting { .. } => ("Pending", false),
        Containers::Running { .. } => ("Running", true),
        Containers::Ended { code: 0, .. } => ("Succeeded", false),
        Containers::Ended { .. } => ("Failed", false),
    };
    let has_sandbox = matches!(facts.containers, Containers::Running { .. });
    let spec = pod.spec.as_ref();
    let containers = spec.map(|spec| spec.containers.as_slice()).unwrap_or_default();
    let init = spec.and_then(|spec| spec.init_containers.as_deref()).unwrap_or_default();
    let of_container = |(index, container): (usize, &Container)| container_status(pod, container, facts, index);
    let of_init = |container: &Container| init_status(pod, container, facts);
    let host_network = spec.and_then(|spec| spec.host_network).unwrap_or(false);
    let ip = if host_network { facts.host_ip } else { facts.pod_ip };
    let started = !matches!(facts.containers, Containers::Waiting { .. });
    let mut status = json!({
        "phase": phase,
        "hostIP": facts.host_ip,
        "hostIPs": [{"ip": facts.host_ip}],
        "startTime": pod.status.as_ref().and_then(|status| status.start_time.clone()).unwrap_or_else(|| seconds(now)),
        "conditions": conditions(pod, facts.containers, ready, has_sandbox, now),
        "containerStatuses": containers.iter().enumerate().map(of_container).collect::<Vec<_>>(),
    });
    if !init.is_empty() {
        status["initContainerStatuses"] = init.iter().map(of_init).collect();
    }
    if started {
        status["podIP"] = json!(ip);
        status["podIPs"] = json!([{ "ip": ip }]);
    }
    status
}

/// The status of a pod that kubelet does not take.
pub(super) fn rejected(rejection: &Rejection, now: Timestamp) -> Value {
    json!({"phase": "Failed", "reason": rejection.reason, "message": rejection.message, "startTime": seconds(now)})
}

fn conditions(pod: &Pod, containers: &Containers, ready: bool, has_sandbox: bool, now: Timestamp) -> Vec<Value> {
    let names = pod.spec.iter().flat_map(|spec| &spec.containers).map(|container| container.name.as_str());
    let unready = format!("containers with unready status: [{}]", names.collect::<Vec<_>>().join(" "));
    let not_ready = match containers {
        Containers::Running { .. } => None,
        Containers::Ended { code: 0, .. } => Some(("PodCompleted", None)),
        Containers::Ended { .. } => Some(("PodFailed", None)),
        Containers::Waiting { .. } => Some(("ContainersNotReady", Some(unready))),
    };
    let entries = [
        ("PodReadyToStartContainers", has_sandbox, None),
        ("Initialized", true, None),
        ("Ready", ready, not_ready.clone()),
        ("ContainersReady", ready, not_ready),
        ("PodScheduled", true, None),
    ];
    let entry = |(name, holds, why): (&str, bool, Option<(&str, Option<String>)>)| {
        let status = if holds { "True" } else { "False" };
        let old = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
        let since = old
            .into_iter()
            .find(|old| old.type_ == name && old.status == status)
            .and_then(|old| old.last_transition_time.clone())
            .unwrap_or_else(|| seconds(now));
        let (reason, message) = why.map_or((None, None), |(reason, message)| (Some(reason), message));
        json!({
            "type": name, "status": status, "lastProbeTime": null, "lastTransitionTime": since,
            "reason": reason, "message": message,
        })
    };
    entries.into_iter().map(entry).collect()
}

fn container_status(pod: &Pod, container: &Container, facts: &Facts<'_>, index: usize) -> Value {
    let running = matches!(facts.containers, Containers::Running { .. });
    let id = container_id(pod, container, facts);
    let state = match facts.containers {
        Containers::Waiting { reason, message } => {
            let message = (!message.is_empty()).then_some(message);
            json!({"waiting": {"reason": reason, "message": message}})
        }
        Containers::Running { since } => json!({"running": {"startedAt": seconds(*since)}}),
        Containers::Ended { code, since, at } => terminated(&id, *code, *since, *at),
    };
    let image = container.image.clone().unwrap_or_default();
    let started = !matches!(facts.containers, Containers::Waiting { .. } | Containers::Ended { since: None, .. });
    let mut status = json!({
        "name": container.name,
        "image": image,
        "imageID": if started { image.as_str() } else { "" },
        "ready": running,
        "started": running,
        "restartCount": facts.restarts,
        "state": state,
        "lastState": {},
    });
    if started {
        status["containerID"] = json!(id);
    }
    let resources = facts.resources.get(index).map(Vec::as_slice).unwrap_or_default();
    if !resources.is_empty() {
        status["allocatedResourcesStatus"] = resources.iter().map(resource_status).collect();
    }
    status
}

/// Init containers of a pod that started have done their work.
fn init_status(pod: &Pod, container: &Container, facts: &Facts<'_>) -> Value {
    let id = container_id(pod, container, facts);
    let state = match facts.containers {
        Containers::Waiting { .. } | Containers::Ended { since: None, .. } => {
            json!({"waiting": {"reason": "PodInitializing"}})
        }
        Containers::Running { since } | Containers::Ended { since: Some(since), .. } => {
            terminated(&id, 0, Some(*since), *since)
        }
    };
    let done = state.get("terminated").is_some();
    json!({
        "name": container.name, "image": container.image, "imageID": "", "ready": done, "started": false,
        "restartCount": 0, "state": state, "lastState": {},
    })
}

fn terminated(id: &str, code: i32, since: Option<Timestamp>, at: Timestamp) -> Value {
    let reason = if code == 0 { "Completed" } else { "Error" };
    json!({"terminated": {
        "exitCode": code, "reason": reason, "containerID": id,
        "startedAt": since.map(seconds), "finishedAt": seconds(at),
    }})
}

fn container_id(pod: &Pod, container: &Container, facts: &Facts<'_>) -> String {
    format!("sim://{}/{}/{}", uid(pod), container.name, facts.restarts)
}

fn resource_status(resource: &ResourceHealth) -> Value {
    let device = |(id, health, message): &(String, &str, String)| {
        let message = (!message.is_empty()).then_some(message);
        json!({"resourceID": id, "health": health, "message": message})
    };
    json!({"name": resource.name, "resources": resource.devices.iter().map(device).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-11-30T10:00:00Z";

    fn pod() -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": "p", "uid": "u"},
            "spec": {"containers": [{"name": "main", "image": "i"}], "initContainers": [{"name": "first"}]},
            "status": {"conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-11-30T09:00:00Z"}]},
        }))
        .unwrap()
    }

    fn written(containers: &Containers, resources: &[Vec<ResourceHealth>]) -> Value {
        let facts = Facts { containers, restarts: 1, pod_ip: "10.1.0.1", host_ip: "127.0.0.1", resources };
        status(&pod(), &facts, NOW.parse().unwrap())
    }

    fn condition<'a>(status: &'a Value, name: &str) -> &'a Value {
        let mut conditions = status["conditions"].as_array().unwrap().iter();
        conditions.find(|condition| condition["type"] == name).unwrap()
    }

    #[test]
    fn a_running_pod_is_ready_and_has_an_address() {
        let health =
            ResourceHealth { name: "claim:gpu".into(), devices: vec![("id".into(), "Healthy", String::new())] };
        let status = written(&Containers::Running { since: NOW.parse().unwrap() }, &[vec![health]]);
        assert_eq!((&status["phase"], &status["podIP"]), (&json!("Running"), &json!("10.1.0.1")));
        assert_eq!(condition(&status, "Ready")["status"], "True");
        assert_eq!(
            condition(&status, "PodScheduled")["lastTransitionTime"],
            "2026-11-30T09:00:00Z",
            "it has not changed"
        );
        let container = &status["containerStatuses"][0];
        assert_eq!(container["state"]["running"]["startedAt"], NOW);
        assert_eq!((&container["restartCount"], &container["ready"]), (&json!(1), &json!(true)));
        let resource =
            json!([{"name": "claim:gpu", "resources": [{"resourceID": "id", "health": "Healthy", "message": null}]}]);
        assert_eq!(container["allocatedResourcesStatus"], resource);
        assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    }

    #[test]
    fn a_waiting_pod_says_why() {
        let status = written(&Containers::Waiting { reason: "ContainerCreating", message: String::new() }, &[]);
        assert_eq!(status["phase"], "Pending");
        assert_eq!(status.get("podIP"), None);
        assert_eq!(condition(&status, "Ready")["message"], "containers with unready status: [main]");
        assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "ContainerCreating");
    }

    #[test]
    fn an_ended_pod_has_its_code() {
        let at = NOW.parse().unwrap();
        let good = written(&Containers::Ended { code: 0, since: Some(at), at }, &[]);
        assert_eq!(
            (&good["phase"], condition(&good, "Ready")["reason"].as_str()),
            (&json!("Succeeded"), Some("PodCompleted"))
        );
        let bad = written(&Containers::Ended { code: 137, since: Some(at), at }, &[]);
        assert_eq!(bad["phase"], "Failed");
        assert_eq!(bad["containerStatuses"][0]["state"]["terminated"]["exitCode"], 137);
    }
}
