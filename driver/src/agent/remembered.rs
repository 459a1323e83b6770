//! The rule that a card is on disk before it is published.
//!
//! A card that an agent published and forgot would vanish from its pool when the next start finds NVML away. So the first publish of a card waits for its
//! identity to be saved. A disk that does not take it holds nothing up for long: each card is waited for once.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::watch;

use crate::inventory::InventoryRecord;
use crate::nvml::PciAddress;

/// How long a new card may wait for the disk.
const PATIENCE: Duration = Duration::from_secs(1);

/// UUIDs by address.
type Cards = BTreeMap<PciAddress, Option<String>>;

/// What the saver has brought to disk, and which cards are settled.
pub(super) struct Remembered {
    saved: watch::Receiver<InventoryRecord>,
    settled: Cards,
}

impl Remembered {
    /// What was loaded at the start counts as saved.
    pub(super) fn new(saved: watch::Receiver<InventoryRecord>) -> Self {
        let settled = cards(&saved.borrow());
        Self { saved, settled }
    }

    /// Waits until every card of `wanted` is on disk, or [`PATIENCE`] is over, or the saver has ended.
    pub(super) async fn wait_for(&mut self, wanted: &InventoryRecord) {
        let wanted = cards(wanted);
        if includes(&self.settled, &wanted) {
            return;
        }
        let saved = self.saved.wait_for(|saved| includes(&cards(saved), &wanted));
        if tokio::time::timeout(PATIENCE, saved).await.is_err() {
            tracing::warn!("new cards are published before they are saved: the state directory is slow or refuses");
        }
        self.settled = wanted;
    }
}

fn cards(record: &InventoryRecord) -> Cards {
    record.cards.iter().map(|card| (card.pci, card.identity.uuid.clone())).collect()
}

fn includes(all: &Cards, some: &Cards) -> bool {
    some.iter().all(|(pci, uuid)| all.get(pci) == Some(uuid))
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::task::Poll;

    use super::*;
    use crate::inventory::Inventory;
    use crate::inventory::testkit::{at, bus, gpu, opened};
    use crate::nvml::GpuReading;

    /// A record with one card.
    fn record(uuid: &str) -> InventoryRecord {
        let mut inventory = Inventory::default();
        let found = GpuReading { uuid: uuid.to_owned(), ..gpu(0) };
        inventory.apply(&opened(vec![found]), Some(&bus(0..1)), at(0));
        inventory.record()
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_card_waits_for_the_disk() {
        let (saver, saved) = watch::channel(InventoryRecord::default());
        let mut remembered = Remembered::new(saved);
        let wanted = record("GPU-1");
        let mut waiting = std::pin::pin!(remembered.wait_for(&wanted));
        let first = std::future::poll_fn(|context| Poll::Ready(waiting.as_mut().poll(context))).await;
        assert!(first.is_pending(), "published before it was saved");
        saver.send_replace(wanted.clone());
        waiting.await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_disk_that_refuses_holds_a_card_up_once() {
        let (_saver, saved) = watch::channel(InventoryRecord::default());
        let mut remembered = Remembered::new(saved);
        let began = tokio::time::Instant::now();
        remembered.wait_for(&record("GPU-1")).await;
        assert_eq!(began.elapsed(), PATIENCE);
        remembered.wait_for(&record("GPU-1")).await;
        assert_eq!(began.elapsed(), PATIENCE);
        remembered.wait_for(&record("GPU-2")).await;
        assert_eq!(began.elapsed(), PATIENCE * 2, "another card in the same place is a new one");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_loaded_is_on_disk() {
        let (_saver, saved) = watch::channel(record("GPU-1"));
        let mut remembered = Remembered::new(saved);
        let began = tokio::time::Instant::now();
        remembered.wait_for(&record("GPU-1")).await;
        remembered.wait_for(&Inventory::default().record()).await;
        assert!(began.elapsed().is_zero());
    }
}
