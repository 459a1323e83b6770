//! The status of PodDisruptionBudgets, kept current from the pods of the moment, as the disruption controller does.

use serde_json::{Map, Value, json};

use super::Txn;
use crate::server::selector::LabelSelector;
use crate::server::store::{Key, Object};
use crate::server::value::{at, int, list, text};
use crate::server::world::rfc3339;

impl Txn<'_> {
    /// Counts again for every budget of a namespace.
    pub(super) fn refresh_budgets(&mut self, namespace: &str) {
        let kinds = &self.state.kinds;
        let (Some(budgets), Some(pods)) = (kinds.builtin("PodDisruptionBudget"), kinds.builtin("Pod")) else { return };
        let budget_list = self.state.store.list(&budgets.table, Some(namespace));
        if budget_list.is_empty() {
            return;
        }
        let pod_list = self.state.store.list(&pods.table, Some(namespace));
        for budget in budget_list {
            let Some(selector) = LabelSelector::of_object(at(&budget, &["spec", "selector"])) else { continue };
            let covered: Vec<&Object> = pod_list.iter().filter(|pod| selector.matches(pod)).collect();
            let expected = self.expected(&budget, &covered);
            let status = status(&budget, &covered, expected, &rfc3339(self.now));
            self.set_status(&budgets, &budget, status);
        }
    }

    /// How many pods there should be: what their controllers want, or those that are there where nothing wants them.
    fn expected(&self, budget: &Value, pods: &[&Object]) -> i64 {
        if at(budget, &["spec", "minAvailable"]).is_i64() {
            return count(pods.len());
        }
        let mut seen: Vec<&str> = Vec::new();
        let mut sum = 0;
        for pod in pods {
            let owner = list(pod, &["metadata", "ownerReferences"])
                .iter()
                .find(|owner| at(owner, &["controller"]) == &Value::Bool(true));
            let scale = owner.and_then(|owner| Some((text(owner, &["uid"]), self.scale(owner, pod)?)));
            match scale {
                Some((uid, _)) if seen.contains(&uid) => {}
                Some((uid, replicas)) => {
                    seen.push(uid);
                    sum += replicas;
                }
                None => sum += 1,
            }
        }
        sum
    }

    fn scale(&self, owner: &Value, pod: &Value) -> Option<i64> {
        let (group, _) = text(owner, &["apiVersion"]).split_once('/')?;
        let kind = self.state.kinds.of_kind(group, text(owner, &["kind"]))?;
        let key = Key::new(text(pod, &["metadata", "namespace"]), text(owner, &["name"]));
        int(self.state.store.get(&kind.table, &key)?, &["spec", "replicas"])
    }
}

/// Whether a pod counts as healthy: ready.
pub(super) fn ready(pod: &Value) -> bool {
    list(pod, &["status", "conditions"])
        .iter()
        .any(|condition| text(condition, &["type"]) == "Ready" && text(condition, &["status"]) == "True")
}

fn status(budget: &Value, pods: &[&Object], expected: i64, now: &str) -> Value {
    let disrupted = at(budget, &["status", "disruptedPods"]).as_object();
    // An evicted pod is remembered, and counts as gone, until its deletion shows.
    let mut leaving = Map::new();
    let mut healthy = 0;
    for pod in pods.iter().filter(|pod| at(pod, &["metadata", "deletionTimestamp"]).is_null()) {
        let name = text(pod, &["metadata", "name"]);
        if let Some(since) = disrupted.and_then(|disrupted| disrupted.get(name)) {
            leaving.insert(name.to_owned(), since.clone());
        } else if ready(pod) {
            healthy += 1;
        }
    }
    let current = count(healthy);
    let desired = desired(budget, expected);
    let allowed = if expected <= 0 { 0 } else { (current - desired).max(0) };
    let mut status = json!({
        "currentHealthy": current, "desiredHealthy": desired, "expectedPods": expected, "disruptionsAllowed": allowed,
        "observedGeneration": at(budget, &["metadata", "generation"]), "conditions": [condition(budget, allowed, now)],
    });
    if !leaving.is_empty() {
        status["disruptedPods"] = Value::Object(leaving);
    }
    status
}

fn condition(budget: &Value, allowed: i64, now: &str) -> Value {
    let (status, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let before = list(budget, &["status", "conditions"]).iter().find(|other| text(other, &["status"]) == status);
    let since = before.map_or(json!(now), |before| at(before, &["lastTransitionTime"]).clone());
    json!({"type": "DisruptionAllowed", "status": status, "reason": reason, "message": "",
           "lastTransitionTime": since, "observedGeneration": at(budget, &["metadata", "generation"])})
}

/// How many pods must stay healthy.
fn desired(budget: &Value, expected: i64) -> i64 {
    let (least, most) = (at(budget, &["spec", "minAvailable"]), at(budget, &["spec", "maxUnavailable"]));
    if !least.is_null() {
        return scaled(least, expected);
    }
    if most.is_null() {
        return 0;
    }
    (expected - scaled(most, expected)).max(0)
}

/// A number as it is, or a share of `total`, rounded up.
fn scaled(value: &Value, total: i64) -> i64 {
    let share = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    match share {
        Some(percent) => (percent.saturating_mul(total) + 99) / 100,
        None => value.as_i64().unwrap_or(0),
    }
}

fn count(number: usize) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_shares() {
        let with = |spec: Value| json!({"spec": spec});
        assert_eq!(desired(&with(json!({"minAvailable": 2})), 5), 2);
        assert_eq!(desired(&with(json!({"minAvailable": "50%"})), 5), 3);
        assert_eq!(desired(&with(json!({"maxUnavailable": "30%"})), 5), 3);
        assert_eq!(desired(&with(json!({"maxUnavailable": 9})), 5), 0);
    }
}
