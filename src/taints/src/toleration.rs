//! A toleration: what a pod (for nodes) or a claim's request (for devices) puts up with.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::taint::Effect;

/// How a toleration's value is compared (core/v1 `TolerationOperator`, resource/v1 `DeviceTolerationOperator`).
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum Operator {
    /// Values are equal, byte for byte. The default when the operator is left out.
    #[default]
    Equal,
    /// Any value.
    Exists,
    /// Nodes only (KEP-5471): the taint's value is greater than the toleration's, both canonical 64-bit integers.
    Gt,
    /// Nodes only (KEP-5471): the taint's value is less than the toleration's, both canonical 64-bit integers.
    Lt,
    /// An operator that this version does not know, as written. Never matches.
    Other(Box<str>),
}

impl Operator {
    /// The operator as Kubernetes writes it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::Equal => "Equal",
            Self::Exists => "Exists",
            Self::Gt => "Gt",
            Self::Lt => "Lt",
            Self::Other(text) => text,
        }
    }
}

impl From<String> for Operator {
    fn from(text: String) -> Self {
        match text.as_str() {
            "" | "Equal" => Self::Equal,
            "Exists" => Self::Exists,
            "Gt" => Self::Gt,
            "Lt" => Self::Lt,
            other => Self::Other(other.into()),
        }
    }
}

impl From<Operator> for String {
    fn from(operator: Operator) -> Self {
        operator.as_str().to_owned()
    }
}

/// A toleration of a pod (core/v1 `Toleration`) or of a device request (resource/v1 `DeviceToleration`): the wire form is the same.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Toleration {
    /// The taint's key; empty matches every key.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub key: String,
    /// How the value is compared.
    pub operator: Operator,
    /// The value to compare with; not looked at by [`Operator::Exists`].
    #[serde(skip_serializing_if = "String::is_empty")]
    pub value: String,
    /// The taint's effect; absent matches every effect.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "effect_or_any")]
    pub effect: Option<Effect>,
    /// How long a `NoExecute` taint is tolerated, in seconds; absent is for ever, zero and less is not at all. Unbounded on the
    /// wire: arithmetic saturates.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub toleration_seconds: Option<i64>,
}

impl Toleration {
    /// Whether both are the same toleration to Kubernetes: all but the seconds agree.
    #[must_use]
    pub fn same_as(&self, other: &Self) -> bool {
        let parts = |toleration: &Self| {
            let Self { key, operator, value, effect, toleration_seconds: _ } = toleration.clone();
            (key, operator, value, effect)
        };
        parts(self) == parts(other)
    }
}

/// The API writes "every effect" as an absent or an empty effect.
fn effect_or_any<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Effect>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    Ok(text.filter(|text| !text.is_empty()).map(Effect::from))
}

impl fmt::Display for Toleration {
    /// For people: `key=value:NoExecute for 10s`, `key:NoSchedule`, `key` (every effect), `*` (every key).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.key.is_empty() { "*" } else { &self.key })?;
        match &self.operator {
            Operator::Equal => write!(f, "={}", self.value)?,
            Operator::Exists => {}
            other => write!(f, " {} {}", other.as_str(), self.value)?,
        }
        if let Some(effect) = &self.effect {
            write!(f, ":{effect}")?;
        }
        match self.toleration_seconds {
            Some(seconds) => write!(f, " for {seconds}s"),
            None => Ok(()),
        }
    }
}
