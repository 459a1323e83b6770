//! Which call a thread is in, and since when: what the watchdog looks at. A thread that hangs cannot tell itself.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// A call in progress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Beat {
    /// The C function.
    pub(super) function: &'static str,
    /// When it began.
    pub(super) since: Instant,
}

/// The calls of one thread. Two short locks a call: nothing beside what the call itself costs.
#[derive(Debug, Default)]
pub(super) struct Pulse(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    current: Option<Beat>,
    /// The watchdog has told that `current` hangs.
    told: bool,
    /// Calls that were told to hang and have returned since.
    returned: Option<(Beat, Duration)>,
}

impl Pulse {
    /// A call begins.
    pub(super) fn enter(&self, function: &'static str, now: Instant) {
        let mut state = self.0.lock();
        state.current = Some(Beat { function, since: now });
        state.told = false;
    }

    /// The call has returned.
    pub(super) fn leave(&self, now: Instant) {
        let mut state = self.0.lock();
        let beat = state.current.take();
        if std::mem::take(&mut state.told) {
            state.returned = beat.map(|beat| (beat, now.duration_since(beat.since)));
        }
    }

    /// The call that has been going on for longer than `deadline`, if it was not told before.
    pub(super) fn newly_overdue(&self, now: Instant, deadline: Duration) -> Option<Beat> {
        let mut state = self.0.lock();
        let beat = state.current.filter(|beat| now.duration_since(beat.since) > deadline)?;
        (!std::mem::replace(&mut state.told, true)).then_some(beat)
    }

    /// Whether the current call was told to hang.
    pub(super) fn hangs(&self) -> bool {
        self.0.lock().told
    }

    /// The call in progress.
    pub(super) fn current(&self) -> Option<Beat> {
        self.0.lock().current
    }

    /// The call that was told to hang and has returned, once.
    pub(super) fn take_returned(&self) -> Option<(Beat, Duration)> {
        self.0.lock().returned.take()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::Pulse;

    const DEADLINE: Duration = Duration::from_secs(10);

    #[test]
    fn an_overdue_call_is_told_once_and_its_return_once() {
        let (pulse, start) = (Pulse::default(), Instant::now());
        pulse.enter("nvmlDeviceGetUUID", start);
        assert_eq!(pulse.newly_overdue(start + DEADLINE, DEADLINE), None, "on time");
        let late = start + DEADLINE + Duration::from_millis(1);
        assert_eq!(pulse.newly_overdue(late, DEADLINE).map(|beat| beat.function), Some("nvmlDeviceGetUUID"));
        assert_eq!(pulse.newly_overdue(late, DEADLINE), None, "told already");
        assert!(pulse.hangs());
        pulse.leave(start + 3 * DEADLINE);
        let (beat, lasted) = pulse.take_returned().unwrap();
        assert_eq!((beat.since, lasted), (start, 3 * DEADLINE));
        assert_eq!(pulse.take_returned(), None);
        assert!(!pulse.hangs());
    }

    #[test]
    fn a_call_that_was_never_told_returns_in_silence() {
        let (pulse, start) = (Pulse::default(), Instant::now());
        pulse.enter("nvmlDeviceGetUUID", start);
        pulse.leave(start + 3 * DEADLINE);
        assert_eq!(pulse.take_returned(), None);
        assert_eq!(pulse.newly_overdue(start + 9 * DEADLINE, DEADLINE), None);
    }
}
