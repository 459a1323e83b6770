//! Marks of people for devices of this node, where the API server serves no DeviceTaintRules: DeviceMarks, watched, as intents.
//!
//! ```text
//!  DeviceMarks of our driver and pool ─ watch (the server selects) ─► ledger ─► intents (watch channel) ─► taints of the slice
//! ```
//!
//! A taint of a person goes by a person. So nothing is told before the first list is complete, a watch that fails leaves what is
//! known in force, and the intents are in the node's memory for a start at which marks cannot be read. Only a server that does not
//! have the kind, or the mark, says that there is none.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::watch::Notice;
use kube::Client;
use taints::fleet::Change;
use taints::object::Rule;
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::health::Intent;
use crate::http_checks::Level;

/// Room between the watch and the ledger.
const NOTICES: usize = 64;

/// What is known of the marks for devices of this node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marks {
    /// What people asked for; `None` until it was listed once.
    pub intents: Option<Arc<Vec<Intent>>>,
    /// How reading them goes, for readiness.
    pub level: Level,
}

impl Default for Marks {
    fn default() -> Self {
        Self { intents: None, level: Level::Degraded("not read yet".to_owned()) }
    }
}

/// Whose marks are followed.
#[derive(Clone)]
pub struct Following {
    /// The DRA driver.
    pub driver: String,
    /// The pool, which is the node.
    pub pool: String,
    /// To the API server.
    pub client: Client,
    /// Where they go.
    pub marks: watch::Sender<Marks>,
}

impl Following {
    /// Follows until `stop`.
    pub async fn run(self, stop: CancellationToken) {
        let (notices, heard) = mpsc::channel(NOTICES);
        let watching = cluster::watch::marks_of(&self.driver, &self.pool, self.client.clone(), notices);
        let taking = take_all(heard, Ledger::new(&self.driver, &self.pool), &self.marks);
        tokio::select! {
            () = stop.cancelled() => {}
            () = watching => {}
            () = taking => {}
        }
    }
}

/// Takes what the watch tells, and shares what follows once for all that has arrived.
async fn take_all(mut heard: mpsc::Receiver<Notice>, mut ledger: Ledger, marks: &watch::Sender<Marks>) {
    while let Some(notice) = heard.recv().await {
        ledger.take(notice);
        while let Ok(notice) = heard.try_recv() {
            ledger.take(notice);
        }
        let now = ledger.marks();
        marks.send_if_modified(|held| {
            let news = *held != now;
            if news {
                *held = now;
            }
            news
        });
    }
}

/// The marks by name, as the watch told them. Pure.
#[derive(Debug)]
struct Ledger {
    driver: String,
    pool: String,
    intents: BTreeMap<String, Intent>,
    /// Everything that there is was told once.
    complete: bool,
    level: Level,
}

impl Ledger {
    fn new(driver: &str, pool: &str) -> Self {
        let Marks { level, .. } = Marks::default();
        Self { driver: driver.to_owned(), pool: pool.to_owned(), intents: BTreeMap::new(), complete: false, level }
    }

    fn take(&mut self, notice: Notice) {
        match notice {
            Notice::Change(change) => self.change(*change),
            // A kind that is not there is no trouble: most servers have rules.
            Notice::Synced(_) | Notice::NotServed(_) => {
                self.complete = true;
                self.level = Level::Good;
            }
            Notice::Failed { problem, .. } => {
                let text = format!("DeviceMarks cannot be read, what is known of them stays in force: {problem}");
                self.level = Level::Degraded(text);
            }
            Notice::Malformed(_) => {}
        }
    }

    fn change(&mut self, change: Change) {
        match change {
            Change::Mark(mark) => match self.intent(&mark) {
                Some(intent) => drop(self.intents.insert(mark.name, intent)),
                None => drop(self.intents.remove(&mark.name)),
            },
            Change::MarkGone(name) => drop(self.intents.remove(&name)),
            _ => {}
        }
    }

    /// The server selects by driver and pool already; what it does not know is not acted on.
    fn intent(&self, mark: &Rule) -> Option<Intent> {
        let selector = mark.selector.as_ref()?;
        let ours = selector.driver.as_ref() == Some(&self.driver) && selector.pool.as_ref() == Some(&self.pool);
        let device = selector.device.clone().filter(|_| ours)?;
        Some(Intent {
            mark: mark.name.clone(),
            device,
            uuid: mark.identity.uuid.clone(),
            serial: mark.identity.serial.clone(),
            taint: mark.taint.clone(),
        })
    }

    fn marks(&self) -> Marks {
        let intents = self.complete.then(|| Arc::new(self.intents.values().cloned().collect()));
        Marks { intents, level: self.level.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::Kind;
    use cluster::mark::{Form, Mark};
    use cluster::wire::{MarkWire, decode};
    use taints::Effect;
    use taints::object::{DeviceId, Identity};

    fn mark(pool: &str, device: &str) -> Rule {
        let id = DeviceId { driver: "d".into(), pool: pool.into(), device: device.into() };
        let identity = Identity { uuid: Some("GPU-1".into()), serial: Some("165".into()) };
        let mark = Mark {
            device: id,
            key: "devicetaint.dev/maintenance".into(),
            value: "fan".into(),
            effect: Effect::NoSchedule,
            identity,
            by: Some("ada".into()),
            reason: None,
            expires_at: None,
            careful: false,
        };
        let mut object = mark.object(Form::Mark);
        object["metadata"]["creationTimestamp"] = serde_json::json!("2026-11-01T10:00:00Z");
        decode::<MarkWire>(object).unwrap()
    }

    fn there(pool: &str, device: &str) -> Notice {
        Notice::Change(Box::new(Change::Mark(mark(pool, device))))
    }

    fn devices(ledger: &Ledger) -> Option<Vec<String>> {
        ledger.marks().intents.map(|intents| intents.iter().map(|intent| intent.device.clone()).collect())
    }

    fn names(devices: &[&str]) -> Option<Vec<String>> {
        Some(devices.iter().map(|device| (*device).to_owned()).collect())
    }

    #[test]
    fn nothing_is_told_before_the_first_list_is_complete_and_a_failure_takes_nothing_away() {
        let mut ledger = Ledger::new("d", "n1");
        ledger.take(there("n1", "gpu-0"));
        assert_eq!(devices(&ledger), None);
        ledger.take(Notice::Synced(Kind::Mark));
        assert_eq!((devices(&ledger), ledger.marks().level), (names(&["gpu-0"]), Level::Good));
        ledger.take(Notice::Failed { kind: Kind::Mark, problem: "no connection".into() });
        assert_eq!(devices(&ledger), names(&["gpu-0"]));
        assert!(matches!(ledger.marks().level, Level::Degraded(text) if text.ends_with("no connection")));
        ledger.take(Notice::Change(Box::new(Change::MarkGone(mark("n1", "gpu-0").name))));
        ledger.take(Notice::NotServed(Kind::Mark));
        assert_eq!((devices(&ledger), ledger.marks().level), (names(&[]), Level::Good));
    }

    #[test]
    fn only_marks_of_this_pool_are_intents_with_the_hardware_and_the_servers_time() {
        let mut ledger = Ledger::new("d", "n1");
        ledger.take(there("n2", "gpu-0"));
        ledger.take(there("n1", "gpu-1"));
        ledger.take(Notice::Synced(Kind::Mark));
        let intents = ledger.marks().intents.unwrap();
        let [intent] = intents.as_slice() else { panic!("{intents:?}") };
        assert_eq!((intent.uuid.as_deref(), intent.serial.as_deref()), (Some("GPU-1"), Some("165")));
        assert_eq!(intent.taint.to_string(), "devicetaint.dev/maintenance=fan:NoSchedule");
        assert_eq!(intent.taint.time_added, Some("2026-11-01T10:00:00Z".parse().unwrap()));
    }
}
