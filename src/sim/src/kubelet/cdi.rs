//! What a container runtime would make of the CDI ids that a driver answered: the environment of the container.

use std::path::Path;

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
#[serde(default)]
struct Edits {
    env: Vec<String>,
}

/// The environment that the devices of these ids bring, from the specs directly in a folder. An id that no spec has is an error,
/// as it is for a runtime.
pub(super) fn environment(root: &Path, ids: &[String]) -> Result<Vec<String>, String> {
    let specs = read_specs(root)?;
    let mut env = Vec::new();
    let mut used = Vec::new();
    let mut missing = Vec::new();
    for id in ids {
        let found = specs.iter().enumerate().find_map(|(index, spec)| {
            let name = id.strip_prefix(spec.kind.as_str())?.strip_prefix('=')?;
            Some((index, spec.devices.iter().find(|device| device.name == name)?))
        });
        match found {
            Some((index, device)) => {
                env.extend(device.container_edits.env.iter().cloned());
                used.push(index);
            }
            None => missing.push(id.as_str()),
        }
    }
    if !missing.is_empty() {
        return Err(format!("CDI device injection failed: unresolvable CDI devices {}", missing.join(", ")));
    }
    for (_, spec) in specs.iter().enumerate().filter(|(index, _)| used.contains(index)) {
        env.extend(spec.container_edits.env.iter().cloned());
    }
    Ok(env)
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

    #[test]
    fn the_environment_of_a_device_and_of_its_spec_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let spec = r#"{"cdiVersion": "0.5.0", "kind": "gpu.devicetaint.dev/claim", "containerEdits": {"env": ["ALL=1"]},
            "devices": [{"name": "u-gpu-0", "containerEdits": {"env": ["GPU=0"]}}, {"name": "u-gpu-1"}]}"#;
        std::fs::write(folder.path().join("a.json"), spec).unwrap();
        std::fs::write(folder.path().join("broken.json"), "{").unwrap();
        std::fs::write(folder.path().join("spec.tmp"), "{").unwrap();
        let id = |device: &str| format!("gpu.devicetaint.dev/claim={device}");
        assert_eq!(environment(folder.path(), &[id("u-gpu-0")]).unwrap(), ["GPU=0", "ALL=1"]);
        assert_eq!(environment(folder.path(), &[id("u-gpu-1"), id("u-gpu-0")]).unwrap(), ["GPU=0", "ALL=1"]);
        assert_eq!(environment(folder.path(), &[]).unwrap(), Vec::<String>::new());
        let error = environment(folder.path(), &[id("u-gpu-2")]).unwrap_err();
        assert!(error.contains("unresolvable CDI devices gpu.devicetaint.dev/claim=u-gpu-2"), "{error}");
    }
}
