//! How long to wait after a failure, and before putting right what somebody else keeps changing. Pure: the moment is an argument.

use std::time::Duration;

use tokio::time::Instant;

/// Waits that double from `first` to `longest`, without end. Each is shortened by up to a quarter, by `seed`, so that the
/// agents of a cluster do not come back all at once.
#[derive(Clone, Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    seed: u64,
    failures: u32,
}

impl Backoff {
    /// A backoff that has seen no failure.
    #[must_use]
    pub fn new(first: Duration, longest: Duration, seed: u64) -> Self {
        Self { first, longest, seed, failures: 0 }
    }

    /// The wait after one more failure.
    pub fn after_failure(&mut self) -> Duration {
        let doubled = self.first.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX));
        self.failures = self.failures.saturating_add(1).min(31);
        let whole = doubled.min(self.longest);
        // Knuth's multiplier spreads neighbouring seeds; 0 to 255 of 1024 is at most a quarter.
        let spread = self.seed.wrapping_add(u64::from(self.failures)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56;
        whole - whole / 1024 * u32::try_from(spread).unwrap_or(0)
    }

    /// A success: the next failure waits shortly again.
    pub fn reset(&mut self) {
        self.failures = 0;
    }
}

/// The seed of a node's agent: one for each, so that the agents of a cluster do not come back all at once.
#[must_use]
pub fn seed_of(node: &str) -> u64 {
    node.bytes().fold(0, |seed, byte| seed.wrapping_mul(31).wrapping_add(u64::from(byte)))
}

/// When to put right what another writer changed: the first time at once (kubelet deletes every slice when it starts), then later
/// and later while it goes on, so that two writers do not fight at full speed.
#[derive(Clone, Debug)]
pub struct RepairPace {
    backoff: Backoff,
    last: Option<Instant>,
}

impl RepairPace {
    /// After this long without a repair the next one is at once again.
    const QUIET: Duration = Duration::from_secs(60);

    /// A pace that has repaired nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self { backoff: Backoff::new(Duration::from_millis(100), Duration::from_secs(30), 0), last: None }
    }

    /// The moment at which a change that was seen `now` may be put right.
    pub fn due(&mut self, now: Instant) -> Instant {
        let quiet = self.last.is_none_or(|last| now.saturating_duration_since(last) >= Self::QUIET);
        let due = if quiet {
            self.backoff.reset();
            now
        } else {
            now + self.backoff.after_failure()
        };
        self.last = Some(due);
        due
    }
}

impl Default for RepairPace {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Backoff, RepairPace};

    #[test]
    fn waits_double_to_the_longest_and_begin_again_after_success() {
        let mut backoff = Backoff::new(Duration::from_millis(50), Duration::from_secs(5), 7);
        let waits: Vec<_> = (0..40).map(|_| backoff.after_failure()).collect();
        assert!(waits[0] <= Duration::from_millis(50) && waits[0] > Duration::from_millis(37));
        assert!(waits[39] <= Duration::from_secs(5) && waits[39] > Duration::from_millis(3700));
        backoff.reset();
        assert!(backoff.after_failure() <= Duration::from_millis(50));
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_repair_is_at_once_and_a_fight_slows_down() {
        let now = Instant::now();
        let mut pace = RepairPace::new();
        assert_eq!(pace.due(now), now);
        let waits: Vec<_> = (0..12).map(|_| pace.due(now) - now).collect();
        assert!(waits[0] > Duration::ZERO && waits[1] > waits[0]);
        assert!(waits[11] > Duration::from_secs(20), "{waits:?}");
        let later = now + Duration::from_secs(120);
        assert_eq!(pace.due(later), later);
    }
}
