//! Changing an object: replace, the patches, server-side apply. All come down to one function that takes the old object
//! and the wanted one.

use serde_json::Value;

use super::{Target, Txn};
use crate::server::admit;
use crate::server::apply::{apply, record_update};
use crate::server::error::ApiError;
use crate::server::patch::{Format, patched};
use crate::server::store::Object;
use crate::server::validate::{FieldError, validate};
use crate::server::value::{at, copy, list, set, text};

/// Where a wanted object comes from, which decides small things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Put,
    Patch,
    /// The record of ownership is made already.
    Apply,
}

/// Metadata that a client cannot change.
const FIXED: &[&str] = &[
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "generation",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generateName",
    "selfLink",
    "resourceVersion",
];

impl Txn<'_> {
    /// Puts a body in the place of an object.
    pub(crate) fn replace(&mut self, target: &Target, body: Value) -> Result<Object, ApiError> {
        let new = self.decode(target, body)?;
        let old = self.current(target)?;
        self.change(target, &old, new, Origin::Put)
    }

    /// Patches an object. Only server-side apply makes one where there is none; the flag says that it did.
    pub(crate) fn patch(&mut self, target: &Target, body: &Value, format: Format) -> Result<(Object, bool), ApiError> {
        if format == Format::Apply {
            return self.apply(target, body.clone());
        }
        if format == Format::Strategic && !target.resource.builtin() {
            return Err(ApiError::media_type("application/strategic-merge-patch+json for a custom kind"));
        }
        let old = self.current(target)?;
        let mut new = patched(&old, body, format, target.cursor())?;
        self.conform(target, &mut new)?;
        Ok((self.change(target, &old, new, Origin::Patch)?, false))
    }

    fn apply(&mut self, target: &Target, body: Value) -> Result<(Object, bool), ApiError> {
        if !list(&body, &["metadata", "managedFields"]).is_empty() {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let mut body = self.decode(target, body)?;
        set(&mut body, &["metadata", "name"], target.name.as_str());
        let old = self.state.store.get(&target.resource.table, &target.key()).cloned();
        let api_version = target.api_version();
        let writer = self.writer(target, &api_version);
        let mut new = apply(old.as_deref(), &body, &writer, target.cursor(), self.options.force)
            .map_err(|conflicts| ApiError::apply_conflict(&conflicts))?;
        self.conform(target, &mut new)?;
        match old {
            Some(old) => Ok((self.change(target, &old, new, Origin::Apply)?, false)),
            None if !target.subresource.is_empty() => Err(ApiError::not_found(&target.resource, &target.name)),
            None if !text(&body, &["metadata", "uid"]).is_empty() => {
                let why = format!(
                    "uid mismatch: the provided object specified uid {}, and no existing object was found",
                    text(&body, &["metadata", "uid"])
                );
                Err(ApiError::conflict(&target.resource, &target.name, &why))
            }
            None => Ok((self.create_decoded(target, new, true)?, true)),
        }
    }

    fn change(&mut self, target: &Target, old: &Object, mut new: Value, origin: Origin) -> Result<Object, ApiError> {
        let resource = &target.resource;
        self.check_identity(target, old, &new, origin)?;
        for field in FIXED {
            copy(old, &mut new, &["metadata", field]);
        }
        if at(&new, &["metadata", "managedFields"]).is_null() {
            copy(old, &mut new, &["metadata", "managedFields"]);
        }
        self.confine(target, old, &mut new);
        if !self.state.device_taints {
            admit::drop_device_taints(resource, &mut new, Some(old));
        }
        admit::defaults(resource, &mut new, Some(old), self.now);
        if origin != Origin::Apply {
            let api_version = target.api_version();
            record_update(Some(old), &mut new, &self.writer(target, &api_version), target.cursor());
        }
        admit::admit(resource, &mut new, Some(old), self.now);
        self.control(target, &mut new);
        if resource.generation && spec_differs(old, &new) {
            let generation = at(old, &["metadata", "generation"]).as_i64().unwrap_or(0);
            set(&mut new, &["metadata", "generation"], generation + 1);
        }
        let errors = validate(resource, &new, Some(old));
        if !errors.is_empty() {
            return Err(ApiError::invalid(resource, &target.name, &errors));
        }
        if new == **old {
            return Ok(old.clone());
        }
        Ok(self.commit(resource, &target.key(), new))
    }

    /// Name and namespace must be those of the path; a resourceVersion or a UID that the client sent must be the current one.
    fn check_identity(&self, target: &Target, old: &Value, new: &Value, origin: Origin) -> Result<(), ApiError> {
        let resource = &target.resource;
        let sent = |field: &str| text(new, &["metadata", field]);
        let mut named = vec![("name", target.name.as_str())];
        if resource.namespaced {
            named.push(("namespace", target.namespace.as_str()));
        }
        for (field, expected) in named {
            if !sent(field).is_empty() && sent(field) != expected {
                let found = sent(field);
                let message =
                    format!("the {field} of the object ({found}) does not match the {field} on the URL ({expected})");
                return Err(ApiError::bad_request(message));
            }
        }
        let uid = text(old, &["metadata", "uid"]);
        if !sent("uid").is_empty() && sent("uid") != uid {
            if origin == Origin::Put {
                let why =
                    format!("Precondition failed: UID in precondition: {}, UID in object meta: {uid}", sent("uid"));
                return Err(ApiError::conflict(resource, &target.name, &why));
            }
            let error = FieldError::immutable("metadata.uid", at(new, &["metadata", "uid"]));
            return Err(ApiError::invalid(resource, &target.name, &[error]));
        }
        let version = sent("resourceVersion");
        if !version.is_empty() && version != text(old, &["metadata", "resourceVersion"]) {
            return Err(ApiError::modified(resource, &target.name));
        }
        Ok(())
    }

    /// A write through `/status` changes the status alone, any other write leaves it as it is.
    fn confine(&self, target: &Target, old: &Value, new: &mut Value) {
        if target.subresource == "status" {
            let mut kept = old.clone();
            copy(new, &mut kept, &["status"]);
            copy(new, &mut kept, &["metadata", "managedFields"]);
            *new = kept;
        } else if target.resource.status {
            copy(old, new, &["status"]);
        }
    }
}

/// Whether anything but metadata and status changed.
fn spec_differs(old: &Value, new: &Value) -> bool {
    rest(old).ne(rest(new))
}

fn rest(object: &Value) -> impl Iterator<Item = (&String, &Value)> {
    object.as_object().into_iter().flatten().filter(|(name, _)| *name != "metadata" && *name != "status")
}
