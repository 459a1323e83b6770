//! The binding subresource: puts a pod on a node, once.

use serde_json::{Value, json};

use super::{Target, Txn};
use crate::server::apply::record_update;
use crate::server::error::ApiError;
use crate::server::value::{at, copy, list_mut, set, text};
use crate::server::world::rfc3339;

impl Txn<'_> {
    /// Binds a pod to the node that the body names.
    pub(crate) fn bind(&mut self, target: &Target, binding: &Value) -> Result<(), ApiError> {
        let pod = self.current(target)?;
        let node = text(binding, &["target", "name"]);
        let kind = text(binding, &["target", "kind"]);
        if node.is_empty() || !["", "Node"].contains(&kind) {
            return Err(ApiError::bad_request("a binding needs a target of kind Node with a name"));
        }
        let conflict = |why: String| Err(ApiError::conflict(&target.resource, &target.name, &why));
        let uid = text(binding, &["metadata", "uid"]);
        if !uid.is_empty() && uid != text(&pod, &["metadata", "uid"]) {
            let found = text(&pod, &["metadata", "uid"]);
            return conflict(format!("Precondition failed: UID in precondition: {uid}, UID in object meta: {found}"));
        }
        if !at(&pod, &["metadata", "deletionTimestamp"]).is_null() {
            return conflict(format!("pod {} is being deleted, cannot be assigned to a host", target.name));
        }
        let bound = text(&pod, &["spec", "nodeName"]);
        if !bound.is_empty() {
            return conflict(format!("pod {} is already assigned to node \"{bound}\"", target.name));
        }
        let mut next = Value::clone(&pod);
        set(&mut next, &["spec", "nodeName"], node);
        for key in at(binding, &["metadata", "annotations"]).as_object().into_iter().flatten().map(|(key, _)| key) {
            copy(binding, &mut next, &["metadata", "annotations", key]);
        }
        let condition = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null,
                               "lastTransitionTime": rfc3339(self.now)});
        set_condition(&mut next, condition);
        let api_version = target.api_version();
        record_update(Some(&pod), &mut next, &self.writer(target, &api_version), target.cursor());
        self.commit(&target.resource, &target.key(), next);
        Ok(())
    }
}

/// Writes a condition of a pod's status in the place of the one of the same type. The transition time stays while the
/// status is the same.
pub(super) fn set_condition(pod: &mut Value, mut condition: Value) {
    let conditions = list_mut(pod, &["status", "conditions"]);
    match conditions.iter_mut().find(|other| other["type"] == condition["type"]) {
        Some(place) => {
            if place["status"] == condition["status"] {
                copy(&place.clone(), &mut condition, &["lastTransitionTime"]);
            }
            *place = condition;
        }
        None => conditions.push(condition),
    }
}
