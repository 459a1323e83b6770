//! The one place that reads the wall clock. Everything else is given a time.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

/// Where "now" comes from.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// The machine's clock.
    #[must_use]
    #[expect(
        clippy::disallowed_methods,
        reason = "the edge: deadlines are wall-clock times that the API server stamped"
    )]
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// A clock that begins at `start` and goes on with tokio's time, which tests can pause.
    #[must_use]
    pub fn following_tokio(start: Timestamp) -> Self {
        let began = tokio::time::Instant::now();
        Self(Arc::new(move || start.saturating_add(began.elapsed()).unwrap_or(Timestamp::MAX)))
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
