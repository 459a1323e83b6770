//! Nodes beside the real one: kubelets of the small cluster at the real API server, each with a gpu-driver and stand-in GPUs of its own.
//!
//! programs of the workspace -> a folder for each node (the program stand-in makes it) -> a kubelet and an agent, as components like the others.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::access::NODE;
use super::flags::Component;
use super::layout::RunDir;
use super::record::Cluster;

/// Names of agents begin with it.
const AGENT: &str = "gpu-driver-";

/// The further nodes of a cluster, and the programs that they are made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Further {
    names: Vec<String>,
    programs: PathBuf,
    kubeconfig: PathBuf,
}

/// A node that is about to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) name: String,
    pub(super) kubelet: Component,
    pub(super) agent: Component,
}

impl Further {
    /// No node beside the real one.
    #[cfg(test)]
    pub(super) fn none() -> Self {
        Self::default()
    }

    /// All nodes but the first of `nodes`; where there are any, their programs are compiled.
    ///
    /// # Errors
    /// When something does not compile.
    pub(super) fn build(run: &RunDir, nodes: u8) -> Result<Self> {
        let names: Vec<_> = (2..=nodes).map(|number| format!("n{number}")).collect();
        if names.is_empty() {
            return Ok(Self::default());
        }
        let built = crate::build(&["--workspace"])?;
        let stand_in = built.iter().find(|path| path.ends_with("stand-in")).context("cargo built no stand-in")?;
        let programs = stand_in.parent().context("the program stand-in lies in no folder")?.to_owned();
        Ok(Self { names, programs, kubeconfig: run.path("kubeconfig") })
    }

    /// Makes their folders.
    ///
    /// # Errors
    /// When one cannot be made.
    pub(super) fn make(&self, run: &RunDir) -> Result<Vec<Node>> {
        self.names.iter().map(|name| self.make_one(name, &run.path(name))).collect()
    }

    fn make_one(&self, name: &str, folder: &Path) -> Result<Node> {
        let mut command = Command::new(self.programs.join("stand-in"));
        let output = command.args(["--node", name]).arg(folder).stdin(Stdio::null()).output();
        let output = output.with_context(|| format!("start stand-in for node {name}"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "the hardware of node {name} cannot be made: {}", said.trim());
        Ok(self.node(name, folder))
    }

    fn node(&self, name: &str, folder: &Path) -> Node {
        let component = |of: &str, program: &str, arguments: Vec<String>| Component {
            name: format!("{of}{name}"),
            program: self.programs.join(program),
            arguments,
        };
        let at = |file: &str| folder.join(file).display().to_string();
        let kubeconfig = self.kubeconfig.display().to_string();
        let kubelet =
            ["kubelet", "--node", name, "--kubeconfig", &kubeconfig, "--root", &at("k"), "--cdi-root", &at("cdi")];
        Node {
            name: name.to_owned(),
            kubelet: component("kubelet-", "sim", kubelet.map(str::to_owned).to_vec()),
            agent: component(AGENT, "gpu-driver", agent(name, &kubeconfig, at)),
        }
    }
}

/// The agent's flags. A short name for kubelet's folder: the path of a socket in it may have 107 bytes.
fn agent(node: &str, kubeconfig: &str, at: impl Fn(&str) -> String) -> Vec<String> {
    let flags = [
        ("--node-name", node.to_owned()),
        ("--kubeconfig", kubeconfig.to_owned()),
        ("--listen", "127.0.0.1:0".to_owned()),
        ("--kubelet-root", at("k")),
        ("--cdi-root", at("cdi")),
        ("--state-dir", at("state")),
        ("--sysfs-root", at("sys")),
        ("--dev-root", at("dev")),
        ("--boot-id-file", at("boot_id")),
        ("--nvml-library", at("libnvidia-ml.so.1")),
    ];
    flags.into_iter().map(|(flag, value)| format!("{flag}={value}")).collect()
}

/// The nodes of a cluster, for a message: `node n1 is`, `nodes n1, n2 are`.
pub(super) fn names(nodes: u8) -> String {
    let further: String = (2..=nodes).map(|number| format!(", n{number}")).collect();
    if further.is_empty() { format!("node {NODE} is") } else { format!("nodes {NODE}{further} are") }
}

/// Where the server lists what a node publishes.
pub(super) fn slices_of(node: &str) -> String {
    format!("/apis/resource.k8s.io/v1/resourceslices?fieldSelector=spec.nodeName={node}")
}

/// What is missing from a list of slices, in words; nothing when a device is in it.
pub(super) fn hindrance(slices: &str) -> Option<String> {
    let listed: Value = match serde_json::from_str(slices) {
        Ok(listed) => listed,
        Err(error) => return Some(format!("the list of slices cannot be read: {error}")),
    };
    let mut slices = listed["items"].as_array().into_iter().flatten();
    let published = slices.any(|slice| slice["spec"]["devices"].as_array().is_some_and(|devices| !devices.is_empty()));
    (!published).then(|| "no slice of it has a device".to_owned())
}

/// Scenarios make and delete further nodes of their own.
///
/// # Errors
/// When the cluster has some.
pub(super) fn ensure_none(run: &RunDir) -> Result<()> {
    let Some(cluster) = Cluster::read(run)? else { return Ok(()) };
    let has = cluster.components.keys().any(|name| name.starts_with(AGENT));
    let root = run.root().display();
    ensure!(
        !has,
        "the cluster in {root} has more nodes than n1, and the scenarios bring their own: start one without --nodes"
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_of_sockets_are_short_enough_in_the_longest_run_folder() {
        let run = format!("/tmp/{}", "x".repeat(35));
        let further = Further { names: vec!["n99".to_owned()], programs: "/p".into(), kubeconfig: "/k".into() };
        let node = further.node("n99", &Path::new(&run).join("n99"));
        let root = node.agent.arguments.iter().find_map(|flag| flag.strip_prefix("--kubelet-root=")).unwrap();
        let socket = format!("{root}/plugins_registry/gpu.devicetaint.dev-01234567-reg.sock");
        assert!(RunDir::new(Path::new(&run)).is_ok() && socket.len() <= 107, "{}", socket.len());
        assert!(node.kubelet.arguments.contains(&root.to_owned()));
        assert_eq!([node.kubelet.name, node.agent.name], ["kubelet-n99", "gpu-driver-n99"]);
    }

    #[test]
    fn nodes_are_told_by_name() {
        assert_eq!(names(1), "node n1 is");
        assert_eq!(names(3), "nodes n1, n2, n3 are");
    }

    #[test]
    fn a_node_has_published_when_a_slice_has_a_device() {
        for nothing in ["{", "{}", r#"{"items":[]}"#, r#"{"items":[{"spec":{"devices":[]}}]}"#] {
            assert!(hindrance(nothing).is_some(), "{nothing}");
        }
        assert_eq!(hindrance(r#"{"items":[{"spec":{}},{"spec":{"devices":[{"name":"gpu"}]}}]}"#), None);
    }
}
