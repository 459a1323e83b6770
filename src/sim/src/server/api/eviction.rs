//! The eviction subresource: a deletion that asks the disruption budget first.

use serde_json::{Value, json};

use super::binding::set_condition;
use super::delete::check_preconditions;
use super::{DeleteOptions, Target, Txn};
use crate::server::apply::record_update;
use crate::server::error::{ApiError, success};
use crate::server::selector::LabelSelector;
use crate::server::store::{Key, Object};
use crate::server::value::{at, int, set, text};
use crate::server::world::rfc3339;

impl Txn<'_> {
    /// Evicts a pod: marks it as disrupted and deletes it with its grace, if its budget allows it.
    pub(crate) fn evict(
        &mut self,
        target: &Target,
        eviction: &Value,
        options: &DeleteOptions,
    ) -> Result<Value, ApiError> {
        let name = text(eviction, &["metadata", "name"]);
        if !name.is_empty() && name != target.name {
            return Err(ApiError::bad_request("name in URL does not match name in Eviction object"));
        }
        let pod = self.current(target)?;
        if !needs_budget(&pod) {
            self.delete(target, options)?;
            return Ok(success(201));
        }
        // A precondition that fails must cost nothing of the budget.
        check_preconditions(target, &pod, options)?;
        self.spend_budget(target, &pod)?;
        self.mark_disrupted(target, &pod);
        // The mark itself changed the version that the client decided on.
        let options = DeleteOptions { resource_version: None, ..options.clone() };
        self.delete(target, &options)?;
        Ok(success(201))
    }

    /// Finds the one budget of the pod and takes one disruption from it.
    fn spend_budget(&mut self, target: &Target, pod: &Object) -> Result<(), ApiError> {
        let Some(kind) = self.state.kinds.builtin("PodDisruptionBudget") else { return Ok(()) };
        let all = self.state.store.list(&kind.table, Some(&target.namespace));
        let covers = |budget: &&Object| {
            LabelSelector::of_object(at(budget, &["spec", "selector"])).is_some_and(|selector| selector.matches(pod))
        };
        let budgets: Vec<&Object> = all.iter().filter(covers).collect();
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [one] => *one,
            _ => {
                let why =
                    "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.";
                return Err(ApiError::internal(why));
            }
        };
        if unhealthy_may_go(pod, budget) {
            return Ok(());
        }
        let allowed = int(budget, &["status", "disruptionsAllowed"]).unwrap_or(0);
        if allowed <= 0 {
            return Err(exhausted(budget));
        }
        if !self.options.dry_run {
            let mut status = at(budget, &["status"]).clone();
            set(&mut status, &["disruptionsAllowed"], allowed - 1);
            set(&mut status, &["disruptedPods", &target.name], rfc3339(self.now));
            self.set_status(&kind, budget, status);
        }
        Ok(())
    }

    fn mark_disrupted(&mut self, target: &Target, pod: &Object) {
        let mut next = Value::clone(pod);
        let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting", "lastTransitionTime": rfc3339(self.now)});
        set_condition(&mut next, condition);
        let api_version = target.api_version();
        record_update(Some(pod), &mut next, &self.writer(target, &api_version), target.cursor());
        self.commit(&target.resource, &Key::of(pod), next);
    }
}

/// Pods that do no work, or are on their way out, go without asking a budget.
fn needs_budget(pod: &Value) -> bool {
    let idle = ["Succeeded", "Failed", "Pending"].contains(&text(pod, &["status", "phase"]));
    !idle && at(pod, &["metadata", "deletionTimestamp"]).is_null()
}

/// A pod that is not ready may go when its budget says so always, or while the healthy ones are enough without it.
fn unhealthy_may_go(pod: &Value, budget: &Value) -> bool {
    if super::budget::ready(pod) {
        return false;
    }
    if text(budget, &["spec", "unhealthyPodEvictionPolicy"]) == "AlwaysAllow" {
        return true;
    }
    let count = |field: &str| int(budget, &["status", field]).unwrap_or(0);
    count("desiredHealthy") > 0 && count("currentHealthy") >= count("desiredHealthy")
}

fn exhausted(budget: &Value) -> ApiError {
    let count = |field: &str| int(budget, &["status", field]).unwrap_or(0);
    let cause = format!(
        "The disruption budget {} needs {} healthy pods and has {} currently",
        text(budget, &["metadata", "name"]),
        count("desiredHealthy"),
        count("currentHealthy")
    );
    ApiError::too_many_requests("Cannot evict pod as it would violate the pod's disruption budget.", None)
        .with_cause("DisruptionBudget", &cause)
}
