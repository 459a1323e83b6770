//! The programs of a cluster and their arguments: version, ports and paths -> command lines. Pure.

use std::path::PathBuf;

use super::access::NODE;
use super::further::Further;
use super::layout::RunDir;
use super::ports::Ports;
use super::programs::Programs;
use super::version::Version;

/// A program of the cluster and how it is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Component {
    /// What its log and messages call it.
    pub(super) name: String,
    pub(super) program: PathBuf,
    pub(super) arguments: Vec<String>,
}

/// All that arguments depend on.
pub(super) struct Plan<'a> {
    pub(super) version: Version,
    pub(super) stock: bool,
    pub(super) upstream_evictor: bool,
    pub(super) ports: Ports,
    pub(super) run: &'a RunDir,
    pub(super) programs: &'a Programs,
    pub(super) further: &'a Further,
}

impl Plan<'_> {
    pub(super) fn etcd(&self) -> Component {
        let client = loopback(self.ports.etcd);
        let peer = loopback(self.ports.etcd_peer);
        let arguments = vec![
            format!("--data-dir={}", self.run.text("etcd")),
            format!("--listen-client-urls={client}"),
            format!("--advertise-client-urls={client}"),
            format!("--listen-peer-urls={peer}"),
            format!("--initial-advertise-peer-urls={peer}"),
            format!("--initial-cluster=default={peer}"),
            // The data is gone with the cluster anyway.
            "--unsafe-no-fsync".to_owned(),
        ];
        Component { name: "etcd".to_owned(), program: self.programs.etcd(), arguments }
    }

    pub(super) fn containerd(&self) -> Component {
        let program = self.programs.containerd_folder().join("containerd");
        let arguments = vec![format!("--config={}", self.run.text("containerd/config.toml"))];
        Component { name: "containerd".to_owned(), program, arguments }
    }

    pub(super) fn apiserver(&self) -> Component {
        let pki = |file: &str| self.run.text(&format!("pki/{file}"));
        let mut arguments = vec![
            format!("--etcd-servers={}", loopback(self.ports.etcd)),
            "--bind-address=127.0.0.1".to_owned(),
            "--advertise-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.ports.api),
            // A loopback address is refused as an endpoint, and there is one server anyway.
            "--endpoint-reconciler-type=none".to_owned(),
            format!("--tls-cert-file={}", pki("apiserver.crt")),
            format!("--tls-private-key-file={}", pki("apiserver.key")),
            format!("--client-ca-file={}", pki("ca.crt")),
            format!("--token-auth-file={}", self.run.text("tokens.csv")),
            "--authorization-mode=Node,RBAC".to_owned(),
            "--enable-admission-plugins=NodeRestriction".to_owned(),
            "--allow-privileged=true".to_owned(),
            "--service-account-issuer=https://kubernetes.default.svc".to_owned(),
            format!("--service-account-key-file={}", pki("accounts.pub")),
            format!("--service-account-signing-key-file={}", pki("accounts.key")),
            "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
            format!("--kubelet-certificate-authority={}", pki("ca.crt")),
            format!("--kubelet-client-certificate={}", pki("kubelet-client.crt")),
            format!("--kubelet-client-key={}", pki("kubelet-client.key")),
            "--kubelet-preferred-address-types=InternalIP".to_owned(),
        ];
        arguments.extend(self.gates());
        arguments.extend(switched_on("--runtime-config", self.version.runtime_config(self.stock)));
        self.kubernetes("kube-apiserver", arguments)
    }

    pub(super) fn controllers(&self) -> Component {
        let evictor = if self.upstream_evictor { "" } else { ",-device-taint-eviction-controller" };
        let mut arguments = vec![
            format!("--kubeconfig={}", self.run.text("controllers.conf")),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.ports.controllers),
            "--leader-elect=false".to_owned(),
            "--use-service-account-credentials=true".to_owned(),
            format!("--service-account-private-key-file={}", self.run.text("pki/accounts.key")),
            format!("--root-ca-file={}", self.run.text("pki/ca.crt")),
            format!("--controllers=*{evictor}"),
        ];
        arguments.extend(self.gates());
        self.kubernetes("kube-controller-manager", arguments)
    }

    pub(super) fn scheduler(&self) -> Component {
        let mut arguments = vec![
            format!("--kubeconfig={}", self.run.text("scheduler.conf")),
            "--bind-address=127.0.0.1".to_owned(),
            format!("--secure-port={}", self.ports.scheduler),
            "--leader-elect=false".to_owned(),
        ];
        arguments.extend(self.gates());
        self.kubernetes("kube-scheduler", arguments)
    }

    pub(super) fn kubelet(&self) -> Component {
        let mut arguments = vec![
            format!("--kubeconfig={}", self.run.text("kubelet.conf")),
            format!("--config={}", self.run.text("kubelet.json")),
            format!("--root-dir={}", self.run.text("kubelet")),
            format!("--cert-dir={}", self.run.text("kubelet/pki")),
            format!("--hostname-override={NODE}"),
            format!("--node-ip={}", self.ports.pods().node()),
        ];
        arguments.extend(self.gates());
        self.kubernetes("kubelet", arguments)
    }

    fn kubernetes(&self, name: &str, mut arguments: Vec<String>) -> Component {
        arguments.push("--v=2".to_owned());
        Component { name: name.to_owned(), program: self.programs.kubernetes(name), arguments }
    }

    fn gates(&self) -> Option<String> {
        switched_on("--feature-gates", self.version.feature_gates(self.stock))
    }
}

fn loopback(port: u16) -> String {
    format!("http://127.0.0.1:{port}")
}

/// `FLAG=a=true,b=true`, or nothing where nothing is to be switched on.
fn switched_on(flag: &str, names: &[&str]) -> Option<String> {
    let list = names.iter().map(|name| format!("{name}=true")).collect::<Vec<_>>().join(",");
    (!list.is_empty()).then(|| format!("{flag}={list}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with<T>(version: &str, stock: bool, upstream_evictor: bool, look: impl FnOnce(&Plan<'_>) -> T) -> T {
        let run = RunDir::new(std::path::Path::new("/tmp/x")).unwrap();
        let programs = Programs::at("/cache");
        let ports =
            Ports { api: 1, etcd: 2, etcd_peer: 3, controllers: 4, scheduler: 5, kubelet: 6, kubelet_health: 7 };
        let version = version.parse().unwrap();
        look(&Plan {
            version,
            stock,
            upstream_evictor,
            ports,
            run: &run,
            programs: &programs,
            further: &Further::none(),
        })
    }

    fn has(component: &Component, argument: &str) -> bool {
        component.arguments.iter().any(|have| have == argument)
    }

    #[test]
    fn gates_go_to_every_program_of_kubernetes_and_apis_to_the_server() {
        let (gates, apis) = (
            "--feature-gates=DRADeviceTaints=true,ResourceHealthStatus=true",
            "--runtime-config=resource.k8s.io/v1alpha3=true,resource.k8s.io/v1beta1=true,resource.k8s.io/v1beta2=true",
        );
        with("1.34", false, false, |plan| {
            let all = [plan.apiserver(), plan.controllers(), plan.scheduler(), plan.kubelet()];
            assert!(all.iter().all(|component| has(component, gates)));
            assert!(has(&all[0], apis) && !has(&all[1], apis));
            assert_eq!(all[3].program, std::path::Path::new("/cache/kubelet"));
        });
    }

    #[test]
    fn nothing_is_switched_on_where_all_is_on_or_the_version_is_left_as_it_comes() {
        for (version, stock, betas) in [("1.37", false, true), ("1.35", true, false)] {
            with(version, stock, false, |plan| {
                let all = [plan.apiserver(), plan.controllers(), plan.scheduler(), plan.kubelet()];
                let any = |what: &str| all.iter().flat_map(|one| &one.arguments).any(|flag| flag.starts_with(what));
                assert!(!any("--feature-gates"), "{version}");
                assert_eq!(any("--runtime-config"), betas, "{version}");
            });
        }
    }

    #[test]
    fn upstream_evicts_only_when_asked_to() {
        let controllers = |upstream| with("1.37", false, upstream, |plan| plan.controllers().arguments);
        assert!(controllers(false).contains(&"--controllers=*,-device-taint-eviction-controller".to_owned()));
        assert!(controllers(true).contains(&"--controllers=*".to_owned()));
    }

    #[test]
    fn no_port_is_left_to_a_default() {
        with("1.37", false, false, |plan| {
            assert!(has(&plan.etcd(), "--listen-peer-urls=http://127.0.0.1:3"));
            assert!(
                has(&plan.apiserver(), "--secure-port=1")
                    && has(&plan.apiserver(), "--etcd-servers=http://127.0.0.1:2")
            );
            assert!(has(&plan.controllers(), "--secure-port=4") && has(&plan.scheduler(), "--secure-port=5"));
        });
    }
}
