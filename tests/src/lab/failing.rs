//! A proxy before a real API server, for the programs under test only: it fails when a scenario says so. The lab itself asks the server.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::ground::field;
use crate::process::Process;
use crate::programs::Programs;

/// The proxy.
pub(super) struct Failing {
    pub(super) process: Process,
    /// For the programs under test.
    pub(super) kubeconfig: PathBuf,
    /// The host and port of its fault layer.
    pub(super) address: String,
}

impl Failing {
    pub(super) async fn start(programs: &Programs, server: &Path, folder: &Path) -> Result<Self> {
        let root = folder.join("proxy");
        std::fs::create_dir_all(&root).with_context(|| format!("cannot make {}", root.display()))?;
        let mut process = Process::start("proxy", &programs.sim(), folder, |command| {
            command.arg("proxy").arg("--kubeconfig").arg(server).arg("--root").arg(&root);
        })?;
        let ready = process.line("ready ").await?;
        let server = field(&ready, "server=")?;
        let address = server.split_once("://").map_or(server.as_str(), |(_, address)| address).to_owned();
        Ok(Self { process, kubeconfig: PathBuf::from(field(&ready, "kubeconfig=")?), address })
    }
}
