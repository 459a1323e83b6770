//! What the real node is told: kubelet's configuration, containerd's, and the pods' network. Pure texts.

use serde_json::{Value, json};

use super::debian::CNI_PLUGINS;
use super::images::PAUSE;
use super::layout::RunDir;
use super::ports::Ports;

/// kubelet's configuration file. JSON is YAML too.
pub(super) fn kubelet(run: &RunDir, ports: &Ports) -> Value {
    json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": ports.pods().node().to_string(),
        "port": ports.kubelet,
        "readOnlyPort": 0,
        "healthzBindAddress": "127.0.0.1",
        "healthzPort": ports.kubelet_health,
        "tlsCertFile": run.text("pki/kubelet.crt"),
        "tlsPrivateKeyFile": run.text("pki/kubelet.key"),
        // Whoever has a certificate of our authority is the API server: nobody else gets one.
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": run.text("pki/ca.crt")},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": format!("unix://{}", run.containerd_socket().display()),
        "cgroupDriver": "cgroupfs",
        // Two kubelets under one cgroup would take each other's pods for orphans.
        "cgroupRoot": format!("/{}", run.name()),
        "failCgroupV1": false,
        "failSwapOn": false,
        "enforceNodeAllocatable": [],
        "localStorageCapacityIsolation": false,
        "makeIPTablesUtilChains": false,
        // The node is as healthy as its disk and memory are, and no test is about those.
        "evictionHard": {
            "memory.available": "0%",
            "nodefs.available": "0%",
            "nodefs.inodesFree": "0%",
            "imagefs.available": "0%",
            "imagefs.inodesFree": "0%",
        },
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "podLogsDir": run.text("logs/pods"),
        "volumePluginDir": run.text("kubelet/volumeplugins"),
    })
}

/// containerd's configuration. Root and state are in the run folder, and what is shared with other containerds is off.
pub(super) fn containerd(run: &RunDir) -> String {
    let socket = run.containerd_socket();
    let socket = socket.display();
    format!(
        r#"version = 3
root = "{root}"
state = "{state}"
imports = []
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.image-verifier.v1.bindir"]

[grpc]
address = "{socket}"

[ttrpc]
address = "{socket}.ttrpc"

[plugins."io.containerd.shim.v1.manager"]
socket_dir = "{shims}"

[plugins."io.containerd.nri.v1.nri"]
disable = true

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
disable_apparmor = true
netns_mounts_under_state_dir = true
enable_cdi = true
cdi_spec_dirs = ["{cdi}"]

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{CNI_PLUGINS}"]
use_internal_loopback = true
conf_dir = "{cni}"

[plugins."io.containerd.cri.v1.runtime".containerd]
default_runtime_name = "runc"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
SystemdCgroup = false
Root = "{runc}"
"#,
        root = run.text("containerd/root"),
        state = run.text("containerd/state"),
        shims = run.text("s"),
        cdi = run.text("cdi"),
        cni = run.text("cni"),
        runc = run.text("runc"),
    )
}

/// The pods' network: a pair of interfaces for each, addresses of a range, no masquerading, so that no firewall rule is left behind.
pub(super) fn pod_network(run: &RunDir, ports: &Ports) -> Value {
    let pods = ports.pods();
    json!({
        "cniVersion": "1.0.0",
        "name": run.name(),
        "plugins": [{
            "type": "ptp",
            "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "dataDir": run.text("ipam"),
                "ranges": [[{"subnet": pods.cidr(), "rangeStart": pods.first_pod().to_string()}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_of_the_node_is_outside_the_run_folder() {
        let run = RunDir::new(std::path::Path::new("/tmp/x")).unwrap();
        let ports = Ports::choose(None).unwrap();
        let texts = [containerd(&run), kubelet(&run, &ports).to_string(), pod_network(&run, &ports).to_string()];
        for text in texts {
            let quoted = text.split('"').filter(|part| part.starts_with("/") || part.starts_with("unix:/"));
            for path in quoted {
                let ours = path.trim_start_matches("unix://").starts_with("/tmp/x/")
                    || path == CNI_PLUGINS
                    || path == format!("/{}", run.name());
                assert!(ours, "{path}");
            }
        }
    }
}
