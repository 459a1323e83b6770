//! A device as it is published: a card, or a partition of one.

use std::collections::BTreeMap;

use super::SeenVersions;
use super::attributes::{Attribute, cut, memory_quantity, semver_of};
use super::card::{Card, Partition};
use super::name::{gpu_name, mig_name};
use crate::nvml::PciAddress;

/// The domain of NVIDIA's own DRA driver: the same attributes make existing CEL selectors work.
const NVIDIA: &str = "gpu.nvidia.com";
/// The domain of attributes that Kubernetes itself names.
const KUBERNETES: &str = "resource.kubernetes.io";

/// What a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DeviceKind {
    /// A whole card.
    Gpu,
    /// A partition of one.
    Mig,
}

/// A device of this node.
#[derive(Clone, Debug, PartialEq)]
pub struct Device {
    /// Its name in the pool: a DNS label that stays with the place.
    pub name: String,
    /// Card or partition.
    pub kind: DeviceKind,
    /// Where the card is.
    pub pci: PciAddress,
    /// `GPU-...` or `MIG-...`; `None` for a card that never answered.
    pub uuid: Option<String>,
    /// `GPU-...` of the card.
    pub card_uuid: Option<String>,
    /// Serial number of the board.
    pub serial: Option<String>,
    /// `N` of `/dev/nvidiaN` of the card, from its last look.
    pub minor: Option<u32>,
    /// Name of the card, for a partition.
    pub parent: Option<String>,
    /// GPU instance id, for a partition.
    pub gpu_instance: Option<u32>,
    /// Compute instance id, for a partition.
    pub compute_instance: Option<u32>,
    /// Counts the cards seen at this address: claims of another number are for other hardware.
    pub generation: u64,
    /// The card answered at the last look. Prepare nothing new on a device that is not.
    pub present: bool,
    /// Attributes by qualified name.
    pub attributes: BTreeMap<String, Attribute>,
    /// Capacity by qualified name; a value is a Kubernetes quantity.
    pub capacity: BTreeMap<String, String>,
}

/// The devices of one card. A partitioned card cannot be used as a whole, so its partitions stand in its place.
pub(super) fn devices_of(card: &Card, versions: &SeenVersions) -> Vec<Device> {
    if !card.facts.mig {
        return vec![whole(card, versions)];
    }
    card.facts.partitions.iter().map(|partition| part(card, partition, versions)).collect()
}

/// Whether two lists are the same to those who read slices.
pub(super) fn same_published(before: &[Device], after: &[Device]) -> bool {
    let published = |device: &Device| (device.name.clone(), device.attributes.clone(), device.capacity.clone());
    before.iter().map(published).eq(after.iter().map(published))
}

fn whole(card: &Card, versions: &SeenVersions) -> Device {
    let mut attributes = common(card, versions);
    put(&mut attributes, "type", Some(Attribute::text("gpu")));
    put(&mut attributes, "uuid", card.identity.uuid.as_deref().map(Attribute::text));
    put(&mut attributes, "serial", card.identity.serial.as_deref().map(Attribute::text));
    let memory = card.facts.memory_bytes.map(|bytes| (nvidia("memory"), memory_quantity(bytes)));
    Device {
        name: gpu_name(card.pci),
        kind: DeviceKind::Gpu,
        pci: card.pci,
        uuid: card.identity.uuid.clone(),
        card_uuid: card.identity.uuid.clone(),
        serial: card.identity.serial.clone(),
        minor: card.facts.minor,
        parent: None,
        gpu_instance: None,
        compute_instance: None,
        generation: card.generation,
        present: card.is_present(),
        attributes,
        capacity: memory.into_iter().collect(),
    }
}

fn part(card: &Card, partition: &Partition, versions: &SeenVersions) -> Device {
    let mut attributes = common(card, versions);
    put(&mut attributes, "type", Some(Attribute::text("mig")));
    put(&mut attributes, "uuid", Some(Attribute::text(&partition.uuid)));
    put(&mut attributes, "parentUUID", card.identity.uuid.as_deref().map(Attribute::text));
    let profile = Some(&partition.profile).filter(|profile| !profile.is_empty());
    put(&mut attributes, "profile", profile.map(|profile| Attribute::text(profile)));
    let memory = partition.memory_bytes.map(|bytes| (nvidia("memory"), memory_quantity(bytes)));
    let processors = partition.multiprocessors.map(|count| (nvidia("multiprocessors"), count.to_string()));
    Device {
        name: mig_name(card.pci, &partition.profile, partition.start, partition.compute_instance),
        kind: DeviceKind::Mig,
        uuid: Some(partition.uuid.clone()),
        parent: Some(gpu_name(card.pci)),
        gpu_instance: Some(partition.gpu_instance),
        compute_instance: Some(partition.compute_instance),
        attributes,
        capacity: memory.into_iter().chain(processors).collect(),
        ..whole(card, versions)
    }
}

/// Attributes that a card shares with its partitions.
fn common(card: &Card, versions: &SeenVersions) -> BTreeMap<String, Attribute> {
    let facts = &card.facts;
    let text = |value: &Option<String>| value.as_deref().map(Attribute::text);
    let version = |value: Option<&str>| value.and_then(semver_of).map(Attribute::Version);
    let mut attributes = BTreeMap::new();
    put(&mut attributes, "productName", text(&facts.product));
    put(&mut attributes, "brand", text(&facts.brand));
    put(&mut attributes, "architecture", text(&facts.architecture));
    put(&mut attributes, "cudaComputeCapability", facts.capability_version().map(Attribute::Version));
    put(&mut attributes, "driverVersion", version(versions.driver.as_deref()));
    put(&mut attributes, "cudaDriverVersion", version(versions.cuda.as_deref()));
    attributes.insert(format!("{KUBERNETES}/pciBusID"), Attribute::String(cut(&card.pci.to_string())));
    if let Some(root) = &facts.pcie_root {
        attributes.insert(format!("{KUBERNETES}/pcieRoot"), Attribute::text(root));
    }
    if let Some(node) = facts.numa_node {
        attributes.insert(format!("{KUBERNETES}/numaNode"), Attribute::Int(i64::from(node)));
    }
    attributes
}

fn nvidia(name: &str) -> String {
    format!("{NVIDIA}/{name}")
}

fn put(attributes: &mut BTreeMap<String, Attribute>, name: &str, value: Option<Attribute>) {
    // An empty text is no attribute: a selector that compares with it would match by accident.
    let value = value.filter(|value| *value != Attribute::String(String::new()));
    if let Some(value) = value {
        attributes.insert(nvidia(name), value);
    }
}
