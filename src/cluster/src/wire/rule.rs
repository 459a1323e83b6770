//! resource.k8s.io `DeviceTaintRule` (v1, v1beta2 and v1alpha3 agree in what we read), with our own annotations.

use jiff::Timestamp;
use serde::Deserialize;
use taints::Taint;
use taints::fleet::Change;
use taints::object::{Identity, Key, Rule, Selector};

use super::Wire;
use super::meta::Meta;
use crate::kind::Kind;
use crate::mark;

/// The part of a DeviceTaintRule that we read.
#[derive(Debug, Deserialize)]
pub struct RuleWire {
    metadata: Meta,
    spec: Spec,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    device_selector: Option<SelectorWire>,
    taint: Taint,
}

/// Fields narrow a selector down, so an unknown one cannot be skipped: the rule would reach more devices than its author
/// meant. `deviceClassName` and `selectors` existed in v1alpha3 up to Kubernetes 1.34.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SelectorWire {
    driver: Option<String>,
    pool: Option<String>,
    device: Option<String>,
}

impl RuleWire {
    /// When the object was made.
    pub(super) fn created(&self) -> Option<Timestamp> {
        self.metadata.creation_timestamp
    }
}

impl Wire for RuleWire {
    const KIND: Kind = Kind::Rule;
    type Object = Rule;

    fn into_object(self) -> Result<Rule, String> {
        let Self { metadata, spec } = self;
        let note = |name: &str| metadata.annotations.get(name).filter(|text| !text.is_empty()).cloned();
        let expires_at = note(mark::EXPIRES_AT).and_then(|text| expiry(&metadata.name, &text));
        Ok(Rule {
            selector: spec.device_selector.map(|s| Selector { driver: s.driver, pool: s.pool, device: s.device }),
            taint: spec.taint,
            careful: metadata.annotations.get(mark::EVICT).is_some_and(|how| how == mark::CAREFUL),
            identity: Identity { uuid: note(mark::UUID), serial: note(mark::SERIAL) },
            expires_at,
            managed: metadata.labels.get(mark::MANAGED_BY).is_some_and(|who| who == mark::MANAGER),
            reason: note(mark::REASON),
            by: note(mark::BY),
            name: metadata.name,
            uid: metadata.uid,
        })
    }

    fn applied(object: Rule) -> Change {
        Change::Rule(object)
    }

    fn gone(key: Key) -> Change {
        Change::RuleGone(key.name)
    }
}

/// An expiry that cannot be read never comes: the taint stays until a person takes it away.
fn expiry(rule: &str, text: &str) -> Option<Timestamp> {
    match text.parse() {
        Ok(time) => Some(time),
        Err(error) => {
            tracing::warn!(rule, value = text, %error, "annotation {} is no RFC 3339 time; the rule does not expire", mark::EXPIRES_AT);
            None
        }
    }
}
