//! What a scenario needs of the cluster that it stands on, what a cluster offers, and why a scenario is not run where the two do not meet.
//!
//! What is offered is found at the server, not concluded from its version: its discovery, what it keeps of a slice that is written for a trial, and the
//! feature gates that it tells. A small cluster is started as a scenario's plan says, so it meets what a plan can ask for.

use anyhow::{Context, Result};
use cluster::probe::stores_slice_taints;
use kube::Client;
use taints::Effect;

use crate::lab::rules::rules;

/// Older kubelets show no health of a claim that a pod names: 1.34 unless it has the same name in the pod, 1.35 unless it comes from a template.
const HEALTH_OF_ANY_CLAIM: u32 = 36;

/// One thing that a scenario cannot do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// An API server that fails on purpose.
    FailingServer,
    /// A server whose gates are switched while it runs.
    SwitchedServer,
    /// An agent of node n1 that is a process of the lab, so that a second one can be started next to it.
    AgentProcess,
    /// A server that keeps the taints of slices.
    Taints,
    /// A server that drops them.
    NoTaints,
    /// A server with DeviceTaintRules.
    Rules,
    /// A server without them.
    NoRules,
    /// Kubernetes' own DRA test driver.
    TestDriver,
    /// kube-controller-manager's own evictor of device taints.
    UpstreamEvictor,
}

/// What a cluster offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offer {
    /// It is a small cluster, started for one scenario.
    pub small: bool,
    /// The agent of node n1 is the pod of a DaemonSet.
    pub installed: bool,
    /// The server keeps the taints of slices.
    pub taints: bool,
    /// It also keeps those with effect None.
    pub none_taints: bool,
    /// It serves DeviceTaintRules.
    pub rules: bool,
    /// Pods' status shows the health of the devices of any claim.
    pub health_status: bool,
    /// Kubernetes' own DRA test driver is there.
    pub test_driver: bool,
    /// kube-controller-manager evicts for device taints itself.
    pub upstream_evictor: bool,
}

impl Need {
    /// Why it is not met here, where it is not.
    #[must_use]
    pub fn unmet(self, offer: &Offer) -> Option<&'static str> {
        let (met, reason) = match self {
            Self::FailingServer => (
                !offer.installed,
                "a proxy that fails stands before the server, and what helm installed does not go by it",
            ),
            Self::SwitchedServer => {
                (offer.small, "it switches a feature gate of a server that runs, which a real one does not do")
            }
            Self::AgentProcess => (
                !offer.installed,
                "it starts agents and deletes their Node as it likes, and here a DaemonSet has the agent",
            ),
            Self::TestDriver if offer.small => {
                (false, "Kubernetes' DRA test driver writes protobuf, which the small cluster does not read")
            }
            Self::TestDriver => {
                (offer.test_driver, "Kubernetes' DRA test driver is not there: it is built for 1.37 only")
            }
            Self::UpstreamEvictor => (
                offer.upstream_evictor,
                "kube-controller-manager does not evict for device taints here: `cargo xtask kube up --upstream-evictor`",
            ),
            // What the server of a small cluster does is the plan's choice.
            _ if offer.small => return None,
            Self::Taints => (offer.taints, "the server drops the taints of slices: the gate DRADeviceTaints is off"),
            Self::NoTaints => (!offer.taints, "the server keeps the taints of slices: the gate DRADeviceTaints is on"),
            Self::Rules => (offer.rules, "the server serves no DeviceTaintRules"),
            Self::NoRules => (!offer.rules, "the server serves DeviceTaintRules"),
        };
        (!met).then_some(reason)
    }
}

/// The first reason why a cluster that offers this cannot run a scenario with these needs.
#[must_use]
pub fn unmet(needs: &[Need], offer: &Offer) -> Option<&'static str> {
    if offer.upstream_evictor && !needs.contains(&Need::UpstreamEvictor) {
        return Some("kube-controller-manager evicts for device taints here, and would come before us");
    }
    needs.iter().find_map(|need| need.unmet(offer))
}

impl Offer {
    /// What a small cluster offers before it is started.
    pub const SMALL: Self = Self {
        small: true,
        taints: true,
        none_taints: true,
        rules: true,
        health_status: true,
        installed: false,
        test_driver: false,
        upstream_evictor: false,
    };

    /// Asks a server that runs.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn of(client: &Client, small: bool) -> Result<Self> {
        let taints = stores_slice_taints(client, &Effect::NoSchedule).await?;
        let none_taints = taints && stores_slice_taints(client, &Effect::None).await?;
        let rules = rules(client).await?.is_some();
        let health_status = small
            || (minor(client).await? >= HEALTH_OF_ANY_CLAIM
                && gate(&told_gates(client).await?, "ResourceHealthStatus"));
        Ok(Self { taints, none_taints, rules, health_status, small, ..Self::SMALL })
    }
}

/// The server's version behind the first dot; its kubelets are not newer.
async fn minor(client: &Client) -> Result<u32> {
    let told = client.apiserver_version().await.context("cannot ask the server for its version")?.minor;
    // Some add a plus sign.
    let digits = told.trim_end_matches(|last: char| !last.is_ascii_digit());
    digits.parse().with_context(|| format!("the server says that it is version 1.{told}"))
}

/// The server's metrics: they tell its feature gates.
async fn told_gates(client: &Client) -> Result<String> {
    let request = ::http::Request::get("/metrics").body(Vec::new())?;
    client.request_text(request).await.context("cannot read the server's metrics")
}

/// Whether a gate is on. One that is not told is one that this version does not have.
fn gate(metrics: &str, name: &str) -> bool {
    let of_gate = format!("kubernetes_feature_enabled{{name=\"{name}\",");
    metrics.lines().any(|line| line.starts_with(&of_gate) && line.ends_with(" 1"))
}

#[cfg(test)]
mod tests {
    use super::{Need, Offer, gate, unmet};

    #[test]
    fn a_real_cluster_lacks_what_it_does_not_offer_and_the_small_one_only_what_no_plan_gives() {
        let old = Offer {
            small: false,
            installed: true,
            taints: false,
            none_taints: false,
            rules: false,
            health_status: false,
            ..Offer::SMALL
        };
        assert_eq!(unmet(&[], &old), None);
        assert_eq!(unmet(&[Need::NoTaints, Need::NoRules], &old), None);
        for need in [Need::AgentProcess, Need::Taints, Need::Rules, Need::FailingServer] {
            assert!(unmet(&[Need::NoTaints, need], &old).is_some(), "{need:?}");
            assert_eq!(unmet(&[need, Need::NoTaints, Need::NoRules], &Offer::SMALL), None, "{need:?}");
        }
        assert!(unmet(&[Need::TestDriver], &Offer::SMALL).is_some());
        let new = Offer { small: false, ..Offer::SMALL };
        assert!(unmet(&[Need::NoTaints], &new).unwrap().contains("DRADeviceTaints"));
        assert_eq!(unmet(&[Need::Taints, Need::Rules], &new), None);
    }

    #[test]
    fn beside_the_upstream_evictor_only_those_scenarios_run_that_are_about_it() {
        let upstream = Offer { small: false, upstream_evictor: true, ..Offer::SMALL };
        assert!(unmet(&[Need::Rules], &upstream).unwrap().contains("before us"));
        assert_eq!(unmet(&[Need::Rules, Need::UpstreamEvictor], &upstream), None);
        assert!(unmet(&[Need::UpstreamEvictor], &Offer::SMALL).unwrap().contains("--upstream-evictor"));
    }

    #[test]
    fn a_gate_is_read_from_the_metrics() {
        let told = "# TYPE kubernetes_feature_enabled gauge\n\
            kubernetes_feature_enabled{name=\"ResourceHealthStatus\",stage=\"ALPHA\"} 0\n\
            kubernetes_feature_enabled{name=\"DRADeviceTaints\",stage=\"\"} 1\n";
        assert!(!gate(told, "ResourceHealthStatus") && gate(told, "DRADeviceTaints") && !gate(told, "DRADevice"));
    }
}
