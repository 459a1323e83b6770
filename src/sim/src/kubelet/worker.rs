//! The life of one pod, as state only: admission, claims, containers that run until something ends them, and the end, in the order
//! that kubelet keeps: claims are unprepared after all containers have stopped and before the API server is told.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cluster::call::CallError;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, ResourceExt};
use serde_json::{Value, json};
use taints::object::DeviceId;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};

use super::Shared;
use super::admission::admit;
use super::behaviour::Behaviour;
use super::cdi::{self, Injected};
use super::prepared::PreparedDevice;
use super::status::{Containers, Facts, ResourceHealth, rejected, status};
use crate::actor::event::{Told, tell};
use crate::actor::{Backoff, call, key, now, reference, uid};

/// A part of what CDI brings.
type Part = fn(&Injected) -> &[String];

/// What CDI brings into the containers, by container, as JSON: environment, device nodes, mounts.
const CDI: [(&str, Part); 3] = [
    ("sim.devicetaint.dev/cdi-env", |injected| &injected.env),
    ("sim.devicetaint.dev/cdi-devices", |injected| &injected.devices),
    ("sim.devicetaint.dev/cdi-mounts", |injected| &injected.mounts),
];
/// Waits between attempts to prepare or unprepare a pod's claims.
const RETRY: (Duration, Duration) = (Duration::from_millis(250), Duration::from_secs(10));
/// A container that ends at once is not restarted faster than this.
const RESTART: Duration = Duration::from_secs(1);
/// The exit code of what had to be killed.
const KILLED: i32 = 137;

/// One pod. `pod` holds the newest object; nothing, when it is gone from the API server.
pub(super) struct Worker {
    pub(super) shared: Arc<Shared>,
    pub(super) uid: String,
    pub(super) pod: watch::Receiver<Option<Arc<Pod>>>,
    pub(super) ip: String,
    pub(super) restarts: i32,
}

/// Why a pod is asked to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stop {
    /// It has a deletion timestamp.
    Deleting,
    /// Its object is gone: it was deleted by force.
    Gone,
}

/// How the containers ended.
#[derive(Clone, Copy, Debug)]
struct End {
    code: i32,
    since: Option<Timestamp>,
}

/// Containers of a pod that ended before they were made count as killed.
const NEVER_RAN: End = End { code: KILLED, since: None };

impl Worker {
    /// Lives until the pod is gone, on this node and on the API server.
    pub(super) async fn run(mut self) {
        let Some(pod) = self.latest() else {
            return self.unprepare().await;
        };
        if !reference::is_finished(&pod) {
            if let Some(rejection) = self.rejection(&pod).await {
                tell(
                    &self.shared.client,
                    Some(&self.shared.node),
                    &pod,
                    warning(rejection.reason),
                    &rejection.message,
                    now(),
                );
                self.write(|_| rejected(&rejection, now())).await;
            } else {
                let end = self.live().await;
                self.unprepare().await;
                let containers = Containers::Ended { code: end.code, since: end.since, at: now() };
                self.write_containers(&containers).await;
            }
        }
        self.unprepare().await;
        self.stop().await;
        self.delete().await;
    }

    fn latest(&self) -> Option<Arc<Pod>> {
        self.pod.borrow().clone()
    }

    /// Waits until the pod is asked to end.
    async fn stop(&mut self) -> Stop {
        let asked = self.pod.wait_for(|pod| pod.as_ref().is_none_or(|pod| pod.metadata.deletion_timestamp.is_some()));
        match asked.await {
            Ok(pod) if pod.is_some() => Stop::Deleting,
            _ => Stop::Gone,
        }
    }

    /// A pod that runs already was taken before this kubelet started.
    async fn rejection(&self, pod: &Pod) -> Option<super::admission::Rejection> {
        if is_running(pod) || pod.metadata.deletion_timestamp.is_some() {
            return None;
        }
        let mut node = self.shared.node_object.clone();
        let node = node.wait_for(Option::is_some).await.ok()?.clone()?;
        admit(pod, &node).err()
    }

    /// From the first attempt to prepare until no container runs any more.
    async fn live(&mut self) -> End {
        let Some(pod) = self.latest() else { return NEVER_RAN };
        let adopted = started_at(&pod);
        if adopted.is_none() {
            self.write_containers(&Containers::Waiting { reason: "ContainerCreating", message: String::new() }).await;
        }
        let mut stopped = self.clone_for_stop();
        let started = tokio::select! {
            _ = stopped.stop() => false,
            () = self.start(&pod) => true,
        };
        match (started, adopted) {
            (true, _) => self.hold(adopted.unwrap_or_else(now)).await,
            (false, None) => NEVER_RAN,
            (false, Some(since)) => {
                self.wind_down().await;
                End { code: 0, since: Some(since) }
            }
        }
    }

    /// A second view of the pod, for waiting while this one works.
    fn clone_for_stop(&self) -> Self {
        let Self { shared, uid, pod, ip, restarts } = self;
        Self { shared: Arc::clone(shared), uid: uid.clone(), pod: pod.clone(), ip: ip.clone(), restarts: *restarts }
    }

    /// Tries to prepare the claims and to make the containers, until it works. A driver that appears is a reason to try at once.
    async fn start(&self, pod: &Pod) {
        let mut waits = Backoff::new(RETRY.0, RETRY.1);
        let mut drivers = self.shared.dynamic.drivers.changes();
        loop {
            drivers.mark_unchanged();
            let (reason, message) = match self.attempt(pod).await {
                Ok(()) => return,
                Err(failure) => failure,
            };
            tracing::info!(pod = %key(pod), reason, message, "not started; it is tried again");
            tell(&self.shared.client, Some(&self.shared.node), pod, warning(reason), &message, now());
            tokio::select! {
                () = sleep(waits.wait()) => {}
                _ = drivers.changed() => {}
            }
        }
    }

    async fn attempt(&self, pod: &Pod) -> Result<(), (&'static str, String)> {
        let prepared = self.shared.dynamic.prepare(pod).await;
        prepared.map_err(|error| {
            ("FailedPrepareDynamicResources", format!("Failed to prepare dynamic resources: {error}"))
        })?;
        let Some(root) = &self.shared.cdi_root else { return Ok(()) };
        let injected = self.injected(pod, root).map_err(|problem| ("Failed", format!("Error: {problem}")))?;
        if !injected.is_empty() {
            let patch = json!({"metadata": {"uid": self.uid, "annotations": annotations(&injected)}});
            let api = self.api(pod);
            if let Err(error) = call(api.patch(&pod.name_any(), &PatchParams::default(), &Patch::Merge(patch))).await {
                tracing::debug!(pod = %key(pod), %error, "annotation not written");
            }
        }
        Ok(())
    }

    /// What CDI brings, by container.
    fn injected(&self, pod: &Pod, root: &std::path::Path) -> Result<BTreeMap<String, Injected>, String> {
        let mut by_container = BTreeMap::new();
        for container in pod.spec.iter().flat_map(|spec| &spec.containers) {
            let devices = self.devices(pod, container).into_iter().flat_map(|(_, devices)| devices);
            let ids: Vec<String> = devices.flat_map(|(_, device)| device.cdi_ids).collect();
            if !ids.is_empty() {
                by_container.insert(container.name.clone(), cdi::inject(root, &ids)?);
            }
        }
        Ok(by_container)
    }

    /// The containers run, until they end by themselves or are stopped.
    async fn hold(&mut self, mut since: Timestamp) -> End {
        let mut healths = self.shared.reports.changes();
        loop {
            let (exit_after, code) = self.behaviour(|behaviour| (behaviour.exit_after, behaviour.exit_code));
            let began = Instant::now();
            self.write_containers(&Containers::Running { since }).await;
            let mut shown = self.resources();
            let ended = loop {
                tokio::select! {
                    _ = self.stop() => break false,
                    () = sleep_until(began + exit_after.unwrap_or_default()), if exit_after.is_some() => break true,
                    Ok(()) = healths.changed() => {
                        let current = self.resources();
                        if current != shown {
                            self.write_containers(&Containers::Running { since }).await;
                            shown = current;
                        }
                    }
                }
            };
            if !ended {
                let code = self.wind_down().await;
                return End { code, since: Some(since) };
            }
            if !self.restarts_after(code) {
                return End { code, since: Some(since) };
            }
            self.restarts += 1;
            let mut stopped = self.clone_for_stop();
            tokio::select! {
                _ = stopped.stop() => return End { code, since: Some(since) },
                () = sleep_until(began + exit_after.unwrap_or_default().max(RESTART)) => {}
            }
            since = now();
        }
    }

    fn restarts_after(&self, code: i32) -> bool {
        let pod = self.latest();
        let policy = pod.as_ref().and_then(|pod| pod.spec.as_ref()?.restart_policy.as_deref());
        match policy.unwrap_or("Always") {
            "Never" => false,
            "OnFailure" => code != 0,
            _ => true,
        }
    }

    /// The containers are asked to stop, and are killed when the grace is over. Returns the exit code.
    async fn wind_down(&mut self) -> i32 {
        let began = Instant::now();
        let stop_after = self.behaviour(|behaviour| behaviour.stop_after);
        loop {
            let Some(pod) = self.latest() else { return KILLED };
            let grace = pod.metadata.deletion_grace_period_seconds.and_then(|seconds| u64::try_from(seconds).ok());
            let grace = Duration::from_secs(grace.unwrap_or_default());
            tokio::select! {
                () = sleep_until(began + stop_after.min(grace)) => return if stop_after > grace { KILLED } else { 0 },
                changed = self.pod.changed() => if changed.is_err() { return KILLED },
            }
        }
    }

    fn behaviour<T: Default>(&self, get: impl FnOnce(Behaviour) -> T) -> T {
        let Some(pod) = self.latest() else { return T::default() };
        match Behaviour::read(pod.metadata.annotations.as_ref()) {
            Ok(behaviour) => get(behaviour),
            Err(problem) => {
                tell(&self.shared.client, Some(&self.shared.node), &pod, warning("InvalidAnnotation"), &problem, now());
                get(Behaviour::default())
            }
        }
    }

    /// Lets the claims go. An error keeps the pod as it is, and is tried again.
    async fn unprepare(&self) {
        let mut waits = Backoff::new(RETRY.0, RETRY.1);
        let mut drivers = self.shared.dynamic.drivers.changes();
        loop {
            drivers.mark_unchanged();
            let Err(error) = self.shared.dynamic.unprepare(&self.uid).await else { return };
            tracing::warn!(pod = self.uid, %error, "claims not unprepared; it is tried again");
            if let Some(pod) = self.latest() {
                let message = format!("Failed to unprepare dynamic resources: {error}");
                tell(
                    &self.shared.client,
                    Some(&self.shared.node),
                    &pod,
                    warning("FailedUnprepareDynamicResources"),
                    &message,
                    now(),
                );
            }
            tokio::select! {
                () = sleep(waits.wait()) => {}
                _ = drivers.changed() => {}
            }
        }
    }

    /// Nothing of the pod is left here: its object may go.
    async fn delete(&self) {
        let mut waits = Backoff::of_calls();
        while let Some(pod) = self.latest() {
            let preconditions = Preconditions { uid: Some(self.uid.clone()), resource_version: None };
            let params = DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default().grace_period(0) };
            match call(self.api(&pod).delete(&pod.name_any(), &params)).await {
                Ok(_) => return,
                Err(error) if self.is_gone(&pod, &error).await => return,
                Err(error) => tracing::debug!(pod = %key(pod.as_ref()), %error, "not deleted yet"),
            }
            sleep(waits.wait()).await;
        }
    }

    async fn write_containers(&self, containers: &Containers) {
        let resources = self.resources();
        let write = |pod: &Pod| {
            let facts = Facts {
                containers,
                restarts: self.restarts,
                pod_ip: &self.ip,
                host_ip: &self.shared.host_ip,
                resources: &resources,
            };
            status(pod, &facts, now())
        };
        self.write(write).await;
    }

    /// Writes the status, until it is written or the pod is gone.
    async fn write(&self, status: impl Fn(&Pod) -> Value) {
        let mut waits = Backoff::of_calls();
        while let Some(pod) = self.latest() {
            let patch = json!({"metadata": {"uid": self.uid}, "status": status(&pod)});
            let patched: Result<Pod, CallError> =
                call(self.api(&pod).patch_status(&pod.name_any(), &PatchParams::default(), &Patch::Strategic(patch)))
                    .await;
            match patched {
                Ok(_) => return,
                Err(error) if self.is_gone(&pod, &error).await => return,
                Err(error) => tracing::debug!(pod = %key(pod.as_ref()), %error, "status not written yet"),
            }
            sleep(waits.wait()).await;
        }
    }

    /// Whether a write failed because the pod is not there any more. A conflict alone does not say so: it may be another pod of
    /// the same name, or only bad luck.
    async fn is_gone(&self, pod: &Pod, error: &CallError) -> bool {
        if !error.is_conflict() {
            return error.is_not_found();
        }
        match call(self.api(pod).get_opt(&pod.name_any())).await {
            Ok(found) => found.is_none_or(|found| uid(&found) != self.uid),
            Err(_) => false,
        }
    }

    fn api(&self, pod: &Pod) -> Api<Pod> {
        Api::namespaced(self.shared.client.clone(), &key(pod).namespace)
    }

    /// The health of every device of every container.
    fn resources(&self) -> Vec<Vec<ResourceHealth>> {
        let Some(pod) = self.latest() else { return Vec::new() };
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let of_container = |container| {
            let named = self.devices(&pod, container).into_iter();
            named.map(|(name, devices)| ResourceHealth { name, devices: self.health(devices) }).collect()
        };
        containers.map(of_container).collect()
    }

    /// The devices of a container by the name that its status gives them.
    fn devices(
        &self,
        pod: &Pod,
        container: &k8s_openapi::api::core::v1::Container,
    ) -> Vec<(String, Vec<(String, PreparedDevice)>)> {
        let references = reference::references(pod);
        let wanted = container.resources.as_ref().and_then(|resources| resources.claims.as_deref()).unwrap_or_default();
        let devices = wanted.iter().filter_map(|wanted| {
            let (_, claim) = references.iter().find(|(entry, _)| entry.name == wanted.name)?;
            let request = wanted.request.as_deref().filter(|request| !request.is_empty());
            let name = match request {
                Some(request) => format!("claim:{}/{request}", wanted.name),
                None => format!("claim:{}", wanted.name),
            };
            Some((name, self.shared.dynamic.devices(claim.key()?, request)))
        });
        devices.collect()
    }

    fn health(&self, devices: Vec<(String, PreparedDevice)>) -> Vec<(String, &'static str, String)> {
        let of_device = |(driver, device): (String, PreparedDevice)| {
            let named = format!("{driver}/{}/{}", device.pool, device.device);
            let id = device.cdi_ids.into_iter().next().unwrap_or(named);
            let (health, message) =
                self.shared.reports.of(&DeviceId { driver, pool: device.pool, device: device.device });
            (id, health.as_str(), message)
        };
        devices.into_iter().map(of_device).collect()
    }
}

/// What was injected, as annotations; what nobody gets has none.
fn annotations(injected: &BTreeMap<String, Injected>) -> BTreeMap<&'static str, String> {
    let of = |(name, part): (&'static str, Part)| {
        let parts: BTreeMap<&String, &[String]> = injected.iter().map(|(name, all)| (name, part(all))).collect();
        parts.values().any(|part| !part.is_empty()).then(|| (name, json!(parts).to_string()))
    };
    CDI.into_iter().filter_map(of).collect()
}

const fn warning(reason: &'static str) -> Told {
    Told { component: "kubelet", reason, kind: "Warning" }
}

fn is_running(pod: &Pod) -> bool {
    pod.status.as_ref().is_some_and(|status| status.phase.as_deref() == Some("Running"))
}

/// Since when the containers run, when they did before this kubelet started.
fn started_at(pod: &Pod) -> Option<Timestamp> {
    if !is_running(pod) {
        return None;
    }
    let statuses = pod.status.as_ref()?.container_statuses.as_ref()?;
    let running = statuses.iter().find_map(|status| status.state.as_ref()?.running.as_ref());
    running?.started_at.as_ref().map(|time| time.0)
}

/// How often the containers of a pod were restarted so far.
pub(super) fn restarts(pod: &Pod) -> i32 {
    let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_deref()).unwrap_or_default();
    statuses.iter().map(|status| status.restart_count).max().unwrap_or(0)
}

/// The address that a pod has, when it has one already.
pub(super) fn address(pod: &Pod) -> Option<String> {
    pod.status.as_ref()?.pod_ip.clone().filter(|ip| !ip.is_empty())
}

/// The UID of a pod, which names its worker.
pub(super) fn name(pod: &Pod) -> String {
    uid(pod).to_owned()
}
