//! What a scenario can see and do: the lab, a witness of evictions, and expectations in the words of the story.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use futures::future::BoxFuture;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, Pod};
use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams};

use crate::lab::rules::rules;
use crate::lab::{Lab, Plan, Site};
use crate::needs::Need;
use crate::objects::NAMESPACE;
use crate::wait::{SOON, Seen, until};
use crate::witness::Witness;

/// What a step tells beyond its title: lines for people.
pub type Notes = Vec<String>;
/// What a step does, and then expects.
pub type Run = for<'a> fn(&'a mut Stage) -> BoxFuture<'a, Result<Notes>>;

/// One step of a scenario.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    /// What happens, in one sentence.
    pub title: &'static str,
    /// Does it, and checks that the cluster follows.
    pub run: Run,
}

/// One scenario: how the lab begins, and the steps.
#[derive(Clone, Copy, Debug)]
pub struct Scenario {
    /// The name in the table.
    pub name: &'static str,
    /// What it proves, in one sentence.
    pub about: &'static str,
    /// What it cannot do without; a cluster that lacks it does not run the scenario.
    pub needs: &'static [Need],
    /// How the lab begins.
    pub plan: fn() -> Plan,
    /// The steps, in order; each begins where the last one ended.
    pub steps: &'static [Step],
}

/// Makes a [`Step`] of a title and an `async fn(&mut Stage) -> Result<Notes>`.
#[macro_export]
macro_rules! step {
    ($title:expr, $function:path) => {
        $crate::stage::Step { title: $title, run: |stage| ::std::boxed::Box::pin($function(stage)) }
    };
}

/// The stage of one run of a scenario.
pub struct Stage {
    /// Who was evicted so far. It stands before the lab, so that it stops watching before the server ends.
    pub witness: Witness,
    /// The cluster.
    pub lab: Lab,
    /// What earlier steps remember for later ones.
    pub memory: BTreeMap<&'static str, String>,
}

/// A device, by pool and name.
pub type Device = (String, String);

impl Stage {
    /// Raises the curtain.
    ///
    /// # Errors
    /// When the lab does not start.
    pub async fn open(plan: Plan, site: &Site) -> Result<Self> {
        let lab = Lab::start(plan, site).await?;
        let witness = Witness::start(lab.pods());
        let mut stage = Self { lab, witness, memory: BTreeMap::new() };
        // A real kubelet that meets a pod before its driver looks at it again only after a minute or so.
        for node in stage.lab.nodes.keys().cloned().collect::<Vec<_>>() {
            stage.driver_ready(&node, 200).await?;
        }
        Ok(stage)
    }

    /// Leaves the cluster as it was, where it lives on.
    ///
    /// # Errors
    /// When something of the scenario stays.
    pub async fn close(self) -> Result<()> {
        drop(self.witness);
        self.lab.close().await
    }

    /// What an earlier step remembered.
    ///
    /// # Errors
    /// When no step did.
    pub fn recall(&self, what: &str) -> Result<&str> {
        self.memory.get(what).map(String::as_str).with_context(|| format!("no step remembered `{what}`"))
    }

    /// Waits until these pods run.
    ///
    /// # Errors
    /// When one of them does not: with its phase and why.
    pub async fn running(&self, names: &[&str]) -> Result<()> {
        self.running_within(names, self.lab.pods_run_within()).await
    }

    /// Waits until these pods run, and not longer than this.
    ///
    /// # Errors
    /// When one of them does not: with its phase and why.
    pub async fn running_within(&self, names: &[&str], within: Duration) -> Result<()> {
        until(self.lab.pods(), &format!("pods {names:?} to run"), within, |pods| {
            names.iter().try_for_each(|name| is_running(pods, name))
        })
        .await
    }

    /// Waits until a pod is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn gone(&self, name: &str, within: Duration) -> Result<()> {
        let key = format!("{NAMESPACE}/{name}");
        until(self.lab.pods(), &format!("pod {name} to be gone"), within, |pods| match pods.get(&key) {
            None => Ok(()),
            Some(pod) if pod.metadata.deletion_timestamp.is_some() => Err(format!("{name} is still terminating")),
            Some(pod) => Err(format!("{name} was not asked to leave; it is {}", phase(pod))),
        })
        .await
    }

    /// Waits until the scheduler says that a pod cannot be placed, and gives its words.
    ///
    /// # Errors
    /// When it says nothing, or the pod is placed.
    pub async fn unschedulable(&self, name: &str, containing: &str) -> Result<String> {
        let key = format!("{NAMESPACE}/{name}");
        until(self.lab.pods(), &format!("pod {name} to be unschedulable"), SOON, |pods| {
            let pod = pods.get(&key).ok_or("it does not exist")?;
            let said = unschedulable_message(pod).ok_or_else(|| format!("it is {} and not refused", phase(pod)))?;
            if said.contains(containing) { Ok(said) } else { Err(format!("`{said}` does not say `{containing}`")) }
        })
        .await
    }

    /// Asks a pod to end, as its owner would, and waits until it is gone.
    ///
    /// # Errors
    /// When the server refuses or the pod stays.
    pub async fn end(&self, name: &str) -> Result<()> {
        self.lab.pods().delete(name, &DeleteParams::default()).await?;
        self.gone(name, SOON).await
    }

    /// The devices that a claim was allocated, by pool and name.
    ///
    /// # Errors
    /// When it has none.
    pub async fn devices(&self, claim: &str) -> Result<BTreeSet<Device>> {
        let claim = self.lab.claims().get(claim).await?;
        let allocation = claim.status.as_ref().and_then(|status| status.allocation.as_ref());
        let allocation = allocation.with_context(|| format!("claim {} has no allocation", claim.name_any()))?;
        let results = allocation.devices.as_ref().and_then(|devices| devices.results.as_ref());
        Ok(results.into_iter().flatten().map(|result| (result.pool.clone(), result.device.clone())).collect())
    }

    /// The one device that a claim was allocated.
    ///
    /// # Errors
    /// When it has none, or several.
    pub async fn only_device(&self, claim: &str) -> Result<Device> {
        let devices = self.devices(claim).await?;
        let mut all = devices.into_iter();
        match (all.next(), all.next()) {
            (Some(one), None) => Ok(one),
            other => bail!("claim {claim} should hold one device, it holds {other:?}"),
        }
    }

    /// Waits until the slices of all nodes carry exactly these taints (`key=value:Effect` by device), and no others. Those that the server does not keep
    /// are not expected.
    ///
    /// # Errors
    /// When they do not: with what they carry.
    pub async fn slice_taints(&self, wanted: &[(Device, &str)]) -> Result<()> {
        let offer = *self.lab.offer();
        let stored =
            wanted.iter().filter(|(_, taint)| offer.taints && (offer.none_taints || !taint.ends_with(":None")));
        let wanted: BTreeSet<(Device, String)> =
            stored.map(|(device, taint)| (device.clone(), (*taint).to_owned())).collect();
        until(self.lab.slices(), "the slices' taints", SOON, |slices| {
            let have = taints(slices);
            if have == wanted { Ok(()) } else { Err(format!("expected {wanted:?}, the slices have {have:?}")) }
        })
        .await
    }

    /// Waits until every node has published this many devices in all.
    ///
    /// # Errors
    /// When they do not come.
    pub async fn published(&self, count: usize) -> Result<()> {
        until(self.lab.slices(), &format!("{count} devices to be published"), SOON, |slices| {
            let have: usize = slices.values().map(|slice| slice.spec.devices.as_ref().map_or(0, Vec::len)).sum();
            if have == count { Ok(()) } else { Err(format!("{have} are")) }
        })
        .await
    }

    /// The UID of a pod.
    ///
    /// # Errors
    /// When there is no such pod.
    pub async fn uid(&self, pod: &str) -> Result<String> {
        self.lab.pods().get(pod).await?.uid().with_context(|| format!("pod {pod} has no UID"))
    }

    /// Waits for an event on a pod whose reason and text contain these words, and gives its text.
    ///
    /// # Errors
    /// When none comes: with the events that there are.
    pub async fn event(&self, pod: &str, reason: &str, containing: &[&str]) -> Result<String> {
        let events: Api<Event> = Api::namespaced(self.lab.client.clone(), NAMESPACE);
        until(events, &format!("an event {reason} on pod {pod} that says {containing:?}"), SOON, |events| {
            let of_pod = events.values().filter(|event| event.involved_object.name.as_deref() == Some(pod));
            let mut others = Vec::new();
            for event in of_pod {
                let said = event.message.clone().unwrap_or_default();
                if event.reason.as_deref() == Some(reason) && containing.iter().all(|words| said.contains(words)) {
                    return Ok(said);
                }
                others.push(format!("{}: {said}", event.reason.clone().unwrap_or_default()));
            }
            Err(format!("its events are {others:?}"))
        })
        .await
    }

    /// When a pod was evicted, by the API server's clock.
    ///
    /// # Errors
    /// When it was not.
    pub fn evicted_at(&self, pod: &str) -> Result<Timestamp> {
        let found = self.witness.evicted().into_iter().find(|eviction| eviction.pod == pod);
        found.and_then(|eviction| eviction.at).with_context(|| format!("pod {pod} was not evicted"))
    }

    /// The stored time of the one DeviceTaintRule with this key.
    ///
    /// # Errors
    /// When there is none, or more than one.
    pub async fn rule_added_at(&self, key: &str) -> Result<Timestamp> {
        let api = rules(&self.lab.client).await?.context("the server serves no DeviceTaintRules")?;
        let listed = api.list(&ListParams::default()).await?.items;
        let taints: Vec<_> =
            listed.iter().map(|rule| &rule.data["spec"]["taint"]).filter(|taint| taint["key"] == key).collect();
        let [taint] = taints[..] else { bail!("expected one rule with key {key}, found {taints:?}") };
        let time = taint["timeAdded"].as_str().with_context(|| format!("the rule with key {key} has no time"))?;
        time.parse().with_context(|| format!("`{time}` is no time"))
    }
}

/// The taints of all slices, by device.
fn taints(slices: &Seen<ResourceSlice>) -> BTreeSet<(Device, String)> {
    let mut found = BTreeSet::new();
    for slice in slices.values() {
        for device in slice.spec.devices.iter().flatten() {
            for taint in device.taints.iter().flatten() {
                let value = taint.value.as_deref().filter(|value| !value.is_empty());
                let value = value.map(|value| format!("={value}")).unwrap_or_default();
                let place = (slice.spec.pool.name.clone(), device.name.clone());
                found.insert((place, format!("{}{value}:{}", taint.key, taint.effect)));
            }
        }
    }
    found
}

fn is_running(pods: &Seen<Pod>, name: &str) -> Result<(), String> {
    let pod = pods.get(&format!("{NAMESPACE}/{name}")).ok_or_else(|| format!("pod {name} does not exist"))?;
    match phase(pod) {
        "Running" => Ok(()),
        other => Err(format!("pod {name} is {other}; {}", unschedulable_message(pod).unwrap_or_default())),
    }
}

fn phase(pod: &Pod) -> &str {
    pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("without a phase")
}

fn unschedulable_message(pod: &Pod) -> Option<String> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled = conditions.iter().find(|condition| condition.type_ == "PodScheduled")?;
    (scheduled.status == "False").then(|| scheduled.message.clone().unwrap_or_default())
}
