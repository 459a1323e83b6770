//! A taint: what a node or a device repels, with which effect, since when.

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What a taint does to work that does not tolerate it (core/v1 `TaintEffect`, resource/v1 `DeviceTaintEffect`).
///
/// Nodes know `NoSchedule`, `PreferNoSchedule` and `NoExecute`; devices know `None`, `NoSchedule` and `NoExecute`. An effect
/// that this version does not know is kept as it was written, and acts like `None` (KEP-5055: unknown effects are ignored).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Effect {
    /// Devices only: informs, does nothing.
    None,
    /// Nodes only: the scheduler tries to avoid the node.
    PreferNoSchedule,
    /// No new work.
    NoSchedule,
    /// No new work, and work that runs is evicted.
    NoExecute,
    /// An effect of a later Kubernetes, as written. Acts like [`Effect::None`].
    Other(Box<str>),
}

impl Effect {
    /// The effect as Kubernetes writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::None => "None",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoSchedule => "NoSchedule",
            Self::NoExecute => "NoExecute",
            Self::Other(text) => text,
        }
    }

    /// Whether new work that does not tolerate the taint is kept away. `NoExecute` implies `NoSchedule`.
    #[must_use]
    pub const fn blocks_new_work(&self) -> bool {
        matches!(self, Self::NoSchedule | Self::NoExecute)
    }
}

impl From<&str> for Effect {
    fn from(text: &str) -> Self {
        match text {
            "None" => Self::None,
            "PreferNoSchedule" => Self::PreferNoSchedule,
            "NoSchedule" => Self::NoSchedule,
            "NoExecute" => Self::NoExecute,
            other => Self::Other(other.into()),
        }
    }
}

impl From<String> for Effect {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<Effect> for String {
    fn from(effect: Effect) -> Self {
        effect.as_str().to_owned()
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A taint of a node (core/v1 `Taint`) or of a device (resource/v1 `DeviceTaint`): the wire form of both is the same.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// A label key, such as `gpu.devicetaint.dev/lost`.
    pub key: String,
    /// A label value; empty when there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// What it does.
    pub effect: Effect,
    /// When it was put there, by the API server's clock. Deadlines of device taints derive from it; node taints often lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Timestamp>,
}

impl Taint {
    /// Whether both are the same taint to Kubernetes: key and effect agree; the value is not compared.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

impl fmt::Display for Taint {
    /// The kubectl form: `key=value:Effect`, or `key:Effect` without a value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.value.is_empty() {
            write!(f, "{}:{}", self.key, self.effect)
        } else {
            write!(f, "{}={}:{}", self.key, self.value, self.effect)
        }
    }
}
