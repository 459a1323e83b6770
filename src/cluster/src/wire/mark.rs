//! devicetaint.dev `DeviceMark`: a rule in every field that we read, but that its taint stands since the object was made.

use serde::Deserialize;
use taints::fleet::Change;
use taints::object::{Key, Rule};

use super::{RuleWire, Wire};
use crate::kind::Kind;

/// The part of a DeviceMark that we read.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub struct MarkWire(RuleWire);

impl Wire for MarkWire {
    const KIND: Kind = Kind::Mark;
    type Object = Rule;

    /// The moment of creation is the API server's clock, as `timeAdded` of a rule is, and a change of value or reason moves neither.
    fn into_object(self) -> Result<Rule, String> {
        let created = self.0.created();
        let mut rule = self.0.into_object()?;
        rule.taint.time_added = created;
        Ok(rule)
    }

    fn applied(object: Rule) -> Change {
        Change::Mark(object)
    }

    fn gone(key: Key) -> Change {
        Change::MarkGone(key.name)
    }
}
