//! The thread of one GPU: a call about that GPU that hangs holds up nobody else.
//!
//! It registers events in a set of its own, waits, and reads a snapshot at every poll, at once after an event, and some seconds later.
//! A lost GPU is taken out of its set (a wait on it would return at once, for ever) and probed by its address with back-off.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, TryRecvError, channel};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::time::Instant;

use super::config::Backoff;
use super::health;
use super::outbox::Outbox;
use super::pulse::Pulse;
use super::raw::{Calls, EventSet, Session};
use super::{CallError, Code, Event, Known, PciAddress, Presence, SignalKind, Timing, Update};

/// Events that may come in a row before the GPU is looked at.
const EVENTS_IN_A_ROW: usize = 64;
/// Event types that say nothing about health and come often: single-bit errors, performance state, clocks, power source.
const NOISE: u64 = 0x1 | 0x4 | 0x10 | 0x80;

/// What a monitor and its supervisor share.
#[derive(Clone, Debug)]
pub(super) struct Shared {
    pub(super) timing: Arc<Timing>,
    pub(super) updates: mpsc::Sender<Update>,
    pub(super) dropped: Arc<AtomicU64>,
    /// Something changed that only a scan can tell.
    pub(super) look_again: Arc<Notify>,
    /// The session as a whole is of no use any more.
    pub(super) session_dead: Arc<AtomicBool>,
}

/// The supervisor's end of a GPU's thread.
#[derive(Debug)]
pub(super) struct Monitor {
    pub(super) uuid: Option<String>,
    pub(super) pulse: Arc<Pulse>,
    orders: Sender<Order>,
    stopped: Arc<AtomicBool>,
    pub(super) ended: oneshot::Receiver<()>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Look,
    Stop,
}

impl Monitor {
    /// Starts the thread. `None` when the system gives no thread; a later scan tries again.
    pub(super) fn spawn(session: Arc<Session>, gpu: Known, shared: Shared) -> Option<Self> {
        let (orders, received) = channel();
        let (end, ended) = oneshot::channel();
        let pulse = Arc::new(Pulse::default());
        let stopped = Arc::new(AtomicBool::new(false));
        let (uuid, pci) = (gpu.uuid.clone(), gpu.pci);
        let of_thread = (Arc::clone(&pulse), Arc::clone(&stopped));
        let thread = std::thread::Builder::new().name(pci.to_string()).spawn(move || {
            let (pulse, stopped) = of_thread;
            let calls = Calls::new(&session, &pulse);
            Watcher::new(calls, gpu, shared, received, &pulse, &stopped).run();
            // Before the supervisor hears of the end, so that the last one to let go of the session is the supervisor.
            drop(session);
            end.send(()).ok();
        });
        match thread {
            Ok(_) => Some(Self { uuid, pulse, orders, stopped, ended }),
            Err(error) => {
                tracing::warn!(gpu = %pci, %error, "the GPU is not watched: no thread");
                None
            }
        }
    }

    /// Asks for a snapshot now.
    pub(super) fn look(&self) {
        // A thread that has ended cannot be asked.
        self.orders.send(Order::Look).ok();
    }

    /// Ends the thread as soon as it is in no call; from now on it says nothing.
    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.orders.send(Order::Stop).ok();
    }
}

/// Whether events arrive.
enum Registration<'a> {
    On(EventSet<'a>),
    Off { next_try: Instant },
}

struct Watcher<'a> {
    calls: Calls<'a>,
    pci: PciAddress,
    expected: Option<String>,
    shared: Shared,
    orders: Receiver<Order>,
    pulse: &'a Pulse,
    stopped: &'a AtomicBool,
    outbox: Outbox,
    registration: Registration<'a>,
    register_pause: Backoff,
    told_not_watching: Option<CallError>,
    presence: Presence,
    energy_mj: Option<u64>,
    probe_pause: Backoff,
    next_poll: Instant,
    /// Looks beside the polls.
    looks: BTreeSet<Instant>,
}

impl<'a> Watcher<'a> {
    fn new(
        calls: Calls<'a>,
        gpu: Known,
        shared: Shared,
        orders: Receiver<Order>,
        pulse: &'a Pulse,
        stopped: &'a AtomicBool,
    ) -> Self {
        let now = Instant::now();
        Self {
            calls,
            pci: gpu.pci,
            outbox: Outbox::new(gpu.pci, gpu.uuid.clone(), shared.updates.clone(), Arc::clone(&shared.dropped)),
            expected: gpu.uuid,
            register_pause: Backoff::new(&shared.timing),
            probe_pause: Backoff::new(&shared.timing),
            shared,
            orders,
            pulse,
            stopped,
            registration: Registration::Off { next_try: now },
            told_not_watching: None,
            presence: Presence::Answering,
            energy_mj: None,
            next_poll: now,
            looks: BTreeSet::new(),
        }
    }

    fn run(&mut self) {
        while !self.stopped.load(Ordering::Relaxed) {
            self.register_if_due();
            self.look_if_due();
            self.tell_return();
            self.outbox.flush();
            let pause = self.until_next();
            match self.wait(pause) {
                Some(Order::Stop) => break,
                Some(Order::Look) => self.look_at(Instant::now()),
                None => {}
            }
        }
    }

    /// A signal, unless the supervisor has given this thread up: another one may speak for the GPU by now.
    fn tell(&mut self, kind: SignalKind) {
        if !self.stopped.load(Ordering::Relaxed) {
            self.outbox.put(kind);
        }
    }

    /// Tells that a call which hung has returned. What was read by it is old: look again.
    fn tell_return(&mut self) {
        if let Some((beat, lasted)) = self.pulse.take_returned() {
            self.tell(SignalKind::Unhung { function: beat.function, lasted });
            self.look_at(Instant::now());
        }
    }

    fn register_if_due(&mut self) {
        let Registration::Off { next_try } = self.registration else { return };
        if Instant::now() < next_try || self.presence != Presence::Answering {
            return;
        }
        match self.register() {
            Ok((set, event_types)) => {
                self.registration = Registration::On(set);
                self.told_not_watching = None;
                self.tell(SignalKind::Watching { event_types });
            }
            Err(error) => self.not_watching(error),
        }
    }

    /// Everything that the card offers but noise; where an old driver refuses that, XIDs alone.
    fn register(&self) -> Result<(EventSet<'a>, u64), CallError> {
        let device = self.calls.device_at(self.pci)?;
        let types = self.calls.supported_event_types(device)? & !NOISE;
        if types & Event::XID == 0 {
            return Err(CallError::new("nvmlDeviceGetSupportedEventTypes", Code::NOT_SUPPORTED));
        }
        match EventSet::register(self.calls, device, types) {
            Ok(set) => Ok((set, types)),
            Err(error) if error.code == Code::GPU_IS_LOST => Err(error),
            Err(_) => EventSet::register(self.calls, device, Event::XID).map(|set| (set, Event::XID)),
        }
    }

    /// Events do not arrive: told once for each reason, tried again with back-off.
    fn not_watching(&mut self, error: CallError) {
        self.registration = Registration::Off { next_try: Instant::now() + self.register_pause.pause() };
        if matches!(error.code, Code::GPU_IS_LOST | Code::NOT_FOUND) {
            self.look_at(Instant::now());
        }
        if self.told_not_watching.as_ref() != Some(&error) {
            self.told_not_watching = Some(error.clone());
            self.tell(SignalKind::NotWatching { error });
        }
    }

    fn look_at(&mut self, when: Instant) {
        self.looks.insert(when);
    }

    fn look_if_due(&mut self) {
        let now = Instant::now();
        if now < self.next_look() {
            return;
        }
        self.looks.retain(|look| *look > now);
        let snapshot = health::snapshot(self.calls, self.pci, self.expected.as_deref());
        self.adopt_uuid(&snapshot.presence);
        self.note_presence(snapshot.presence.clone());
        self.note_energy(snapshot.energy_mj.get());
        self.next_poll = Instant::now() + self.poll_pause();
        self.tell(SignalKind::Snapshot(Box::new(snapshot)));
    }

    fn next_look(&self) -> Instant {
        self.looks.first().map_or(self.next_poll, |look| self.next_poll.min(*look))
    }

    /// Where no card was known, the first one that answers is the one that is watched.
    fn adopt_uuid(&mut self, presence: &Presence) {
        if self.expected.is_some() || *presence != Presence::Answering {
            return;
        }
        if let Ok(uuid) = self.calls.device_at(self.pci).and_then(|device| self.calls.uuid(device)) {
            self.expected = Some(uuid.clone());
            self.outbox.set_uuid(uuid);
        }
    }

    /// A card that comes, goes or changes is for a scan to identify; one that does not answer has no event set.
    fn note_presence(&mut self, presence: Presence) {
        if matches!(presence, Presence::Unreadable(code) if is_of_the_whole_session(code)) {
            self.shared.session_dead.store(true, Ordering::Relaxed);
            self.shared.look_again.notify_one();
        }
        let has_changed = self.presence != presence;
        self.presence = presence;
        if self.presence == Presence::Answering {
            self.probe_pause.reset();
            if has_changed {
                self.registration = Registration::Off { next_try: Instant::now() };
            }
        } else {
            self.unregister();
        }
        if has_changed {
            self.shared.look_again.notify_one();
        }
    }

    /// Energy only grows. Less than before means that the driver was reloaded or the card reset between two polls, and nothing says that
    /// a set from before still gets events.
    fn note_energy(&mut self, energy_mj: Option<u64>) {
        if energy_mj.zip(self.energy_mj).is_some_and(|(now, before)| now < before) {
            self.unregister();
        }
        self.energy_mj = energy_mj.or(self.energy_mj);
    }

    /// Gives the set up. What lies in it was raised before, and nothing raises it again: it is told first.
    fn unregister(&mut self) {
        let off = Registration::Off { next_try: Instant::now() };
        match std::mem::replace(&mut self.registration, off) {
            Registration::On(set) => {
                let (events, _) = collect(&set, Duration::ZERO);
                events.into_iter().for_each(|event| self.tell(SignalKind::Event(event)));
            }
            tried @ Registration::Off { .. } => self.registration = tried,
        }
    }

    /// A card that does not answer is probed sooner than a healthy one is polled, but ever more slowly.
    fn poll_pause(&mut self) -> Duration {
        let poll = self.shared.timing.poll;
        if self.presence == Presence::Answering { poll } else { self.probe_pause.pause().min(poll) }
    }

    fn until_next(&self) -> Duration {
        let now = Instant::now();
        let mut next = self.next_look();
        if let (Registration::Off { next_try }, Presence::Answering) = (&self.registration, &self.presence) {
            next = next.min(*next_try);
        }
        next.saturating_duration_since(now).min(self.shared.timing.wait)
    }

    /// Waits for events if they are registered, else only for orders. Either way it returns soon.
    fn wait(&mut self, pause: Duration) -> Option<Order> {
        if let Registration::On(set) = &self.registration {
            let (events, ended) = collect(set, pause);
            self.handle(events, ended);
            return match self.orders.try_recv() {
                Ok(order) => Some(order),
                Err(TryRecvError::Empty) => None,
                Err(TryRecvError::Disconnected) => Some(Order::Stop),
            };
        }
        match self.orders.recv_timeout(pause) {
            Ok(order) => Some(order),
            Err(RecvTimeoutError::Timeout) => None,
            Err(RecvTimeoutError::Disconnected) => Some(Order::Stop),
        }
    }

    fn handle(&mut self, events: Vec<Event>, ended: Option<CallError>) {
        let now = Instant::now();
        if !events.is_empty() {
            self.look_at(now);
            let looks: Vec<_> = self.shared.timing.looks_after_event.iter().map(|after| now + *after).collect();
            self.looks.extend(looks);
        }
        for event in events {
            self.tell(SignalKind::Event(event));
        }
        let Some(error) = ended else {
            // Not at registering: a set that can be made but not waited on would be made without a pause.
            self.register_pause.reset();
            return;
        };
        // Only this GPU is in the set, so if one is lost, it is this one.
        self.look_at(now);
        self.not_watching(error);
    }
}

/// The next events, a limited number at once so that a storm cannot keep the GPU from being looked at; and what ended the set.
fn collect(set: &EventSet<'_>, pause: Duration) -> (Vec<Event>, Option<CallError>) {
    let mut milliseconds = u32::try_from(pause.as_millis()).unwrap_or(u32::MAX).max(1);
    let mut events = Vec::new();
    while events.len() < EVENTS_IN_A_ROW {
        match set.wait(milliseconds) {
            Ok(Some(event)) => events.push(event),
            Ok(None) => return (events, None),
            Err(error) => return (events, Some(error)),
        }
        milliseconds = 0;
    }
    (events, None)
}

/// Codes that are about library and driver, not about one card.
pub(super) fn is_of_the_whole_session(code: Code) -> bool {
    matches!(code, Code::UNINITIALIZED | Code::DRIVER_NOT_LOADED | Code::LIB_RM_VERSION_MISMATCH)
}
