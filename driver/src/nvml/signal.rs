//! What the NVML room tells the rest of the agent: one enum over one bounded channel.

use std::time::Duration;

use tokio::time::Instant;

use super::{CallError, OpenError, PciAddress, Scan, Snapshot, Versions};

/// A message of the supervisor.
#[derive(Clone, Debug, PartialEq)]
pub enum Update {
    /// NVML works; this is what it sees. Sent after every successful opening, before any signal of a GPU.
    Opened {
        /// Versions of driver and library.
        versions: Versions,
        /// The first look.
        scan: Scan,
    },
    /// NVML could not be opened. It is tried again without end.
    Unavailable {
        /// Why, and what to do about it.
        error: OpenError,
        /// How many tries in a row have failed, this one counted.
        attempt: u32,
        /// When the next try comes.
        retry_in: Duration,
    },
    /// A later look found something else than the one before: a GPU came, went or was swapped, MIG changed, or it was asked for.
    Discovered {
        /// All that was seen, not only the change.
        scan: Scan,
    },
    /// News of one GPU.
    Signal(Signal),
    /// All handles were let go, on request. Nothing is read until NVML is opened again.
    Released {
        /// Threads that hang in a call and keep the library open until that call returns.
        abandoned: usize,
    },
}

/// News of one GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Signal {
    /// Where the GPU is.
    pub pci: PciAddress,
    /// The card that is watched at this address; `None` while no card has answered there since NVML was opened.
    pub uuid: Option<String>,
    /// When it was noticed, on the monotonic clock.
    pub at: Instant,
    /// What happened.
    pub kind: SignalKind,
}

/// Kinds of news.
#[derive(Clone, Debug, PartialEq)]
pub enum SignalKind {
    /// The driver raised an event. It adds a finding or asks for a look; a snapshot follows at once, and again after about 2 s and 10 s.
    Event(Event),
    /// A reading of all health values: at every poll, after an event, and at once when the GPU is lost or answers again.
    Snapshot(Box<Snapshot>),
    /// Events of this GPU arrive from now on.
    Watching {
        /// The event types that were registered, as bits.
        event_types: u64,
    },
    /// Events of this GPU do not arrive; it is only polled. Registering is tried again, and `Watching` tells when it worked.
    NotWatching {
        /// What went wrong. `NOT_SUPPORTED` is a card that has no events.
        error: CallError,
    },
    /// A call has not returned for longer than the deadline. Nothing is known of this GPU until `Unhung`; the others go on.
    Hung {
        /// The C function.
        function: &'static str,
        /// When the call began.
        since: Instant,
    },
    /// The call that hung has returned.
    Unhung {
        /// The C function.
        function: &'static str,
        /// How long it took.
        lasted: Duration,
    },
    /// The channel was full and this many signals of the GPU were lost. A snapshot follows, but lost events are gone.
    Dropped {
        /// How many since the last such message.
        count: u64,
    },
}

/// An event as `nvmlEventSetWait_v2` gave it, of known or unknown type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event {
    /// The type's bit. [`Event::XID`] is the one with a code.
    pub event_type: u64,
    /// For an XID its code; 999 if the driver does not know it.
    pub data: u64,
    /// GPU instance, `None` when the event is about the whole GPU or the driver does not say.
    pub gpu_instance: Option<u32>,
    /// Compute instance, likewise.
    pub compute_instance: Option<u32>,
}

impl Event {
    /// Type bit of a critical XID.
    pub const XID: u64 = 0x8;
    /// Type bit: the GPU became unavailable (R565 and newer).
    pub const GPU_UNAVAILABLE: u64 = 0x4000;
    /// Type bit: the recovery action changed (R565 and newer).
    pub const RECOVERY_ACTION: u64 = 0x8000;

    /// The XID code, if this is an XID event.
    #[must_use]
    pub fn xid(&self) -> Option<u64> {
        (self.event_type & Self::XID != 0).then_some(self.data)
    }
}
