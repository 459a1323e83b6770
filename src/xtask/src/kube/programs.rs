//! Which programs make a real Kubernetes, and which tools module below `tests/real` each comes from.

use std::path::PathBuf;

use anyhow::Result;

use super::version::Version;
use crate::go_tool::{GoModule, Program, Stamp, Surroundings};

const APISERVER: Program = Program { package: "k8s.io/kubernetes/cmd/kube-apiserver", name: "kube-apiserver" };
const CONTROLLERS: Program =
    Program { package: "k8s.io/kubernetes/cmd/kube-controller-manager", name: "kube-controller-manager" };
const SCHEDULER: Program = Program { package: "k8s.io/kubernetes/cmd/kube-scheduler", name: "kube-scheduler" };
const KUBELET: Program = Program { package: "k8s.io/kubernetes/cmd/kubelet", name: "kubelet" };
/// kubectl alone, which the tests against the sim need too.
pub(crate) const KUBECTL: Program = Program { package: "k8s.io/kubernetes/cmd/kubectl", name: "kubectl" };
/// Kubernetes' own DRA test driver: a driver that is not ours.
const TEST_DRIVER: Program = Program { package: "k8s.io/kubernetes/test/e2e/dra/test-driver", name: "dra-test-driver" };

const KUBERNETES: [Program; 5] = [APISERVER, CONTROLLERS, SCHEDULER, KUBELET, KUBECTL];
const KUBERNETES_AND_DRIVER: [Program; 6] = [APISERVER, CONTROLLERS, SCHEDULER, KUBELET, KUBECTL, TEST_DRIVER];
const ETCD: [Program; 1] = [Program { package: "go.etcd.io/etcd/server/v3", name: "etcd" }];
const CONTAINERD: [Program; 3] = [
    Program { package: "github.com/containerd/containerd/v2/cmd/containerd", name: "containerd" },
    Program {
        package: "github.com/containerd/containerd/v2/cmd/containerd-shim-runc-v2",
        name: "containerd-shim-runc-v2",
    },
    Program { package: "github.com/containerd/containerd/v2/cmd/ctr", name: "ctr" },
];
const HELM: [Program; 1] = [Program { package: "helm.sh/helm/v4/cmd/helm", name: "helm" }];

/// Some programs of Kubernetes in a version.
pub(crate) fn kubernetes(version: Version, programs: &'static [Program]) -> GoModule<'static> {
    let folder = module_folder(&version.module());
    GoModule { folder, source: "k8s.io/kubernetes", stamp: Stamp::Kubernetes, tags: "", programs }
}

/// All that a cluster of a version needs, smallest first.
fn all(version: Version) -> [GoModule<'static>; 4] {
    let programs: &[Program] = if version.has_test_driver() { &KUBERNETES_AND_DRIVER } else { &KUBERNETES };
    let etcd = GoModule {
        folder: module_folder("etcd"),
        source: "go.etcd.io/etcd/server/v3",
        stamp: Stamp::Built,
        tags: "",
        programs: &ETCD,
    };
    let containerd = GoModule {
        folder: module_folder("containerd"),
        source: "github.com/containerd/containerd/v2",
        stamp: Stamp::Variable("github.com/containerd/containerd/v2/version.Version"),
        // Snapshotters that need libraries or kernel modules; overlayfs is the one that is used.
        tags: "no_btrfs,no_zfs,no_aufs,no_devmapper",
        programs: &CONTAINERD,
    };
    [etcd, containerd, helm(), kubernetes(version, programs)]
}

/// Helm alone, which renders the manifests too.
pub(crate) fn helm() -> GoModule<'static> {
    GoModule {
        folder: module_folder("helm"),
        source: "helm.sh/helm/v4",
        stamp: Stamp::Variable("helm.sh/helm/v4/internal/version.version"),
        tags: "",
        programs: &HELM,
    }
}

fn module_folder(name: &str) -> PathBuf {
    crate::repository_root().join("tests/real").join(name)
}

/// Where the programs of a version are, once they are built.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    etcd: PathBuf,
    containerd: PathBuf,
    helm: PathBuf,
    kubernetes: PathBuf,
}

impl Programs {
    /// Builds what is missing, module by module.
    ///
    /// # Errors
    /// When go is missing or a build fails.
    pub(crate) fn build(version: Version, at: &Surroundings) -> Result<Self> {
        let [etcd, containerd, helm, kubernetes] = all(version).map(|module| module.ensure_built(at));
        Ok(Self { etcd: etcd?, containerd: containerd?, helm: helm?, kubernetes: kubernetes? })
    }

    /// Those of a version that are not built, by name.
    ///
    /// # Errors
    /// When a tools module cannot be read.
    pub(crate) fn missing(version: Version, at: &Surroundings) -> Result<Vec<&'static str>> {
        let missing = all(version).iter().map(|module| module.missing(at)).collect::<Result<Vec<_>>>()?;
        Ok(missing.concat().iter().map(|program| program.name).collect())
    }

    /// All in one folder, for tests of command lines.
    #[cfg(test)]
    pub(crate) fn at(folder: &str) -> Self {
        let folder = PathBuf::from(folder);
        Self { etcd: folder.clone(), containerd: folder.clone(), helm: folder.clone(), kubernetes: folder }
    }

    /// All of them.
    pub(crate) fn paths(&self) -> Vec<PathBuf> {
        let of = |folder: &PathBuf, programs: &[Program]| -> Vec<_> {
            programs.iter().map(|program| folder.join(program.name)).collect()
        };
        let mut paths = of(&self.etcd, &ETCD);
        paths.extend(of(&self.containerd, &CONTAINERD));
        paths.extend(of(&self.helm, &HELM));
        paths.extend(of(&self.kubernetes, &KUBERNETES));
        paths.extend(self.test_driver());
        paths
    }

    /// etcd's server.
    pub(crate) fn etcd(&self) -> PathBuf {
        self.etcd.join("etcd")
    }

    /// The folder of containerd, its shim and ctr.
    pub(crate) fn containerd_folder(&self) -> &PathBuf {
        &self.containerd
    }

    /// Helm.
    pub(crate) fn helm(&self) -> PathBuf {
        self.helm.join("helm")
    }

    /// A program of Kubernetes.
    pub(crate) fn kubernetes(&self, name: &str) -> PathBuf {
        self.kubernetes.join(name)
    }

    /// Kubernetes' DRA test driver, in the versions that have it.
    pub(crate) fn test_driver(&self) -> Option<PathBuf> {
        Some(self.kubernetes.join(TEST_DRIVER.name)).filter(|path| path.exists())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_of_a_version_is_a_tool_of_its_module() {
        for version in Version::ALL {
            for module in all(version) {
                let text = std::fs::read_to_string(module.folder.join("go.mod")).unwrap();
                for program in module.programs {
                    let is_tool = |line: &str| line.trim().trim_start_matches("tool ").trim() == program.package;
                    assert!(text.lines().any(is_tool), "{}: {}", module.folder.display(), program.package);
                }
                assert!(module.version().unwrap().starts_with('v'));
            }
        }
    }
}
