//! The calls that read and write marks, the same for both of their forms.

use http::{Method, Request};
use kube::Client;
use kube::core::ApiResource;
use kube::core::params::{DeleteParams, Preconditions};
use serde_json::Value;
use taints::object::Rule;

use super::{Form, MANAGER, Mark};
use crate::call::{CallError, within};
use crate::connect::CALL_TIMEOUT;
use crate::wire::{Malformed, MarkWire, RuleWire, decode};

/// A mark, or a rule of somebody else, as it is stored, with the version that a delete must carry.
#[derive(Clone, Debug)]
pub struct Stored {
    /// Which object it is.
    pub form: Form,
    /// What the rules read of it.
    pub rule: Rule,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// Why a mark could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum MarkError {
    /// Another mark, or a rule of somebody else, has the name.
    #[error("{0} exists already")]
    Exists(String),
    /// It changed between looking and writing.
    #[error("{0} was changed by somebody else in the meantime; look again")]
    Changed(String),
    /// We may not.
    #[error("not allowed to {verb} {object}: {message}")]
    Forbidden {
        /// What was tried.
        verb: &'static str,
        /// On which object: its kind and name.
        object: String,
        /// What the server said.
        message: String,
    },
    /// The call failed.
    #[error("cannot {verb} {object}: {source}")]
    Call {
        /// What was tried.
        verb: &'static str,
        /// On which object: its kind and name.
        object: String,
        /// What came back.
        source: CallError,
    },
    /// The stored object cannot be understood.
    #[error(transparent)]
    Malformed(#[from] Malformed),
}

/// Reads an object by name; absent when there is none.
///
/// # Errors
/// When the call fails, or the object cannot be understood.
pub async fn get(client: &Client, form: Form, name: &str) -> Result<Option<Stored>, MarkError> {
    let request = request(Method::GET, &path(form, name), &Value::Null);
    match send(client, request).await {
        Ok(object) => stored(form, object).map(Some),
        Err(source) if source.is_not_found() => Ok(None),
        Err(source) => Err(failed("read", form, name, source)),
    }
}

/// All objects of this form in the cluster, ours and others'. One that cannot be understood is left out, with a warning.
///
/// # Errors
/// When the call fails.
pub async fn list(client: &Client, form: Form) -> Result<Vec<Stored>, MarkError> {
    let request = request(Method::GET, &collection(&form.resource()), &Value::Null);
    let mut answer = send(client, request).await.map_err(|source| failed("list", form, "*", source))?;
    let items = answer.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
    let read = |item| stored(form, item).inspect_err(|error| tracing::warn!(%error, "mark left out")).ok();
    Ok(items.into_iter().filter_map(read).collect())
}

/// Creates a mark.
///
/// # Errors
/// [`MarkError::Exists`] when there is an object of this name; else when the call fails.
pub async fn create(client: &Client, form: Form, mark: &Mark) -> Result<Stored, MarkError> {
    let path = format!("{}?fieldManager={MANAGER}", collection(&form.resource()));
    match send(client, request(Method::POST, &path, &mark.object(form))).await {
        Ok(object) => stored(form, object),
        Err(source) if source.is_conflict() => Err(MarkError::Exists(words(form, &mark.name()))),
        Err(source) => Err(failed("create", form, &mark.name(), source)),
    }
}

/// Creates or changes a mark by server-side apply. Since when it stands stays as it is: the effect, which would change that, is in
/// the name.
///
/// # Errors
/// When the call fails.
pub async fn apply(client: &Client, form: Form, mark: &Mark) -> Result<Stored, MarkError> {
    let name = mark.name();
    let path = format!("{}?fieldManager={MANAGER}&force=true", path(form, &name));
    match send(client, request(Method::PATCH, &path, &mark.object(form))).await {
        Ok(object) => stored(form, object),
        Err(source) => Err(failed("apply", form, &name, source)),
    }
}

/// Deletes the very object that was looked at. One that is gone already is no error.
///
/// # Errors
/// [`MarkError::Changed`] when it is not the same any more; else when the call fails.
pub async fn delete(client: &Client, seen: &Stored) -> Result<(), MarkError> {
    let (form, name) = (seen.form, &seen.rule.name);
    let options = DeleteParams {
        preconditions: Some(Preconditions {
            uid: Some(seen.rule.uid.clone()),
            resource_version: Some(seen.resource_version.clone()),
        }),
        ..DeleteParams::default()
    };
    let body = serde_json::to_value(&options).unwrap_or_default();
    match send(client, request(Method::DELETE, &path(form, name), &body)).await {
        Ok(_) => Ok(()),
        Err(source) if source.is_not_found() => Ok(()),
        Err(source) if source.is_conflict() => Err(MarkError::Changed(words(form, name))),
        Err(source) => Err(failed("delete", form, name, source)),
    }
}

fn collection(resource: &ApiResource) -> String {
    format!("/apis/{}/{}", resource.api_version, resource.plural)
}

fn path(form: Form, name: &str) -> String {
    format!("{}/{name}", collection(&form.resource()))
}

fn request(method: Method, path: &str, body: &Value) -> Result<Request<Vec<u8>>, http::Error> {
    let content = if method == Method::PATCH { "application/apply-patch+yaml" } else { "application/json" };
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    Request::builder().method(method).uri(path).header(http::header::CONTENT_TYPE, content).body(bytes)
}

async fn send(client: &Client, request: Result<Request<Vec<u8>>, http::Error>) -> Result<Value, CallError> {
    let request = request.map_err(|error| CallError::Answer(error.to_string()))?;
    within(CALL_TIMEOUT, client.request::<Value>(request)).await
}

/// Kind and name.
fn words(form: Form, name: &str) -> String {
    format!("{form} {name}")
}

pub(super) fn stored(form: Form, object: Value) -> Result<Stored, MarkError> {
    let version = object.pointer("/metadata/resourceVersion").and_then(Value::as_str).unwrap_or_default().to_owned();
    let rule = match form {
        Form::Rule(_) => decode::<RuleWire>(object)?,
        Form::Mark => decode::<MarkWire>(object)?,
    };
    Ok(Stored { form, rule, resource_version: version })
}

fn failed(verb: &'static str, form: Form, name: &str, source: CallError) -> MarkError {
    let object = words(form, name);
    match source.status() {
        Some(status) if status.code == 403 => MarkError::Forbidden { verb, object, message: status.message.clone() },
        _ => MarkError::Call { verb, object, source },
    }
}
