//! Our programs as helm installs them: the agent of the real node and the controller run in pods, with their own accounts and rights.
//!
//! A lab's plan -> the chart's values ([`values`]) -> `helm upgrade --install` -> two pods that are ready. Each lab has other host paths, so each begins
//! with pods of its own. The agents of further nodes are processes still, but with a token of the chart's account that is bound to their Node: so
//! they too have only the chart's rights, and pass its policies.

use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::{BoundObjectReference, TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{Node, Pod, ServiceAccount};
use k8s_openapi::api::resource::v1::DeviceClass;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::process::Command;

use super::Plan;
use super::real::RealCluster;
use crate::process::tail;
use crate::wait::until;

/// The release, and its namespace.
const RELEASE: &str = "device-taint-manager";
/// The ports of both programs, on the node's own address: it is another one for each cluster of this machine.
const AGENT_PORT: u16 = 29400;
const CONTROLLER_PORT: u16 = 29401;
/// The account of the controller's container.
const CONTROLLER_USER: u32 = 65532;
/// The chart's ServiceAccount of the agents.
const AGENT_ACCOUNT: &str = "gpu-driver";
/// How long helm waits until all is ready.
const READY_WITHIN: std::time::Duration = std::time::Duration::from_secs(120);

/// One of the two programs that the chart installs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    Agent,
    Controller,
}

impl Program {
    /// Its `app.kubernetes.io/component`.
    fn component(self) -> &'static str {
        match self {
            Self::Agent => "agent",
            Self::Controller => "controller",
        }
    }
}

/// The chart on a real cluster.
pub(super) struct Installed {
    client: Client,
    cluster: RealCluster,
    /// Whether the release has this lab's values.
    of_this_lab: bool,
}

impl Installed {
    pub(super) fn new(client: Client, cluster: RealCluster) -> Self {
        Self { client, cluster, of_this_lab: false }
    }

    /// Whether the agent of a node runs in a pod.
    pub(super) fn has_agent_of(&self, node: &str) -> bool {
        self.cluster.node == node
    }

    /// Where a program serves `/metrics`, `/healthz` and `/readyz`.
    pub(super) fn address(&self, program: Program) -> String {
        let port = match program {
            Program::Agent => AGENT_PORT,
            Program::Controller => CONTROLLER_PORT,
        };
        format!("{}:{port}", self.cluster.node_address)
    }

    /// Installs the release for a lab in this folder; once that is done, only waits until a program that was ended is there again.
    pub(super) async fn start(&mut self, program: Program, plan: &Plan, folder: &Path) -> Result<()> {
        if !self.of_this_lab {
            self.install(plan, folder).await?;
            self.of_this_lab = true;
        }
        let what = format!("the {}'s pod to be ready", program.component());
        until(self.pods(), &what, READY_WITHIN, |pods| {
            let found: Vec<&Pod> = pods.values().filter(|pod| is_of(pod, program)).collect();
            if is_one_that_is_ready(&found) {
                return Ok(());
            }
            Err(found.iter().map(|pod| state(pod)).collect::<Vec<_>>().join(", "))
        })
        .await
        .with_context(|| self.logs())
    }

    async fn install(&self, plan: &Plan, folder: &Path) -> Result<()> {
        let state = folder.join("controller-state");
        fs::create_dir_all(&state).with_context(|| format!("cannot make {}", state.display()))?;
        chown(&state, Some(CONTROLLER_USER), Some(CONTROLLER_USER))?;
        let file = folder.join("values.json");
        fs::write(&file, serde_json::to_vec_pretty(&values(&self.cluster, plan, folder))?)?;
        self.remove_classes_of_others().await?;
        let within = format!("{}s", READY_WITHIN.as_secs());
        let mut command = helm(&self.cluster, "upgrade");
        command.args(["--install", "--create-namespace", "--reset-values", "--wait", "--timeout", &within]);
        command.arg("--values").arg(&file).arg(RELEASE).arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy/chart"));
        run(command).await.with_context(|| self.logs())
    }

    /// helm takes over nothing that somebody else made, and a lab without it makes the same classes.
    async fn remove_classes_of_others(&self) -> Result<()> {
        let classes: Api<DeviceClass> = Api::all(self.client.clone());
        for class in classes.list_metadata(&ListParams::default()).await? {
            if class.labels().get("app.kubernetes.io/managed-by").is_none_or(|by| by != "Helm") {
                classes.delete(&class.name_any(), &DeleteParams::default()).await?;
            }
        }
        Ok(())
    }

    /// Deletes the program's pod and waits until it is gone; its controller in Kubernetes makes another one.
    pub(super) async fn end(&self, program: Program) -> Result<()> {
        let mut ended = Vec::new();
        for pod in self.listed(program).await? {
            self.pods().delete(&pod.name_any(), &DeleteParams::default()).await?;
            ended.push(pod.uid());
        }
        ensure!(!ended.is_empty(), "no pod of the {} is there", program.component());
        until(self.pods(), &format!("the {}'s pod to be gone", program.component()), READY_WITHIN, |pods| {
            let left = pods.values().filter(|pod| ended.contains(&pod.uid())).map(state).collect::<Vec<_>>();
            if left.is_empty() { Ok(()) } else { Err(left.join(", ")) }
        })
        .await
    }

    /// Checks that no program ended on its own: kubelet would have started it again, unseen.
    pub(super) async fn check(&self) -> Result<()> {
        for pod in [Program::Agent, Program::Controller].map(|program| self.listed(program)) {
            for pod in pod.await? {
                ensure!(restarts(&pod) == 0, "{}\n{}", state(&pod), self.logs());
            }
        }
        Ok(())
    }

    /// A kubeconfig with a token of the agents' account, bound to a Node, as the token of a pod on it is.
    pub(super) async fn kubeconfig_of(&self, node: &str, folder: &Path) -> Result<PathBuf> {
        let nodes: Api<Node> = Api::all(self.client.clone());
        let uid = until(nodes, &format!("Node {node}"), READY_WITHIN, |nodes| {
            nodes.get(node).and_then(ResourceExt::uid).ok_or_else(|| "its kubelet has not made it".to_owned())
        })
        .await?;
        let bound = BoundObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Node".to_owned()),
            name: Some(node.to_owned()),
            uid: Some(uid),
        };
        let spec = TokenRequestSpec { bound_object_ref: Some(bound), ..TokenRequestSpec::default() };
        let accounts: Api<ServiceAccount> = Api::namespaced(self.client.clone(), RELEASE);
        let request = TokenRequest { spec: Some(spec), ..TokenRequest::default() };
        let answer = accounts.create_token_request(AGENT_ACCOUNT, &PostParams::default(), &request).await;
        let answer = answer.with_context(|| format!("cannot get a token of {AGENT_ACCOUNT} for node {node}"))?;
        let token = answer.status.and_then(|status| status.token).context("a token request without a token")?;
        let file = folder.join("kubeconfig");
        fs::write(&file, serde_json::to_vec(&kubeconfig(&self.cluster, &token))?)?;
        Ok(file)
    }

    /// The ends of what the pods of both programs logged.
    pub(super) fn logs(&self) -> String {
        let prefix = format!("{RELEASE}_");
        let pods = fs::read_dir(self.cluster.pod_logs()).into_iter().flatten().filter_map(Result::ok);
        let ours = pods.filter(|pod| pod.file_name().to_string_lossy().starts_with(&prefix));
        let containers = ours.flat_map(|pod| fs::read_dir(pod.path()).into_iter().flatten().filter_map(Result::ok));
        let logs = containers.flat_map(|one| fs::read_dir(one.path()).into_iter().flatten().filter_map(Result::ok));
        let mut logs: Vec<PathBuf> = logs.map(|log| log.path()).collect();
        logs.sort();
        logs.iter().map(|log| tail("a pod", log)).collect::<Vec<_>>().join("\n")
    }

    fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), RELEASE)
    }

    async fn listed(&self, program: Program) -> Result<Vec<Pod>> {
        let listed = self.pods().list(&ListParams::default()).await?.items;
        Ok(listed.into_iter().filter(|pod| is_of(pod, program)).collect())
    }
}

impl RealCluster {
    /// Removes the release of labs that used the chart. Kubelet takes the slices away half a minute later, or whoever comes next does.
    ///
    /// # Errors
    /// When helm fails: with its words.
    pub async fn uninstall(&self) -> Result<()> {
        let mut command = helm(self, "uninstall");
        command.args(["--ignore-not-found", "--wait", RELEASE]);
        run(command).await
    }
}

/// A helm on the cluster, in the release's namespace.
fn helm(cluster: &RealCluster, task: &str) -> Command {
    let mut command = Command::new(&cluster.helm);
    command.args([task, "--namespace", RELEASE, "--kubeconfig"]).arg(&cluster.kubeconfig);
    command
}

async fn run(mut command: Command) -> Result<()> {
    let output = command.output().await.with_context(|| format!("cannot start {command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?} ended with {}: {}", output.status, said.trim());
    Ok(())
}

/// The chart's values for a lab in this folder.
fn values(cluster: &RealCluster, plan: &Plan, folder: &Path) -> Value {
    let node = folder.join("nodes").join(&cluster.node);
    let port = cluster.server.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let metrics = |port: u16| json!({"address": cluster.node_address, "port": port});
    let here = json!({"kubernetes.io/hostname": cluster.node});
    let mut values = json!({
        // No kube-proxy runs here: the server is reached by its own address, and by host network.
        "apiServer": {"host": "127.0.0.1", "port": port},
        "agent": {
            "hostNetwork": true,
            "metrics": metrics(AGENT_PORT),
            "nodeSelector": here,
            "hostPaths": {
                "kubelet": cluster.kubelet_root,
                "cdi": cluster.cdi_root,
                "state": node.join("state"),
                "sysfs": node.join("sys"),
                "dev": node.join("dev"),
            },
            "nvml": {"hostRoot": node, "mountPropagation": "None", "libraries": ["/libnvidia-ml.so.1"]},
            "policy": plan.policy.unwrap_or_default(),
            "extraArgs": ["--boot-id-file=/host/boot_id"],
            "extraEnv": [{"name": "FAKE_NVML_CONTROL", "value": "/host/gpus.json"}],
        },
        "controller": {
            "hostNetwork": true,
            "metrics": metrics(CONTROLLER_PORT),
            "nodeSelector": here,
            // Scenarios taint the only node that it can run on.
            "tolerations": [{"operator": "Exists"}],
            "stateVolume": {"hostPath": {"path": folder.join("controller-state"), "type": "Directory"}},
            "extraArgs": [],
        },
    });
    set_flags(&mut values["agent"], &plan.driver);
    set_flags(&mut values["controller"], &plan.controller);
    values
}

/// Flags for which the chart has a value of its own, which it always gives; dots lead to it.
const VALUES: [(&str, &str); 5] = [
    ("--poll-interval", "pollInterval"),
    ("--quiet-period", "quietPeriod"),
    ("--other-owner-grace", "otherOwners.grace"),
    ("--device-mode", "deviceMode"),
    ("--node-mode", "nodeMode"),
];

/// A program's flags as its values: each by the value that stands for it, the others as they are.
fn set_flags(values: &mut Value, flags: &[String]) {
    let mut flags = flags.iter();
    while let Some(flag) = flags.next() {
        match VALUES.iter().find(|(name, _)| name == flag) {
            Some((_, value)) => {
                *value.split('.').fold(&mut *values, |here, step| &mut here[step]) = json!(flags.next());
            }
            None => values["extraArgs"].as_array_mut().into_iter().for_each(|extra| extra.push(json!(flag))),
        }
    }
}

fn kubeconfig(cluster: &RealCluster, token: &str) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
        "clusters": [{"name": "it", "cluster": {"server": cluster.server, "certificate-authority": cluster.ca}}],
        "users": [{"name": "it", "user": {"token": token}}],
    })
}

fn is_of(pod: &Pod, program: Program) -> bool {
    pod.labels().get("app.kubernetes.io/component").is_some_and(|component| component == program.component())
}

/// An old one that is on its way out may not be mistaken for the new one.
fn is_one_that_is_ready(pods: &[&Pod]) -> bool {
    matches!(pods, [pod] if pod.metadata.deletion_timestamp.is_none() && is_ready(pod))
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions.into_iter().flatten().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}

fn restarts(pod: &Pod) -> i32 {
    let containers = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
    containers.into_iter().flatten().map(|container| container.restart_count).sum()
}

fn state(pod: &Pod) -> String {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("without a phase");
    let going = if pod.metadata.deletion_timestamp.is_some() { ", on its way out" } else { "" };
    format!("pod {} is {phase}{going}, its container was started again {} times", pod.name_any(), restarts(pod))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cluster() -> RealCluster {
        let text = r#"{"version": "1.37.2", "kubeconfig": "/r/kubeconfig", "node": "n1", "node_address": "10.1.1.1",
            "server": "https://127.0.0.1:4567", "ca": "/r/ca", "kubelet_root": "/r/kubelet", "cdi_root": "/r/cdi", "helm": "/c/helm", "components": {}}"#;
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn a_plan_becomes_values() {
        let plan = Plan { policy: Some("version: 1\n"), ..Plan::default() };
        let values = values(&cluster(), &plan, Path::new("/lab"));
        assert_eq!(values["apiServer"]["port"], 4567);
        assert_eq!(values["agent"]["hostPaths"]["sysfs"], "/lab/nodes/n1/sys");
        assert_eq!(
            (&values["agent"]["pollInterval"], &values["agent"]["policy"]),
            (&json!("250ms"), &json!("version: 1\n"))
        );
        assert_eq!(
            (&values["controller"]["deviceMode"], &values["controller"]["nodeMode"]),
            (&json!("enforce"), &json!("enforce"))
        );
    }

    #[test]
    fn a_flag_without_a_value_of_its_own_is_given_as_it_is() {
        let mut values = json!({"extraArgs": ["--a"]});
        set_flags(
            &mut values,
            &["--careful", "k=v", "--node-mode", "observe", "--other-owner-grace", "1s"].map(str::to_owned),
        );
        let wanted =
            json!({"extraArgs": ["--a", "--careful", "k=v"], "nodeMode": "observe", "otherOwners": {"grace": "1s"}});
        assert_eq!(values, wanted);
    }

    #[test]
    fn a_pod_on_its_way_out_is_not_the_one() {
        let pod = |extra: Value| -> Pod {
            let mut pod =
                json!({"metadata": {"name": "p"}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
            pod["metadata"]["deletionTimestamp"] = extra;
            serde_json::from_value(pod).unwrap()
        };
        let (stays, goes) = (pod(Value::Null), pod(json!("2026-01-01T00:00:00Z")));
        assert!(is_one_that_is_ready(&[&stays]));
        assert!(
            !is_one_that_is_ready(&[&goes]) && !is_one_that_is_ready(&[&stays, &goes]) && !is_one_that_is_ready(&[])
        );
    }
}
