//! What a container sees: its environment, its device nodes, its mounts.
//!
//! In a real container a small script prints that, and the log is read. The sim's kubelet runs nothing: it writes down what the CDI specs would bring.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use futures::{AsyncBufReadExt, TryStreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, LogParams};

use crate::objects::{CONTAINER, TOLD};

/// How long a container may take to say everything.
const SAID_WITHIN: Duration = Duration::from_secs(30);

/// What the container of a pod sees.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inside {
    /// `NAME=VALUE`.
    pub environment: BTreeSet<String>,
    /// Paths of NVIDIA's device nodes that it can open.
    pub devices: BTreeSet<String>,
    /// Paths that something is mounted on.
    pub mounts: BTreeSet<String>,
}

impl Inside {
    /// What it sees that another one does not.
    #[must_use]
    pub fn beyond(&self, other: &Self) -> Self {
        let less = |all: &BTreeSet<String>, less: &BTreeSet<String>| all.difference(less).cloned().collect();
        Self {
            environment: less(&self.environment, &other.environment),
            devices: less(&self.devices, &other.devices),
            mounts: less(&self.mounts, &other.mounts),
        }
    }

    /// By the sim's kubelet.
    pub(super) fn of_annotations(pod: &Pod) -> Result<Self> {
        let read = |what: &str| -> Result<BTreeSet<String>> {
            let name = format!("sim.devicetaint.dev/cdi-{what}");
            let written = pod.metadata.annotations.as_ref().and_then(|annotations| annotations.get(&name));
            let Some(written) = written else { return Ok(BTreeSet::new()) };
            let mut by_container: BTreeMap<String, BTreeSet<String>> =
                serde_json::from_str(written).with_context(|| format!("annotation {name} of a pod"))?;
            Ok(by_container.remove(CONTAINER).unwrap_or_default())
        };
        Ok(Self { environment: read("env")?, devices: read("devices")?, mounts: read("mounts")? })
    }

    /// By the script that runs in a real container, which must have been asked to tell.
    pub(super) async fn of_log(pods: &Api<Pod>, name: &str) -> Result<Self> {
        let read = tokio::time::timeout(SAID_WITHIN, read_log(pods, name)).await;
        read.unwrap_or_else(|_| Err(anyhow!("it has not told all within {SAID_WITHIN:?}")))
            .with_context(|| format!("what pod {name} sees"))
    }

    /// Takes a line; the name of its pod is each container's own affair.
    fn note(&mut self, line: &str) {
        match line.split_once(' ') {
            Some(("env", variable)) if !variable.starts_with("HOSTNAME=") => {
                self.environment.insert(variable.to_owned());
            }
            Some(("device", path)) => drop(self.devices.insert(path.to_owned())),
            Some(("mount", path)) => drop(self.mounts.insert(path.to_owned())),
            _ => {}
        }
    }
}

async fn read_log(pods: &Api<Pod>, name: &str) -> Result<Inside> {
    let follow = LogParams { follow: true, container: Some(CONTAINER.to_owned()), ..LogParams::default() };
    let mut lines = pods.log_stream(name, &follow).await?.lines();
    let mut inside = Inside::default();
    while let Some(line) = lines.try_next().await? {
        if line == TOLD {
            return Ok(inside);
        }
        inside.note(&line);
    }
    Err(anyhow!("its log ended before it had told all: {inside:?}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(items: &[&str]) -> BTreeSet<String> {
        items.iter().map(|item| (*item).to_owned()).collect()
    }

    #[test]
    fn what_the_script_prints_is_understood() {
        let mut inside = Inside::default();
        for line in ["env HOSTNAME=p", "env A=b c", "device /dev/nvidia0", "mount /dev/shm", "noise", ""] {
            inside.note(line);
        }
        let wanted =
            Inside { environment: set(&["A=b c"]), devices: set(&["/dev/nvidia0"]), mounts: set(&["/dev/shm"]) };
        assert_eq!(inside, wanted);
        assert_eq!(inside.beyond(&inside), Inside::default());
    }

    #[test]
    fn what_the_sim_writes_down_is_understood() {
        let pod: Pod = serde_json::from_value(json!({"metadata": {"annotations": {
            "sim.devicetaint.dev/cdi-env": "{\"main\":[\"A=1\"]}", "sim.devicetaint.dev/cdi-devices": "{\"main\":[\"/dev/nvidia0\"]}",
        }}}))
        .unwrap();
        let inside = Inside::of_annotations(&pod).unwrap();
        assert_eq!((inside.environment, inside.devices), (set(&["A=1"]), set(&["/dev/nvidia0"])));
        assert!(inside.mounts.is_empty());
    }
}
