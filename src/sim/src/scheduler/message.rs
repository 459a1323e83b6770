//! Why a pod stays pending, in kube-scheduler's words: people search for them.

use std::collections::BTreeMap;

/// Counts reasons over nodes.
#[derive(Debug, Default)]
pub(super) struct Reasons(BTreeMap<String, usize>);

impl Reasons {
    /// One more node has this reason.
    pub(super) fn add(&mut self, reason: impl Into<String>) {
        *self.0.entry(reason.into()).or_default() += 1;
    }

    /// The message for a pod that no node can take.
    pub(super) fn message(&self, has_claims: bool) -> String {
        let nodes: usize = self.0.values().sum();
        if nodes == 0 {
            return "no nodes available to schedule pods".to_owned();
        }
        let mut reasons: Vec<String> = self.0.iter().map(|(reason, count)| format!("{count} {reason}")).collect();
        reasons.sort();
        let still = if has_claims { "still not schedulable, " } else { "" };
        format!("0/{nodes} nodes are available: {}. {still}{}", reasons.join(", "), preemption(nodes))
    }
}

/// The message for a pod that is not even tried on a node.
pub(super) fn rejected(nodes: usize, reason: &str) -> String {
    format!("0/{nodes} nodes are available: {reason}. {}", preemption(nodes))
}

fn preemption(nodes: usize) -> String {
    format!("preemption: 0/{nodes} nodes are available: {nodes} Preemption is not helpful for scheduling.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_are_counted_and_sorted_as_kube_scheduler_does() {
        let mut reasons = Reasons::default();
        assert_eq!(reasons.message(false), "no nodes available to schedule pods");
        reasons.add("node(s) had untolerated taint {a: b}");
        reasons.add("cannot allocate all claims");
        reasons.add("cannot allocate all claims");
        assert_eq!(
            reasons.message(true),
            "0/3 nodes are available: 1 node(s) had untolerated taint {a: b}, 2 cannot allocate all claims. still not \
             schedulable, preemption: 0/3 nodes are available: 3 Preemption is not helpful for scheduling."
        );
        assert!(
            rejected(2, "resourceclaim in use")
                .starts_with("0/2 nodes are available: resourceclaim in use. preemption")
        );
    }
}
