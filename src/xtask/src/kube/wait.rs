//! Waiting for a state, with a limit; and how long something took. The only place here that reads a clock.

use std::time::{Duration, Instant};

use anyhow::Result;

/// How long to rest between two looks. The states waited for come within seconds, and none of them can be waited for in another way: a process that is
/// not our child, a server that is not up yet, a mount that is busy.
const PAUSE: Duration = Duration::from_millis(100);

/// Looks until there is something, or the limit has passed: then there is nothing.
///
/// # Errors
/// The first error of a look ends it.
pub(super) fn until<T>(limit: Duration, mut look: impl FnMut() -> Result<Option<T>>) -> Result<Option<T>> {
    let watch = Stopwatch::start();
    loop {
        if let Some(found) = look()? {
            return Ok(Some(found));
        }
        if watch.elapsed() >= limit {
            return Ok(None);
        }
        rest();
    }
}

#[expect(clippy::disallowed_methods, reason = "between two looks of `until`, which has a limit")]
fn rest() {
    std::thread::sleep(PAUSE);
}

/// Time since a moment.
pub(super) struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(clippy::disallowed_methods, reason = "the edge where this program reads the clock")]
    pub(super) fn start() -> Self {
        Self(Instant::now())
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_until_something_is_there() {
        let mut looks = 0;
        let found = until(Duration::from_secs(60), || {
            looks += 1;
            Ok((looks == 3).then_some(looks))
        });
        assert_eq!(found.unwrap(), Some(3));
    }

    #[test]
    fn ends_at_the_limit_and_at_an_error() {
        assert_eq!(until::<()>(Duration::ZERO, || Ok(None)).unwrap(), None);
        assert!(until::<()>(Duration::from_secs(60), || anyhow::bail!("gone")).is_err());
    }
}
