//! The store's side of a write, and what follows from it: dependents of an object that is gone, namespaces that became
//! empty, budgets whose pods changed, kinds that a definition adds or takes.

use std::sync::Arc;

use serde_json::Value;

use super::{DeleteOptions, Follow, Target, Txn};
use crate::server::kinds::{self, Resource};
use crate::server::store::{Key, Object};
use crate::server::value::{at, int, list, set, text};

impl Txn<'_> {
    /// Stores an object, unless the request is a dry run. An object on its way out whose last finalizer is gone goes.
    pub(super) fn commit(&mut self, resource: &Resource, key: &Key, object: Value) -> Object {
        if self.options.dry_run {
            return Arc::new(object);
        }
        let dying = !at(&object, &["metadata", "deletionTimestamp"]).is_null();
        let waiting = int(&object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0) > 0;
        let held = !list(&object, &["metadata", "finalizers"]).is_empty();
        let stored = self.state.store.put(&resource.table, key, object);
        if dying && !waiting && !held && !resource.is("Namespace") {
            return self.remove(resource, key).unwrap_or(stored);
        }
        self.after_write(resource, key, Some(&stored));
        stored
    }

    /// Takes an object out of the store, unless the request is a dry run.
    pub(super) fn remove(&mut self, resource: &Resource, key: &Key) -> Option<Object> {
        if self.options.dry_run {
            return None;
        }
        let gone = self.state.store.delete(&resource.table, key)?;
        self.follow.push_back(Follow::OwnerGone { uid: text(&gone, &["metadata", "uid"]).to_owned() });
        if resource.namespaced {
            self.follow.push_back(Follow::NamespaceEmptied { name: key.namespace.clone() });
        }
        self.after_write(resource, key, None);
        if resource.is("CustomResourceDefinition") {
            self.drop_kind(&gone);
        }
        Some(gone)
    }

    fn after_write(&mut self, resource: &Resource, key: &Key, stored: Option<&Object>) {
        if resource.is("Pod") || resource.is("PodDisruptionBudget") {
            self.follow.push_back(Follow::Budgets { namespace: key.namespace.clone() });
        }
        if let Some(definition) = stored.filter(|_| resource.is("CustomResourceDefinition")) {
            self.state.kinds.add(kinds::custom(definition));
        }
    }

    fn drop_kind(&mut self, definition: &Value) {
        let kind = kinds::custom(definition);
        self.state.kinds.remove(&kind.group, &kind.plural);
        for object in self.state.store.list(&kind.table, None) {
            self.remove(&kind, &Key::of(&object));
        }
    }

    /// Does all that follows from the writes of this transaction, until nothing follows any more.
    pub(super) fn settle(&mut self) {
        while let Some(next) = self.follow.pop_front() {
            match next {
                Follow::OwnerGone { uid } => self.collect(&uid),
                Follow::NamespaceEmptied { name } => self.finish_namespace(&name),
                Follow::Budgets { namespace } => {
                    let same = |other: &Follow| matches!(other, Follow::Budgets { namespace: n } if *n == namespace);
                    if !self.follow.iter().any(same) {
                        self.refresh_budgets(&namespace);
                    }
                }
            }
        }
    }

    /// Deletes the dependents of an owner that is gone, unless another owner of theirs lives.
    fn collect(&mut self, uid: &str) {
        for (table, key) in self.state.store.dependents(uid) {
            let Some(object) = self.state.store.get(&table, &key).cloned() else { continue };
            let owners = list(&object, &["metadata", "ownerReferences"]);
            if owners.iter().any(|owner| text(owner, &["uid"]) != uid && self.lives(owner, &key.namespace)) {
                continue;
            }
            let Some(kind) = self.state.kinds.iter().find(|kind| kind.table == table).cloned() else { continue };
            if let Err(error) = self.delete(&Target::of(&kind, &key), &DeleteOptions::default()) {
                tracing::debug!(%error, "a dependent could not be deleted");
            }
        }
    }

    fn lives(&self, owner: &Value, namespace: &str) -> bool {
        let (group, _) = text(owner, &["apiVersion"]).split_once('/').unwrap_or_default();
        let Some(kind) = self.state.kinds.of_kind(group, text(owner, &["kind"])) else { return false };
        let namespace = if kind.namespaced { namespace } else { "" };
        let found = self.state.store.get(&kind.table, &Key::new(namespace, text(owner, &["name"])));
        found.is_some_and(|found| at(found, &["metadata", "uid"]) == at(owner, &["uid"]))
    }

    fn finish_namespace(&mut self, name: &str) {
        let Some(kind) = self.state.kinds.builtin("Namespace") else { return };
        let key = Key::new("", name);
        let Some(namespace) = self.state.store.get(&kind.table, &key) else { return };
        let dying = !at(namespace, &["metadata", "deletionTimestamp"]).is_null();
        if dying && list(namespace, &["metadata", "finalizers"]).is_empty() && !self.state.store.uses(name) {
            self.remove(&kind, &key);
        }
    }

    /// Writes the status of an object as the server's own controllers do, without touching the rest.
    pub(super) fn set_status(&mut self, resource: &Resource, object: &Object, status: Value) {
        if at(object, &["status"]) != &status {
            let mut next = Value::clone(object);
            set(&mut next, &["status"], status);
            self.state.store.put(&resource.table, &Key::of(object), next);
        }
    }
}
