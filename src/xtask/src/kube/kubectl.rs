//! Questions to the API server while a cluster starts, by kubectl: what is there, and what is not yet; and what is to be there.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// kubectl with the administrator's rights.
#[derive(Clone)]
pub(super) struct Kubectl {
    pub(super) program: PathBuf,
    pub(super) kubeconfig: PathBuf,
}

/// What the server said.
pub(super) enum Answer {
    Text(String),
    /// Not there, or no server yet; with kubectl's words.
    Nothing(String),
}

impl Kubectl {
    /// # Errors
    /// When kubectl cannot be started.
    pub(super) fn get(&self, path: &str) -> Result<Answer> {
        let output = Command::new(&self.program)
            .args(["get", "--request-timeout=10s", "--raw", path, "--kubeconfig"])
            .arg(&self.kubeconfig)
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("start {}", self.program.display()))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
        Ok(if output.status.success() {
            Answer::Text(text(&output.stdout))
        } else {
            Answer::Nothing(text(&output.stderr))
        })
    }

    /// Makes an object.
    ///
    /// # Errors
    /// When the server refuses it: with kubectl's words.
    pub(super) fn create(&self, object: &Value) -> Result<()> {
        let mut child = Command::new(&self.program)
            .args(["create", "--request-timeout=10s", "--filename=-", "--kubeconfig"])
            .arg(&self.kubeconfig)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("start {}", self.program.display()))?;
        if let Some(mut stdin) = child.stdin.take() {
            stdin.write_all(&serde_json::to_vec(object)?).context("hand an object to kubectl")?;
        }
        let output = child.wait_with_output().context("wait for kubectl")?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "kubectl create: {}", said.trim());
        Ok(())
    }
}

/// What keeps a node from taking pods, in words; nothing when it takes them.
pub(super) fn hindrance(node: &str) -> Option<String> {
    let node: Value = match serde_json::from_str(node) {
        Ok(node) => node,
        Err(error) => return Some(format!("its object cannot be read: {error}")),
    };
    let ready = node["status"]["conditions"].as_array().into_iter().flatten().find(|is| is["type"] == "Ready");
    match ready {
        None => return Some("it has no condition Ready yet".to_owned()),
        Some(condition) if condition["status"] != "True" => {
            return Some(condition["message"].as_str().unwrap_or("it is not Ready").to_owned());
        }
        Some(_) => {}
    }
    let taints = node["spec"]["taints"].as_array().map(Vec::as_slice).unwrap_or_default();
    let keys: Vec<_> = taints.iter().filter_map(|taint| taint["key"].as_str()).collect();
    (!keys.is_empty()).then(|| format!("it has the taint {}", keys.join(", ")))
}

/// A path of the default namespace.
pub(super) fn in_default_namespace(resource: &str) -> String {
    Path::new("/api/v1/namespaces/default").join(resource).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_takes_pods_when_it_is_ready_and_without_taint() {
        let told = |conditions: &str, taints: &str| {
            hindrance(&format!(r#"{{"spec":{{"taints":{taints}}},"status":{{"conditions":{conditions}}}}}"#))
        };
        let ready = r#"[{"type":"DiskPressure","status":"False"},{"type":"Ready","status":"True"}]"#;
        assert_eq!(told(ready, "null"), None);
        assert_eq!(told("null", "[]").unwrap(), "it has no condition Ready yet");
        let not_ready = r#"[{"type":"Ready","status":"False","message":"no network"}]"#;
        assert_eq!(told(not_ready, "[]").unwrap(), "no network");
        let tainted = told(ready, r#"[{"key":"node.kubernetes.io/not-ready","effect":"NoSchedule"}]"#);
        assert_eq!(tainted.unwrap(), "it has the taint node.kubernetes.io/not-ready");
        assert!(hindrance("").unwrap().contains("cannot be read"));
    }
}
