//! What is installed in a cluster, as far as it can be checked without one: deploy/manifests.yaml is the chart with its default values,
//! deploy/tests/rendered the chart with those of deploy/tests/values. `cargo xtask manifests` renders them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use clap::Parser;
use gpu_driver::config::Config as AgentArgs;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, PodSpec, Probe, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding, Role, RoleBinding};
use k8s_openapi::api::resource::v1::DeviceClass;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// The objects of a file, each by itself.
fn objects(name: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(deploy().join(name)).expect("a file of deploy");
    let read = |document: &str| {
        serde_saphyr::from_str::<Value>(document).unwrap_or_else(|error| panic!("{error}\n{document}"))
    };
    let objects = text.split("\n---\n").map(read);
    objects.filter(|object| !object.is_null()).collect()
}

fn of_kind(objects: &[Value], kind: &str) -> Vec<Value> {
    objects.iter().filter(|object| object["kind"] == kind).cloned().collect()
}

fn typed<T: DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap_or_else(|error| panic!("{error}: {object:#}"))
}

/// A field that the API does not have is dropped on the way through the type, and so is missing afterwards.
fn survives<T: DeserializeOwned + Serialize>(object: &Value) {
    let after = serde_json::to_value(typed::<T>(object)).expect("an object of the API is JSON");
    assert_eq!(&after, object, "something in this object is not of the API");
}

/// Each file that was rendered, and how many objects it has: none is lost between the documents.
const RENDERED: [(&str, usize); 3] =
    [("manifests.yaml", 19), ("tests/rendered/minimal.yaml", 2), ("tests/rendered/unprivileged.yaml", 22)];

#[test]
fn every_object_is_of_the_api_to_its_last_field() {
    for (file, count) in RENDERED {
        let objects = objects(file);
        of_the_api(&objects);
        assert_eq!(objects.len(), count, "{file}");
    }
}

fn of_the_api(objects: &[Value]) {
    for object in objects {
        match object["kind"].as_str().expect("an object has a kind") {
            "Namespace" => survives::<Namespace>(object),
            "ServiceAccount" => survives::<ServiceAccount>(object),
            "ClusterRole" => survives::<ClusterRole>(object),
            "ClusterRoleBinding" => survives::<ClusterRoleBinding>(object),
            "Role" => survives::<Role>(object),
            "RoleBinding" => survives::<RoleBinding>(object),
            "DaemonSet" => survives::<DaemonSet>(object),
            "Deployment" => survives::<Deployment>(object),
            "DeviceClass" => survives::<DeviceClass>(object),
            "ValidatingAdmissionPolicy" => survives::<ValidatingAdmissionPolicy>(object),
            "ValidatingAdmissionPolicyBinding" => survives::<ValidatingAdmissionPolicyBinding>(object),
            "CustomResourceDefinition" => survives::<CustomResourceDefinition>(object),
            "ConfigMap" => survives::<ConfigMap>(object),
            // Of the Prometheus operator: its own definition was held against it by hand (docs/install.md).
            "PodMonitor" => assert_eq!(object["spec"]["podMetricsEndpoints"][0]["port"], "metrics"),
            other => panic!("{other} is not looked at here"),
        }
    }
}

/// The pods of a file, by the name of their only container.
fn pods(file: &str) -> BTreeMap<String, PodSpec> {
    let objects = objects(file);
    let agents = of_kind(&objects, "DaemonSet").into_iter().map(|object| typed::<DaemonSet>(&object).spec.template);
    let controllers = of_kind(&objects, "Deployment").into_iter();
    let controllers = controllers.map(|object| typed::<Deployment>(&object).spec.template);
    let pods = agents.chain(controllers).map(|template| template.spec.expect("a template has a pod"));
    pods.map(|pod| (pod.containers[0].name.clone(), pod)).collect()
}

#[test]
fn nothing_is_allowed_that_is_not_needed() {
    for (file, _) in RENDERED {
        for (name, pod) in pods(file) {
            let container = &pod.containers[0];
            let allowed = container.security_context.as_ref().unwrap();
            let privileged = allowed.privileged.unwrap_or_default();
            assert_eq!(privileged, name == "gpu-driver" && !file.contains("unprivileged"), "{file} {name}");
            assert_eq!(allowed.read_only_root_filesystem, Some(true), "{file} {name}");
            if !privileged {
                let dropped = allowed.capabilities.as_ref().and_then(|capabilities| capabilities.drop.clone());
                assert_eq!(dropped, Some(vec!["ALL".to_owned()]), "{file} {name}");
                assert_eq!(allowed.allow_privilege_escalation, Some(false), "{file} {name}");
            }
            let all = pod.security_context.as_ref().unwrap();
            assert_eq!(all.run_as_non_root == Some(true), name == "device-taint-controller", "{file} {name}");
            assert_eq!(all.seccomp_profile.as_ref().unwrap().type_, "RuntimeDefault", "{file} {name}");
        }
    }
}

#[test]
fn pods_go_to_linux_nodes_and_are_not_restarted_in_haste() {
    for (file, _) in RENDERED {
        for (name, pod) in pods(file) {
            assert_eq!(pod.node_selector.as_ref().unwrap()["kubernetes.io/os"], "linux", "{file} {name}");
            let container = &pod.containers[0];
            let path = |probe: &Probe| probe.http_get.as_ref().and_then(|get| get.path.clone()).unwrap();
            let lives = container.liveness_probe.as_ref().unwrap();
            let patience = lives.period_seconds.unwrap() * lives.failure_threshold.unwrap();
            assert_eq!((path(lives).as_str(), patience), ("/healthz", 60), "{file} {name}");
            assert_eq!(path(container.startup_probe.as_ref().unwrap()), "/healthz");
            assert_eq!(path(container.readiness_probe.as_ref().unwrap()), "/readyz");
        }
    }
}

#[test]
fn the_agent_without_privileges_is_given_its_devices_by_the_runtime() {
    let agent = pods("tests/rendered/unprivileged.yaml").remove("gpu-driver").unwrap();
    assert_eq!(agent.runtime_class_name.as_deref(), Some("nvidia"));
    let environment = agent.containers[0].env.as_ref().unwrap();
    let value =
        |name: &str| environment.iter().find(|variable| variable.name == name).and_then(|found| found.value.clone());
    assert_eq!(value("NVIDIA_VISIBLE_DEVICES").as_deref(), Some("all"));
    assert_eq!(value("NVIDIA_DRIVER_CAPABILITIES").as_deref(), Some("utility"));
    let mounts = agent.containers[0].volume_mounts.as_ref().unwrap();
    assert!(mounts.iter().all(|mount| mount.mount_path != "/host" && mount.mount_path != "/dev"), "{mounts:?}");
}

#[test]
fn an_unknown_field_is_noticed() {
    let mut account = of_kind(&objects("manifests.yaml"), "ServiceAccount").remove(0);
    account["automountToken"] = Value::Bool(false);
    std::panic::catch_unwind(|| survives::<ServiceAccount>(&account)).unwrap_err();
}

#[test]
fn the_classes_are_those_of_the_demo() {
    let classes = |name: &str| -> Vec<(Value, Value)> {
        let found = of_kind(&objects(name), "DeviceClass");
        found.into_iter().map(|class| (class["metadata"]["name"].clone(), class["spec"].clone())).collect()
    };
    assert_eq!(classes("manifests.yaml"), classes("deviceclasses.yaml"));
}

/// The arguments of the only container, after the program's name.
fn arguments(name: &str, pod: &PodSpec) -> Vec<String> {
    let container = &pod.containers[0];
    assert_eq!((container.name.as_str(), pod.containers.len()), (name, 1));
    let given = container.args.clone().unwrap_or_default();
    std::iter::once(name.to_owned()).chain(given).collect()
}

/// kubelet must always find an agent: the new one stands by before the old one ends. What both hold at once must not be of the node.
#[test]
fn an_update_of_the_agents_has_two_on_a_node() {
    let agents: DaemonSet = typed(&of_kind(&objects("manifests.yaml"), "DaemonSet")[0]);
    let rolling = agents.spec.update_strategy.clone().unwrap().rolling_update.unwrap();
    assert_eq!((rolling.max_surge, rolling.max_unavailable), (Some(IntOrString::Int(1)), Some(IntOrString::Int(0))));
    let pod = agents.spec.template.spec.unwrap();
    assert_eq!(pod.host_network, None);
    let ports = pod.containers.iter().flat_map(|container| container.ports.iter().flatten());
    assert!(ports.map(|port| port.host_port).all(|port| port.is_none()));
}

#[test]
fn both_programs_understand_their_arguments() {
    for (file, _) in RENDERED {
        let pods = pods(file);
        let (agent, controller) = (&pods["gpu-driver"], &pods["device-taint-controller"]);
        let understood = agent_arguments(agent);
        every_path_is_mounted(&understood, agent);
        let args =
            device_taint_controller::args::Args::try_parse_from(arguments("device-taint-controller", controller));
        assert_eq!(args.unwrap().state_dir.as_deref(), Some(Path::new("/var/lib/device-taint-controller")), "{file}");
    }
    assert_eq!(agent_arguments(&pods("manifests.yaml")["gpu-driver"]).driver_name, "gpu.devicetaint.dev");
}

fn agent_arguments(pod: &PodSpec) -> AgentArgs {
    let mut line = arguments("gpu-driver", pod);
    // In the pod it comes from the environment.
    assert!(
        pod.containers[0]
            .env
            .as_ref()
            .expect("a container with an environment")
            .iter()
            .any(|variable| variable.name == "NODE_NAME")
    );
    line.extend(["--node-name".to_owned(), "n1".to_owned()]);
    AgentArgs::try_parse_from(line).expect("arguments that the agent understands")
}

fn every_path_is_mounted(agent: &AgentArgs, pod: &PodSpec) {
    let mounts = pod.containers[0].volume_mounts.as_ref().expect("a container with mounts");
    let mounted = |path: &Path| mounts.iter().any(|mount| path.starts_with(&mount.mount_path));
    let sockets = gpu_driver::plugin::Paths::new(&agent.kubelet_root, &agent.driver_name, Some("1a2b3c4d"));
    for path in [&sockets.registration, &sockets.service, &agent.cdi_root, &agent.state_dir] {
        assert!(mounted(path), "{} is not mounted", path.display());
    }
    // Without privileges a container has a /dev of its own, in which the runtime puts the nodes.
    assert!(
        mounted(&agent.dev_root) || agent.dev_root == Path::new("/dev"),
        "{} is not mounted",
        agent.dev_root.display()
    );
    let on_the_node = agent.nvml_library.iter().chain(&agent.policy).filter(|path| path.is_absolute());
    on_the_node.for_each(|path| assert!(mounted(path), "{} is not mounted", path.display()));
}

#[test]
fn every_value_has_a_comment() {
    let text = std::fs::read_to_string(deploy().join("chart/values.yaml")).expect("the chart's values");
    let lines: Vec<&str> = text.lines().map(str::trim_start).collect();
    let is_value = |line: &str| line.split_once(':').is_some_and(|(name, _)| name.chars().all(char::is_alphanumeric));
    let bare = lines.windows(2).filter(|pair| is_value(pair[1]) && !pair[0].starts_with('#')).map(|pair| pair[1]);
    assert_eq!(bare.collect::<Vec<_>>(), Vec::<&str>::new());
}
