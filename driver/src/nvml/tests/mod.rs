//! The whole room against the stand-in library: the code that opens a real one, on a machine that a control file describes.

mod discovery;
mod events;
mod health;
mod opening;

use std::collections::BTreeSet;
use std::time::Duration;

use nvidia_ml::control::{Control, Gpu};
use nvidia_ml::{Machine, built_library};
use tempfile::TempDir;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout};

use super::{
    Config, Event, OpenError, PciAddress, Presence, Scan, Signal, SignalKind, Snapshot, Supervisor, Timing, Update,
};

const SECOND: &str = "0000:3b:00.0";
/// Nothing here takes long; a test that waits this long has failed.
const PATIENCE: Duration = Duration::from_secs(30);

fn pci(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// Fast paces, except for what a test waits for on purpose.
fn timing() -> Timing {
    Timing {
        poll: Duration::from_millis(300),
        rescan: Duration::from_secs(60),
        call_deadline: Duration::from_secs(2),
        scan_patience: Duration::from_secs(2),
        open_deadline: Duration::from_secs(2),
        first_retry: Duration::from_millis(50),
        longest_retry: Duration::from_millis(200),
        looks_after_event: vec![Duration::from_millis(30), Duration::from_millis(90)],
        wait: Duration::from_millis(50),
    }
}

/// A machine and the room that watches it.
struct Stand {
    machine: Machine,
    control: Control,
    supervisor: Supervisor,
    updates: mpsc::Receiver<Update>,
    _folder: TempDir,
}

impl Stand {
    fn new(control: Control) -> Self {
        Self::with(control, |_| {})
    }

    fn with(control: Control, change: impl FnOnce(&mut Config)) -> Self {
        Self::lacking(&[], control, change)
    }

    fn lacking(functions: &[&str], control: Control, change: impl FnOnce(&mut Config)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let machine = Machine::install(&built_library().unwrap(), folder.path(), &control).unwrap();
        let machine = if functions.is_empty() { machine } else { machine.without(functions).unwrap() };
        let mut config = Config { timing: timing(), ..Config::new(&machine.library) };
        change(&mut config);
        let (supervisor, updates) = Supervisor::spawn(config);
        Self { machine, control, supervisor, updates, _folder: folder }
    }

    fn change(&mut self, change: impl FnOnce(&mut Control)) {
        change(&mut self.control);
        self.machine.set(&self.control).unwrap();
    }

    fn change_second(&mut self, change: impl FnOnce(&mut Gpu)) {
        self.change(|control| change(control.gpu_mut(SECOND).unwrap()));
    }

    fn uuid(&self, index: usize) -> String {
        self.control.gpus[index].effective_uuid()
    }

    async fn next(&mut self) -> Update {
        timeout(PATIENCE, self.updates.recv()).await.expect("an update in time").expect("the room goes on")
    }

    /// The first update that is what is looked for; what comes before it is not looked at.
    async fn until<T>(&mut self, what: &str, find: impl Fn(&Update) -> Option<T>) -> T {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if let Some(found) = find(&self.next().await) {
                return found;
            }
        }
        panic!("waited for {what} in vain");
    }

    async fn opened(&mut self) -> Scan {
        self.until("Opened", |update| match update {
            Update::Opened { scan, .. } => Some(scan.clone()),
            _ => None,
        })
        .await
    }

    async fn discovered(&mut self) -> Scan {
        self.until("Discovered", |update| match update {
            Update::Discovered { scan } => Some(scan.clone()),
            _ => None,
        })
        .await
    }

    async fn unavailable(&mut self) -> OpenError {
        self.until("Unavailable", |update| match update {
            Update::Unavailable { error, .. } => Some(error.clone()),
            _ => None,
        })
        .await
    }

    /// The first signal of a GPU that is what is looked for.
    async fn signal<T>(&mut self, at: &str, what: &str, find: impl Fn(&SignalKind) -> Option<T>) -> T {
        let at = pci(at);
        self.until(what, |update| match update {
            Update::Signal(signal) if signal.pci == at => find(&signal.kind),
            _ => None,
        })
        .await
    }

    async fn snapshot(&mut self, at: &str, what: &str, is_wanted: impl Fn(&Snapshot) -> bool) -> Snapshot {
        let find = |kind: &SignalKind| match kind {
            SignalKind::Snapshot(snapshot) if is_wanted(snapshot) => Some((**snapshot).clone()),
            _ => None,
        };
        self.signal(at, what, find).await
    }

    async fn watching(&mut self, at: &str) -> u64 {
        self.signal(at, "Watching", |kind| match kind {
            SignalKind::Watching { event_types } => Some(*event_types),
            _ => None,
        })
        .await
    }

    fn addresses(&self) -> BTreeSet<PciAddress> {
        self.control.gpus.iter().map(|gpu| pci(&gpu.pci.to_string())).collect()
    }

    /// Every GPU's events arrive.
    async fn all_watching(&mut self) {
        let mut missing = self.addresses();
        while !missing.is_empty() {
            if let Update::Signal(Signal { pci, kind: SignalKind::Watching { .. }, .. }) = self.next().await {
                missing.remove(&pci);
            }
        }
    }

    async fn hung(&mut self, at: &str) -> &'static str {
        self.signal(at, "Hung", |kind| match kind {
            SignalKind::Hung { function, .. } => Some(*function),
            _ => None,
        })
        .await
    }

    async fn event(&mut self, at: &str) -> Event {
        self.signal(at, "Event", |kind| match kind {
            SignalKind::Event(event) => Some(*event),
            _ => None,
        })
        .await
    }

    /// One more healthy snapshot of each GPU but the second: they are watched and see nothing of what happens to it.
    async fn neighbours_are_well(&mut self) {
        let mut missing = self.addresses();
        missing.remove(&pci(SECOND));
        while !missing.is_empty() {
            if let Update::Signal(Signal { pci: at, kind, .. }) = self.next().await
                && at != pci(SECOND)
            {
                match kind {
                    SignalKind::Snapshot(snapshot) => {
                        assert_eq!(snapshot.presence, Presence::Answering, "{at}");
                        missing.remove(&at);
                    }
                    SignalKind::Watching { .. } => {}
                    other => panic!("{at}: {other:?}"),
                }
            }
        }
    }
}
