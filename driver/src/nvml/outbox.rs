//! The way of a GPU's signals to the channel: never blocks its thread, keeps a short queue, counts what it must drop.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio::sync::mpsc::error::TrySendError;
use tokio::time::Instant;

use super::{PciAddress, Signal, SignalKind, Update};

/// Signals of one GPU that may wait for room in the channel.
const WAITING: usize = 64;

/// Where a GPU's thread puts its signals.
#[derive(Debug)]
pub(super) struct Outbox {
    pci: PciAddress,
    uuid: Option<String>,
    updates: mpsc::Sender<Update>,
    waiting: VecDeque<Signal>,
    dropped: u64,
    dropped_in_all: Arc<AtomicU64>,
}

impl Outbox {
    pub(super) fn new(
        pci: PciAddress,
        uuid: Option<String>,
        updates: mpsc::Sender<Update>,
        dropped_in_all: Arc<AtomicU64>,
    ) -> Self {
        Self { pci, uuid, updates, waiting: VecDeque::new(), dropped: 0, dropped_in_all }
    }

    /// The card that signals are about, once one has answered.
    pub(super) fn set_uuid(&mut self, uuid: String) {
        self.uuid = Some(uuid);
    }

    /// Queues a signal and sends what can be sent.
    pub(super) fn put(&mut self, kind: SignalKind) {
        let signal = self.signal(kind);
        if let SignalKind::Snapshot(_) = signal.kind {
            // A newer reading makes one that nobody has read worthless; events stay.
            self.waiting.retain(|waiting| !matches!(waiting.kind, SignalKind::Snapshot(_)));
        }
        if self.waiting.len() >= WAITING {
            self.dropped += 1;
            self.dropped_in_all.fetch_add(1, Ordering::Relaxed);
        } else {
            self.waiting.push_back(signal);
        }
        self.flush();
    }

    /// Sends what waits, as far as there is room; what was dropped is told last.
    pub(super) fn flush(&mut self) {
        while let Some(signal) = self.waiting.pop_front() {
            if let Some(signal) = self.send(signal) {
                self.waiting.push_front(signal);
                return;
            }
        }
        if self.dropped > 0 {
            let told = self.signal(SignalKind::Dropped { count: self.dropped });
            if self.send(told).is_none() {
                self.dropped = 0;
            }
        }
    }

    fn signal(&self, kind: SignalKind) -> Signal {
        Signal { pci: self.pci, uuid: self.uuid.clone(), at: Instant::now(), kind }
    }

    /// Gives the signal back when there is no room. A receiver that is gone wants nothing.
    fn send(&self, signal: Signal) -> Option<Signal> {
        match self.updates.try_send(Update::Signal(signal)) {
            Err(TrySendError::Full(Update::Signal(signal))) => Some(signal),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Arc, AtomicU64, Ordering, Outbox, SignalKind, Update, WAITING, mpsc};

    fn kinds(updates: &mut mpsc::Receiver<Update>) -> Vec<SignalKind> {
        let mut kinds = Vec::new();
        while let Ok(Update::Signal(signal)) = updates.try_recv() {
            kinds.push(signal.kind);
        }
        kinds
    }

    #[test]
    fn a_full_channel_delays_signals_and_what_is_dropped_is_told() {
        let (sender, mut updates) = mpsc::channel(1);
        let dropped = Arc::new(AtomicU64::new(0));
        let pci = "0000:3b:00.0".parse().unwrap();
        let mut outbox = Outbox::new(pci, None, sender, Arc::clone(&dropped));
        let more = 3;
        for number in 0..(1 + WAITING + more) {
            outbox.put(SignalKind::Watching { event_types: number as u64 });
        }
        assert_eq!(dropped.load(Ordering::Relaxed), more as u64);
        let mut seen = Vec::new();
        for _ in 0..(WAITING + 2) {
            seen.extend(kinds(&mut updates));
            outbox.flush();
        }
        seen.extend(kinds(&mut updates));
        assert_eq!(seen.len(), 1 + WAITING + 1, "what waited arrives, in order, and then the count");
        assert_eq!(seen[WAITING], SignalKind::Watching { event_types: WAITING as u64 });
        assert_eq!(seen.last(), Some(&SignalKind::Dropped { count: more as u64 }));
        outbox.flush();
        assert_eq!(kinds(&mut updates), []);
    }
}
