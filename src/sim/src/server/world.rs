//! What the server takes from outside: the time, unique ids and the random end of a generated name.

use jiff::Timestamp;
use uuid::Uuid;

/// The source of time and of randomness, an argument of everything else.
pub(crate) trait World: Send + Sync {
    /// The current time.
    fn now(&self) -> Timestamp;
    /// A new unique id for an object.
    fn uid(&self) -> String;
    /// Five letters for the end of a generated name.
    fn suffix(&self) -> String;
}

/// The machine's own clock and randomness.
#[derive(Debug, Default)]
pub(crate) struct Machine;

impl World for Machine {
    #[expect(clippy::disallowed_methods, reason = "this is the edge where the server reads a clock")]
    fn now(&self) -> Timestamp {
        Timestamp::now()
    }

    fn uid(&self) -> String {
        Uuid::new_v4().to_string()
    }

    fn suffix(&self) -> String {
        // The letters that Kubernetes uses: none that could form a word.
        const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
        Uuid::new_v4().as_bytes().iter().take(5).map(|b| char::from(LETTERS[usize::from(*b) % LETTERS.len()])).collect()
    }
}

/// A time as the API writes it: whole seconds, UTC.
pub(crate) fn rfc3339(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// A time as the API writes it where it keeps microseconds.
pub(crate) fn rfc3339_micro(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S%.6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_the_api_form() {
        let time: Timestamp = "2026-11-30T10:00:00.1234567Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2026-11-30T10:00:00Z");
        assert_eq!(rfc3339_micro(time), "2026-11-30T10:00:00.123456Z");
    }

    #[test]
    fn a_suffix_is_five_safe_letters() {
        let suffix = Machine.suffix();
        assert_eq!(suffix.len(), 5);
        assert!(suffix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit()));
    }
}
