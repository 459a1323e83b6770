//! A lab: one small cluster with its nodes, agents and controller as real processes in a folder of its own.
//!
//! The API server, the scheduler, the claim controller and each kubelet are processes too, so that a scenario can kill any of
//! them. Everything ends when the lab is dropped.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::resource::v1::{DeviceClass, ResourceClaim, ResourceSlice};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::gpus::Gpus;
use crate::objects::{self, NAMESPACE};
use crate::process::Process;
use crate::programs::Programs;

/// What a lab begins with.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The nodes' names.
    pub nodes: Vec<String>,
    /// How many GPUs each node has.
    pub gpus: usize,
    /// Further flags of the controller.
    pub controller: Vec<String>,
    /// Further flags of each agent.
    pub driver: Vec<String>,
    /// A policy file of the agents, on top of the one that they ship with.
    pub policy: Option<&'static str>,
}

impl Default for Plan {
    /// Two nodes, eight GPUs each, a controller that evicts for devices and nodes, an agent that looks often.
    fn default() -> Self {
        let flags = |flags: &[&str]| flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self {
            nodes: vec!["n1".to_owned(), "n2".to_owned()],
            gpus: 8,
            controller: flags(&["--device-mode", "enforce", "--node-mode", "enforce"]),
            driver: flags(&["--poll-interval", "250ms", "--quiet-period", "1s"]),
            policy: None,
        }
    }
}

/// One node: its kubelet, its agent, its GPUs.
#[derive(Debug)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// The stand-in GPUs.
    pub gpus: Gpus,
    folder: PathBuf,
    kubelet: Option<Process>,
    driver: Option<Process>,
    driver_address: Option<String>,
}

impl Node {
    /// The folder that stands for the node's file system.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kubelet's root folder.
    #[must_use]
    pub fn kubelet_root(&self) -> PathBuf {
        self.folder.join("kubelet")
    }

    /// The folder of CDI files.
    #[must_use]
    pub fn cdi_root(&self) -> PathBuf {
        self.folder.join("cdi")
    }

    /// The agent's process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn driver(&mut self) -> Result<&mut Process> {
        let name = &self.name;
        self.driver.as_mut().with_context(|| format!("no agent runs on {name}"))
    }

    /// The kubelet's process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn kubelet(&mut self) -> Result<&mut Process> {
        let name = &self.name;
        self.kubelet.as_mut().with_context(|| format!("no kubelet runs on {name}"))
    }

    /// Where the agent serves `/metrics`, `/healthz` and `/readyz`.
    ///
    /// # Errors
    /// When it does not run.
    pub fn driver_address(&self) -> Result<&str> {
        self.driver_address.as_deref().with_context(|| format!("no agent runs on {}", self.name))
    }
}

/// The lab.
pub struct Lab {
    /// A client with all rights.
    pub client: Client,
    /// The nodes, by name.
    pub nodes: BTreeMap<String, Node>,
    programs: Programs,
    plan: Plan,
    server: Process,
    server_url: String,
    actors: BTreeMap<&'static str, Process>,
    controller: Option<Process>,
    controller_address: Option<String>,
    kubeconfig: PathBuf,
    folder: TempDir,
}

impl Lab {
    /// Starts the cluster and its nodes, then the agents and the controller.
    ///
    /// # Errors
    /// When a program does not build, start or get ready.
    pub async fn start(plan: Plan) -> Result<Self> {
        let mut lab = Self::bare(plan).await?;
        for name in lab.plan.nodes.clone() {
            lab.add_node(&name).await?;
            lab.start_driver(&name).await?;
        }
        lab.start_controller().await?;
        Ok(lab)
    }

    /// Starts only the cluster: API server, scheduler and claim controller, with the device classes and the namespace.
    ///
    /// # Errors
    /// When a program does not build, start or get ready.
    pub async fn bare(plan: Plan) -> Result<Self> {
        let programs = tokio::task::spawn_blocking(Programs::build).await??;
        let folder = tempfile::Builder::new().prefix("dt-").tempdir().context("cannot make a run folder")?;
        let root = folder.path().to_path_buf();
        let mut server = Process::start("server", &programs.sim(), &root, |command| {
            command.args(["server", "--root"]).arg(&root);
        })?;
        let ready = server.line("ready ").await?;
        let kubeconfig = PathBuf::from(field(&ready, "kubeconfig=")?);
        let server_url = field(&ready, "server=")?;
        let client = client(&kubeconfig).await?;
        let mut lab = Self {
            client,
            nodes: BTreeMap::new(),
            programs,
            plan,
            server,
            server_url,
            actors: BTreeMap::new(),
            controller: None,
            controller_address: None,
            kubeconfig,
            folder,
        };
        for actor in ["scheduler", "claims"] {
            lab.start_actor(actor)?;
        }
        lab.create(objects::namespace()).await?;
        lab.create_classes().await?;
        Ok(lab)
    }

    fn start_actor(&mut self, actor: &'static str) -> Result<()> {
        let process = Process::start(actor, &self.programs.sim(), self.folder.path(), |command| {
            command.args([actor, "--kubeconfig"]).arg(&self.kubeconfig);
        })?;
        self.actors.insert(actor, process);
        Ok(())
    }

    async fn create_classes(&self) -> Result<()> {
        let text = include_str!("../../deploy/deviceclasses.yaml");
        for document in text.split("\n---\n") {
            let class: DeviceClass = serde_saphyr::from_str(document).context("deploy/deviceclasses.yaml")?;
            self.create(serde_json::to_value(class)?).await?;
        }
        Ok(())
    }

    /// Adds a node with its GPUs and starts its kubelet.
    ///
    /// # Errors
    /// When the kubelet does not start.
    pub async fn add_node(&mut self, name: &str) -> Result<()> {
        let folder = self.folder.path().join("nodes").join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::write(folder.join("boot_id"), format!("boot-1-of-{name}\n"))?;
        self.programs.link_nvml(&folder)?;
        if let Some(policy) = self.plan.policy {
            std::fs::write(folder.join("policy.yaml"), policy)?;
        }
        let gpus = Gpus::install(&folder, name, self.plan.gpus)?;
        let node = Node { name: name.to_owned(), gpus, folder, kubelet: None, driver: None, driver_address: None };
        self.nodes.insert(name.to_owned(), node);
        self.start_kubelet(name)
    }

    /// Adds a node whose NVML answers `code` to `function` from the start.
    ///
    /// # Errors
    /// As [`Lab::add_node`].
    pub async fn add_broken_node(&mut self, name: &str, function: &str, code: u32) -> Result<()> {
        self.add_node(name).await?;
        let fault = nvidia_ml::control::Fault::error(function, code);
        self.node(name)?.gpus.change(|control| control.faults.push(fault))
    }

    /// Starts the kubelet of a node, or starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_kubelet(&mut self, name: &str) -> Result<()> {
        let (sim, kubeconfig) = (self.programs.sim(), self.kubeconfig.clone());
        let node = self.node(name)?;
        let (root, cdi) = (node.kubelet_root(), node.cdi_root());
        let process = Process::start("kubelet", &sim, node.folder(), |command| {
            command.args(["kubelet", "--node", name, "--kubeconfig"]).arg(kubeconfig).arg("--root").arg(root);
            command.arg("--cdi-root").arg(cdi);
        })?;
        node.kubelet = Some(process);
        Ok(())
    }

    /// Starts the agent of a node, or starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_driver(&mut self, name: &str) -> Result<()> {
        let (program, kubeconfig, flags) =
            (self.programs.gpu_driver(), self.kubeconfig.clone(), self.plan.driver.clone());
        let has_policy = self.plan.policy.is_some();
        let node = self.node(name)?;
        let folder = node.folder.clone();
        let mut process = Process::start("gpu-driver", &program, &folder, |command| {
            command.args(["--node-name", name, "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig);
            let paths = [
                ("--kubelet-root", "kubelet"),
                ("--cdi-root", "cdi"),
                ("--state-dir", "state"),
                ("--sysfs-root", "sys"),
                ("--dev-root", "dev"),
                ("--boot-id-file", "boot_id"),
                ("--nvml-library", "libnvidia-ml.so.1"),
            ];
            for (flag, file) in paths {
                command.arg(flag).arg(folder.join(file));
            }
            if has_policy {
                command.arg("--policy").arg(folder.join("policy.yaml"));
            }
            command.args(flags).env("FAKE_NVML_CONTROL", folder.join("gpus.json"));
        })?;
        node.driver_address = Some(process.line("listening on ").await?);
        node.driver = Some(process);
        Ok(())
    }

    /// Starts the controller, or starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_controller(&mut self) -> Result<()> {
        let (folder, flags) = (self.folder.path(), &self.plan.controller);
        let mut process = Process::start("controller", &self.programs.controller(), folder, |command| {
            command.arg("--kubeconfig").arg(&self.kubeconfig).args(["--listen", "127.0.0.1:0", "--state-dir"]);
            command.arg(folder.join("controller-state")).args(flags);
        })?;
        self.controller_address = Some(process.line("listening on ").await?);
        self.controller = Some(process);
        Ok(())
    }

    /// The controller's process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn controller(&mut self) -> Result<&mut Process> {
        self.controller.as_mut().context("no controller runs")
    }

    /// Where the controller serves `/metrics`, `/healthz` and `/readyz`.
    ///
    /// # Errors
    /// When it does not run.
    pub fn controller_address(&self) -> Result<&str> {
        self.controller_address.as_deref().context("no controller runs")
    }

    /// A node.
    ///
    /// # Errors
    /// When there is none of this name.
    pub fn node(&mut self, name: &str) -> Result<&mut Node> {
        self.nodes.get_mut(name).with_context(|| format!("the lab has no node {name}"))
    }

    /// Runs the kubectl plugin and gives its stdout.
    ///
    /// # Errors
    /// When it ends with another exit code than 0: with its stderr.
    pub async fn kubectl_device(&self, arguments: &[&str]) -> Result<String> {
        let mut command = Command::new(self.programs.kubectl_device());
        let output = command.args(arguments).env("KUBECONFIG", &self.kubeconfig).output().await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "kubectl device {}: {}: {stderr}", arguments.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes an object from JSON, of any kind that the server knows by the usual plural.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create(&self, object: Value) -> Result<()> {
        let object: DynamicObject = serde_json::from_value(object)?;
        let types = object.types.clone().context("an object without apiVersion and kind")?;
        let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
        let api: Api<DynamicObject> = match &object.metadata.namespace {
            Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &resource),
            None => Api::all_with(self.client.clone(), &resource),
        };
        let name = object.metadata.name.clone().unwrap_or_default();
        let made = api.create(&PostParams::default(), &object).await;
        made.with_context(|| format!("cannot create {} {name}", resource.kind))?;
        Ok(())
    }

    /// Replaces a node's taints.
    ///
    /// # Errors
    /// When the server refuses.
    pub async fn taint_node(&self, node: &str, taints: Value) -> Result<()> {
        let nodes: Api<k8s_openapi::api::core::v1::Node> = Api::all(self.client.clone());
        let patch = serde_json::json!({"spec": {"taints": taints}});
        nodes.patch(node, &PatchParams::default(), &Patch::Merge(patch)).await?;
        Ok(())
    }

    /// The pods of the scenarios' namespace.
    #[must_use]
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// The claims of the scenarios' namespace.
    #[must_use]
    pub fn claims(&self) -> Api<ResourceClaim> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// All slices.
    #[must_use]
    pub fn slices(&self) -> Api<ResourceSlice> {
        Api::all(self.client.clone())
    }

    /// All namespaces.
    #[must_use]
    pub fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.client.clone())
    }

    /// The kubeconfig that every process uses.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// The API server's host and port, for its fault layer.
    #[must_use]
    pub fn server_address(&self) -> &str {
        self.server_url.split_once("://").map_or(self.server_url.as_str(), |(_, address)| address)
    }

    /// The ends of all logs, for an error.
    #[must_use]
    pub fn logs(&self) -> String {
        let nodes = self.nodes.values().flat_map(|node| node.kubelet.iter().chain(node.driver.iter()));
        let all = std::iter::once(&self.server).chain(self.actors.values()).chain(self.controller.iter()).chain(nodes);
        all.map(Process::log_tail).collect::<Vec<_>>().join("\n")
    }

    /// The run folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Checks that every process still runs.
    ///
    /// # Errors
    /// When one has ended on its own: which, how, and the end of its log.
    pub fn check(&mut self) -> Result<()> {
        self.server.check()?;
        let actors = self.actors.values_mut();
        let nodes = self.nodes.values_mut().flat_map(|node| node.kubelet.iter_mut().chain(node.driver.iter_mut()));
        for process in actors.chain(self.controller.iter_mut()).chain(nodes) {
            process.check()?;
        }
        Ok(())
    }
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)?)
}

fn field(line: &str, prefix: &str) -> Result<String> {
    let found = line.split(' ').find_map(|word| word.strip_prefix(prefix));
    Ok(found.with_context(|| format!("no {prefix} in `{line}`"))?.to_owned())
}
