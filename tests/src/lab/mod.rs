//! A lab: a cluster with its nodes, agents and controller as real processes in a folder of its own.
//!
//! It stands on a [`Site`]: the small cluster of this repository, whose API server, scheduler, claim controller and kubelets are processes of the lab
//! too, or a real Kubernetes that runs already. All that the lab started ends when it is dropped.

mod failing;
mod foreign;
mod ground;
mod inside;
mod installed;
mod node;
mod plan;
mod real;
pub(crate) mod rules;
mod site;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Pod};
use k8s_openapi::api::resource::v1::{ResourceClaim, ResourceSlice};
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Config};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

use crate::gpus::Gpus;
use crate::needs::Offer;
use crate::objects::NAMESPACE;
use crate::process::Process;
use crate::programs::Programs;

use failing::Failing;
use ground::Ground;
pub use inside::Inside;
use installed::{Installed, Program};
pub use node::Node;
pub use plan::Plan;
pub use real::RealCluster;
pub use site::Site;

/// The lab.
pub struct Lab {
    /// A client with all rights.
    pub client: Client,
    /// The nodes, by name.
    pub nodes: BTreeMap<String, Node>,
    programs: Programs,
    plan: Plan,
    ground: Ground,
    offer: Offer,
    /// What helm installed, where the programs are not all processes of the lab.
    installed: Option<Installed>,
    controller: Option<Process>,
    controller_address: Option<String>,
    /// A driver that is not ours.
    foreign: Option<Process>,
    /// What stands before a real server that shall fail.
    failing: Option<Failing>,
    folder: TempDir,
}

impl Lab {
    /// Starts the cluster where it has to be started, and the nodes; then the agents and the controller.
    ///
    /// # Errors
    /// When a program does not build, start or get ready.
    pub async fn start(plan: Plan, site: &Site) -> Result<Self> {
        let mut lab = Self::bare(plan, site).await?;
        for name in lab.plan.nodes.clone() {
            lab.add_node(&name)?;
            lab.start_driver(&name).await?;
        }
        lab.start_controller().await?;
        Ok(lab)
    }

    /// Opens only the cluster, with the device classes and the namespace.
    ///
    /// # Errors
    /// When a program does not build, start or get ready.
    pub async fn bare(plan: Plan, site: &Site) -> Result<Self> {
        let programs = tokio::task::spawn_blocking(Programs::build).await??;
        let folder = tempfile::Builder::new().prefix("dt-").tempdir().context("cannot make a run folder")?;
        let ground = Ground::open(site, &programs, folder.path(), &plan.server).await?;
        let client = client(ground.kubeconfig()).await?;
        ground.prepare(&client).await?;
        let offer = site.beside(Offer::of(&client, matches!(site, Site::Small)).await?);
        let installed = ground.installed().map(|cluster| Installed::new(client.clone(), cluster.clone()));
        let (nodes, controller, controller_address) = (BTreeMap::new(), None, None);
        let foreign = None;
        let failing = match site {
            Site::Real(cluster) if plan.failing_server => {
                Some(Failing::start(&programs, &cluster.kubeconfig, folder.path()).await?)
            }
            _ => None,
        };
        Ok(Self {
            client,
            nodes,
            programs,
            plan,
            ground,
            offer,
            installed,
            controller,
            controller_address,
            foreign,
            failing,
            folder,
        })
    }

    /// Takes away what the scenario left in a cluster that lives on, while there are still kubelets and agents to help.
    ///
    /// # Errors
    /// When something stays.
    pub async fn close(self) -> Result<()> {
        if let Some(installed) = &self.installed {
            installed.check().await?;
        }
        self.ground.clean(&self.client).await
    }

    /// Adds a node with its GPUs and starts its kubelet.
    ///
    /// # Errors
    /// When the kubelet does not start.
    pub fn add_node(&mut self, name: &str) -> Result<()> {
        let folder = self.folder.path().join("nodes").join(name);
        std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        std::fs::write(folder.join("boot_id"), format!("boot-1-of-{name}\n"))?;
        self.programs.put_nvml(&folder, self.has_installed_agent(name))?;
        if let Some(policy) = self.plan.policy {
            std::fs::write(folder.join("policy.yaml"), policy)?;
        }
        let (kubelet_root, cdi_root) = self.ground.roots(name, &folder);
        let gpus = Gpus::install(&folder, name, self.plan.gpus, self.ground.device_nodes(name))?;
        let (name, kubelet, driver, driver_address) = (name.to_owned(), None, None, None);
        let node = Node {
            name: name.clone(),
            gpus,
            folder,
            kubelet_root,
            cdi_root,
            kubelet,
            driver,
            driver_address,
            predecessor: None,
        };
        self.nodes.insert(name.clone(), node);
        self.start_kubelet(&name)
    }

    /// Adds a node whose NVML answers `code` to `function` from the start.
    ///
    /// # Errors
    /// As [`Lab::add_node`].
    pub fn add_broken_node(&mut self, name: &str, function: &str, code: u32) -> Result<()> {
        self.add_node(name)?;
        let fault = nvidia_ml::control::Fault::error(function, code);
        self.node(name)?.gpus.change(|control| control.faults.push(fault))
    }

    /// Starts the kubelet of a node, or starts it again. One that runs already goes on.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_kubelet(&mut self, name: &str) -> Result<()> {
        let node = self.nodes.get_mut(name).with_context(|| format!("the lab has no node {name}"))?;
        self.ground.start_kubelet(node, &self.programs)
    }

    /// Ends the kubelet of a node as a crash would.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill_kubelet(&mut self, name: &str) -> Result<()> {
        let node = self.nodes.get_mut(name).with_context(|| format!("the lab has no node {name}"))?;
        self.ground.kill_kubelet(node).await
    }

    /// Starts the agent of a node, or starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_driver(&mut self, name: &str) -> Result<()> {
        if self.has_installed_agent(name) {
            let address = self.start_installed(Program::Agent).await?;
            self.node(name)?.driver_address = Some(address);
            return Ok(());
        }
        let folder = self.node(name)?.folder.clone();
        let kubeconfig = match &self.installed {
            Some(installed) => installed.kubeconfig_of(name, &folder).await?,
            None => self.kubeconfig_of_programs().to_owned(),
        };
        self.start_driver_process(name, &kubeconfig).await
    }

    async fn start_driver_process(&mut self, name: &str, kubeconfig: &Path) -> Result<()> {
        let (program, flags) = (self.programs.gpu_driver(), self.plan.driver.clone());
        let has_policy = self.plan.policy.is_some();
        let node = self.node(name)?;
        let folder = node.folder.clone();
        let mut process = Process::start("gpu-driver", &program, &folder, |command| {
            command.args(["--node-name", name, "--listen", "127.0.0.1:0", "--kubeconfig"]).arg(kubeconfig);
            command.arg("--kubelet-root").arg(&node.kubelet_root).arg("--cdi-root").arg(&node.cdi_root);
            let paths = [
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

    /// Starts a second agent on a node. It is the node's from now on; the first one runs on as its predecessor.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_successor(&mut self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        node.predecessor = node.driver.take();
        self.start_driver(name).await
    }

    /// Starts the controller, or starts it again.
    ///
    /// # Errors
    /// When it does not start.
    pub async fn start_controller(&mut self) -> Result<()> {
        if self.installed.is_some() {
            self.controller_address = Some(self.start_installed(Program::Controller).await?);
            return Ok(());
        }
        let (folder, flags) = (self.folder.path(), &self.plan.controller);
        let mut process = Process::start("controller", &self.programs.controller(), folder, |command| {
            command.arg("--kubeconfig").arg(self.kubeconfig_of_programs()).args([
                "--listen",
                "127.0.0.1:0",
                "--state-dir",
            ]);
            command.arg(folder.join("controller-state")).args(flags);
        })?;
        self.controller_address = Some(process.line("listening on ").await?);
        self.controller = Some(process);
        Ok(())
    }

    /// Ends the agent of a node as a crash would; where it runs in a pod, deletes the pod.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill_driver(&mut self, name: &str) -> Result<()> {
        match &self.installed {
            Some(installed) if installed.has_agent_of(name) => installed.end(Program::Agent).await,
            _ => self.node(name)?.driver()?.kill().await,
        }
    }

    /// Ends the controller as a crash would; where it runs in a pod, deletes the pod.
    ///
    /// # Errors
    /// When it does not run.
    pub async fn kill_controller(&mut self) -> Result<()> {
        match &self.installed {
            Some(installed) => installed.end(Program::Controller).await,
            None => self.controller()?.kill().await,
        }
    }

    fn has_installed_agent(&self, node: &str) -> bool {
        self.installed.as_ref().is_some_and(|installed| installed.has_agent_of(node))
    }

    /// Installs both programs at the first call, waits for one of them later, and says where it answers.
    async fn start_installed(&mut self, program: Program) -> Result<String> {
        let installed = self.installed.as_mut().context("nothing is installed here")?;
        installed.start(program, &self.plan, self.folder.path()).await?;
        Ok(installed.address(program))
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
        let output = command.args(arguments).env("KUBECONFIG", self.kubeconfig()).output().await?;
        let stderr = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "kubectl device {}: {}: {stderr}", arguments.join(" "), output.status);
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Makes an object from JSON, of any kind that the server knows by the usual plural.
    ///
    /// # Errors
    /// When the server refuses it.
    pub async fn create(&self, object: Value) -> Result<()> {
        create(&self.client, object).await
    }

    /// Makes an object from JSON that may be there already: then it stays as it is.
    ///
    /// # Errors
    /// When the server refuses it for another reason.
    pub async fn create_unless_there(&self, object: Value) -> Result<()> {
        match self.create(object).await {
            Err(error) if !already_there(&error) => Err(error),
            _ => Ok(()),
        }
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

    /// What the container of a pod sees; the pod was asked to tell ([`crate::objects::PodSpec::tells`]), and runs.
    ///
    /// # Errors
    /// When it does not tell.
    pub async fn inside(&self, pod: &str) -> Result<Inside> {
        self.ground.inside(&self.pods(), pod).await
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

    /// The kubeconfig of the programs under test: by way of the proxy that fails, where there is one.
    fn kubeconfig_of_programs(&self) -> &Path {
        self.failing.as_ref().map_or_else(|| self.kubeconfig(), |failing| &failing.kubeconfig)
    }

    /// The kubeconfig that every process uses.
    #[must_use]
    pub fn kubeconfig(&self) -> &Path {
        self.ground.kubeconfig()
    }

    /// The host and port of the small cluster's API server, for its fault layer.
    ///
    /// # Errors
    /// When the lab stands on a real Kubernetes, which has no such layer.
    pub fn server_address(&self) -> Result<&str> {
        match &self.failing {
            Some(failing) => Ok(&failing.address),
            None => self.ground.fault_layer(),
        }
    }

    /// How long pods may take until they run. A real kubelet that could not prepare a pod's claims at once looks at the pod again only
    /// after a minute or more (docs/operations.md says when that happens).
    #[must_use]
    pub fn pods_run_within(&self) -> Duration {
        self.ground.pods_run_within()
    }

    /// What the cluster offers.
    #[must_use]
    pub fn offer(&self) -> &Offer {
        &self.offer
    }

    /// The ends of all logs, for an error.
    #[must_use]
    pub fn logs(&self) -> String {
        let nodes = self.nodes.values().flat_map(|node| node.kubelet.iter().chain(node.driver.iter()));
        let ours = self.controller.iter().chain(self.foreign.iter()).chain(nodes).map(Process::log_tail);
        let pods = self.installed.iter().map(Installed::logs);
        self.ground.logs().into_iter().chain(ours).chain(pods).collect::<Vec<_>>().join("\n")
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
        self.ground.check()?;
        let nodes = self.nodes.values_mut().flat_map(|node| node.kubelet.iter_mut().chain(node.driver.iter_mut()));
        let failing = self.failing.iter_mut().map(|failing| &mut failing.process);
        for process in self.controller.iter_mut().chain(self.foreign.iter_mut()).chain(failing).chain(nodes) {
            process.check()?;
        }
        Ok(())
    }
}

/// Makes an object from JSON, of any kind that the server knows by the usual plural.
pub(super) async fn create(client: &Client, object: Value) -> Result<()> {
    let object: DynamicObject = serde_json::from_value(object)?;
    let types = object.types.clone().context("an object without apiVersion and kind")?;
    let resource = ApiResource::from_gvk(&GroupVersionKind::try_from(types)?);
    let api: Api<DynamicObject> = match &object.metadata.namespace {
        Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
        None => Api::all_with(client.clone(), &resource),
    };
    let name = object.metadata.name.clone().unwrap_or_default();
    let made = api.create(&PostParams::default(), &object).await;
    made.with_context(|| format!("cannot create {} {name}", resource.kind))?;
    Ok(())
}

/// Whether the server said that an object of this name exists.
pub(super) fn already_there(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref::<kube::Error>(), Some(kube::Error::Api(status)) if status.code == 409)
}

async fn client(kubeconfig: &Path) -> Result<Client> {
    let config = Kubeconfig::read_from(kubeconfig)?;
    Ok(Client::try_from(Config::from_custom_kubeconfig(config, &KubeConfigOptions::default()).await?)?)
}
