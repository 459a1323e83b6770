//! Which claim holds which device. The driver is the last line of defence: after a forced deletion a device can be allocated
//! again while the old container still runs (kubernetes/kubernetes#141471, field report F24).

use std::collections::BTreeMap;

/// Who holds a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The claim's UID.
    pub uid: String,
    /// `namespace/name`, for messages.
    pub claim: String,
}

/// A device that a claim wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Want {
    /// The device.
    pub device: String,
    /// Whether nobody else may hold it. Administrative access and shares are not exclusive, and are not counted.
    pub exclusive: bool,
}

/// A device is held by another claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "device {device} is still prepared for claim {} (UID {}), whose pod has not ended on this node; this is tried again until it has", holder.claim, holder.uid
)]
pub struct Held {
    /// The device.
    pub device: String,
    /// Who holds it.
    pub holder: Holder,
}

/// All exclusive holdings of this node.
#[derive(Clone, Debug, Default)]
pub struct Reservations(BTreeMap<String, Holder>);

impl Reservations {
    /// Takes all exclusive devices for a claim, or none of them. Devices that the same claim holds already are fine.
    ///
    /// # Errors
    /// When another claim holds one.
    pub fn take(&mut self, holder: &Holder, wants: &[Want]) -> Result<(), Held> {
        for want in wants.iter().filter(|want| want.exclusive) {
            if let Some(other) = self.0.get(&want.device).filter(|other| other.uid != holder.uid) {
                return Err(Held { device: want.device.clone(), holder: other.clone() });
            }
        }
        for want in wants.iter().filter(|want| want.exclusive) {
            self.0.insert(want.device.clone(), holder.clone());
        }
        Ok(())
    }

    /// Lets go of everything that a claim holds.
    pub fn release(&mut self, uid: &str) {
        self.0.retain(|_, holder| holder.uid != uid);
    }

    /// Who holds a device.
    #[must_use]
    pub fn holder(&self, device: &str) -> Option<&Holder> {
        self.0.get(device)
    }
}

#[cfg(test)]
mod tests {
    use super::{Holder, Reservations, Want};

    fn holder(uid: &str) -> Holder {
        Holder { uid: uid.to_owned(), claim: format!("ns/{uid}") }
    }

    fn want(device: &str, exclusive: bool) -> Want {
        Want { device: device.to_owned(), exclusive }
    }

    #[test]
    fn all_or_nothing_is_taken() {
        let mut held = Reservations::default();
        held.take(&holder("a"), &[want("gpu-0", true)]).unwrap();
        let error = held.take(&holder("b"), &[want("gpu-1", true), want("gpu-0", true)]).unwrap_err();
        assert!(error.to_string().contains("gpu-0") && error.to_string().contains("ns/a"), "{error}");
        assert_eq!(held.holder("gpu-1"), None);
        held.take(&holder("a"), &[want("gpu-0", true)]).unwrap();
        held.release("a");
        held.take(&holder("b"), &[want("gpu-0", true)]).unwrap();
    }

    #[test]
    fn shared_and_administrative_use_neither_waits_nor_blocks() {
        let mut held = Reservations::default();
        held.take(&holder("a"), &[want("gpu-0", true)]).unwrap();
        held.take(&holder("monitor"), &[want("gpu-0", false)]).unwrap();
        held.release("a");
        held.take(&holder("monitor"), &[want("gpu-0", false)]).unwrap();
        assert_eq!(held.holder("gpu-0"), None);
    }
}
