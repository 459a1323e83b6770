//! The edge to sysfs: which NVIDIA GPUs the PCI bus lists, and what it knows of each. Reads files, decides nothing.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::nvml::PciAddress;

/// NVIDIA's PCI vendor id.
const VENDOR: &str = "0x10de";
/// PCI classes of GPUs: VGA controller and 3D controller; the programming interface is the last byte.
const CLASSES: [&str; 2] = ["0x0300", "0x0302"];

/// Why the PCI bus cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("cannot list PCI devices in {}: {error}; point --sysfs-root at a mounted sysfs", path.display())]
pub struct SysfsError {
    /// The directory.
    pub path: PathBuf,
    /// What the system said.
    #[source]
    pub error: io::Error,
}

/// What sysfs knows of one GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysfsCard {
    /// The PCIe root complex, such as `pci0000:3a`, where the path tells it.
    pub pcie_root: Option<String>,
    /// The NUMA node of the slot; `None` where sysfs says -1.
    pub numa_node: Option<u32>,
    /// The kernel driver that holds the card, such as `nvidia` or `vfio-pci`.
    pub driver: Option<String>,
}

/// Every NVIDIA GPU that the bus lists.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SysfsView {
    /// By address.
    pub cards: BTreeMap<PciAddress, SysfsCard>,
}

/// Reads `bus/pci/devices` under a sysfs root.
///
/// # Errors
/// When the directory cannot be listed. A single device that cannot be read is left out: it may vanish between two reads.
pub fn read(root: &Path) -> Result<SysfsView, SysfsError> {
    let path = root.join("bus/pci/devices");
    let fail = |error| SysfsError { path: path.clone(), error };
    let mut view = SysfsView::default();
    for entry in fs::read_dir(&path).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        let Some(pci) = name.to_str().and_then(|name| name.parse::<PciAddress>().ok()) else { continue };
        if is_gpu(&entry.path()) {
            view.cards.insert(pci, card(&entry.path()));
        }
    }
    Ok(view)
}

fn is_gpu(device: &Path) -> bool {
    let class = line(device, "class").unwrap_or_default();
    line(device, "vendor").as_deref() == Some(VENDOR) && CLASSES.iter().any(|prefix| class.starts_with(prefix))
}

fn card(device: &Path) -> SysfsCard {
    SysfsCard {
        pcie_root: fs::read_link(device).ok().and_then(|target| root_of(&target)),
        // -1 means that the platform does not say: the cast to an unsigned number leaves it out.
        numa_node: line(device, "numa_node").and_then(|text| text.parse().ok()),
        driver: fs::read_link(device.join("driver")).ok().and_then(|target| last_part(&target)),
    }
}

fn line(device: &Path, file: &str) -> Option<String> {
    fs::read_to_string(device.join(file)).ok().map(|text| text.trim().to_owned())
}

fn last_part(path: &Path) -> Option<String> {
    path.file_name().and_then(|name| name.to_str()).map(ToOwned::to_owned)
}

/// The part of a device's path that names its root complex: `pci` and domain:bus, as in
/// `../../../devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0` (the form of `resource.kubernetes.io/pcieRoot`).
fn root_of(target: &Path) -> Option<String> {
    target.iter().filter_map(|part| part.to_str()).find(|part| is_root(part)).map(ToOwned::to_owned)
}

fn is_root(part: &str) -> bool {
    let hex = |text: &str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let halves = part.strip_prefix("pci").and_then(|rest| rest.split_once(':'));
    halves.is_some_and(|(domain, bus)| domain.len() >= 4 && bus.len() == 2 && hex(domain) && hex(bus))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::path::Path;

    use super::read;

    fn device(root: &Path, bdf: &str, vendor: &str, class: &str, numa: &str) {
        let real = root.join("devices/pci0000:3a/0000:3a:00.0").join(bdf);
        fs::create_dir_all(&real).unwrap();
        fs::create_dir_all(root.join("bus/pci/devices")).unwrap();
        fs::create_dir_all(root.join("bus/pci/drivers/nvidia")).unwrap();
        for (file, text) in [("vendor", vendor), ("class", class), ("numa_node", numa)] {
            fs::write(real.join(file), format!("{text}\n")).unwrap();
        }
        symlink("../../../../bus/pci/drivers/nvidia", real.join("driver")).unwrap();
        let link = format!("../../../devices/pci0000:3a/0000:3a:00.0/{bdf}");
        symlink(link, root.join("bus/pci/devices").join(bdf)).unwrap();
    }

    #[test]
    fn only_nvidia_gpus_are_listed_with_root_node_and_driver() {
        let root = tempfile::tempdir().unwrap();
        device(root.path(), "0000:3b:00.0", "0x10de", "0x030200", "1");
        device(root.path(), "0000:3c:00.0", "0x10de", "0x030000", "-1");
        device(root.path(), "0000:3d:00.0", "0x10de", "0x040300", "0");
        device(root.path(), "0000:3e:00.0", "0x8086", "0x030000", "0");
        let view = read(root.path()).unwrap();
        let listed: Vec<String> = view.cards.keys().map(ToString::to_string).collect();
        assert_eq!(listed, ["0000:3b:00.0", "0000:3c:00.0"]);
        let card = &view.cards[&"0000:3b:00.0".parse().unwrap()];
        assert_eq!(card.pcie_root.as_deref(), Some("pci0000:3a"));
        assert_eq!((card.numa_node, card.driver.as_deref()), (Some(1), Some("nvidia")));
        assert_eq!(view.cards[&"0000:3c:00.0".parse().unwrap()].numa_node, None);
    }

    #[test]
    fn a_missing_root_is_an_error_that_names_the_flag() {
        let root = tempfile::tempdir().unwrap();
        let error = read(&root.path().join("none")).unwrap_err().to_string();
        assert!(error.contains("none/bus/pci/devices") && error.contains("--sysfs-root"), "{error}");
    }

    #[test]
    fn a_plain_folder_in_place_of_a_link_has_no_root() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("bus/pci/devices/0000:3b:00.0");
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("vendor"), "0x10de\n").unwrap();
        fs::write(folder.join("class"), "0x030200\n").unwrap();
        let view = read(root.path()).unwrap();
        assert_eq!(view.cards.len(), 1);
        assert_eq!(view.cards.values().next().unwrap().pcie_root, None);
    }
}
