//! The checkpoint of one claim: what was prepared, durable across restarts of the agent and of the node.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::hardware::Identity;

/// The version that this program writes, and the newest that it reads.
pub const VERSION: u32 = 1;

/// How far preparing came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum State {
    /// The intent is written; side effects may or may not have happened. Preparing again starts anew.
    Started,
    /// All is done; the answer to kubelet is in the record.
    Completed,
}

/// One claim's checkpoint file. Fields that a newer version added are kept as they are.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Record {
    /// See [`VERSION`].
    pub version: u32,
    /// The claim's UID; the file's name too.
    pub uid: String,
    /// The claim's namespace.
    pub namespace: String,
    /// The claim's name.
    pub name: String,
    /// The boot in which it was prepared: nothing on the hardware outlives it.
    pub boot_id: String,
    /// How far preparing came.
    pub state: State,
    /// The devices, in the order of the allocation.
    pub devices: Vec<PreparedDevice>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// One device of a prepared claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PreparedDevice {
    /// The request's main name.
    pub request: String,
    /// The pool.
    pub pool: String,
    /// The device's name.
    pub device: String,
    /// What kubelet hands to the container runtime.
    pub cdi_ids: Vec<String>,
    /// The share of the device, where it is shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share_id: Option<String>,
    /// Whether no other claim may hold the device meanwhile.
    #[serde(default = "yes")]
    pub exclusive: bool,
    /// Which hardware it was.
    pub identity: Identity,
    /// `N` of `/dev/nvidiaN` in that boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub minor: Option<u32>,
    /// Fields of a newer version.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

fn yes() -> bool {
    true
}

impl Record {
    /// `namespace/name`, for messages.
    #[must_use]
    pub fn claim(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// Whether the record is of the same devices, in the same order.
    #[must_use]
    pub fn same_devices(&self, others: &[PreparedDevice]) -> bool {
        let key = |device: &PreparedDevice| (device.request.clone(), device.device.clone(), device.share_id.clone());
        self.devices.iter().map(key).eq(others.iter().map(key))
    }
}

#[cfg(test)]
mod tests {
    use super::{Record, State};

    #[test]
    fn fields_of_a_newer_version_survive() {
        let text = serde_json::json!({
            "version": 1, "uid": "u", "namespace": "ns", "name": "c", "bootId": "b", "state": "Completed",
            "future": {"x": 1},
            "devices": [{"request": "r", "pool": "p", "device": "gpu-0", "cdiIds": ["k=n"], "identity": {"pci": "0000:3b:00.0"}, "later": true}],
        });
        let record: Record = serde_json::from_value(text.clone()).unwrap();
        assert_eq!((record.state, record.devices[0].exclusive), (State::Completed, true));
        let back = serde_json::to_value(&record).unwrap();
        assert_eq!(back["future"], text["future"]);
        assert_eq!(back["devices"][0]["later"], true);
    }
}
