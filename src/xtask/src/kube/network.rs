//! The node's address: one more on the loopback interface, labelled with the run folder's tag, so that the API server reaches kubelet (logs, exec) and
//! nobody outside this machine does.

use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};

use super::layout::RunDir;

/// # Errors
/// When `ip` fails.
pub(super) fn add_node_address(run: &RunDir, address: Ipv4Addr) -> Result<()> {
    let address = format!("{address}/32");
    ip(&["address", "add", &address, "dev", "lo", "label", &label(run)]).map(drop)
}

/// # Errors
/// When `ip` fails.
pub(super) fn remove_node_address(run: &RunDir) -> Result<()> {
    if ip(&["-oneline", "address", "show", "label", &label(run)])?.is_empty() {
        return Ok(());
    }
    ip(&["address", "flush", "dev", "lo", "label", &label(run)]).map(drop)
}

fn label(run: &RunDir) -> String {
    format!("lo:{}", run.tag())
}

/// What `ip` prints.
fn ip(arguments: &[&str]) -> Result<String> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output().context("start ip (iproute2)")?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "`ip {}` failed: {}", arguments.join(" "), told.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// # Errors
/// When it is still there after `ip` was asked to remove it.
pub(super) fn remove_interface(name: &str) -> Result<()> {
    let there = || std::path::Path::new("/sys/class/net").join(name).exists();
    match there().then(|| ip(&["link", "delete", name])) {
        // The kernel was faster.
        Some(Err(error)) if there() => Err(error),
        _ => Ok(()),
    }
}
