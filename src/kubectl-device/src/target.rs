//! From the words of a person to one device: `NODE/DEVICE`.

use taints::Taint;
use taints::fleet::Listed;
use taints::object::{DeviceId, Identity, Slice};

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
    /// Whether its driver makes taints of DeviceMarks.
    pub(crate) follows_marks: bool,
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
    let devices: Vec<Listed<'_>> = world.devices().filter(|listed| is_of(listed.slice, node)).collect();
    let named = devices.iter().filter(|listed| listed.device.name == name);
    let wanted = named.filter(|listed| driver.is_none_or(|driver| driver == listed.slice.driver));
    let mut found: Vec<Found> = wanted.map(found).collect();
    // A pool that is being published may list a device twice.
    found.sort_by(|a, b| a.id.cmp(&b.id));
    found.dedup_by(|a, b| a.id == b.id);
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(last), false) => {
            let drivers = found.into_iter().chain([last]).map(|found| found.id.driver).collect();
            Err(TargetError::Ambiguous { target: target.to_owned(), drivers })
        }
        (None, _) => Err(TargetError::Unknown { node: node.to_owned(), device: name.to_owned(), hint: hint(&devices) }),
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

fn found(listed: &Listed<'_>) -> Found {
    Found {
        id: listed.id(),
        identity: listed.device.identity.clone(),
        taints: listed.device.taints.clone(),
        follows_marks: listed.slice.follows_marks,
    }
}

fn hint(devices: &[Listed<'_>]) -> String {
    let mut names: Vec<&str> = devices.iter().map(|listed| listed.device.name.as_str()).collect();
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
    use taints::fleet::Change;
    use taints::object::Device;

    fn slice(name: &str, generation: i64, driver: &str, uuid: &str) -> Change {
        let identity = Identity { uuid: Some(uuid.into()), serial: None };
        Change::Slice(Slice {
            name: name.into(),
            uid: name.into(),
            driver: driver.into(),
            pool: "n1".into(),
            generation,
            slice_count: 1,
            node_name: Some("n1".into()),
            devices: vec![Device { name: "gpu-0".into(), identity, ..Device::default() }],
            ..Slice::default()
        })
    }

    fn world(slices: impl IntoIterator<Item = Change>) -> World {
        let mut world = World::empty();
        slices.into_iter().for_each(|slice| drop(world.fleet.apply(slice)));
        world
    }

    #[test]
    fn the_card_of_the_newest_generation_is_meant() {
        for order in [["a", "b"], ["b", "a"]] {
            let [old, new] = order;
            let world = world([slice(old, 1, "d", "GPU-old"), slice(new, 2, "d", "GPU-new")]);
            let found = find(&world, "n1/gpu-0", None).unwrap();
            assert_eq!(found.identity.uuid.as_deref(), Some("GPU-new"));
        }
    }

    #[test]
    fn two_drivers_are_told_apart_and_no_device_has_a_hint() {
        let world = world([slice("a", 1, "d", "GPU-1"), slice("b", 1, "e", "GPU-2")]);
        let refused = find(&world, "n1/gpu-0", None).unwrap_err().to_string();
        assert!(refused.contains("d, e; choose with --driver"), "{refused}");
        assert_eq!(find(&world, "n1/gpu-0", Some("e")).unwrap().id.driver, "e");
        let refused = find(&world, "n1/gpu-7", None).unwrap_err().to_string();
        assert!(refused.contains("it publishes gpu-0"), "{refused}");
        assert!(find(&world, "n2/gpu-0", None).unwrap_err().to_string().contains("none at all"));
    }

    #[test]
    fn a_target_is_a_node_and_a_device() {
        assert_eq!(split("n1/gpu-0"), Ok(("n1", "gpu-0")));
        for wrong in ["gpu-0", "/gpu-0", "n1/", "a/b/c", ""] {
            assert_eq!(split(wrong), Err(TargetError::Form(wrong.to_owned())));
        }
    }
}
