//! Errors as the API gives them: a `Status` object with code, reason, message and details.

use serde_json::{Value, json};

use super::kinds::Resource;
use super::validate::FieldError;

/// A refused request, in the words of the API.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// The machine-readable reason, as `NotFound`.
    pub reason: &'static str,
    /// The message for people.
    pub message: String,
    /// Details of the `Status`, null for none.
    pub details: Value,
    /// Seconds after which the client may try again, also sent as the `Retry-After` header.
    pub retry_after: Option<u32>,
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: Value::Null, retry_after: None }
    }

    fn about(mut self, resource: &Resource, name: &str) -> Self {
        self.details = json!({"name": name, "kind": resource.plural});
        if !resource.group.is_empty() {
            self.details["group"] = json!(resource.group);
        }
        self
    }

    /// 404: no object of this name.
    pub(crate) fn not_found(resource: &Resource, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", resource.qualified())).about(resource, name)
    }

    /// 404: no such path.
    pub(crate) fn no_path() -> Self {
        let mut error = Self::new(404, "NotFound", "the server could not find the requested resource");
        error.details = json!({});
        error
    }

    /// 409: the name is taken.
    pub(crate) fn already_exists(resource: &Resource, name: &str) -> Self {
        let message = format!("{} \"{name}\" already exists", resource.qualified());
        Self::new(409, "AlreadyExists", message).about(resource, name)
    }

    /// 409: the write was decided on something that no longer holds.
    pub(crate) fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", resource.qualified());
        Self::new(409, "Conflict", message).about(resource, name)
    }

    /// 409: the object has another resourceVersion than the write was decided on.
    pub(crate) fn modified(resource: &Resource, name: &str) -> Self {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(resource, name, why)
    }

    /// 409: server-side apply met fields of other managers; one cause for each.
    pub(crate) fn apply_conflict(conflicts: &[(String, String)]) -> Self {
        let plural = if conflicts.len() == 1 { "conflict" } else { "conflicts" };
        let list: Vec<String> = conflicts.iter().map(|(who, field)| format!("{who}: {field}")).collect();
        let message = format!("Apply failed with {} {plural}: {}", conflicts.len(), list.join("\n"));
        let causes: Vec<Value> = conflicts
            .iter()
            .map(|(who, field)| json!({"reason": "FieldManagerConflict", "message": who, "field": field}))
            .collect();
        let mut error = Self::new(409, "Conflict", message);
        error.details = json!({"causes": causes});
        error
    }

    /// 422: the object breaks rules; one cause for each.
    pub(crate) fn invalid(resource: &Resource, name: &str, errors: &[FieldError]) -> Self {
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let joined = if texts.len() == 1 { texts.join("") } else { format!("[{}]", texts.join(", ")) };
        let kind = if resource.group.is_empty() {
            resource.kind.clone()
        } else {
            format!("{}.{}", resource.kind, resource.group)
        };
        let mut error = Self::new(422, "Invalid", format!("{kind} \"{name}\" is invalid: {joined}"));
        let causes: Vec<Value> = errors.iter().map(FieldError::cause).collect();
        error.details = json!({"name": name, "group": resource.group, "kind": resource.kind, "causes": causes});
        error
    }

    /// 400: the request makes no sense.
    pub(crate) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 422: a JSON patch whose operations do not fit the object.
    pub(crate) fn patch_failed(why: &str) -> Self {
        let message = format!("the server rejected our request due to an error in our request: {why}");
        Self::new(422, "Invalid", message)
    }

    /// 403: not allowed, for a reason other than rights.
    pub(crate) fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", resource.qualified());
        Self::new(403, "Forbidden", message).about(resource, name)
    }

    /// 405: this path does not know this method.
    pub(crate) fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")
    }

    /// 406: none of the formats that the client accepts.
    pub(crate) fn not_acceptable(accept: &str) -> Self {
        let message = format!("only application/json is served by this server, the request accepts {accept}");
        Self::new(406, "NotAcceptable", message)
    }

    /// 410: the asked version is no longer in the history.
    pub(crate) fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// 413: a body that is larger than the server reads.
    pub(crate) fn too_large(limit: usize) -> Self {
        Self::new(413, "RequestEntityTooLarge", format!("Request entity too large: limit is {limit}"))
    }

    /// 415: a body in a format that this server does not read.
    pub(crate) fn media_type(found: &str) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: application/json, \
             application/yaml (found {found}; this server does not read protobuf: use create -f or apply)"
        );
        Self::new(415, "UnsupportedMediaType", message)
    }

    /// 429: a budget or a fault says no for now.
    pub(crate) fn too_many_requests(message: impl Into<String>, retry_after: Option<u32>) -> Self {
        let mut error = Self::new(429, "TooManyRequests", message);
        error.retry_after = retry_after;
        error
    }

    /// 500: something in the cluster's state forbids the request.
    pub(crate) fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", format!("Internal error occurred: {}", message.into()))
    }

    /// 504: the asked version lies in the future.
    pub(crate) fn future_version(asked: u64, current: u64) -> Self {
        let mut error = Self::new(504, "Timeout", format!("Too large resource version: {asked}, current: {current}"));
        error.details = json!({"retryAfterSeconds": 1,
            "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}]});
        error.retry_after = Some(1);
        error
    }

    /// A refusal made on purpose by the fault layer.
    pub(crate) fn fault(code: u16, retry_after: Option<u32>) -> Self {
        let (reason, message) = match code {
            400 => ("BadRequest", "injected fault: bad request"),
            401 => ("Unauthorized", "Unauthorized"),
            403 => ("Forbidden", "injected fault: forbidden"),
            404 => ("NotFound", "the server could not find the requested resource"),
            409 => ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
            410 => ("Expired", "The resourceVersion for the provided list or watch is too old."),
            429 => ("TooManyRequests", "the server has received too many requests, try again later"),
            500 => ("InternalError", "Internal error occurred: injected fault"),
            503 => ("ServiceUnavailable", "the server is currently unable to handle the request"),
            504 => ("Timeout", "the server was unable to return a response in the time allotted"),
            _ => ("Unknown", "injected fault"),
        };
        let mut error = Self::new(code, reason, message);
        error.retry_after = retry_after;
        error
    }

    /// Adds a cause to the details.
    pub(crate) fn with_cause(mut self, reason: &str, message: &str) -> Self {
        let causes = super::value::list_mut(&mut self.details, &["causes"]);
        causes.push(json!({"reason": reason, "message": message}));
        self
    }

    /// The `Status` object that goes to the client.
    pub(crate) fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        if !self.details.is_null() {
            status["details"] = self.details.clone();
        }
        if let Some(seconds) = self.retry_after {
            super::value::set(&mut status, &["details", "retryAfterSeconds"], seconds);
        }
        status
    }
}

/// The `Status` object of a deed that has no object to show, as a binding or an eviction.
pub(crate) fn success(code: u16) -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": code})
}
