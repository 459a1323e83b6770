//! What preparing needs to know of this node's devices, as a snapshot: it reads this and never calls NVML.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Which piece of hardware a device was when a claim was prepared with it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// `GPU-...` or `MIG-...`; absent where it was never read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub uuid: Option<String>,
    /// The board's serial number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// The card's PCI address.
    pub pci: String,
}

impl Identity {
    /// What differs, in words; `None` while nothing that both sides know differs.
    #[must_use]
    pub fn difference(&self, now: &Self) -> Option<String> {
        let differ = |a: &Option<String>, b: &Option<String>| matches!((a, b), (Some(a), Some(b)) if a != b);
        if differ(&self.uuid, &now.uuid) {
            return Some(format!("it was {} and is {}", told(&self.uuid), told(&now.uuid)));
        }
        if differ(&self.serial, &now.serial) {
            return Some(format!("its serial was {} and is {}", told(&self.serial), told(&now.serial)));
        }
        (self.pci != now.pci).then(|| format!("it was at {} and is at {}", self.pci, now.pci))
    }
}

fn told(value: &Option<String>) -> &str {
    value.as_deref().unwrap_or("unknown")
}

/// Whether a device can be given to a pod.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// It answers.
    Ready,
    /// Nobody can tell, and why: NVML is away, or has not been asked. Nothing new starts on it.
    Unknown(String),
    /// It does not answer, and why.
    Lost(String),
}

/// One device of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hardware {
    /// Which piece of hardware it is.
    pub identity: Identity,
    /// `N` of the card's `/dev/nvidiaN`.
    pub minor: Option<u32>,
    /// Whether it can be given to a pod.
    pub condition: Condition,
    /// Who else offers its card, in words: then nothing new is prepared on it. What is prepared already goes on.
    pub other_owner: Option<String>,
}

/// The devices of this node, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Devices(pub BTreeMap<String, Hardware>);

#[cfg(test)]
mod tests {
    use super::Identity;

    fn identity(uuid: Option<&str>, serial: Option<&str>, pci: &str) -> Identity {
        Identity { uuid: uuid.map(Into::into), serial: serial.map(Into::into), pci: pci.to_owned() }
    }

    #[test]
    fn only_what_both_sides_know_can_differ() {
        let old = identity(Some("GPU-a"), Some("1"), "0000:3b:00.0");
        assert_eq!(old.difference(&old), None);
        assert_eq!(old.difference(&identity(None, None, "0000:3b:00.0")), None);
        assert_eq!(
            old.difference(&identity(Some("GPU-b"), None, "0000:3b:00.0")).unwrap(),
            "it was GPU-a and is GPU-b"
        );
        assert!(old.difference(&identity(Some("GPU-a"), Some("2"), "0000:3b:00.0")).unwrap().contains("serial"));
        assert!(old.difference(&identity(None, None, "0000:41:00.0")).unwrap().contains("0000:41:00.0"));
    }
}
