//! What the supervisor is told at the start.

use std::path::PathBuf;
use std::time::Duration;

use super::PciAddress;

/// How NVML is opened and watched.
#[derive(Clone, Debug)]
pub struct Config {
    /// Paths of the library, or bare names for the dynamic loader to find: the first that opens is taken.
    pub libraries: Vec<PathBuf>,
    /// GPUs seen before, so that one that is lost at the start is looked for by its address.
    pub known: Vec<Known>,
    /// Paces and deadlines.
    pub timing: Timing,
    /// Room of the channel of [`super::Update`]s. A signal that finds it full waits in its GPU's own short queue, then is dropped and counted.
    pub queue: usize,
}

impl Config {
    /// Usual paces for a library.
    #[must_use]
    pub fn new(library: impl Into<PathBuf>) -> Self {
        Self { libraries: vec![library.into()], known: Vec::new(), timing: Timing::default(), queue: 1024 }
    }
}

impl Default for Config {
    /// Of the library that the dynamic loader finds.
    fn default() -> Self {
        Self::new("libnvidia-ml.so.1")
    }
}

/// A GPU seen before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Where it was.
    pub pci: PciAddress,
    /// Which card it was; `None` takes whatever card answers there.
    pub uuid: Option<String>,
}

/// Paces and deadlines of the room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timing {
    /// Between two snapshots of a GPU.
    pub poll: Duration,
    /// Between two looks at which GPUs there are.
    pub rescan: Duration,
    /// A call that takes longer hangs.
    pub call_deadline: Duration,
    /// A GPU that takes longer to tell who it is, is left out of that scan; it is taken in when it answers.
    pub scan_patience: Duration,
    /// Opening the library is given up (and waited for in the background) after this.
    pub open_deadline: Duration,
    /// First pause before a failed opening or registration is tried again; it doubles up to `longest_retry`.
    pub first_retry: Duration,
    /// Longest such pause.
    pub longest_retry: Duration,
    /// Looks after an event, counted from it: the driver may set its verdict late.
    pub looks_after_event: Vec<Duration>,
    /// Longest single wait for an event; how soon a thread sees that it is to stop.
    pub wait: Duration,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            poll: Duration::from_secs(15),
            rescan: Duration::from_secs(60),
            call_deadline: Duration::from_secs(10),
            scan_patience: Duration::from_secs(2),
            open_deadline: Duration::from_secs(10),
            first_retry: Duration::from_secs(1),
            longest_retry: Duration::from_secs(60),
            looks_after_event: vec![Duration::from_secs(2), Duration::from_secs(10)],
            wait: Duration::from_millis(200),
        }
    }
}

/// A pause that doubles with each failure, and starts again after a success.
#[derive(Clone, Debug)]
pub(super) struct Backoff {
    first: Duration,
    longest: Duration,
    next: Duration,
}

impl Backoff {
    pub(super) fn new(timing: &Timing) -> Self {
        Self { first: timing.first_retry, longest: timing.longest_retry, next: timing.first_retry }
    }

    /// The pause after one more failure.
    pub(super) fn pause(&mut self) -> Duration {
        let pause = self.next.min(self.longest);
        self.next = (pause * 2).min(self.longest);
        pause
    }

    pub(super) fn reset(&mut self) {
        self.next = self.first;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::{Backoff, Timing};

    #[test]
    fn a_pause_doubles_to_its_limit_and_starts_again() {
        let timing =
            Timing { first_retry: Duration::from_secs(1), longest_retry: Duration::from_secs(5), ..Timing::default() };
        let mut backoff = Backoff::new(&timing);
        let pauses: Vec<_> = (0..5).map(|_| backoff.pause().as_secs()).collect();
        assert_eq!(pauses, [1, 2, 4, 5, 5]);
        backoff.reset();
        assert_eq!(backoff.pause(), Duration::from_secs(1));
    }
}
