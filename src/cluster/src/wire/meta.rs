//! Object metadata, as far as any kind needs it, and the shared ways of reading JSON that the API server may send.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Deserializer};
use taints::object::Owner;

/// The part of `ObjectMeta` that we read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Meta {
    #[serde(deserialize_with = "nullable")]
    pub(crate) name: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) namespace: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) uid: String,
    #[serde(deserialize_with = "nullable")]
    pub(crate) resource_version: String,
    pub(crate) creation_timestamp: Option<Timestamp>,
    pub(crate) deletion_timestamp: Option<Timestamp>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) labels: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) annotations: BTreeMap<String, String>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) owner_references: Vec<OwnerReference>,
    #[serde(deserialize_with = "nullable")]
    pub(crate) managed_fields: Vec<ManagedFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct OwnerReference {
    kind: String,
    name: String,
    uid: String,
    controller: Option<bool>,
}

/// One manager's entry: only whether it owns `spec.taints`, and since when.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct ManagedFields {
    time: Option<Timestamp>,
    #[serde(rename = "fieldsV1")]
    fields: Option<Fields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Fields {
    #[serde(rename = "f:spec")]
    spec: Option<SpecFields>,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct SpecFields {
    #[serde(rename = "f:taints")]
    taints: Option<serde::de::IgnoredAny>,
}

impl Meta {
    /// The owner that controls the object, of which there is at most one.
    pub(crate) fn controller(&self) -> Option<Owner> {
        let owner = self.owner_references.iter().find(|owner| owner.controller == Some(true))?;
        Some(Owner { kind: owner.kind.clone(), name: owner.name.clone(), uid: owner.uid.clone() })
    }

    /// The latest time at which a manager that owns `spec.taints` wrote.
    pub(crate) fn taints_changed(&self) -> Option<Timestamp> {
        let owns = |entry: &&ManagedFields| {
            entry.fields.as_ref().and_then(|fields| fields.spec.as_ref()).is_some_and(|spec| spec.taints.is_some())
        };
        self.managed_fields.iter().filter(owns).filter_map(|entry| entry.time).max()
    }
}

/// Reads a field that Go may write as `null` where it means "nothing".
pub(crate) fn nullable<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Ok(Option::<T>::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn meta(value: serde_json::Value) -> Meta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn only_managers_of_taints_count_and_the_latest_wins() {
        let found = meta(json!({"managedFields": [
            {"manager": "kubelet", "time": "2026-11-01T00:00:09Z", "fieldsV1": {"f:status": {}}},
            {"manager": "kubectl-taint", "time": "2026-11-01T00:00:05Z", "fieldsV1": {"f:spec": {".": {}, "f:taints": {}}}},
            {"manager": "kube-controller-manager", "time": "2026-11-01T00:00:07Z", "fieldsV1": {"f:spec": {"f:taints": {".": {}}}}},
            {"manager": "old", "fieldsV1": {"f:spec": {"f:taints": {}}}}
        ]}));
        assert_eq!(found.taints_changed(), Some("2026-11-01T00:00:07Z".parse().unwrap()));
        assert_eq!(meta(json!({})).taints_changed(), None);
    }

    #[test]
    fn only_the_controlling_owner_counts() {
        let found = meta(json!({"ownerReferences": [
            {"kind": "Node", "name": "n", "uid": "1"},
            {"kind": "ReplicaSet", "name": "rs", "uid": "2", "controller": true}
        ]}));
        assert_eq!(found.controller().unwrap().uid, "2");
        assert_eq!(meta(json!({"ownerReferences": null})).controller(), None);
    }
}
