//! What an observation changed: for the publisher, the state directory, logs and metrics.

use std::fmt;

use super::finding::{Finding, FindingId, Scope};
use crate::nvml::PciAddress;
use crate::policy::Response;

/// What changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// The taints of some device may differ: publish.
    pub taints_changed: bool,
    /// The record differs: save it.
    pub persist: bool,
    /// For logs and metrics, in order.
    pub events: Vec<FindingEvent>,
    /// Findings that found no room on their card.
    pub overflowed: u64,
}

/// A finding opened, got worse, or went.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FindingEvent {
    /// Where the card is.
    pub pci: PciAddress,
    /// UUID of the card, or `pci:` and the address.
    pub card: String,
    /// Which finding.
    pub id: FindingId,
    /// What it does.
    pub response: Response,
    /// What was seen.
    pub evidence: String,
    /// What happened to it.
    pub kind: FindingEventKind,
}

/// What happened to a finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FindingEventKind {
    /// It is new.
    Opened,
    /// Its response became stronger.
    Escalated,
    /// It went.
    Cleared {
        /// What shows that it is over.
        why: String,
    },
}

impl FindingEvent {
    pub(super) fn of(pci: PciAddress, card: &str, finding: &Finding, kind: FindingEventKind) -> Self {
        Self {
            pci,
            card: card.to_owned(),
            id: finding.id.clone(),
            response: finding.response.clone(),
            evidence: finding.evidence.clone(),
            kind,
        }
    }
}

impl FindingEvent {
    /// Whether it keeps new work away from the card, or from a part of it.
    #[must_use]
    pub fn isolates(&self) -> bool {
        self.response.isolates() && !matches!(self.kind, FindingEventKind::Cleared { .. })
    }
}

impl fmt::Display for FindingEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GPU at {} ({}): {}", self.pci, self.card, self.id)?;
        if self.id.scope != Scope::Card {
            write!(f, " on {}", self.id.scope)?;
        }
        match &self.kind {
            FindingEventKind::Opened => write!(f, " opened with {}: {}", self.response, self.evidence),
            FindingEventKind::Escalated => write!(f, " is {} now: {}", self.response, self.evidence),
            FindingEventKind::Cleared { why } => write!(f, " cleared: {why}"),
        }
    }
}
