//! What others offer of this node's cards, read from its Node and from the slices of other drivers. Pure.
//!
//! A device plugin's resource names no card, so it stands for all of them. A slice names its devices by attributes, for which drivers have names of
//! their own: those in use are known here, with any domain in front or none.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::nvml::PciAddress;

/// Resources of NVIDIA's device plugin: whole cards, shares of them, and partitions.
const PLUGIN_RESOURCES: [&str; 2] = ["nvidia.com/gpu", "nvidia.com/gpu.shared"];
const PLUGIN_PARTITIONS: &str = "nvidia.com/mig-";

/// Names of attributes that hold the PCI address of the device or of its card, in small letters, without domain and separators.
const ADDRESSES: [&str; 7] = ["pcibusid", "pciebusid", "pciaddress", "pcieaddress", "pcidevicebusid", "busid", "bdf"];
/// Names of attributes that hold the UUID of the device or of its card, in the same form.
const UUIDS: [&str; 5] = ["uuid", "parentuuid", "gpuuuid", "deviceuuid", "carduuid"];

/// Who offers something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// A device plugin: the resource is allocatable on this node.
    Plugin {
        /// The resource.
        resource: String,
    },
    /// A DRA driver: a slice of this node lists the card.
    Driver {
        /// The driver.
        name: String,
    },
}

/// Which cards an owner offers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// Not told: any of them.
    Any,
    /// The card at this address.
    At(PciAddress),
    /// The card or partition of this UUID, in small letters.
    Is(String),
}

/// One thing that somebody else offers.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Offer {
    /// Who.
    pub owner: Owner,
    /// What.
    pub which: Which,
}

impl Owner {
    /// Its kind, as a metric's label.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Plugin { .. } => "device-plugin",
            Self::Driver { .. } => "driver",
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plugin { resource } => write!(f, "a device plugin ({resource} is allocatable on this node)"),
            Self::Driver { name } => write!(f, "driver {name}"),
        }
    }
}

/// What device plugins offer by this Node object.
#[must_use]
pub fn of_node(node: &Value) -> BTreeSet<Offer> {
    let allocatable = node["status"]["allocatable"].as_object().into_iter().flatten();
    let theirs = |resource: &str| PLUGIN_RESOURCES.contains(&resource) || resource.starts_with(PLUGIN_PARTITIONS);
    allocatable
        .filter(|(resource, amount)| theirs(resource) && is_some(amount))
        .map(|(resource, _)| Offer { owner: Owner::Plugin { resource: resource.clone() }, which: Which::Any })
        .collect()
}

/// What another driver than ours offers by this slice (resource.k8s.io/v1).
#[must_use]
pub fn of_slice(slice: &Value, ours: &str) -> BTreeSet<Offer> {
    let driver = slice["spec"]["driver"].as_str().unwrap_or_default();
    if driver == ours {
        return BTreeSet::new();
    }
    let devices = slice["spec"]["devices"].as_array().into_iter().flatten();
    let attributes = devices.filter_map(|device| device["attributes"].as_object()).flatten();
    let named = attributes.filter_map(|(name, value)| which(name, value["string"].as_str()?));
    named.map(|which| Offer { owner: Owner::Driver { name: driver.to_owned() }, which }).collect()
}

/// The card that an attribute names. An address that is none, and an attribute of another meaning, name no card.
fn which(attribute: &str, value: &str) -> Option<Which> {
    let name = attribute.rsplit('/').next().unwrap_or_default().to_ascii_lowercase().replace('_', "");
    if ADDRESSES.contains(&name.as_str()) {
        return value.trim().parse().ok().map(Which::At);
    }
    let value = value.trim().to_ascii_lowercase();
    (UUIDS.contains(&name.as_str()) && !value.is_empty()).then_some(Which::Is(value))
}

/// Whether a quantity is more than nothing.
fn is_some(amount: &Value) -> bool {
    match amount {
        Value::String(text) => text.bytes().any(|byte| (b'1'..=b'9').contains(&byte)),
        Value::Number(number) => number.as_f64().is_some_and(|number| number > 0.0),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn resources(allocatable: &Value) -> Vec<String> {
        let offers = of_node(&json!({"status": {"allocatable": allocatable}}));
        offers.into_iter().map(|offer| offer.owner.to_string()).collect()
    }

    fn slice(attributes: &Value) -> BTreeSet<Offer> {
        let device = json!({"name": "gpu-0", "attributes": attributes});
        of_slice(&json!({"spec": {"driver": "gpu.nvidia.com", "devices": [device]}}), "gpu.devicetaint.dev")
    }

    fn named(attribute: &str, value: &str) -> Option<Which> {
        slice(&json!({attribute: {"string": value}})).into_iter().next().map(|offer| offer.which)
    }

    #[test]
    fn every_resource_of_nvidias_device_plugin_counts_while_there_is_some_of_it() {
        let names = |names: &[&str]| -> Vec<String> {
            names.iter().map(|name| format!("a device plugin ({name} is allocatable on this node)")).collect()
        };
        assert_eq!(resources(&json!({"nvidia.com/gpu": "8", "cpu": "4"})), names(&["nvidia.com/gpu"]));
        assert_eq!(resources(&json!({"nvidia.com/gpu.shared": "40"})), names(&["nvidia.com/gpu.shared"]));
        assert_eq!(resources(&json!({"nvidia.com/mig-1g.10gb": "7"})), names(&["nvidia.com/mig-1g.10gb"]));
        assert_eq!(resources(&json!({"nvidia.com/gpu": 1})), names(&["nvidia.com/gpu"]));
        for none in [
            json!({"nvidia.com/gpu": "0"}),
            json!({"nvidia.com/gpu": 0}),
            json!({"amd.com/gpu": "8", "nvidia.com/hostdev": "1", "cpu": "4"}),
            json!({}),
            json!(null),
        ] {
            assert_eq!(resources(&none), Vec::<String>::new(), "{none}");
        }
        assert_eq!(of_node(&json!({})), BTreeSet::new());
    }

    #[test]
    fn an_address_is_read_under_any_usual_name_and_in_either_spelling() {
        let at = Some(Which::At("0000:3b:00.0".parse().unwrap()));
        for name in [
            "resource.kubernetes.io/pciBusID",
            "gpu.nvidia.com/pcieBusID",
            "pciBusID",
            "pcie_bus_id",
            "dra.example.org/pciAddress",
            "BDF",
        ] {
            assert_eq!(named(name, "0000:3b:00.0"), at, "{name}");
            assert_eq!(named(name, "00000000:3B:00.0"), at, "{name}");
        }
    }

    #[test]
    fn a_uuid_is_read_under_any_usual_name() {
        for name in ["uuid", "gpu.nvidia.com/uuid", "gpu.nvidia.com/parentUUID", "x.org/gpu_uuid"] {
            assert_eq!(named(name, "GPU-AB"), Some(Which::Is("gpu-ab".to_owned())), "{name}");
        }
    }

    #[test]
    fn what_names_no_card_is_no_offer() {
        // The root port above a card, and what a network card says of the GPU beside it.
        assert_eq!(named("resource.kubernetes.io/pcieRoot", "pci0000:3a"), None);
        assert_eq!(named("nic.example.org/nearestGpuBusID", "0000:3b:00.0"), None);
        assert_eq!(named("pciBusID", "slot 3"), None);
        assert_eq!(named("uuid", ""), None);
        assert_eq!(slice(&json!({"uuid": {"int": 3}, "index": {"int": 0}})), BTreeSet::new());
    }

    #[test]
    fn our_own_slices_and_odd_ones_offer_nothing() {
        let attributes = json!({"uuid": {"string": "GPU-1"}});
        let own = json!({"spec": {"driver": "d", "devices": [{"name": "a", "attributes": attributes}]}});
        assert_eq!(of_slice(&own, "d"), BTreeSet::new());
        for odd in [json!({}), json!({"spec": 3}), json!({"spec": {"driver": "x", "devices": ["a", {"name": "b"}]}})] {
            assert_eq!(of_slice(&odd, "d"), BTreeSet::new(), "{odd}");
        }
    }
}
