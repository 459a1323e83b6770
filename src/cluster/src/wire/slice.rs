//! resource.k8s.io/v1 `ResourceSlice`: the devices of a part of a pool, with their taints.

use std::collections::BTreeMap;

use serde::Deserialize;
use taints::Taint;
use taints::fleet::Change;
use taints::object::{Attribute, Device, Identity, Key, Slice};

use super::Wire;
use super::meta::{Meta, nullable};
use crate::kind::Kind;
use crate::mark;

/// NVIDIA's own domain of attributes: existing CEL selectors use it, so every GPU driver writes it.
const GPU_DOMAIN: &str = "gpu.nvidia.com";

/// The part of a ResourceSlice that we read.
#[derive(Debug, Deserialize)]
pub struct SliceWire {
    metadata: Meta,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    driver: String,
    pool: Pool,
    #[serde(default, deserialize_with = "nullable")]
    node_name: String,
    all_nodes: Option<bool>,
    #[serde(default, deserialize_with = "nullable")]
    devices: Vec<DeviceWire>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Pool {
    name: String,
    #[serde(default)]
    generation: i64,
    #[serde(default)]
    resource_slice_count: i64,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct DeviceWire {
    name: String,
    #[serde(default, deserialize_with = "nullable")]
    attributes: BTreeMap<String, AttributeWire>,
    #[serde(default, deserialize_with = "nullable")]
    capacity: BTreeMap<String, Capacity>,
    #[serde(default, deserialize_with = "nullable")]
    taints: Vec<Taint>,
    allow_multiple_allocations: Option<bool>,
}

/// A list form (`ints`, `strings`, ... of a later Kubernetes) is none of these, and is left out.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct AttributeWire {
    bool: Option<bool>,
    int: Option<i64>,
    string: Option<String>,
    version: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Capacity {
    value: Quantity,
}

/// The API writes quantities as text, but reads plain numbers too.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Quantity {
    Text(String),
    Number(serde_json::Number),
}

impl Wire for SliceWire {
    const KIND: Kind = Kind::Slice;
    type Object = Slice;

    fn into_object(self) -> Result<Slice, String> {
        let Self { metadata, spec } = self;
        let devices = spec.devices.into_iter().map(|device| device.into_object(&spec.driver)).collect();
        Ok(Slice {
            name: metadata.name,
            uid: metadata.uid,
            created: metadata.creation_timestamp,
            driver: spec.driver,
            pool: spec.pool.name,
            generation: spec.pool.generation,
            slice_count: spec.pool.resource_slice_count,
            node_name: Some(spec.node_name).filter(|name| !name.is_empty()),
            follows_marks: metadata.labels.get(mark::FOLLOWS_MARKS).is_some_and(|version| version == mark::VERSION),
            all_nodes: spec.all_nodes.unwrap_or(false),
            devices,
        })
    }

    fn applied(object: Slice) -> Change {
        Change::Slice(object)
    }

    fn gone(key: Key) -> Change {
        Change::SliceGone(key.name)
    }
}

impl DeviceWire {
    fn into_object(self, driver: &str) -> Device {
        let attributes: BTreeMap<String, Attribute> = self
            .attributes
            .into_iter()
            .filter_map(|(name, value)| Some((qualified(&name, driver), value.into_object()?)))
            .collect();
        Device {
            identity: identity(&attributes, driver),
            name: self.name,
            taints: self.taints,
            attributes,
            capacity: self.capacity.into_iter().map(|(name, c)| (qualified(&name, driver), c.value.text())).collect(),
            allow_multiple_allocations: self.allow_multiple_allocations.unwrap_or(false),
        }
    }
}

impl AttributeWire {
    fn into_object(self) -> Option<Attribute> {
        let bool = self.bool.map(Attribute::Bool);
        let int = self.int.map(Attribute::Int);
        bool.or(int).or(self.string.map(Attribute::String)).or(self.version.map(Attribute::Version))
    }
}

impl Quantity {
    fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Number(number) => number.to_string(),
        }
    }
}

/// A bare name belongs to the driver's domain (resource/v1 `QualifiedName`).
fn qualified(name: &str, driver: &str) -> String {
    if name.contains('/') { name.to_owned() } else { format!("{driver}/{name}") }
}

/// The hardware behind the name, from NVIDIA's attributes or the driver's own of the same name.
fn identity(attributes: &BTreeMap<String, Attribute>, driver: &str) -> Identity {
    let text = |name: &str| {
        [GPU_DOMAIN, driver].iter().find_map(|domain| match attributes.get(&format!("{domain}/{name}")) {
            Some(Attribute::String(text)) if !text.is_empty() => Some(text.clone()),
            _ => None,
        })
    };
    Identity { uuid: text("uuid"), serial: text("serial") }
}
