//! One GPU in the control file: what it is, what it says, what is wrong with it.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Health, Profile};

/// A PCI address, written `0000:3b:00.0`; NVML's own spelling is read too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Pci {
    /// Domain.
    pub domain: u32,
    /// Bus.
    pub bus: u8,
    /// Device.
    pub device: u8,
    /// Function.
    pub function: u8,
}

impl Pci {
    /// Reads an address; `None` if the text is not one.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split([':', '.']);
        let mut part = || parts.next().filter(|digits| digits.bytes().all(|b| b.is_ascii_hexdigit()));
        let domain = u32::from_str_radix(part()?, 16).ok()?;
        let mut byte = || u8::from_str_radix(part()?, 16).ok();
        let address = Self { domain, bus: byte()?, device: byte()?, function: byte()? };
        (address.device < 32 && address.function < 8 && text.split([':', '.']).count() == 4).then_some(address)
    }

    /// NVML's spelling: `00000000:3B:00.0`.
    #[must_use]
    pub fn bus_id(self) -> String {
        format!("{:08X}:{:02X}:{:02X}.{:X}", self.domain, self.bus, self.device, self.function)
    }
}

impl fmt::Display for Pci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}:{:02x}:{:02x}.{:x}", self.domain, self.bus, self.device, self.function)
    }
}

impl TryFrom<String> for Pci {
    type Error = String;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(&text).ok_or_else(|| format!("`{text}` is not a PCI address such as 0000:3b:00.0"))
    }
}

impl From<Pci> for String {
    fn from(pci: Pci) -> Self {
        pci.to_string()
    }
}

/// One GPU. Everything but `profile` and `pci` has a default, from the profile or from the address.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Gpu {
    /// The kind of card.
    pub profile: Profile,
    /// Where it sits.
    pub pci: Pci,
    /// `GPU-...`; derived from address and profile if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// Serial number; derived likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// `N` of `/dev/nvidiaN`; the place in the list if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Product name instead of the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// NVML's brand number instead of the profile's; any number, to test unknown ones.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub brand: Option<u32>,
    /// NVML's architecture number instead of the profile's; likewise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub architecture: Option<u32>,
    /// Memory in bytes instead of the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// NUMA node of the GPU's own memory; not supported if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub numa_node: Option<u32>,
    /// Event types that can be registered, as bits, instead of the profile's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supported_events: Option<u64>,
    /// Partitioning. Without it, off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mig: Option<Mig>,
    /// Health values instead of the profile's.
    #[serde(default, skip_serializing_if = "Health::is_empty")]
    pub health: Health,
    /// Values of single field ids, over everything else: `{"230": 1}`.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub fields: BTreeMap<u32, u64>,
    /// Return codes of single field ids: `{"230": 3}` is a driver without the recovery action.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub field_errors: BTreeMap<u32, u32>,
    /// Off the bus: every call about it answers `GPU_IS_LOST`, and every search by UUID or serial too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lost: bool,
    /// Calls that touch the card answer `RESET_REQUIRED`; those that tell which card it is still work.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub reset_required: bool,
    /// Not in the list at all, as if drained and removed. It keeps its place for the minors of the others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub absent: bool,
    /// Events, each delivered once in a process.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// What goes wrong in calls about this GPU and its partitions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults: Vec<Fault>,
}

impl Gpu {
    /// A healthy card. The address must be one: `control.check` refuses another when the file is written.
    #[must_use]
    pub fn seeded(profile: Profile, pci: &str, seed: u64) -> Self {
        let pci = Pci::parse(pci).unwrap_or(Pci { domain: u32::MAX, bus: 0, device: 0, function: 0 });
        Self {
            uuid: Some(derived_uuid("GPU", seed, profile, pci)),
            serial: Some(derived_serial(seed, profile, pci)),
            ..Self::plain(profile, pci)
        }
    }

    fn plain(profile: Profile, pci: Pci) -> Self {
        Self {
            profile,
            pci,
            uuid: None,
            serial: None,
            minor: None,
            name: None,
            brand: None,
            architecture: None,
            memory_bytes: None,
            numa_node: None,
            supported_events: None,
            mig: None,
            health: Health::default(),
            fields: BTreeMap::new(),
            field_errors: BTreeMap::new(),
            lost: false,
            reset_required: false,
            absent: false,
            events: Vec::new(),
            faults: Vec::new(),
        }
    }

    /// The UUID that the library answers.
    #[must_use]
    pub fn effective_uuid(&self) -> String {
        self.uuid.clone().unwrap_or_else(|| derived_uuid("GPU", 0, self.profile, self.pci))
    }

    /// The serial number that the library answers.
    #[must_use]
    pub fn effective_serial(&self) -> String {
        self.serial.clone().unwrap_or_else(|| derived_serial(0, self.profile, self.pci))
    }

    /// Turns MIG on with these partitions, given as (profile, start slice). GPU instance ids count from 1, each has compute instance 0.
    #[must_use]
    pub fn with_mig(mut self, layout: &[(&str, u32)]) -> Self {
        let instance = |(gi, (profile, start)): (u32, &(&str, u32))| MigInstance {
            gi,
            ci: 0,
            profile: (*profile).to_owned(),
            start: *start,
            uuid: None,
        };
        let instances = (1..).zip(layout).map(instance).collect();
        self.mig = Some(Mig { mode: true, pending: None, instances });
        self
    }
}

/// Partitioning of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Mig {
    /// The mode now.
    pub mode: bool,
    /// The mode after the next reset; as now if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<bool>,
    /// The partitions, in NVML's order.
    #[serde(default)]
    pub instances: Vec<MigInstance>,
}

/// One partition: a compute instance of a GPU instance.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MigInstance {
    /// GPU instance id.
    pub gi: u32,
    /// Compute instance id.
    pub ci: u32,
    /// Profile name, such as `1g.10gb`.
    pub profile: String,
    /// First memory slice.
    pub start: u32,
    /// `MIG-...`; derived from the GPU's if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
}

/// An event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    /// Its name: a process gets each id once for each GPU.
    pub id: String,
    /// An XID with this code; short for type 8 and this data.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub xid: Option<u64>,
    /// The type's bit, if it is no XID. Any number, to test unknown ones.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub event_type: Option<u64>,
    /// The data of an event that is no XID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<u64>,
    /// GPU instance; the whole GPU if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gi: Option<u32>,
    /// Compute instance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ci: Option<u32>,
}

impl Event {
    /// An XID of the whole GPU.
    #[must_use]
    pub fn xid(id: &str, code: u64) -> Self {
        Self { id: id.to_owned(), xid: Some(code), event_type: None, data: None, gi: None, ci: None }
    }

    /// An event of any type.
    #[must_use]
    pub fn of_type(id: &str, event_type: u64, data: u64) -> Self {
        Self { id: id.to_owned(), xid: None, event_type: Some(event_type), data: Some(data), gi: None, ci: None }
    }

    /// The same event, of one partition.
    #[must_use]
    pub fn on(mut self, gi: u32, ci: u32) -> Self {
        (self.gi, self.ci) = (Some(gi), Some(ci));
        self
    }

    /// Type bit and data as the library delivers them.
    #[must_use]
    pub fn type_and_data(&self) -> (u64, u64) {
        match self.xid {
            Some(code) => (0x8, code),
            None => (self.event_type.unwrap_or(0), self.data.unwrap_or(0)),
        }
    }
}

/// What goes wrong in a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// The C function, or `*` for every function about this GPU.
    pub function: String,
    /// The code that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<u32>,
    /// It does not return while this fault is in the file.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub hang: bool,
}

impl Fault {
    /// The function answers `code`.
    #[must_use]
    pub fn error(function: &str, code: u32) -> Self {
        Self { function: function.to_owned(), error: Some(code), hang: false }
    }

    /// The function does not return until the fault is taken out of the file.
    #[must_use]
    pub fn hang(function: &str) -> Self {
        Self { function: function.to_owned(), error: None, hang: true }
    }

    /// Events of the GPU cannot be registered.
    #[must_use]
    pub fn register_events(code: u32) -> Self {
        Self::error("nvmlDeviceRegisterEvents", code)
    }

    /// Whether the fault is about this function.
    #[must_use]
    pub fn is_about(&self, function: &str) -> bool {
        self.function == "*" || self.function == function
    }
}

/// A UUID that is the same for the same card of the same seed, and another for every other.
pub(crate) fn derived_uuid(prefix: &str, seed: u64, profile: Profile, pci: Pci) -> String {
    let high = mix(seed ^ mix(u64::from(pci.domain) << 24 | slot(pci)) ^ mix(profile as u64));
    let low = mix(high);
    format!(
        "{prefix}-{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        high >> 32,
        high >> 16 & 0xffff,
        high & 0xffff,
        low >> 48,
        low & 0xffff_ffff_ffff
    )
}

fn derived_serial(seed: u64, profile: Profile, pci: Pci) -> String {
    let number = mix(mix(seed.wrapping_add(0x5e41a1)) ^ slot(pci) ^ mix(profile as u64)) % 1_000_000_000_000;
    format!("1{number:012}")
}

fn slot(pci: Pci) -> u64 {
    u64::from(pci.bus) << 16 | u64::from(pci.device) << 8 | u64::from(pci.function)
}

/// The finaliser of SplitMix64: spreads neighbouring seeds over all bits.
fn mix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ z >> 31
}
