//! Health in words: for kubelet (KEP-4680), and for a person who asks why.

use jiff::Timestamp;

use super::card::CardHealth;
use super::finding::{Finding, Scope};
use super::{Health, taint_set};
use crate::inventory::{Device, Inventory};
use crate::policy::KEYS;

/// Kubelet keeps the message in a pod's status: a line, not a report (KEP-4680 caps nothing, a status should stay small).
const MESSAGE_LIMIT: usize = 256;
/// Values of `unmonitored` with which nothing at all is known of a card.
const BLIND: [&str; 7] = ["hung", "stale", "unreadable", "undiscovered", "released", "init-failed", "init-hung"];

/// What kubelet is told of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HealthState {
    /// It answers, and nothing isolates it.
    Healthy,
    /// Something isolates it.
    Unhealthy,
    /// Nothing is known of it.
    Unknown,
}

/// The health of one device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceHealth {
    /// Its name in the pool.
    pub name: String,
    /// In one word.
    pub state: HealthState,
    /// Why, empty when healthy.
    pub message: String,
}

impl CardHealth {
    /// Nothing is known of the card, and a finding says so already.
    pub(super) fn is_blind(&self) -> bool {
        self.findings().any(is_blinding)
    }
}

fn is_blinding(finding: &Finding) -> bool {
    match finding.id.key.as_str() {
        "driver" => true,
        "unmonitored" => BLIND.contains(&finding.id.value.as_str()),
        _ => false,
    }
}

impl Health {
    /// The health of every device, from the same findings that make the taints.
    #[must_use]
    pub fn device_health(&self, inventory: &Inventory) -> Vec<DeviceHealth> {
        inventory.devices().map(|device| self.health_of(device, inventory)).collect()
    }

    fn health_of(&self, device: &Device, inventory: &Inventory) -> DeviceHealth {
        let card = inventory.card(device.pci).and_then(|card| self.cards.get(&card.key()));
        let worst = |pick: fn(&Finding) -> bool| {
            let card = card?;
            KEYS.iter().filter_map(|key| taint_set::worst(card, device, key)).find(|finding| pick(finding))
        };
        let bad = worst(|finding| finding.response.isolates() && finding.id.key != "driver");
        let (state, message) = match (bad, worst(is_blinding)) {
            (Some(finding), _) => (HealthState::Unhealthy, line(finding)),
            (None, Some(finding)) => (HealthState::Unknown, line(finding)),
            (None, None) if card.is_none_or(|card| card.last_report.is_none()) => {
                (HealthState::Unknown, "not read yet".to_owned())
            }
            (None, None) => (HealthState::Healthy, String::new()),
        };
        DeviceHealth { name: device.name.clone(), state, message }
    }

    /// Everything that is known of a device's health, with evidence, the deciding row and the way out; `None` for a name that
    /// this node does not have.
    #[must_use]
    pub fn explain(&self, inventory: &Inventory, device: &str) -> Option<String> {
        let device = inventory.device(device)?;
        let card = inventory.card(device.pci)?;
        let mut text = format!("{} is {} at {}", device.name, card.key(), device.pci);
        let Some(health) = self.cards.get(&card.key()) else { return Some(text + "\nno findings\n") };
        let concerned = |finding: &&Finding| finding.concerns(device.gpu_instance, device.compute_instance);
        let mut findings: Vec<&Finding> = health.findings().filter(concerned).collect();
        findings.sort_by(|a, b| b.response.cmp(&a.response).then(a.first_seen.cmp(&b.first_seen)));
        text.push_str(if findings.is_empty() { "\nno open findings\n" } else { "\n" });
        for finding in findings {
            text.push_str(&paragraph(finding));
        }
        for past in health.history().filter(|past| !health.findings().any(|finding| finding.id == past.id)) {
            if let Some(cleared) = &past.cleared {
                text.push_str(&format!("past: {} cleared {}: {}\n", past.id, whole_seconds(cleared.at), cleared.why));
            }
        }
        Some(text)
    }
}

/// One line for kubelet.
fn line(finding: &Finding) -> String {
    let mut text = format!("{}: {}", finding.id, finding.evidence);
    let mut end = text.len().min(MESSAGE_LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text.truncate(end);
    text
}

fn paragraph(finding: &Finding) -> String {
    let note = if finding.note.is_empty() { String::new() } else { format!(" ({})", finding.note) };
    let scope = if finding.id.scope == Scope::Card { String::new() } else { format!(" on {}", finding.id.scope) };
    let events = match finding.events {
        0 => String::new(),
        events => format!(", {events} events"),
    };
    let proof = finding.reset_proof.as_ref().map(|proof| format!("; seen already: {proof}")).unwrap_or_default();
    let relapses = match finding.relapses {
        0 => String::new(),
        again => format!("; it came back {again} times, which lengthens that"),
    };
    format!(
        "{}:{}{scope}{note}\n  seen {} to {}{events}: {}\n  decided by {}\n  goes {}{relapses}{proof}\n",
        finding.id,
        finding.response,
        whole_seconds(finding.first_seen),
        whole_seconds(finding.last_seen),
        finding.evidence,
        finding.origin,
        finding.rule(),
    )
}

fn whole_seconds(at: Timestamp) -> Timestamp {
    Timestamp::from_second(at.as_second()).unwrap_or(at)
}
