//! Which claims are prepared on this node, for which pods, with which devices: kubelet's claim cache, and its checkpoint.
//!
//! A claim is entered before a driver is asked, and leaves after every driver has let it go, so that whatever happens in between
//! is cleaned up after a restart. That a claim is prepared is not remembered across a restart: its next pod has it prepared anew,
//! and drivers answer the same again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use taints::object::Key;

/// The form of the checkpoint.
const VERSION: u32 = 1;

/// A device as its driver prepared it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PreparedDevice {
    /// Requests of the claim that it is for; empty stands for all.
    pub(super) requests: Vec<String>,
    pub(super) pool: String,
    pub(super) device: String,
    pub(super) cdi_ids: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) share_id: Option<String>,
}

/// A claim that drivers know of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Entry {
    pub(super) namespace: String,
    pub(super) name: String,
    pub(super) uid: String,
    /// UIDs of the pods that use it.
    pub(super) pods: BTreeSet<String>,
    /// Devices by driver; a driver without devices has not answered yet, or has none to give.
    pub(super) drivers: BTreeMap<String, Vec<PreparedDevice>>,
    /// Every driver has prepared it, and every claim of the pod.
    #[serde(skip)]
    pub(super) ready: bool,
    /// Drivers are letting it go.
    #[serde(skip)]
    leaving: bool,
}

impl Entry {
    pub(super) fn key(&self) -> Key {
        Key::new(&self.namespace, &self.name)
    }
}

/// Why a claim cannot be prepared now.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Busy {
    #[error(
        "old ResourceClaim with same name {name} and different UID {old} still exists (previous pod force-deleted?!)"
    )]
    OtherUid { name: String, old: String },
    #[error("ResourceClaim {0} is being unprepared for its last pod")]
    Leaving(String),
}

/// All of them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Prepared(BTreeMap<Key, Entry>);

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    version: u32,
    claims: Vec<Entry>,
}

impl Prepared {
    /// Enters a claim for a pod. Returns whether drivers have to be asked.
    pub(super) fn enter(&mut self, key: &Key, uid: &str, pod: &str, drivers: &BTreeSet<String>) -> Result<bool, Busy> {
        let entry = self.0.entry(key.clone()).or_insert_with(|| Entry {
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            uid: uid.to_owned(),
            pods: BTreeSet::new(),
            drivers: drivers.iter().map(|driver| (driver.clone(), Vec::new())).collect(),
            ready: false,
            leaving: false,
        });
        if entry.uid != uid {
            return Err(Busy::OtherUid { name: key.name.clone(), old: entry.uid.clone() });
        }
        if entry.leaving {
            return Err(Busy::Leaving(key.name.clone()));
        }
        entry.pods.insert(pod.to_owned());
        Ok(!entry.ready)
    }

    /// What a driver answered. Whatever it answered before is replaced.
    pub(super) fn set_devices(&mut self, key: &Key, driver: &str, devices: Vec<PreparedDevice>) {
        if let Some(entry) = self.0.get_mut(key) {
            entry.drivers.insert(driver.to_owned(), devices);
        }
    }

    /// All claims of a pod are prepared by all drivers.
    pub(super) fn set_ready<'a>(&mut self, claims: impl IntoIterator<Item = &'a Key>) {
        for key in claims {
            if let Some(entry) = self.0.get_mut(key) {
                entry.ready = true;
            }
        }
    }

    pub(super) fn get(&self, key: &Key) -> Option<&Entry> {
        self.0.get(key)
    }

    /// Whether a pod uses any claim.
    pub(super) fn is_used_by(&self, pod: &str) -> bool {
        self.0.values().any(|entry| entry.pods.contains(pod))
    }

    /// A pod has ended. Returns the claims that nobody else on this node uses: drivers have to let them go.
    pub(super) fn leave(&mut self, pod: &str) -> Vec<Entry> {
        let mut last = Vec::new();
        for entry in self.0.values_mut().filter(|entry| entry.pods.contains(pod)) {
            if entry.pods.len() > 1 {
                entry.pods.remove(pod);
            } else {
                (entry.leaving, entry.ready) = (true, false);
                last.push(entry.clone());
            }
        }
        last
    }

    /// Every driver has let the claim go.
    pub(super) fn remove(&mut self, key: &Key) {
        self.0.remove(key);
    }

    /// The pods that use any claim.
    pub(super) fn pods(&self) -> BTreeSet<String> {
        self.0.values().flat_map(|entry| entry.pods.iter().cloned()).collect()
    }

    /// Writes the checkpoint: to a file beside it first, so that it is always whole.
    pub(super) fn save(&self, file: &Path) -> io::Result<()> {
        let checkpoint = Checkpoint { version: VERSION, claims: self.0.values().cloned().collect() };
        let beside = file.with_extension("tmp");
        std::fs::write(&beside, serde_json::to_vec(&checkpoint)?)?;
        std::fs::rename(&beside, file)
    }

    /// Reads the checkpoint; nothing is prepared where there is none.
    pub(super) fn load(file: &Path) -> io::Result<Self> {
        let text = match std::fs::read(file) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(error),
        };
        let broken = |error| io::Error::new(io::ErrorKind::InvalidData, error);
        let checkpoint: Checkpoint = serde_json::from_slice(&text).map_err(|error| broken(error.to_string()))?;
        if checkpoint.version != VERSION {
            return Err(broken(format!("version {} is not known, only {VERSION} is", checkpoint.version)));
        }
        Ok(Self(checkpoint.claims.into_iter().map(|entry| (entry.key(), entry)).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim() -> Key {
        Key::new("ns", "c")
    }

    fn drivers() -> BTreeSet<String> {
        BTreeSet::from(["d".to_owned()])
    }

    #[test]
    fn drivers_are_asked_until_all_is_ready() {
        let mut prepared = Prepared::default();
        assert_eq!(prepared.enter(&claim(), "u", "pod-1", &drivers()), Ok(true));
        assert_eq!(prepared.enter(&claim(), "u", "pod-2", &drivers()), Ok(true), "not ready yet");
        prepared.set_ready([&claim()]);
        assert_eq!(prepared.enter(&claim(), "u", "pod-3", &drivers()), Ok(false));
    }

    #[test]
    fn the_last_pod_takes_the_claim_with_it() {
        let mut prepared = Prepared::default();
        for pod in ["pod-1", "pod-2"] {
            prepared.enter(&claim(), "u", pod, &drivers()).unwrap();
        }
        assert!(prepared.leave("pod-1").is_empty());
        assert_eq!(prepared.leave("pod-2").len(), 1);
        assert_eq!(prepared.leave("pod-2").len(), 1, "an attempt that failed is made again");
        assert_eq!(prepared.enter(&claim(), "u", "pod-3", &drivers()), Err(Busy::Leaving("c".to_owned())));
        prepared.remove(&claim());
        assert_eq!(prepared.enter(&claim(), "u", "pod-3", &drivers()), Ok(true));
    }

    #[test]
    fn another_claim_of_the_same_name_waits() {
        let mut prepared = Prepared::default();
        prepared.enter(&claim(), "old", "pod-1", &drivers()).unwrap();
        let busy = prepared.enter(&claim(), "new", "pod-2", &drivers()).unwrap_err().to_string();
        assert!(busy.contains("different UID old still exists"), "{busy}");
    }

    #[test]
    fn a_checkpoint_keeps_claims_but_not_that_they_are_ready() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("claims.json");
        assert_eq!(Prepared::load(&file).unwrap(), Prepared::default());
        let mut prepared = Prepared::default();
        prepared.enter(&claim(), "u", "pod-1", &drivers()).unwrap();
        let device = PreparedDevice { pool: "n".into(), device: "gpu-0".into(), ..PreparedDevice::default() };
        prepared.set_devices(&claim(), "d", vec![device]);
        prepared.set_ready([&claim()]);
        prepared.save(&file).unwrap();
        let mut loaded = Prepared::load(&file).unwrap();
        assert_eq!(loaded.pods(), BTreeSet::from(["pod-1".to_owned()]));
        assert_eq!(loaded.get(&claim()).unwrap().drivers["d"].len(), 1);
        assert_eq!(loaded.enter(&claim(), "u", "pod-1", &drivers()), Ok(true));
    }

    #[test]
    fn a_checkpoint_that_cannot_be_read_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("claims.json");
        for text in ["{", r#"{"version": 9, "claims": []}"#] {
            std::fs::write(&file, text).unwrap();
            assert_eq!(Prepared::load(&file).unwrap_err().kind(), io::ErrorKind::InvalidData, "{text}");
        }
    }
}
