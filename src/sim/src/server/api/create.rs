//! Making an object: its identity, its defaults, its first record of ownership.

use serde_json::{Value, json};

use super::{Target, Txn};
use crate::server::admit;
use crate::server::apply::{Writer, record_update};
use crate::server::error::ApiError;
use crate::server::kinds::Resource;
use crate::server::store::{Key, Object};
use crate::server::validate::validate;
use crate::server::value::{at, remove, set, text};
use crate::server::world::rfc3339;

/// A generated name is the prefix, cut to this length, and five letters.
const PREFIX: usize = 58;

impl Txn<'_> {
    /// Makes an object from a body.
    pub(crate) fn create(&mut self, target: &Target, body: Value) -> Result<Object, ApiError> {
        let object = self.decode(target, body)?;
        self.create_decoded(target, object, false)
    }

    /// Makes an object in its stored form; `applied` when its ownership is recorded already.
    pub(super) fn create_decoded(
        &mut self,
        target: &Target,
        mut object: Value,
        applied: bool,
    ) -> Result<Object, ApiError> {
        let resource = &target.resource;
        self.place(target, &mut object)?;
        self.identify(resource, &mut object)?;
        let key = Key::of(&object);
        if self.state.store.get(&resource.table, &key).is_some() {
            return Err(ApiError::already_exists(resource, &key.name));
        }
        let managed = at(&object, &["metadata", "managedFields"]).clone();
        remove(&mut object, &["metadata", "managedFields"]);
        if resource.status && !resource.is("Node") {
            remove(&mut object, &["status"]);
        }
        if !self.state.device_taints {
            admit::drop_device_taints(resource, &mut object, None);
        }
        admit::defaults(resource, &mut object, None, self.now);
        if applied {
            set(&mut object, &["metadata", "managedFields"], managed);
        } else {
            let api_version = target.api_version();
            record_update(None, &mut object, &self.writer(target, &api_version), target.cursor());
        }
        self.admit_new(resource, &mut object)?;
        let errors = validate(resource, &object, None);
        if !errors.is_empty() {
            return Err(ApiError::invalid(resource, &key.name, &errors));
        }
        self.control(target, &mut object);
        Ok(self.commit(resource, &key, object))
    }

    /// Lets the controllers that live in this server have their say, under their own name.
    pub(super) fn control(&mut self, target: &Target, object: &mut Value) {
        if !target.resource.is("Node") {
            return;
        }
        let before = object.clone();
        if admit::control(&target.resource, object, self.now) {
            let api_version = target.api_version();
            let writer =
                Writer { manager: "kube-controller-manager", subresource: "", ..self.writer(target, &api_version) };
            record_update(Some(&before), object, &writer, target.cursor());
        }
    }

    pub(super) fn writer<'a>(&'a self, target: &'a Target, api_version: &'a str) -> Writer<'a> {
        Writer { manager: &self.options.manager, api_version, subresource: &target.subresource, now: self.now }
    }

    /// Settles the namespace: that of the path, which must exist and not be on its way out.
    fn place(&mut self, target: &Target, object: &mut Value) -> Result<(), ApiError> {
        let resource = &target.resource;
        if !resource.namespaced {
            remove(object, &["metadata", "namespace"]);
            return Ok(());
        }
        let given = text(object, &["metadata", "namespace"]);
        if !given.is_empty() && given != target.namespace {
            let message = format!(
                "the namespace of the provided object does not match the namespace sent on the request: {given} is not {}",
                target.namespace
            );
            return Err(ApiError::bad_request(message));
        }
        set(object, &["metadata", "namespace"], target.namespace.as_str());
        let Some(namespaces) = self.state.kinds.builtin("Namespace") else { return Ok(()) };
        match self.state.store.get(&namespaces.table, &Key::new("", &target.namespace)) {
            None => Err(ApiError::not_found(&namespaces, &target.namespace)),
            // Events about the end of a namespace are still welcome.
            Some(found) if !at(found, &["metadata", "deletionTimestamp"]).is_null() && !resource.is("Event") => {
                let why = format!(
                    "unable to create new content in namespace {} because it is being terminated",
                    target.namespace
                );
                Err(ApiError::forbidden(resource, text(object, &["metadata", "name"]), &why))
            }
            Some(_) => Ok(()),
        }
    }

    /// Gives the name, the UID and the times that only the server sets.
    fn identify(&mut self, resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
        if !text(object, &["metadata", "resourceVersion"]).is_empty() {
            return Err(ApiError::bad_request("resourceVersion should not be set on objects to be created"));
        }
        let prefix = text(object, &["metadata", "generateName"]);
        if text(object, &["metadata", "name"]).is_empty() && !prefix.is_empty() {
            let cut = prefix.char_indices().nth(PREFIX).map_or(prefix.len(), |(index, _)| index);
            let name = format!("{}{}", &prefix[..cut], self.world.suffix());
            set(object, &["metadata", "name"], name);
        }
        for field in ["resourceVersion", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "selfLink"] {
            remove(object, &["metadata", field]);
        }
        set(object, &["metadata", "uid"], self.world.uid());
        set(object, &["metadata", "creationTimestamp"], rfc3339(self.now));
        if resource.generation {
            set(object, &["metadata", "generation"], 1);
        }
        Ok(())
    }

    fn admit_new(&mut self, resource: &Resource, object: &mut Value) -> Result<(), ApiError> {
        if resource.is("Pod") {
            let class = text(object, &["spec", "priorityClassName"]).to_owned();
            let priority = self.priority(&class).ok_or_else(|| {
                let why = format!("no PriorityClass with name {class} was found");
                ApiError::forbidden(resource, text(object, &["metadata", "name"]), &why)
            })?;
            set(object, &["spec", "priority"], priority);
        }
        admit::admit(resource, object, None, self.now);
        Ok(())
    }

    fn priority(&self, class: &str) -> Option<Value> {
        match class {
            "" => Some(json!(0)),
            "system-node-critical" => Some(json!(2_000_001_000)),
            "system-cluster-critical" => Some(json!(2_000_000_000)),
            name => {
                let classes = self.state.kinds.builtin("PriorityClass")?;
                let class = self.state.store.get(&classes.table, &Key::new("", name))?;
                Some(at(class, &["value"]).clone())
            }
        }
    }
}
