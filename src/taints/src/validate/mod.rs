//! What the API server refuses, said before it is asked: taints of nodes and devices, tolerations of pods and requests, rules,
//! slices. Errors name the field as the server does, so that a person finds it in the object.
//!
//! The rules are those of `pkg/apis/core/validation` and `pkg/apis/resource/validation` of Kubernetes 1.34 to 1.37.

mod device;
mod label;
mod node;

#[cfg(test)]
mod tests;

use std::fmt;

pub use device::{device_taint, device_taints, device_tolerations, rule, slice};
pub use label::{is_dns_label, is_dns_subdomain, is_label_key, is_label_value};
pub use node::{node_taints, pod_tolerations, pod_tolerations_update};

/// One thing that is wrong with an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldError {
    /// The field's path, such as `spec.tolerations[0].operator`.
    pub field: String,
    /// What kind of error it is.
    pub kind: ErrorKind,
    /// The value that was found; empty where there is none.
    pub value: String,
    /// What is wrong with it, and what would be right.
    pub message: String,
}

/// What kind of error a field has (apimachinery `field.ErrorType`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// It is missing.
    Required,
    /// Its value is not allowed.
    Invalid,
    /// Its value is not one of a fixed set.
    NotSupported,
    /// It repeats another.
    Duplicate,
    /// It may not be changed so.
    Forbidden,
    /// There are too many.
    TooMany,
}

impl ErrorKind {
    /// The reason that a `Status` cause carries for it.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Required => "FieldValueRequired",
            Self::Invalid => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooMany => "FieldValueTooMany",
        }
    }
}

impl fmt::Display for FieldError {
    /// In the server's form: `spec.taints[0].effect: Unsupported value: "NoRun": supported values: ...`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, kind, value, message } = self;
        match kind {
            ErrorKind::Required => write!(f, "{field}: Required value: {message}"),
            ErrorKind::Invalid => write!(f, "{field}: Invalid value: {value:?}: {message}"),
            ErrorKind::NotSupported => write!(f, "{field}: Unsupported value: {value:?}: {message}"),
            ErrorKind::Duplicate => write!(f, "{field}: Duplicate value: {value:?}: {message}"),
            ErrorKind::Forbidden => write!(f, "{field}: Forbidden: {message}"),
            ErrorKind::TooMany => write!(f, "{field}: Too many: {value}: {message}"),
        }
    }
}

/// Collects the errors under one path.
struct Report {
    errors: Vec<FieldError>,
}

impl Report {
    const fn new() -> Self {
        Self { errors: Vec::new() }
    }

    fn add(&mut self, field: String, kind: ErrorKind, value: impl Into<String>, message: impl Into<String>) {
        self.errors.push(FieldError { field, kind, value: value.into(), message: message.into() });
    }

    fn invalid(&mut self, field: String, value: &str, message: &str) {
        self.add(field, ErrorKind::Invalid, value, message);
    }

    fn not_supported(&mut self, field: String, value: &str, supported: &[&str]) {
        let names: Vec<String> = supported.iter().map(|name| format!("{name:?}")).collect();
        self.add(field, ErrorKind::NotSupported, value, format!("supported values: {}", names.join(", ")));
    }

    fn label_key(&mut self, field: String, key: &str) {
        if let Err(message) = label::key(key) {
            self.invalid(field, key, message);
        }
    }

    fn label_value(&mut self, field: String, value: &str) {
        if let Err(message) = label::value(value) {
            self.invalid(field, value, message);
        }
    }
}

/// A child of a path; the root is the empty path.
fn child(base: &str, name: &str) -> String {
    if base.is_empty() { name.to_owned() } else { format!("{base}.{name}") }
}
