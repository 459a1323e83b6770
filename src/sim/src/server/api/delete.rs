//! Taking an object out: preconditions, finalizers, and the grace of pods.

use jiff::SignedDuration;
use serde_json::Value;

use super::{Target, Txn};
use crate::server::error::ApiError;
use crate::server::kinds::Resource;
use crate::server::store::{Key, Object};
use crate::server::value::{at, int, list, list_mut, remove, set, text};
use crate::server::world::rfc3339;

/// How to delete, from the body and the query of the request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct DeleteOptions {
    /// Seconds that a pod gets to end; none for what its spec says.
    pub(crate) grace: Option<i64>,
    pub(crate) uid: Option<String>,
    pub(crate) resource_version: Option<String>,
    /// Dependents stay.
    pub(crate) orphan: bool,
}

/// What a pod gets when its spec says nothing.
const GRACE: i64 = 30;

impl Txn<'_> {
    /// Deletes an object. Gives its last state, and whether it is gone or only on its way out.
    pub(crate) fn delete(&mut self, target: &Target, options: &DeleteOptions) -> Result<(Object, bool), ApiError> {
        let current = self.current(target)?;
        check_preconditions(target, &current, options)?;
        let resource = target.resource.clone();
        let key = target.key();
        if options.orphan {
            self.orphan(text(&current, &["metadata", "uid"]));
        }
        if resource.is("Namespace") {
            return Ok(self.delete_namespace(&resource, &key, &current));
        }
        if resource.is("Pod") {
            return Ok(self.delete_pod(&resource, &key, &current, options));
        }
        Ok(self.finish(&resource, &key, &current, 0))
    }

    /// Takes the owner out of its dependents, so that they stay when it goes.
    fn orphan(&mut self, uid: &str) {
        for (table, key) in self.state.store.dependents(uid) {
            let kind = self.state.kinds.iter().find(|kind| kind.table == table).cloned();
            let (Some(kind), Some(object)) = (kind, self.state.store.get(&table, &key)) else { continue };
            let mut next = Value::clone(object);
            list_mut(&mut next, &["metadata", "ownerReferences"]).retain(|owner| text(owner, &["uid"]) != uid);
            if list(&next, &["metadata", "ownerReferences"]).is_empty() {
                remove(&mut next, &["metadata", "ownerReferences"]);
            }
            self.commit(&kind, &key, next);
        }
    }

    fn delete_pod(&mut self, resource: &Resource, key: &Key, pod: &Object, options: &DeleteOptions) -> (Object, bool) {
        let finished = ["Succeeded", "Failed"].contains(&text(pod, &["status", "phase"]));
        let unbound = text(pod, &["spec", "nodeName"]).is_empty();
        let spec = int(pod, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(GRACE);
        let asked = match options.grace.unwrap_or(spec) {
            negative if negative < 0 => 1,
            seconds => seconds,
        };
        let grace = if finished || unbound { 0 } else { asked };
        if grace == 0 {
            return self.finish(resource, key, pod, 0);
        }
        let pending = int(pod, &["metadata", "deletionGracePeriodSeconds"]);
        let dying = !at(pod, &["metadata", "deletionTimestamp"]).is_null();
        // A later delete may shorten the grace, never lengthen it; one that names none changes nothing.
        if dying && (options.grace.is_none() || pending.is_some_and(|pending| pending <= grace)) {
            return (pod.clone(), false);
        }
        (self.mark(resource, key, pod, grace), false)
    }

    /// Takes an object out, or marks it when finalizers still hold it.
    pub(super) fn finish(&mut self, resource: &Resource, key: &Key, object: &Object, grace: i64) -> (Object, bool) {
        if list(object, &["metadata", "finalizers"]).is_empty() {
            let gone = self.remove(resource, key).unwrap_or_else(|| object.clone());
            return (gone, true);
        }
        let marked = !at(object, &["metadata", "deletionTimestamp"]).is_null();
        if marked && int(object, &["metadata", "deletionGracePeriodSeconds"]) == Some(grace) {
            return (object.clone(), false);
        }
        (self.mark(resource, key, object, grace), false)
    }

    /// Writes when and with how much grace the object goes.
    fn mark(&mut self, resource: &Resource, key: &Key, object: &Object, grace: i64) -> Object {
        let mut next = Value::clone(object);
        let end = self.now.checked_add(SignedDuration::from_secs(grace)).unwrap_or(self.now);
        set(&mut next, &["metadata", "deletionTimestamp"], rfc3339(end));
        set(&mut next, &["metadata", "deletionGracePeriodSeconds"], grace);
        if let Some(generation) = int(&next, &["metadata", "generation"]) {
            set(&mut next, &["metadata", "generation"], generation + 1);
        }
        self.commit(resource, key, next)
    }

    /// Marks a namespace, deletes all that is in it, and lets it go when it is empty.
    fn delete_namespace(&mut self, resource: &Resource, key: &Key, namespace: &Object) -> (Object, bool) {
        let mut next = Value::clone(namespace);
        if at(&next, &["metadata", "deletionTimestamp"]).is_null() {
            set(&mut next, &["metadata", "deletionTimestamp"], rfc3339(self.now));
            set(&mut next, &["metadata", "deletionGracePeriodSeconds"], 0);
        }
        set(&mut next, &["status", "phase"], "Terminating");
        let marked = self.commit(resource, key, next);
        if self.options.dry_run {
            return (marked, false);
        }
        let kinds: Vec<_> = self.state.kinds.iter().filter(|kind| kind.namespaced).cloned().collect();
        for kind in kinds {
            for object in self.state.store.list(&kind.table, Some(&key.name)) {
                let target = Target::of(&kind, &Key::of(&object));
                if let Err(error) = self.delete(&target, &DeleteOptions::default()) {
                    tracing::debug!(%error, "skipped while a namespace is emptied");
                }
            }
        }
        self.follow.push_back(super::Follow::NamespaceEmptied { name: key.name.clone() });
        (marked, false)
    }
}

pub(super) fn check_preconditions(target: &Target, current: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let found = |field: &str| text(current, &["metadata", field]);
    let conflict = |why: &str| ApiError::conflict(&target.resource, &target.name, why);
    if let Some(uid) = options.uid.as_deref().filter(|uid| *uid != found("uid")) {
        return Err(conflict(&format!(
            "the UID in the precondition ({uid}) does not match the UID in record ({}). The object might have been deleted \
             and then recreated",
            found("uid")
        )));
    }
    if let Some(version) = options.resource_version.as_deref().filter(|version| *version != found("resourceVersion")) {
        return Err(conflict(&format!(
            "the ResourceVersion in the precondition ({version}) does not match the ResourceVersion in record ({}). The \
             object might have been modified",
            found("resourceVersion")
        )));
    }
    Ok(())
}
