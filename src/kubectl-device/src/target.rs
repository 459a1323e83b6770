//! From the words of a person to one device: `NODE/DEVICE`.

use taints::Taint;
use taints::object::{Device, DeviceId, Identity, Slice};

use crate::world::World;

/// A device that was found.
#[derive(Clone, Debug)]
pub(crate) struct Found {
    /// Its name.
    pub(crate) id: DeviceId,
    /// The hardware.
    pub(crate) identity: Identity,
    /// The driver's own taints.
    pub(crate) taints: Vec<Taint>,
}

/// Why no device, or more than one, is meant.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum TargetError {
    /// Not of the form.
    #[error(
        "`{0}` names no device: write NODE/DEVICE, such as node-1/gpu-0000-3b-00-0 (`kubectl device list` shows them)"
    )]
    Form(String),
    /// No slice lists it.
    #[error("node {node} publishes no device {device}{hint}")]
    Unknown {
        /// The node.
        node: String,
        /// The device.
        device: String,
        /// What it does publish.
        hint: String,
    },
    /// Several drivers do.
    #[error("several drivers publish {target}: {}; choose with --driver", .drivers.join(", "))]
    Ambiguous {
        /// What was asked for.
        target: String,
        /// The drivers.
        drivers: Vec<String>,
    },
}

/// Finds the device. A pool stands for the node whose devices it holds, or by its own name.
pub(crate) fn find(world: &World, target: &str, driver: Option<&str>) -> Result<Found, TargetError> {
    let (node, name) = split(target)?;
    let slices: Vec<&Slice> = world.slices.iter().filter(|slice| is_of(slice, node)).collect();
    let wanted = slices.iter().filter(|slice| driver.is_none_or(|driver| driver == slice.driver));
    let mut found: Vec<Found> = wanted.flat_map(|slice| matching(slice, name)).collect();
    // An old generation may list the device once more.
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found.dedup_by(|a, b| a.id == b.id);
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(last), false) => {
            let drivers = found.into_iter().chain([last]).map(|found| found.id.driver).collect();
            Err(TargetError::Ambiguous { target: target.to_owned(), drivers })
        }
        (None, _) => Err(TargetError::Unknown { node: node.to_owned(), device: name.to_owned(), hint: hint(&slices) }),
    }
}

/// Node and device of `NODE/DEVICE`.
pub(crate) fn split(target: &str) -> Result<(&str, &str), TargetError> {
    match target.split_once('/') {
        Some((node, device)) if !node.is_empty() && !device.is_empty() && !device.contains('/') => Ok((node, device)),
        _ => Err(TargetError::Form(target.to_owned())),
    }
}

fn is_of(slice: &Slice, node: &str) -> bool {
    slice.node_name.as_deref() == Some(node) || slice.pool == node
}

fn matching<'a>(slice: &'a Slice, name: &'a str) -> impl Iterator<Item = Found> + 'a {
    slice.devices.iter().filter(move |device| device.name == name).map(|device| found(slice, device))
}

fn found(slice: &Slice, device: &Device) -> Found {
    let id = DeviceId { driver: slice.driver.clone(), pool: slice.pool.clone(), device: device.name.clone() };
    Found { id, identity: device.identity.clone(), taints: device.taints.clone() }
}

fn hint(slices: &[&Slice]) -> String {
    let mut names: Vec<&str> =
        slices.iter().flat_map(|slice| slice.devices.iter().map(|device| device.name.as_str())).collect();
    names.sort_unstable();
    names.dedup();
    if names.is_empty() {
        "; it publishes none at all".to_owned()
    } else {
        format!("; it publishes {}", names.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_is_a_node_and_a_device() {
        assert_eq!(split("n1/gpu-0"), Ok(("n1", "gpu-0")));
        for wrong in ["gpu-0", "/gpu-0", "n1/", "a/b/c", ""] {
            assert_eq!(split(wrong), Err(TargetError::Form(wrong.to_owned())));
        }
    }
}
