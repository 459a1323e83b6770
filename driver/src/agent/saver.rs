//! The task that writes the state directory: only the newest memory counts, and a full disk is tried again.

use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::watch;

use crate::http_checks::Level;
use crate::inventory::InventoryRecord;
use crate::state::{Memory, State, StateError};

/// Wait after a failed write.
const AGAIN: Duration = Duration::from_secs(2);

/// Writes what there is to remember.
pub(super) struct Saver {
    /// The directory.
    pub(super) state: State,
    /// What to remember. The saver ends when its sender is gone, after a last write.
    pub(super) memory: watch::Receiver<Memory>,
    /// The cards that are on disk.
    pub(super) saved: watch::Sender<InventoryRecord>,
    /// How it goes, for readiness.
    pub(super) level: watch::Sender<Level>,
    /// Failed writes.
    pub(super) failures: Counter,
}

impl Saver {
    /// Saves each new memory until the sender is gone, and the last one then.
    pub(super) async fn run(mut self) {
        let mut alive = true;
        while alive {
            alive = self.memory.changed().await.is_ok();
            while let Err(error) = self.save() {
                self.failures.inc();
                tracing::error!(%error, "findings and cards are not saved");
                self.level.send_replace(Level::Degraded(error.to_string()));
                if !alive {
                    return;
                }
                tokio::time::sleep(AGAIN).await;
            }
            self.level.send_if_modified(|level| std::mem::replace(level, Level::Good) != Level::Good);
        }
    }

    /// A few small files, synced: the other worker thread serves meanwhile.
    fn save(&mut self) -> Result<(), StateError> {
        let memory = self.memory.borrow_and_update().clone();
        tokio::task::block_in_place(|| self.state.save(&memory))?;
        self.saved.send_replace(memory.inventory);
        Ok(())
    }
}
