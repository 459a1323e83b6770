//! One node of a lab: its folder, its GPUs, its agent, and its kubelet where that is the sim's.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::gpus::Gpus;
use crate::objects::DRIVER;
use crate::process::Process;

/// Each agent has socket names of its own.
fn only_socket(folder: &Path, prefix: &str) -> Result<PathBuf> {
    let entries = std::fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name.starts_with(prefix) && name.ends_with(".sock") {
            found.push(folder.join(name));
        }
    }
    ensure!(found.len() == 1, "expected one socket of the agent in {}, found {found:?}", folder.display());
    Ok(found.remove(0))
}

/// One node: its kubelet, its agent, its GPUs.
#[derive(Debug)]
pub struct Node {
    /// The node's name.
    pub name: String,
    /// The stand-in GPUs.
    pub gpus: Gpus,
    pub(super) folder: PathBuf,
    pub(super) kubelet_root: PathBuf,
    pub(super) cdi_root: PathBuf,
    pub(super) kubelet: Option<Process>,
    pub(super) driver: Option<Process>,
    pub(super) driver_address: Option<String>,
    pub(super) predecessor: Option<Process>,
}

impl Node {
    /// The folder that stands for the node's file system, as far as it is not the real one.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The kubelet's root folder.
    #[must_use]
    pub fn kubelet_root(&self) -> &Path {
        &self.kubelet_root
    }

    /// The sockets of its agent: that of the registration, and that of the service.
    ///
    /// # Errors
    /// When there is not one of each, as while two agents are there.
    pub fn sockets(&self) -> Result<[PathBuf; 2]> {
        Ok([
            only_socket(&self.kubelet_root.join("plugins_registry"), DRIVER)?,
            only_socket(&self.kubelet_root.join("plugins").join(DRIVER), "dra")?,
        ])
    }

    /// The folder of CDI files.
    #[must_use]
    pub fn cdi_root(&self) -> &Path {
        &self.cdi_root
    }

    /// The agent's process.
    ///
    /// # Errors
    /// When it does not run.
    pub fn driver(&mut self) -> Result<&mut Process> {
        let name = &self.name;
        self.driver.as_mut().with_context(|| format!("no agent runs on {name}"))
    }

    /// The agent that ran before a successor was started, out of the lab's hands.
    ///
    /// # Errors
    /// When there is none.
    pub fn predecessor(&mut self) -> Result<Process> {
        let name = &self.name;
        self.predecessor.take().with_context(|| format!("no agent of {name} has a successor"))
    }

    /// Where the agent serves `/metrics`, `/healthz` and `/readyz`.
    ///
    /// # Errors
    /// When it does not run.
    pub fn driver_address(&self) -> Result<&str> {
        self.driver_address.as_deref().with_context(|| format!("no agent runs on {}", self.name))
    }
}
