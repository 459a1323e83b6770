//! What the programs say of themselves: readiness, metrics, files; waited for with a deadline.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use kube::ResourceExt;

use crate::http;
use crate::objects::NAMESPACE;
use crate::stage::{Notes, Stage};
use crate::wait::{SOON, until};

/// The outcome of a registration that counts.
const REGISTERED: &str = "outcome=\"registered\"";
/// How often a program is asked.
const PACE: Duration = Duration::from_millis(20);

impl Stage {
    /// Waits until the controller says that this many pods have a deadline.
    ///
    /// # Errors
    /// When it does not.
    pub async fn controller_counts(&self, pods: u32) -> Result<()> {
        let address = self.lab.controller_address()?;
        asking(&format!("the controller to count {pods} pods with a deadline"), || async {
            let counted = http::metric(address, "device_taint_pods_pending", "").await?;
            if (counted - f64::from(pods)).abs() < 0.5 { Ok(()) } else { bail!("it counts {counted}") }
        })
        .await
    }

    /// Waits until the agent's `/readyz` answers with this status, and gives its words.
    ///
    /// # Errors
    /// When it does not.
    pub async fn driver_ready(&mut self, node: &str, wanted: u16) -> Result<Notes> {
        let address = self.lab.node(node)?.driver_address()?.to_owned();
        asking(&format!("the agent of {node} to answer {wanted}"), || async {
            let (status, body) = http::get(&address, "/readyz").await?;
            if status == wanted {
                Ok(body.lines().map(str::to_owned).collect())
            } else {
                bail!("it answers {status}: {body}")
            }
        })
        .await
    }

    /// How often kubelet has told the agent that it is registered.
    ///
    /// # Errors
    /// When the agent does not say.
    pub async fn registrations(&mut self, node: &str) -> Result<f64> {
        http::metric(self.lab.node(node)?.driver_address()?, "gpu_driver_plugin_registrations_total", REGISTERED).await
    }

    /// Waits until kubelet has registered the agent more often than `before`.
    ///
    /// # Errors
    /// When it does not.
    pub async fn registered_again(&mut self, node: &str, before: f64) -> Result<()> {
        let address = self.lab.node(node)?.driver_address()?.to_owned();
        asking(&format!("the agent of {node} to be registered again"), || async {
            let count = http::metric(&address, "gpu_driver_plugin_registrations_total", REGISTERED).await?;
            if count > before { Ok(()) } else { bail!("kubelet has registered it {count} times, as before") }
        })
        .await
    }

    /// Waits until a page of the agent contains these words.
    ///
    /// # Errors
    /// When it does not.
    pub async fn driver_says(&mut self, node: &str, page: &str, words: &str) -> Result<Notes> {
        let address = self.lab.node(node)?.driver_address()?.to_owned();
        asking(&format!("{page} of the agent of {node} to say `{words}`"), || async {
            let (_, body) = http::get(&address, page).await?;
            if body.contains(words) { Ok(body.lines().map(str::to_owned).collect()) } else { bail!("it says {body}") }
        })
        .await
    }

    /// Waits until the pool of a node is published with this many devices, zero included.
    ///
    /// # Errors
    /// When it is not.
    pub async fn pool_size(&self, node: &str, count: usize) -> Result<()> {
        until(self.lab.slices(), &format!("pool {node} to have {count} devices"), SOON, |slices| {
            let of_pool: Vec<_> = slices.values().filter(|slice| slice.spec.pool.name == node).collect();
            let have: usize = of_pool.iter().map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum();
            match (of_pool.len(), have == count) {
                (0, _) => Err("it has no slice".to_owned()),
                (_, true) => Ok(()),
                (_, false) => Err(format!("it has {have}")),
            }
        })
        .await
    }

    /// Waits until none of these slices is there any more, and others are.
    ///
    /// # Errors
    /// When it does not come to that.
    pub async fn slices_replaced(&self, old: &BTreeSet<String>) -> Result<()> {
        until(self.lab.slices(), "the slices to be replaced", SOON, |slices| {
            let now: BTreeSet<String> = slices.values().filter_map(ResourceExt::uid).collect();
            if !now.is_empty() && now.is_disjoint(old) {
                Ok(())
            } else {
                Err(format!("there are {now:?}, and were {old:?}"))
            }
        })
        .await
    }

    /// Waits until a pod has succeeded.
    ///
    /// # Errors
    /// When it does not.
    pub async fn succeeded(&self, name: &str) -> Result<()> {
        let key = format!("{NAMESPACE}/{name}");
        until(self.lab.pods(), &format!("pod {name} to succeed"), SOON, |pods| {
            let phase = pods.get(&key).and_then(|pod| pod.status.as_ref()?.phase.as_deref());
            if phase == Some("Succeeded") { Ok(()) } else { Err(format!("its phase is {phase:?}")) }
        })
        .await
    }

    /// The CDI files of a node whose name holds this claim's UID.
    ///
    /// # Errors
    /// When the folder cannot be read.
    pub fn cdi_files(&mut self, node: &str, claim: &str) -> Result<Vec<String>> {
        let folder = self.lab.node(node)?.cdi_root().to_owned();
        let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let names = names.collect::<Result<Vec<String>>>()?;
        Ok(names.into_iter().filter(|name| name.contains(claim)).collect())
    }
}

/// Asks until the answer is right, or the time is over: the last wrong answer is the error.
pub(crate) async fn asking<T, F: Future<Output = Result<T>>>(what: &str, mut ask: impl FnMut() -> F) -> Result<T> {
    let mut pace = tokio::time::interval(PACE);
    let mut last = None;
    let found = tokio::time::timeout(SOON, async {
        loop {
            pace.tick().await;
            match ask().await {
                Ok(answer) => return answer,
                Err(error) => last = Some(error),
            }
        }
    });
    match found.await {
        Ok(answer) => Ok(answer),
        Err(_) => {
            bail!("waited {SOON:?} for {what}, in vain: {:#}", last.unwrap_or_else(|| anyhow::anyhow!("no answer")))
        }
    }
}
