//! The CDI spec of a claim: what the container runtime changes in a container that uses it.
//!
//! One file a claim, `<cdi root>/k8s.<driver>-claim_<uid>.json`, kind `k8s.<driver>/claim`, one device an allocated device. It gives
//! the container the device nodes that exist under the device root, the card's UUID in an environment variable, and
//! `NVIDIA_VISIBLE_DEVICES=void`, so that NVIDIA's legacy runtime hook does not add every GPU of the node.
//!
//! What it does not do: it mounts no driver libraries or programs and runs no hooks (images bring these themselves, or the
//! NVIDIA container toolkit does), and it gives no capability nodes of MIG partitions. Version 0.5.0 of the CDI spec is the lowest that allows device names to begin with a digit, as
//! UIDs do; a lower version than a spec needs is refused by runtimes, and so is a higher one than they know.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

/// Version of the CDI specification.
const CDI_VERSION: &str = "0.5.0";
/// Nodes that belong to no card.
const CONTROL_NODES: [&str; 4] = ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"];

/// A file of CDI devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Spec {
    cdi_version: &'static str,
    kind: String,
    devices: Vec<SpecDevice>,
    container_edits: Edits,
}

/// One CDI device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct SpecDevice {
    name: String,
    container_edits: Edits,
}

/// What is changed in a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Edits {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    env: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    device_nodes: Vec<Node>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
struct Node {
    path: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    host_path: Option<String>,
}

/// A device of a claim, as the spec needs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CdiDevice<'a> {
    /// The device's name in the pool.
    pub device: &'a str,
    /// Its share, where it is shared.
    pub share_id: Option<&'a str>,
    /// `GPU-...` or `MIG-...`.
    pub uuid: Option<&'a str>,
    /// `N` of `/dev/nvidiaN`.
    pub minor: Option<u32>,
}

/// Why a CDI spec could not be written or removed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {verb} CDI spec {}: {source}; check that --cdi-root is writable and that the container runtime reads it", path.display())]
pub struct CdiError {
    verb: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// The directory of CDI specs, and where device nodes are.
#[derive(Clone, Debug)]
pub struct Cdi {
    root: PathBuf,
    dev_root: PathBuf,
    vendor: String,
}

impl Cdi {
    /// Specs of this driver in `root`, for device nodes under `dev_root`.
    #[must_use]
    pub fn new(root: &Path, dev_root: &Path, driver: &str) -> Self {
        Self { root: root.to_owned(), dev_root: dev_root.to_owned(), vendor: format!("k8s.{driver}") }
    }

    /// The CDI id of a claim's device: never used for anything else, since it holds the claim's UID.
    #[must_use]
    pub fn id(&self, uid: &str, device: &CdiDevice<'_>) -> String {
        format!("{}/claim={}", self.vendor, name(uid, device))
    }

    /// Writes the spec of a claim: under a temporary name first, since runtimes read the directory when they please.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn write(&self, uid: &str, devices: &[CdiDevice<'_>]) -> Result<(), CdiError> {
        let path = self.path(uid);
        let temporary = self.root.join(format!("spec.{uid}.tmp"));
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.root)?;
            fs::write(&temporary, serde_json::to_vec(&self.spec(uid, devices))?)?;
            fs::rename(&temporary, &path)
        };
        write().map_err(|source| CdiError { verb: "write", path: path.clone(), source })
    }

    /// Whether a spec could be written now, by writing something that no runtime reads.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn try_write(&self) -> Result<(), CdiError> {
        let path = self.root.join(format!(".{}.write-test", self.vendor));
        let write = || -> io::Result<()> {
            fs::create_dir_all(&self.root)?;
            fs::write(&path, "can this be written?\n")?;
            fs::remove_file(&path)
        };
        write().map_err(|source| CdiError { verb: "write", path: path.clone(), source })
    }

    /// Whether the spec of a claim is there.
    #[must_use]
    pub fn has(&self, uid: &str) -> bool {
        self.path(uid).exists()
    }

    /// Removes the spec of a claim. One that is not there is fine.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, uid: &str) -> Result<(), CdiError> {
        let path = self.path(uid);
        let absent = |error: &io::Error| matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory);
        match fs::remove_file(&path) {
            Err(source) if !absent(&source) => Err(CdiError { verb: "remove", path, source }),
            _ => Ok(()),
        }
    }

    fn spec(&self, uid: &str, devices: &[CdiDevice<'_>]) -> Spec {
        let of = |device: &CdiDevice<'_>| SpecDevice { name: name(uid, device), container_edits: self.edits(device) };
        Spec {
            cdi_version: CDI_VERSION,
            kind: format!("{}/claim", self.vendor),
            devices: devices.iter().map(of).collect(),
            container_edits: Edits {
                env: vec!["NVIDIA_VISIBLE_DEVICES=void".to_owned()],
                device_nodes: CONTROL_NODES.iter().filter_map(|node| self.node(node)).collect(),
            },
        }
    }

    fn edits(&self, device: &CdiDevice<'_>) -> Edits {
        let variable = device.device.replace('-', "_").to_ascii_uppercase();
        let uuid = device.uuid.unwrap_or_default();
        Edits {
            // A variable a device: of two edits of one variable the runtime would keep the last only.
            env: vec![format!("DEVICETAINT_{variable}={uuid}")],
            device_nodes: device.minor.and_then(|minor| self.node(&format!("nvidia{minor}"))).into_iter().collect(),
        }
    }

    /// The node, if it exists: a runtime fails a container whose node does not.
    fn node(&self, name: &str) -> Option<Node> {
        let (host, path) = (self.dev_root.join(name), format!("/dev/{name}"));
        let host_path = (host != Path::new(&path)).then(|| host.display().to_string());
        host.exists().then_some(Node { path, host_path })
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.root.join(format!("{}-claim_{uid}.json", self.vendor))
    }
}

fn name(uid: &str, device: &CdiDevice<'_>) -> String {
    match device.share_id {
        Some(share) => format!("{uid}-{}-{share}", device.device),
        None => format!("{uid}-{}", device.device),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{Cdi, CdiDevice};

    const UID: &str = "5f3c0000-0000-4000-8000-000000000001";

    fn device(share_id: Option<&'static str>) -> CdiDevice<'static> {
        CdiDevice { device: "gpu-0000-3b-00-0", share_id, uuid: Some("GPU-a"), minor: Some(2) }
    }

    #[test]
    fn a_spec_has_the_nodes_that_exist_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let dev = dir.path().join("dev");
        fs::create_dir(&dev).unwrap();
        for node in ["nvidia2", "nvidiactl", "nvidia3"] {
            fs::write(dev.join(node), "").unwrap();
        }
        let cdi = Cdi::new(&dir.path().join("cdi"), &dev, "gpu.devicetaint.dev");
        cdi.write(UID, &[device(None)]).unwrap();
        let path = dir.path().join("cdi").join(format!("k8s.gpu.devicetaint.dev-claim_{UID}.json"));
        let spec: serde_json::Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
        let node = |name: &str| serde_json::json!({"path": format!("/dev/{name}"), "hostPath": dev.join(name)});
        let wanted = serde_json::json!({
            "cdiVersion": "0.5.0",
            "kind": "k8s.gpu.devicetaint.dev/claim",
            "devices": [{
                "name": format!("{UID}-gpu-0000-3b-00-0"),
                "containerEdits": {"env": ["DEVICETAINT_GPU_0000_3B_00_0=GPU-a"], "deviceNodes": [node("nvidia2")]},
            }],
            "containerEdits": {"env": ["NVIDIA_VISIBLE_DEVICES=void"], "deviceNodes": [node("nvidiactl")]},
        });
        assert_eq!(spec, wanted);
        assert_eq!(fs::read_dir(dir.path().join("cdi")).unwrap().count(), 1, "no temporary file stays");
        cdi.remove(UID).unwrap();
        cdi.remove(UID).unwrap();
        assert!(!path.exists());
    }

    #[test]
    fn a_share_has_a_name_of_its_own() {
        let cdi = Cdi::new("/nowhere".as_ref(), "/dev".as_ref(), "d.example");
        assert_eq!(cdi.id(UID, &device(Some("s1"))), format!("k8s.d.example/claim={UID}-gpu-0000-3b-00-0-s1"));
    }

    #[test]
    fn a_root_that_cannot_be_written_is_named() {
        let cdi = Cdi::new("/proc/no/such".as_ref(), "/dev".as_ref(), "d.example");
        let text = cdi.write(UID, &[device(None)]).unwrap_err().to_string();
        assert!(text.contains("/proc/no/such") && text.contains("--cdi-root"), "{text}");
    }
}
