//! Pods whose Node is gone, as kube-controller-manager's pod garbage collector treats them: after a quarantine, in which the Node may come back, they
//! are deleted by force, since no kubelet is there to end them. Pure: the time is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use tokio::time::Instant;

use super::plan::View;

/// Since when each Node that pods are bound to is missing.
#[derive(Debug)]
pub(super) struct Quarantine {
    grace: Duration,
    missing: BTreeMap<String, Instant>,
}

impl Quarantine {
    pub(super) const fn new(grace: Duration) -> Self {
        Self { grace, missing: BTreeMap::new() }
    }

    /// The pods whose Node has been missing for long enough.
    pub(super) fn orphans(&mut self, view: &View, now: Instant) -> Vec<Arc<Pod>> {
        let there: BTreeSet<String> = view.nodes.iter().map(|node| node.name_any()).collect();
        let homeless = |pod: &&Arc<Pod>| node_of(pod).is_some_and(|node| !there.contains(node));
        let pods: Vec<&Arc<Pod>> = view.pods.iter().filter(homeless).collect();
        let missing: BTreeSet<&str> = pods.iter().filter_map(|pod| node_of(pod)).collect();
        self.missing.retain(|node, _| missing.contains(node.as_str()));
        for node in missing {
            self.missing.entry(node.to_owned()).or_insert(now);
        }
        let over = |pod: &&Arc<Pod>| node_of(pod).is_some_and(|node| self.is_over(node, now));
        pods.into_iter().filter(over).cloned().collect()
    }

    fn is_over(&self, node: &str, now: Instant) -> bool {
        self.missing.get(node).is_some_and(|since| *since + self.grace <= now)
    }

    /// When the next quarantine ends.
    pub(super) fn wake(&self, now: Instant) -> Option<Instant> {
        self.missing.values().map(|since| *since + self.grace).filter(|end| *end > now).min()
    }
}

/// The Node that a pod is bound to.
pub(super) fn node_of(pod: &Pod) -> Option<&str> {
    pod.spec.as_ref()?.node_name.as_deref().filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    const GRACE: Duration = Duration::from_secs(40);

    fn pod(name: &str, node: Option<&str>) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"name": name, "namespace": "ns", "uid": name, "resourceVersion": "1"},
            "spec": {"containers": [], "nodeName": node},
        }))
        .unwrap()
    }

    fn node(name: &str) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}})).unwrap()
    }

    fn names(pods: &[Arc<Pod>]) -> Vec<String> {
        pods.iter().map(|pod| pod.name_any()).collect()
    }

    #[test]
    fn pods_of_a_node_that_stays_away_are_orphans_after_the_quarantine_and_no_others() {
        let (mut view, mut quarantine, start) = (View::default(), Quarantine::new(GRACE), Instant::now());
        view.nodes.put(node("here"));
        for pod in [pod("lost", Some("away")), pod("at-home", Some("here")), pod("waiting", None)] {
            view.pods.put(pod);
        }
        assert_eq!(names(&quarantine.orphans(&view, start)), Vec::<String>::new());
        assert_eq!(quarantine.wake(start), Some(start + GRACE));
        assert_eq!(names(&quarantine.orphans(&view, start + GRACE)), ["lost"]);
        assert_eq!(quarantine.wake(start + GRACE), None, "it is over: the next news, or the next attempt, counts");
    }

    #[test]
    fn a_node_that_comes_back_keeps_its_pods_and_counts_anew() {
        let (mut view, mut quarantine, start) = (View::default(), Quarantine::new(GRACE), Instant::now());
        view.pods.put(pod("lost", Some("away")));
        quarantine.orphans(&view, start);
        view.nodes.put(node("away"));
        assert!(quarantine.orphans(&view, start + GRACE).is_empty());
        view.nodes.remove(&node("away"));
        assert!(quarantine.orphans(&view, start + GRACE).is_empty(), "a second absence is another one");
        assert_eq!(quarantine.wake(start + GRACE), Some(start + 2 * GRACE));
    }
}
