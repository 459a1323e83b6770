//! The one place that reads the clocks: how long a wait has taken, and whether a file is so new that its time cannot be trusted.
#![expect(clippy::disallowed_methods, reason = "a C library that waits with a timeout is at the edge")]

use std::time::{Instant, SystemTime};

pub(crate) fn now() -> Instant {
    Instant::now()
}

pub(crate) fn wall() -> SystemTime {
    SystemTime::now()
}
