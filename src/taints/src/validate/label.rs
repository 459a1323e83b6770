//! Names: label keys and values, DNS labels and subdomains (apimachinery `validation`).

/// The longest name part of a label key, label value and DNS label.
const LONGEST_NAME: usize = 63;
/// The longest DNS subdomain.
const LONGEST_SUBDOMAIN: usize = 253;

const KEY_FORM: &str = "a label key is an optional DNS prefix and a slash, then a name of at most 63 letters, digits, '-', '_' and '.' \
     that begins and ends with a letter or digit";
const VALUE_FORM: &str =
    "a label value is at most 63 letters, digits, '-', '_' and '.', and begins and ends with a letter or digit";

/// Whether a text is a label key, such as `gpu.devicetaint.dev/lost`.
#[must_use]
pub fn is_label_key(text: &str) -> bool {
    match text.split_once('/') {
        Some((prefix, name)) => is_dns_subdomain(prefix) && is_name(name),
        None => is_name(text),
    }
}

/// Whether a text is a label value; the empty one is.
#[must_use]
pub fn is_label_value(text: &str) -> bool {
    text.is_empty() || is_name(text)
}

/// Whether a text is a DNS label: at most 63 lower-case letters, digits and `-`, which is neither first nor last.
#[must_use]
pub fn is_dns_label(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=LONGEST_NAME).contains(&text.len())
        && text.bytes().all(allowed)
        && !text.starts_with('-')
        && !text.ends_with('-')
}

/// Whether a text is a DNS subdomain: labels without a limit of their own, joined by dots, at most 253 characters.
#[must_use]
pub fn is_dns_subdomain(text: &str) -> bool {
    let part = |part: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !part.is_empty() && part.bytes().all(allowed) && !part.starts_with('-') && !part.ends_with('-')
    };
    text.len() <= LONGEST_SUBDOMAIN && text.split('.').all(part)
}

fn is_name(text: &str) -> bool {
    let bytes = text.as_bytes();
    let ends = bytes.first().zip(bytes.last());
    bytes.len() <= LONGEST_NAME
        && ends.is_some_and(|(first, last)| first.is_ascii_alphanumeric() && last.is_ascii_alphanumeric())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(byte))
}

pub(super) fn key(text: &str) -> Result<(), &'static str> {
    if is_label_key(text) { Ok(()) } else { Err(KEY_FORM) }
}

pub(super) fn value(text: &str) -> Result<(), &'static str> {
    if is_label_value(text) { Ok(()) } else { Err(VALUE_FORM) }
}
