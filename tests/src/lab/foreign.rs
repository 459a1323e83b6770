//! Another driver beside ours: Kubernetes' own DRA test driver, a program that nobody changed for us.

use anyhow::{Context, Result};

use super::Lab;
use crate::objects::FOREIGN_DRIVER;
use crate::process::Process;

impl Lab {
    /// Starts Kubernetes' own DRA test driver on a node: it publishes so many devices, as a driver of its own.
    ///
    /// # Errors
    /// When it is not there, or does not start.
    pub fn start_foreign_driver(&mut self, node: &str, devices: usize) -> Result<()> {
        let program = self.ground.test_driver().context("there is no DRA test driver here")?.to_owned();
        let kubeconfig = self.kubeconfig().to_owned();
        let node = self.node(node)?;
        let (plugins, registry) = (node.kubelet_root.join("plugins"), node.kubelet_root.join("plugins_registry"));
        // It makes the folder above its own, and no more.
        let own = plugins.join(FOREIGN_DRIVER);
        std::fs::create_dir_all(&own).with_context(|| format!("cannot make {}", own.display()))?;
        let process = Process::start("dra-test-driver", &program, &node.folder, |command| {
            command.args(["kubelet-plugin", "--drivername", FOREIGN_DRIVER, "--node-name", &node.name]);
            command.arg("--num-devices").arg(devices.to_string()).arg("--kubeconfig").arg(kubeconfig);
            command.arg("--plugin-registration-path").arg(registry);
            command.arg("--datadir").arg(plugins).arg("--cdi-dir").arg(&node.cdi_root);
            command.env_remove("KUBECONFIG");
        })?;
        self.foreign = Some(process);
        Ok(())
    }

    /// Asks the foreign driver to end, and waits until it has.
    ///
    /// # Errors
    /// When it does not run, or does not end well.
    pub async fn stop_foreign_driver(&mut self) -> Result<()> {
        self.foreign.take().context("no foreign driver runs")?.stop().await
    }
}
