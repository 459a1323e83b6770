//! RUN/cluster.json: what other programs need to know of a cluster that runs.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::files::write_private;
use super::layout::RunDir;

/// A cluster that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Cluster {
    /// Kubernetes' version: `1.37.2`.
    pub(super) version: String,
    /// Whether the version runs as it comes.
    pub(super) stock: bool,
    /// Whether kube-controller-manager evicts for device taints itself.
    pub(super) upstream_evictor: bool,
    /// The administrator's.
    pub(super) kubeconfig: PathBuf,
    /// `https://127.0.0.1:PORT`
    pub(super) server: String,
    /// The authority of the server's certificate.
    pub(super) ca: PathBuf,
    /// The real node's name.
    pub(super) node: String,
    /// Its address, on this machine's loopback interface.
    pub(super) node_address: String,
    /// kubelet's folder: plugins and plugins_registry are below it.
    pub(super) kubelet_root: PathBuf,
    /// Where containerd looks for CDI files.
    pub(super) cdi_root: PathBuf,
    /// containerd's socket.
    pub(super) containerd_address: PathBuf,
    /// A busybox that is there without a pull, for `imagePullPolicy: IfNotPresent`.
    pub(super) busybox_image: String,
    /// Programs for whoever tests.
    pub(super) ctr: PathBuf,
    pub(super) kubectl: PathBuf,
    pub(super) helm: PathBuf,
    /// Kubernetes' DRA test driver, in the versions that have it.
    pub(super) dra_test_driver: Option<PathBuf>,
    /// By name: etcd, containerd, kube-apiserver, kube-controller-manager, kube-scheduler, kubelet.
    pub(super) components: BTreeMap<String, Component>,
}

/// A component: all that is needed to stop it and to start it again as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Component {
    /// Its process, and its process group.
    pub(super) pid: u32,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
    /// Its whole environment. The mark in it is how `kube down` finds it.
    pub(super) environment: BTreeMap<String, String>,
    pub(super) log: PathBuf,
}

impl Cluster {
    /// # Errors
    /// When it cannot be written.
    pub(super) fn write(&self, run: &RunDir) -> Result<()> {
        let text = serde_json::to_vec_pretty(self).context("write cluster.json")?;
        // Under another name first: who finds it, finds it whole.
        let (partial, path) = (run.path("cluster.json.partial"), run.path("cluster.json"));
        write_private(&partial, &text)?;
        fs::rename(&partial, &path).with_context(|| format!("write {}", path.display()))
    }

    /// That of a run folder; nothing where none was written.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(super) fn read(run: &RunDir) -> Result<Option<Self>> {
        let path = run.path("cluster.json");
        match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            read => {
                let text = read.with_context(|| format!("read {}", path.display()))?;
                serde_json::from_slice(&text).map(Some).with_context(|| format!("read {}", path.display()))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let parent = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let run = RunDir::new(parent.path()).unwrap();
        assert_eq!(Cluster::read(&run).unwrap(), None);
        let kubelet = Component {
            pid: 7,
            program: "/c/kubelet".into(),
            arguments: vec!["--v=2".to_owned()],
            environment: BTreeMap::from([("HOME".to_owned(), "/tmp/x".to_owned())]),
            log: run.log("kubelet"),
        };
        let cluster = Cluster {
            version: "1.37.2".to_owned(),
            stock: false,
            upstream_evictor: true,
            kubeconfig: run.path("kubeconfig"),
            server: "https://127.0.0.1:1".to_owned(),
            ca: run.path("pki/ca.crt"),
            node: "n1".to_owned(),
            node_address: "10.0.0.2".to_owned(),
            kubelet_root: run.path("kubelet"),
            cdi_root: run.path("cdi"),
            containerd_address: run.containerd_socket(),
            busybox_image: "devicetaint.dev/busybox:1".to_owned(),
            ctr: "/c/ctr".into(),
            kubectl: "/c/kubectl".into(),
            helm: "/c/helm".into(),
            dra_test_driver: None,
            components: BTreeMap::from([("kubelet".to_owned(), kubelet)]),
        };
        cluster.write(&run).unwrap();
        assert_eq!(Cluster::read(&run).unwrap(), Some(cluster));
        fs::write(run.path("cluster.json"), "{").unwrap();
        assert!(Cluster::read(&run).unwrap_err().to_string().contains("cluster.json"));
    }
}
