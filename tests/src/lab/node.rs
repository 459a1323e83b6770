//! One node of a lab: its folder, its GPUs, its agent, and its kubelet where that is the sim's.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::gpus::Gpus;
use crate::process::Process;

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

    /// Where the agent serves `/metrics`, `/healthz` and `/readyz`.
    ///
    /// # Errors
    /// When it does not run.
    pub fn driver_address(&self) -> Result<&str> {
        self.driver_address.as_deref().with_context(|| format!("no agent runs on {}", self.name))
    }
}
