//! What a container runtime would make of the CDI ids that a driver answered: what is changed in the container.

use std::path::{Path, PathBuf};

use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    kind: String,
    #[serde(default)]
    devices: Vec<Device>,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Device {
    name: String,
    #[serde(default)]
    container_edits: Edits,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Edits {
    env: Vec<String>,
    device_nodes: Vec<DeviceNode>,
    mounts: Vec<Mount>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceNode {
    path: String,
    host_path: Option<PathBuf>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mount {
    container_path: String,
}

/// What a container gets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Injected {
    /// `NAME=VALUE`.
    pub(super) env: Vec<String>,
    /// Paths of device nodes in the container.
    pub(super) devices: Vec<String>,
    /// Paths in the container that something of the host is mounted on.
    pub(super) mounts: Vec<String>,
}

impl Injected {
    /// A runtime looks at the host's node, and fails the container when there is none.
    fn add(&mut self, edits: &Edits) -> Result<(), String> {
        for node in &edits.device_nodes {
            let host = node.host_path.as_deref().unwrap_or(Path::new(&node.path));
            std::fs::symlink_metadata(host).map_err(|error| {
                format!("CDI device injection failed: failed to stat CDI host device {:?}: {error}", host.display())
            })?;
        }
        self.env.extend(edits.env.iter().cloned());
        self.devices.extend(edits.device_nodes.iter().map(|node| node.path.clone()));
        self.mounts.extend(edits.mounts.iter().map(|mount| mount.container_path.clone()));
        Ok(())
    }
}

/// What the devices of these ids bring, from the specs directly in a folder. An id that no spec has is an error, as it is for a
/// runtime.
pub(super) fn inject(root: &Path, ids: &[String]) -> Result<Injected, String> {
    let specs = read_specs(root)?;
    let mut injected = Injected::default();
    let mut used = Vec::new();
    let mut missing = Vec::new();
    for id in ids {
        let found = specs.iter().enumerate().find_map(|(index, spec)| {
            let name = id.strip_prefix(spec.kind.as_str())?.strip_prefix('=')?;
            Some((index, spec.devices.iter().find(|device| device.name == name)?))
        });
        match found {
            Some((index, device)) => {
                injected.add(&device.container_edits)?;
                used.push(index);
            }
            None => missing.push(id.as_str()),
        }
    }
    if !missing.is_empty() {
        return Err(format!("CDI device injection failed: unresolvable CDI devices {}", missing.join(", ")));
    }
    for (_, spec) in specs.iter().enumerate().filter(|(index, _)| used.contains(index)) {
        injected.add(&spec.container_edits)?;
    }
    Ok(injected)
}

fn read_specs(root: &Path) -> Result<Vec<Spec>, String> {
    let mut files = Vec::new();
    let entries = std::fs::read_dir(root).map_err(|error| format!("{}: {error}", root.display()))?;
    for entry in entries.flatten() {
        if entry.path().extension().is_some_and(|extension| extension == "json") {
            files.push(entry.path());
        }
    }
    files.sort();
    let mut specs = Vec::new();
    for file in files {
        // A spec that is being taken away, or that is broken, is no device to a runtime.
        let spec = std::fs::read(&file).ok().and_then(|text| serde_json::from_slice(&text).ok());
        match spec {
            Some(spec) => specs.push(spec),
            None => tracing::warn!(file = %file.display(), "no CDI spec"),
        }
    }
    Ok(specs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(device: &str) -> String {
        format!("gpu.devicetaint.dev/claim={device}")
    }

    fn env(root: &Path, ids: &[String]) -> Vec<String> {
        inject(root, ids).unwrap().env
    }

    #[test]
    fn the_environment_of_a_device_and_of_its_spec_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let spec = r#"{"cdiVersion": "0.5.0", "kind": "gpu.devicetaint.dev/claim", "containerEdits": {"env": ["ALL=1"]},
            "devices": [{"name": "u-gpu-0", "containerEdits": {"env": ["GPU=0"]}}, {"name": "u-gpu-1"}]}"#;
        std::fs::write(folder.path().join("a.json"), spec).unwrap();
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        std::fs::write(folder.path().join("spec.tmp"), "{").unwrap();
        assert_eq!(env(folder.path(), &[id("u-gpu-0")]), ["GPU=0", "ALL=1"]);
        assert_eq!(env(folder.path(), &[id("u-gpu-1"), id("u-gpu-0")]), ["GPU=0", "ALL=1"]);
        assert_eq!(inject(folder.path(), &[]).unwrap(), Injected::default());
        let error = inject(folder.path(), &[id("u-gpu-2")]).unwrap_err();
        assert!(error.contains("unresolvable CDI devices gpu.devicetaint.dev/claim=u-gpu-2"), "{error}");
    }

    #[test]
    fn nodes_and_mounts_are_found_and_a_node_that_the_host_has_not_fails_the_container() {
        let folder = tempfile::tempdir().unwrap();
        let host = folder.path().join("nvidia0");
        let spec = format!(
            r#"{{"cdiVersion": "0.5.0", "kind": "gpu.devicetaint.dev/claim", "devices": [{{"name": "u", "containerEdits": {{
            "deviceNodes": [{{"path": "/dev/nvidia0", "hostPath": "{}"}}], "mounts": [{{"hostPath": "/etc/x", "containerPath": "/x"}}]}}}}]}}"#,
            host.display()
        );
        std::fs::write(folder.path().join("a.json"), spec).unwrap();
        let error = inject(folder.path(), &[id("u")]).unwrap_err();
        assert!(error.contains("failed to stat CDI host device"), "{error}");
        std::fs::write(&host, "").unwrap();
        let injected = inject(folder.path(), &[id("u")]).unwrap();
        assert_eq!(injected.devices, ["/dev/nvidia0"]);
        assert_eq!(injected.mounts, ["/x"]);
    }
}
