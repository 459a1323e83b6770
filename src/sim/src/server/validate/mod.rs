//! The rules that an object must keep, with errors that name the field. One file for each subject; this one holds the
//! error and the rules for names and labels.

mod claim;
mod meta;
mod node;
mod pod;
mod rule;
mod slice;
mod toleration;

use std::fmt;

use serde_json::{Value, json};

use super::kinds::Resource;

/// One broken rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct FieldError {
    pub(crate) field: String,
    pub(crate) why: Why,
}

/// In which way a field breaks its rule.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Why {
    Required(&'static str),
    Invalid { value: Value, detail: String },
    NotSupported { value: String, supported: &'static [&'static str] },
    Forbidden(&'static str),
    Duplicate(String),
    TooMany { found: usize, limit: usize },
}

impl FieldError {
    fn new(field: impl Into<String>, why: Why) -> Self {
        Self { field: field.into(), why }
    }

    pub(crate) fn required(field: impl Into<String>, detail: &'static str) -> Self {
        Self::new(field, Why::Required(detail))
    }

    pub(crate) fn invalid(field: impl Into<String>, value: &Value, detail: impl Into<String>) -> Self {
        Self::new(field, Why::Invalid { value: value.clone(), detail: detail.into() })
    }

    pub(crate) fn immutable(field: impl Into<String>, value: &Value) -> Self {
        Self::invalid(field, value, "field is immutable")
    }

    pub(crate) fn not_supported(field: impl Into<String>, value: &str, supported: &'static [&'static str]) -> Self {
        Self::new(field, Why::NotSupported { value: value.to_owned(), supported })
    }

    pub(crate) fn forbidden(field: impl Into<String>, detail: &'static str) -> Self {
        Self::new(field, Why::Forbidden(detail))
    }

    pub(crate) fn duplicate(field: impl Into<String>, value: &str) -> Self {
        Self::new(field, Why::Duplicate(value.to_owned()))
    }

    pub(crate) fn too_many(field: impl Into<String>, found: usize, limit: usize) -> Self {
        Self::new(field, Why::TooMany { found, limit })
    }

    /// The entry in the causes of the `Status`.
    pub(crate) fn cause(&self) -> Value {
        json!({"reason": self.why.reason(), "message": self.why.to_string(), "field": self.field})
    }
}

impl Why {
    fn reason(&self) -> &'static str {
        match self {
            Self::Required(_) => "FieldValueRequired",
            Self::Invalid { .. } => "FieldValueInvalid",
            Self::NotSupported { .. } => "FieldValueNotSupported",
            Self::Forbidden(_) => "FieldValueForbidden",
            Self::Duplicate(_) => "FieldValueDuplicate",
            Self::TooMany { .. } => "FieldValueTooMany",
        }
    }
}

impl fmt::Display for FieldError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.why)
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Required("") => f.write_str("Required value"),
            Self::Required(detail) => write!(f, "Required value: {detail}"),
            Self::Invalid { value, detail } => write!(f, "Invalid value: {value}: {detail}"),
            Self::NotSupported { value, supported } => {
                let list: Vec<String> = supported.iter().map(|s| format!("{s:?}")).collect();
                write!(f, "Unsupported value: {value:?}: supported values: {}", list.join(", "))
            }
            Self::Forbidden(detail) => write!(f, "Forbidden: {detail}"),
            Self::Duplicate(value) => write!(f, "Duplicate value: {value:?}"),
            Self::TooMany { found, limit } => write!(f, "Too many: {found}: must have at most {limit} items"),
        }
    }
}

/// Checks an object that is to be made (`old` none) or to take the place of `old`.
pub(crate) fn validate(resource: &Resource, new: &Value, old: Option<&Value>) -> Vec<FieldError> {
    let mut errors = meta::check(resource, new, old);
    if resource.builtin() {
        match resource.kind.as_str() {
            "Pod" => pod::check(new, old, &mut errors),
            "Node" => node::check(new, &mut errors),
            "ResourceSlice" => slice::check(new, old, &mut errors),
            "DeviceTaintRule" => rule::check(new, old, &mut errors),
            "ResourceClaim" => claim::check(new, old, &mut errors),
            "ResourceClaimTemplate" => claim::check_template(new, &mut errors),
            _ => {}
        }
    }
    errors
}

/// A DNS label: lower-case letters, digits and `-`, at most 63, alphanumeric ends.
pub(crate) fn dns_label(text: &str) -> bool {
    text.len() <= 63 && dns_part(text)
}

fn dns_part(text: &str) -> bool {
    let ends = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == b'-')
}

/// A DNS subdomain: parts of the form of a label, of any length, joined by dots, at most `limit` letters in all.
pub(crate) fn dns_subdomain(text: &str, limit: usize) -> bool {
    text.len() <= limit && text.split('.').all(dns_part)
}

/// The part of a label key after the prefix, and a label value: letters, digits, `-_.`, alphanumeric ends, at most 63.
fn simple_name(text: &str) -> bool {
    let ends = |c: Option<u8>| c.is_some_and(|c| c.is_ascii_alphanumeric());
    text.len() <= 63
        && ends(text.bytes().next())
        && ends(text.bytes().last())
        && text.bytes().all(|c| c.is_ascii_alphanumeric() || b"-_.".contains(&c))
}

/// A label value; the empty one is fine.
pub(crate) fn label_value(text: &str) -> bool {
    text.is_empty() || simple_name(text)
}

/// A label key: a name, or a DNS subdomain, `/` and a name.
pub(crate) fn label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => dns_subdomain(prefix, 253) && simple_name(name),
        None => simple_name(text),
    }
}

/// The text for a bad label key.
pub(crate) const LABEL_KEY: &str = "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and \
     end with an alphanumeric character (e.g. 'MyName', or 'example.com/MyName')";

/// The text for a bad label value.
pub(crate) const LABEL_VALUE: &str = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' \
     or '.', and must start and end with an alphanumeric character";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_keep_their_form() {
        assert!(dns_label("gpu-0000-3b-00-0") && !dns_label("-a") && !dns_label("A") && !dns_label(""));
        assert!(dns_subdomain("gpu.devicetaint.dev", 63) && !dns_subdomain("a..b", 253));
        assert!(dns_subdomain(&"a".repeat(100), 253) && !dns_subdomain(&"a".repeat(100), 63));
        assert!(label_key("gpu.devicetaint.dev/xid") && label_key("k") && !label_key("a/b/c") && !label_key("/k"));
        assert!(label_value("") && label_value("a_b.c-d") && !label_value("-a") && !label_value("a b"));
        assert!(!label_value(&"a".repeat(64)));
    }

    #[test]
    fn errors_read_as_the_api_writes_them() {
        let error = FieldError::not_supported("spec.taint.effect", "Nope", &["NoExecute", "NoSchedule", "None"]);
        let text =
            r#"spec.taint.effect: Unsupported value: "Nope": supported values: "NoExecute", "NoSchedule", "None""#;
        assert_eq!(error.to_string(), text);
        assert_eq!(FieldError::required("spec.driver", "").to_string(), "spec.driver: Required value");
        let error = FieldError::invalid("a", &json!("x"), "bad");
        assert_eq!(error.to_string(), r#"a: Invalid value: "x": bad"#);
    }
}
