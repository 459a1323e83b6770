//! The patch formats: JSON patch, merge patch, strategic merge patch. Each takes the current object and gives the next one.

mod strategic;

use serde_json::Value;

use super::error::ApiError;
use super::schema::Cursor;

/// The format of a patch, by its content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// RFC 6902.
    Json,
    /// RFC 7386.
    Merge,
    /// Kubernetes' own merge, with lists merged by key.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl Format {
    /// The format that a content type names.
    pub(crate) fn of(content_type: &str) -> Option<Self> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Self::Json),
            "application/merge-patch+json" => Some(Self::Merge),
            "application/strategic-merge-patch+json" => Some(Self::Strategic),
            "application/apply-patch+yaml" | "application/apply-patch+json" => Some(Self::Apply),
            _ => None,
        }
    }
}

/// Applies a patch of any format but server-side apply, which knows owners and lives elsewhere.
pub(crate) fn patched(current: &Value, patch: &Value, format: Format, cursor: Cursor<'_>) -> Result<Value, ApiError> {
    let mut next = current.clone();
    match format {
        Format::Json => json_patch(&mut next, patch)?,
        Format::Merge => {
            if !patch.is_object() {
                return Err(ApiError::bad_request("a merge patch must be a JSON object"));
            }
            json_patch::merge(&mut next, patch);
        }
        Format::Strategic => strategic::merge(&mut next, patch, cursor).map_err(ApiError::bad_request)?,
        Format::Apply => return Err(ApiError::bad_request("server-side apply is no plain patch")),
    }
    Ok(next)
}

fn json_patch(next: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let operations: json_patch::Patch = serde_json::from_value(patch.clone())
        .map_err(|error| ApiError::bad_request(format!("error decoding patch: {error}")))?;
    json_patch::patch(next, &operations).map_err(|error| ApiError::patch_failed(&error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::schema::schema;
    use serde_json::json;

    fn run(format: Format, patch: Value) -> Result<Value, ApiError> {
        let node = json!({"metadata": {"labels": {"a": "1", "b": "2"}}, "spec": {"taints": [{"key": "k"}]}});
        patched(&node, &patch, format, schema().root("core.v1.Node"))
    }

    #[test]
    fn a_json_patch_is_all_or_nothing() {
        let next = run(Format::Json, json!([{"op": "replace", "path": "/metadata/labels/a", "value": "9"}])).unwrap();
        assert_eq!(next["metadata"]["labels"]["a"], "9");
        let failed =
            run(Format::Json, json!([{"op": "test", "path": "/metadata/labels/a", "value": "9"}])).unwrap_err();
        assert_eq!((failed.code, failed.reason), (422, "Invalid"));
        assert_eq!(run(Format::Json, json!({"op": "x"})).unwrap_err().code, 400);
    }

    #[test]
    fn a_merge_patch_replaces_lists_and_nulls_remove() {
        let next = run(Format::Merge, json!({"metadata": {"labels": {"a": null}}, "spec": {"taints": []}})).unwrap();
        assert_eq!(next, json!({"metadata": {"labels": {"b": "2"}}, "spec": {"taints": []}}));
        assert_eq!(run(Format::Merge, json!([])).unwrap_err().code, 400);
    }

    #[test]
    fn formats_are_named_by_their_content_type() {
        assert_eq!(Format::of("application/merge-patch+json; charset=utf-8"), Some(Format::Merge));
        assert_eq!(Format::of("application/json"), None);
    }
}
