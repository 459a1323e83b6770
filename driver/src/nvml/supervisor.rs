//! NVML behind one channel: opened, watched, let go and opened again, without anybody else holding a piece of it.
//!
//! One tokio task. It makes no call itself: opening and scanning run on threads that it waits for with a deadline, and each GPU has a
//! [`Monitor`]. A thread that hangs is never joined; it is counted, and closes its part of the library when its call returns.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, mpsc, oneshot};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::config::Backoff;
use super::monitor::{Monitor, Shared, is_of_the_whole_session};
use super::raw::Session;
use super::scan::Scanner;
use super::{Config, Known, OpenError, PciAddress, Scan, Signal, SignalKind, Update, Versions};

/// How often the watchdog looks at the threads, at most.
const WATCHDOG: Duration = Duration::from_millis(500);
/// Changes that come together are scanned for together.
const SETTLE: Duration = Duration::from_millis(50);

/// The handle of the NVML room. Its methods only send orders: what comes of them arrives as [`Update`]s.
#[derive(Debug)]
pub struct Supervisor {
    orders: mpsc::UnboundedSender<Order>,
    counters: Arc<Counters>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

#[derive(Debug)]
enum Order {
    Release,
    Reopen,
    Rescan,
    Look(PciAddress),
    Know(Vec<Known>),
}

#[derive(Debug, Default)]
struct Counters {
    dropped: Arc<AtomicU64>,
    abandoned: AtomicUsize,
    watched: AtomicUsize,
}

impl Supervisor {
    /// Starts to open NVML, for ever, until [`Supervisor::stop`]. Needs a tokio runtime whose clock is not paused.
    #[must_use]
    pub fn spawn(config: Config) -> (Self, mpsc::Receiver<Update>) {
        let (updates, received) = mpsc::channel(config.queue.max(1));
        let (orders, ordered) = mpsc::unbounded_channel();
        let counters = Arc::new(Counters::default());
        let cancel = CancellationToken::new();
        let room = Room::new(config, updates, ordered, Arc::clone(&counters), cancel.clone());
        let task = tokio::spawn(room.run());
        (Self { orders, counters, cancel, task }, received)
    }

    /// Lets every handle and the library go, as a GPU reset needs it. [`Update::Released`] tells when that is done; then nothing is
    /// read until [`Supervisor::reopen`].
    pub fn release(&self) {
        self.order(Order::Release);
    }

    /// Opens NVML again: at once, also when the next retry would be later. One that is open and works stays as it is.
    pub fn reopen(&self) {
        self.order(Order::Reopen);
    }

    /// Looks at which GPUs there are now; [`Update::Discovered`] follows in any case.
    pub fn rescan(&self) {
        self.order(Order::Rescan);
    }

    /// Takes a snapshot of a GPU now.
    pub fn look(&self, pci: PciAddress) {
        self.order(Order::Look(pci));
    }

    /// Replaces the GPUs that are looked for at their address even when NVML does not list them. GPUs that are listed are watched anyway.
    pub fn know(&self, known: Vec<Known>) {
        self.order(Order::Know(known));
    }

    /// Signals dropped since the start, because nobody took them in time.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.counters.dropped.load(Ordering::Relaxed)
    }

    /// Threads that hang in a call and were given up at a release.
    #[must_use]
    pub fn abandoned(&self) -> usize {
        self.counters.abandoned.load(Ordering::Relaxed)
    }

    /// GPUs that have a thread now.
    #[must_use]
    pub fn watched(&self) -> usize {
        self.counters.watched.load(Ordering::Relaxed)
    }

    /// Lets everything go and ends. A thread that hangs does not hold it up beyond the deadline of a call.
    pub async fn stop(self) {
        self.cancel.cancel();
        if let Err(error) = self.task.await {
            tracing::error!(%error, "the NVML room ended badly");
        }
    }

    fn order(&self, order: Order) {
        // The task ends only in `stop`, after which there is no handle to order with.
        self.orders.send(order).ok();
    }
}

/// Why an open NVML is closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Release,
    Dead,
    Stop,
}

/// The task.
struct Room {
    libraries: Vec<PathBuf>,
    known: Vec<Known>,
    shared: Shared,
    orders: mpsc::UnboundedReceiver<Order>,
    counters: Arc<Counters>,
    cancel: CancellationToken,
    /// An opening that has not returned yet.
    opening: Option<oneshot::Receiver<Result<Session, OpenError>>>,
}

/// An open NVML.
struct Open {
    session: Arc<Session>,
    scanner: Scanner,
    monitors: BTreeMap<PciAddress, Monitor>,
    scan: Scan,
}

impl Room {
    fn new(
        config: Config,
        updates: mpsc::Sender<Update>,
        orders: mpsc::UnboundedReceiver<Order>,
        counters: Arc<Counters>,
        cancel: CancellationToken,
    ) -> Self {
        let mut timing = config.timing;
        // A wait for events is a call too, and must not look like one that hangs.
        timing.wait = timing.wait.min(timing.call_deadline / 2);
        let shared = Shared {
            timing: Arc::new(timing),
            updates,
            dropped: Arc::clone(&counters.dropped),
            look_again: Arc::new(Notify::new()),
            session_dead: Arc::new(AtomicBool::new(false)),
        };
        Self { libraries: config.libraries, known: config.known, shared, orders, counters, cancel, opening: None }
    }

    async fn run(mut self) {
        let mut died = Backoff::new(&self.shared.timing);
        while let Some(session) = self.open().await {
            let opened = Instant::now();
            let (mut open, versions) = self.begin(session).await;
            self.tell(Update::Opened { versions, scan: open.scan.clone() }).await;
            self.watch_all(&mut open);
            let end = self.while_open(&mut open).await;
            let abandoned = self.close(open).await;
            if opened.elapsed() > self.shared.timing.longest_retry {
                died.reset();
            }
            let goes_on = match end {
                End::Stop => false,
                End::Release => self.released(abandoned).await,
                // A library that opens and dies at once would be opened in a tight loop.
                End::Dead => self.pause_or_order(died.pause()).await.is_some(),
            };
            if !goes_on {
                return;
            }
        }
    }

    /// Opens, with back-off, without end. `None` when stopped.
    async fn open(&mut self) -> Option<Session> {
        let mut backoff = Backoff::new(&self.shared.timing);
        for attempt in 1.. {
            let error = match self.try_open().await? {
                Ok(session) => return Some(session),
                Err(error) => error,
            };
            let retry_in = backoff.pause();
            self.tell(Update::Unavailable { error, attempt, retry_in }).await;
            self.pause_or_order(retry_in).await?;
        }
        None
    }

    /// One try, on a thread. One that does not return is waited for the next time too: a second one would hang as well.
    async fn try_open(&mut self) -> Option<Result<Session, OpenError>> {
        let waited = self.shared.timing.open_deadline;
        let mut opening = self.opening.take().or_else(|| open_on_thread(self.libraries.clone()))?;
        tokio::select! {
            () = self.cancel.cancelled() => None,
            answer = timeout(waited, &mut opening) => match answer {
                Ok(Ok(result)) => Some(result),
                Ok(Err(_)) => Some(Err(OpenError::Unanswered { waited })),
                Err(_) => {
                    self.opening = Some(opening);
                    Some(Err(OpenError::Unanswered { waited }))
                }
            },
        }
    }

    /// Waits; `reopen` ends it early, other orders are remembered as far as they mean something now.
    async fn pause_or_order(&mut self, pause: Duration) -> Option<()> {
        let end = Instant::now() + pause;
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => return None,
                () = sleep_until(end) => return Some(()),
                order = self.orders.recv() => match order? {
                    Order::Reopen => return Some(()),
                    Order::Know(known) => self.known = known,
                    Order::Release => return self.released(0).await.then_some(()),
                    Order::Rescan | Order::Look(_) => {}
                },
            }
        }
    }

    /// Nothing is read until somebody says so. False when stopped.
    async fn released(&mut self, abandoned: usize) -> bool {
        self.tell(Update::Released { abandoned }).await;
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => return false,
                order = self.orders.recv() => match order {
                    Some(Order::Reopen) => return true,
                    Some(Order::Know(known)) => self.known = known,
                    Some(Order::Release | Order::Rescan | Order::Look(_)) => {}
                    None => return false,
                },
            }
        }
    }

    async fn begin(&mut self, session: Session) -> (Open, Versions) {
        self.shared.session_dead = Arc::new(AtomicBool::new(false));
        self.shared.look_again = Arc::new(Notify::new());
        let session = Arc::new(session);
        let patience = self.shared.timing.scan_patience;
        let mut scanner = Scanner::new(Arc::clone(&session), patience, Arc::clone(&self.shared.look_again));
        let (versions, scan) = scanner.scan(&self.addresses()).await;
        self.learn(&scan);
        (Open { session, scanner, monitors: BTreeMap::new(), scan }, versions)
    }

    fn addresses(&self) -> BTreeSet<PciAddress> {
        self.known.iter().map(|known| known.pci).collect()
    }

    /// A GPU that was seen once is looked for from then on.
    fn learn(&mut self, scan: &Scan) {
        for gpu in &scan.gpus {
            self.known.retain(|known| known.pci != gpu.pci);
            self.known.push(Known { pci: gpu.pci, uuid: Some(gpu.uuid.clone()) });
        }
    }

    /// Gives each known GPU a thread, and a new one where another card answers now.
    fn watch_all(&self, open: &mut Open) {
        let gone: Vec<_> = {
            let addresses = self.addresses();
            open.monitors.keys().filter(|pci| !addresses.contains(pci)).copied().collect()
        };
        for pci in gone {
            self.unwatch(open, pci);
        }
        for known in &self.known {
            let is_watched = open.monitors.get(&known.pci).is_some_and(|monitor| monitor.uuid == known.uuid);
            if is_watched {
                continue;
            }
            self.unwatch(open, known.pci);
            if let Some(monitor) = Monitor::spawn(Arc::clone(&open.session), known.clone(), self.shared.clone()) {
                open.monitors.insert(known.pci, monitor);
            }
        }
        self.counters.watched.store(open.monitors.len(), Ordering::Relaxed);
    }

    fn unwatch(&self, open: &mut Open, pci: PciAddress) {
        if let Some(monitor) = open.monitors.remove(&pci) {
            monitor.stop();
            if monitor.pulse.hangs() {
                self.counters.abandoned.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    async fn while_open(&mut self, open: &mut Open) -> End {
        let mut next_scan = Instant::now() + self.shared.timing.rescan;
        let mut asked = false;
        let look_again = Arc::clone(&self.shared.look_again);
        let mut watchdog = tokio::time::interval(WATCHDOG.min(self.shared.timing.call_deadline / 2));
        loop {
            tokio::select! {
                () = self.cancel.cancelled() => return End::Stop,
                order = self.orders.recv() => match order {
                    None => return End::Stop,
                    Some(Order::Release) => return End::Release,
                    Some(Order::Reopen) => {}
                    Some(Order::Look(pci)) => open.monitors.get(&pci).into_iter().for_each(Monitor::look),
                    Some(Order::Know(known)) => {
                        self.known = known;
                        self.learn(&open.scan.clone());
                        (asked, next_scan) = (true, Instant::now());
                    }
                    Some(Order::Rescan) => (asked, next_scan) = (true, Instant::now()),
                },
                () = look_again.notified() => next_scan = next_scan.min(Instant::now() + SETTLE),
                _ = watchdog.tick() => self.tell_hanging(open).await,
                () = sleep_until(next_scan) => {
                    if self.rescan(open, asked).await == Some(End::Dead) {
                        return End::Dead;
                    }
                    (asked, next_scan) = (false, Instant::now() + self.shared.timing.rescan);
                }
            }
        }
    }

    /// Looks at which GPUs there are, and tells if that has changed or was asked for.
    async fn rescan(&mut self, open: &mut Open, asked: bool) -> Option<End> {
        let (_, scan) = open.scanner.scan(&self.addresses()).await;
        let is_dead = self.shared.session_dead.load(Ordering::Relaxed)
            || scan.count.as_ref().is_err_and(|error| is_of_the_whole_session(error.code));
        if is_dead {
            return Some(End::Dead);
        }
        self.learn(&scan);
        let has_changed = scan != open.scan;
        open.scan = scan;
        if has_changed || asked {
            self.tell(Update::Discovered { scan: open.scan.clone() }).await;
        }
        self.watch_all(open);
        None
    }

    /// A thread that hangs cannot tell itself.
    async fn tell_hanging(&self, open: &Open) {
        let now = Instant::now();
        for (pci, monitor) in &open.monitors {
            if let Some(beat) = monitor.pulse.newly_overdue(now, self.shared.timing.call_deadline) {
                let kind = SignalKind::Hung { function: beat.function, since: beat.since };
                let signal = Signal { pci: *pci, uuid: monitor.uuid.clone(), at: now, kind };
                self.tell(Update::Signal(signal)).await;
            }
        }
    }

    /// Ends every thread and then the library. Gives the number of threads that hang and were left behind.
    async fn close(&self, open: Open) -> usize {
        let Open { session, mut scanner, monitors, .. } = open;
        monitors.values().for_each(Monitor::stop);
        let end = Instant::now() + self.shared.timing.call_deadline;
        let mut abandoned = 0;
        for monitor in monitors.into_values() {
            let gone = !monitor.pulse.hangs() && tokio::time::timeout_at(end, monitor.ended).await.is_ok();
            abandoned += usize::from(!gone);
        }
        abandoned += scanner.hanging();
        drop(scanner);
        abandoned += usize::from(!self.shut_down(session).await);
        self.counters.abandoned.fetch_add(abandoned, Ordering::Relaxed);
        self.counters.watched.store(0, Ordering::Relaxed);
        abandoned
    }

    /// Closes the library on a thread, as that call can hang too. While a thread is left behind, its part keeps the library open.
    async fn shut_down(&self, session: Arc<Session>) -> bool {
        let (done, closed) = oneshot::channel();
        let thread = std::thread::Builder::new().name("nvml close".to_owned()).spawn(move || {
            drop(session);
            done.send(()).ok();
        });
        thread.is_ok() && timeout(self.shared.timing.call_deadline, closed).await.is_ok()
    }

    /// Waits for room: these updates must not be lost. Being stopped ends the wait.
    async fn tell(&self, update: Update) {
        tokio::select! {
            () = self.cancel.cancelled() => {}
            // A receiver that is gone wants nothing.
            sent = self.shared.updates.send(update) => sent.unwrap_or_default(),
        }
    }
}

/// `None` when the system gives no thread.
fn open_on_thread(libraries: Vec<PathBuf>) -> Option<oneshot::Receiver<Result<Session, OpenError>>> {
    let (reply, answer) = oneshot::channel();
    let thread = std::thread::Builder::new().name("nvml open".to_owned()).spawn(move || {
        // A session that nobody waits for any more closes itself here.
        reply.send(Session::open_first(&libraries)).ok();
    });
    thread.is_ok().then_some(answer)
}
