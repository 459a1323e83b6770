//! What is installed in a cluster, as far as it can be checked without one: deploy/manifests.yaml is the chart with its default values.

use std::path::{Path, PathBuf};

use clap::Parser;
use gpu_driver::config::Config as AgentArgs;
use k8s_openapi::api::admissionregistration::v1::{ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment};
use k8s_openapi::api::core::v1::{Namespace, PodSpec, ServiceAccount};
use k8s_openapi::api::rbac::v1::{ClusterRole, ClusterRoleBinding};
use k8s_openapi::api::resource::v1::DeviceClass;
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

#[test]
fn every_object_is_of_the_api_to_its_last_field() {
    let objects = objects("manifests.yaml");
    for object in &objects {
        match object["kind"].as_str().unwrap() {
            "Namespace" => survives::<Namespace>(object),
            "ServiceAccount" => survives::<ServiceAccount>(object),
            "ClusterRole" => survives::<ClusterRole>(object),
            "ClusterRoleBinding" => survives::<ClusterRoleBinding>(object),
            "DaemonSet" => survives::<DaemonSet>(object),
            "Deployment" => survives::<Deployment>(object),
            "DeviceClass" => survives::<DeviceClass>(object),
            "ValidatingAdmissionPolicy" => survives::<ValidatingAdmissionPolicy>(object),
            "ValidatingAdmissionPolicyBinding" => survives::<ValidatingAdmissionPolicyBinding>(object),
            other => panic!("{other} is not looked at here"),
        }
    }
    assert_eq!(objects.len(), 15, "none is lost between the documents");
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
    let objects = objects("manifests.yaml");
    let agents: DaemonSet = typed(&of_kind(&objects, "DaemonSet")[0]);
    let pod = agents.spec.template.spec.unwrap();
    let mut line = arguments("gpu-driver", &pod);
    // In the pod it comes from the environment.
    assert!(pod.containers[0].env.as_ref().unwrap().iter().any(|variable| variable.name == "NODE_NAME"));
    line.extend(["--node-name".to_owned(), "n1".to_owned()]);
    let agent = AgentArgs::try_parse_from(line).unwrap();
    assert_eq!(agent.driver_name, "gpu.devicetaint.dev");
    let mounted = |path: &Path| {
        let mounts = pod.containers[0].volume_mounts.as_ref().unwrap();
        mounts.iter().any(|mount| path.starts_with(&mount.mount_path))
    };
    let sockets = gpu_driver::plugin::Paths::new(&agent.kubelet_root, &agent.driver_name, Some("1a2b3c4d"));
    for path in [&sockets.registration, &sockets.service, &agent.cdi_root, &agent.state_dir, &agent.dev_root] {
        assert!(mounted(path), "{} is not mounted", path.display());
    }
    let on_the_node = agent.nvml_library.iter().filter(|path| path.is_absolute());
    on_the_node.for_each(|path| assert!(mounted(path), "{} is not mounted", path.display()));

    let controller: Deployment = typed(&of_kind(&objects, "Deployment")[0]);
    let pod = controller.spec.template.spec.unwrap();
    let args = device_taint_controller::args::Args::try_parse_from(arguments("device-taint-controller", &pod)).unwrap();
    assert_eq!(args.state_dir.as_deref(), Some(Path::new("/var/lib/device-taint-controller")));
}
