//! Content negotiation: in which form the client wants the answer, and in which form a body came.

use serde_json::Value;

use crate::server::error::ApiError;

/// The form of an answer about objects. All are JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// The objects themselves.
    Plain,
    /// A table for people, made by the server.
    Table,
    /// Metadata only.
    Metadata,
}

struct Entry<'a> {
    kind: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl Entry<'_> {
    fn get(&self, name: &str) -> &str {
        self.parameters.iter().find(|(n, _)| *n == name).map_or("", |(_, value)| value)
    }

    fn json(&self) -> bool {
        ["application/json", "application/*", "*/*"].contains(&self.kind)
    }
}

fn entries(accept: &str) -> impl Iterator<Item = Entry<'_>> {
    accept.split(',').map(|entry| {
        let mut parts = entry.split(';').map(str::trim);
        let kind = parts.next().unwrap_or_default();
        Entry { kind, parameters: parts.filter_map(|part| part.split_once('=')).collect() }
    })
}

/// The first form that the client accepts and that this server has.
pub(crate) fn form(accept: &str) -> Result<Form, ApiError> {
    if accept.is_empty() {
        return Ok(Form::Plain);
    }
    let known = |entry: Entry<'_>| match (entry.json(), entry.get("as")) {
        (true, "") => Some(Form::Plain),
        (true, "Table") => Some(Form::Table),
        (true, "PartialObjectMetadata" | "PartialObjectMetadataList") => Some(Form::Metadata),
        _ => None,
    };
    entries(accept).find_map(known).ok_or_else(|| ApiError::not_acceptable(accept))
}

/// Whether the client wants the discovery of all groups in one document.
pub(crate) fn aggregated_discovery(accept: &str) -> bool {
    let wanted = |entry: &Entry<'_>| entry.get("as") == "APIGroupDiscoveryList" && entry.get("v") == "v2";
    entries(accept).find(|entry| entry.json() || wanted(entry)).is_some_and(|entry| wanted(&entry))
}

/// Reads a body: JSON, or YAML where the content type says so.
pub(crate) fn body(content_type: &str, bytes: &[u8]) -> Result<Value, ApiError> {
    let kind = content_type.split(';').next().unwrap_or_default().trim();
    if kind.contains("protobuf") || bytes.starts_with(b"k8s\0") {
        return Err(ApiError::media_type(kind));
    }
    if kind.contains("yaml") {
        return yaml(bytes);
    }
    if !kind.is_empty() && !kind.contains("json") {
        return Err(ApiError::media_type(kind));
    }
    serde_json::from_slice(bytes).map_err(|error| ApiError::bad_request(format!("error decoding the body: {error}")))
}

fn yaml(bytes: &[u8]) -> Result<Value, ApiError> {
    // JSON is YAML too, and clients send it under this name.
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text =
        std::str::from_utf8(bytes).map_err(|error| ApiError::bad_request(format!("the body is no text: {error}")))?;
    // Only `true` and `false` are booleans: a key `y` or a name `on` stays what it is.
    let options = serde_saphyr::options! { strict_booleans: true };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| ApiError::bad_request(format!("error decoding the body as YAML: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_first_known_form_wins() {
        let kubectl = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json";
        assert_eq!(form(kubectl), Ok(Form::Table));
        assert_eq!(form("application/vnd.kubernetes.protobuf,application/json"), Ok(Form::Plain));
        assert_eq!(form("*/*"), Ok(Form::Plain));
        assert_eq!(form("application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"), Ok(Form::Metadata));
        assert_eq!(form("application/vnd.kubernetes.protobuf").unwrap_err().code, 406);
    }

    #[test]
    fn discovery_in_one_document_is_asked_for() {
        let kubectl = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json";
        assert!(aggregated_discovery(kubectl) && !aggregated_discovery("application/json"));
    }

    #[test]
    fn bodies_are_json_or_yaml_and_never_protobuf() {
        assert_eq!(body("application/json", b"{\"a\": 1}"), Ok(json!({"a": 1})));
        assert_eq!(body("application/apply-patch+yaml", b"a: 1\nb: [x]"), Ok(json!({"a": 1, "b": ["x"]})));
        assert_eq!(body("application/vnd.kubernetes.protobuf", b"k8s\0..").unwrap_err().code, 415);
        assert_eq!(body("application/octet-stream", b"{}").unwrap_err().code, 415);
        assert_eq!(body("application/json", b"{").unwrap_err().code, 400);
    }
}
