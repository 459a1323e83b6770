//! The parts of a ResourceSlice (resource.k8s.io/v1) that this driver writes and compares, as they stand on the wire.
//!
//! Our own types rather than generated ones: a slice holds only what we put there, a field that we do not know cannot be
//! lost, and what the server returned is compared as it is.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use taints::Taint;

/// `spec` of a ResourceSlice of a node's own devices.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SliceSpec {
    /// The DRA driver. Cannot be changed later.
    pub driver: String,
    /// The pool that the slice is a part of.
    pub pool: PoolRef,
    /// The node whose devices these are. Cannot be changed later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node_name: Option<String>,
    /// The devices, in the order in which they should be preferred. Written even when empty: a patch must be able to empty it.
    #[serde(default, deserialize_with = "null_is_default")]
    pub devices: Vec<Device>,
}

/// `spec.pool` of a ResourceSlice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PoolRef {
    /// The pool: for a node's own devices the node's name.
    pub name: String,
    /// All slices of a complete pool have the same generation; the highest one counts.
    pub generation: i64,
    /// How many slices a complete pool has at this generation, at least 1.
    pub resource_slice_count: i64,
}

/// One device of a slice.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// A DNS label, unique in the pool.
    pub name: String,
    /// Attributes by qualified name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, Attribute>,
    /// Capacity by qualified name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub capacity: BTreeMap<String, Capacity>,
    /// The driver's taints of the device.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub taints: Vec<Taint>,
}

/// The value of an attribute: exactly one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Attribute {
    /// A truth value.
    Bool(bool),
    /// A number.
    Int(i64),
    /// A text of at most 64 bytes.
    String(String),
    /// A semantic version 2.0.0 of at most 64 bytes.
    Version(String),
}

/// A capacity: a quantity as Kubernetes writes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Capacity {
    /// Such as `80Gi`.
    pub value: String,
}

/// What the node has, as one pool: the input of the publisher.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pool {
    /// The cards, in the order in which they should be preferred. A card's devices stay together in one slice.
    pub cards: Vec<Card>,
}

/// One physical card and the devices that it offers: itself, or its partitions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Card {
    /// Its devices, at least one.
    pub devices: Vec<Device>,
}

impl Device {
    /// The attribute of this name, if it is a text.
    #[must_use]
    pub fn text(&self, attribute: &str) -> Option<&str> {
        match self.attributes.get(attribute) {
            Some(Attribute::String(text)) => Some(text),
            Some(Attribute::Bool(_) | Attribute::Int(_) | Attribute::Version(_)) | None => None,
        }
    }
}

fn null_is_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: serde::Deserializer<'de>,
    T: Default + Deserialize<'de>,
{
    Ok(Option::deserialize(deserializer)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::{Attribute, Device, SliceSpec};

    #[test]
    fn the_wire_form_is_that_of_resource_v1() {
        let spec: SliceSpec = serde_json::from_value(serde_json::json!({
            "driver": "gpu.devicetaint.dev",
            "nodeName": "node-a",
            "pool": {"name": "node-a", "generation": 3, "resourceSliceCount": 2},
            "devices": [{
                "name": "gpu-0000-3b-00-0",
                "attributes": {"gpu.nvidia.com/uuid": {"string": "GPU-1"}, "gpu.nvidia.com/n": {"int": 4}},
                "capacity": {"gpu.nvidia.com/memory": {"value": "80Gi"}},
                "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-11-30T10:00:00Z"}]
            }]
        }))
        .unwrap();
        let device = &spec.devices[0];
        assert_eq!(device.text("gpu.nvidia.com/uuid"), Some("GPU-1"));
        assert_eq!(device.attributes["gpu.nvidia.com/n"], Attribute::Int(4));
        assert_eq!(device.taints[0].time_added.map(jiff::Timestamp::as_second), Some(1_796_032_800));
        let back = serde_json::to_value(&spec).unwrap();
        assert_eq!(back["devices"][0]["taints"][0]["timeAdded"], "2026-11-30T10:00:00Z");
        assert_eq!(serde_json::from_value::<SliceSpec>(back).unwrap(), spec);
    }

    #[test]
    fn absent_and_null_devices_are_an_empty_slice_and_empty_devices_are_written() {
        let with = |devices: serde_json::Value| {
            let mut text =
                serde_json::json!({"driver": "d", "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1}});
            if !devices.is_string() {
                text["devices"] = devices;
            }
            serde_json::from_value::<SliceSpec>(text).unwrap()
        };
        for spec in [with("absent".into()), with(serde_json::Value::Null), with(serde_json::json!([]))] {
            assert_eq!(spec.devices, Vec::<Device>::new());
            assert_eq!(serde_json::to_value(&spec).unwrap()["devices"], serde_json::json!([]));
        }
    }
}
