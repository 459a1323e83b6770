//! The GPUs of a node: the control file of the stand-in library, and the parts of sysfs and /dev that go with it.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use nvidia_ml::control::{Control, Event, Gpu, Profile};
use rustix::fs::{CWD, FileType, Mode, makedev, mknodat};

/// Vendor and class of an NVIDIA data centre GPU, as sysfs writes them.
const VENDOR: &str = "0x10de\n";
const CLASS: &str = "0x030200\n";

/// The stand-in GPUs of a node.
#[derive(Clone, Debug)]
pub struct Gpus {
    file: PathBuf,
    control: Control,
    events: usize,
}

impl Gpus {
    /// Puts `count` H100-like GPUs into a node's folder: `gpus.json`, `sys`, `dev`. The device files are real ones where real containers get them,
    /// which takes root, and else plain files.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn install(folder: &Path, node: &str, count: usize, device_nodes: bool) -> Result<Self> {
        let seed = node.bytes().fold(0, |seed: u64, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
        let control = Control::server(Profile::H100, count, seed);
        let gpus = Self { file: folder.join("gpus.json"), control, events: 0 };
        let dev = folder.join("dev");
        fs::create_dir_all(&dev)?;
        for name in ["nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset"] {
            install_device(&dev.join(name), device_nodes)?;
        }
        for (index, gpu) in gpus.control.gpus.iter().enumerate() {
            install_sysfs(&folder.join("sys"), gpu, index)?;
            install_device(&dev.join(format!("nvidia{index}")), device_nodes)?;
        }
        gpus.write()?;
        Ok(gpus)
    }

    /// The name under which the GPU at this place is published.
    #[must_use]
    pub fn device(&self, index: usize) -> String {
        let pci = self.gpu(index).pci;
        format!("gpu-{:04x}-{:02x}-{:02x}-{:x}", pci.domain, pci.bus, pci.device, pci.function)
    }

    /// Its PCI address, in the spelling of NVML.
    #[must_use]
    pub fn address(&self, index: usize) -> String {
        let pci = self.gpu(index).pci;
        format!("{:08X}:{:02X}:{:02X}.{:X}", pci.domain, pci.bus, pci.device, pci.function)
    }

    /// Its UUID.
    #[must_use]
    pub fn uuid(&self, index: usize) -> String {
        self.gpu(index).effective_uuid()
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.control.gpus.len()
    }

    /// It falls off the bus.
    ///
    /// # Errors
    /// As [`Gpus::change`].
    pub fn lose(&mut self, index: usize) -> Result<()> {
        self.change(|control| control.gpus[index].lost = true)
    }

    /// It answers again.
    ///
    /// # Errors
    /// As [`Gpus::change`].
    pub fn restore(&mut self, index: usize) -> Result<()> {
        self.change(|control| control.gpus[index].lost = false)
    }

    /// It reports an XID.
    ///
    /// # Errors
    /// As [`Gpus::change`].
    pub fn xid(&mut self, index: usize, code: u64) -> Result<()> {
        self.events += 1;
        let event = Event::xid(&format!("event-{}", self.events), code);
        self.change(|control| control.gpus[index].events.push(event))
    }

    /// Its recovery action (NVML field 230) reads this number from now on.
    ///
    /// # Errors
    /// As [`Gpus::change`].
    pub fn recovery_action(&mut self, index: usize, action: u64) -> Result<()> {
        self.change(|control| {
            control.gpus[index].fields.insert(230, action);
        })
    }

    /// Changes anything in the control file; the library reads it anew.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn change(&mut self, change: impl FnOnce(&mut Control)) -> Result<()> {
        change(&mut self.control);
        self.write()
    }

    /// The control file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }

    fn gpu(&self, index: usize) -> &Gpu {
        &self.control.gpus[index]
    }

    fn write(&self) -> Result<()> {
        self.control.write_atomically(&self.file).with_context(|| format!("cannot write {}", self.file.display()))
    }
}

/// A device file. The real ones are null devices: a container can open them, and nothing happens.
fn install_device(path: &Path, real: bool) -> Result<()> {
    if !real {
        return Ok(fs::write(path, "")?);
    }
    let mode = Mode::from_raw_mode(0o666);
    mknodat(CWD, path, FileType::CharacterDevice, mode, makedev(1, 3))
        .with_context(|| format!("cannot make the device node {}, which takes root", path.display()))
}

/// A card in sysfs: the real folder under its root complex, and the link that `bus/pci/devices` has to it.
fn install_sysfs(root: &Path, gpu: &Gpu, index: usize) -> Result<()> {
    let address = gpu.pci.to_string();
    let complex = format!("pci{:04x}:{:02x}", gpu.pci.domain, gpu.pci.bus & 0xf0);
    let folder = root.join("devices").join(&complex).join(&address);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join("vendor"), VENDOR)?;
    fs::write(folder.join("class"), CLASS)?;
    fs::write(folder.join("numa_node"), format!("{}\n", index / 4))?;
    let links = root.join("bus/pci/devices");
    fs::create_dir_all(&links)?;
    symlink(format!("../../../devices/{complex}/{address}"), links.join(address))?;
    Ok(())
}
