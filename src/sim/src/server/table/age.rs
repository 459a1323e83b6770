//! Ages, in the short form of kubectl.

use jiff::Timestamp;

/// The time since `then` in at most two units; `<unknown>` for no time, `<invalid>` for the future.
pub(crate) fn age(then: &str, now: Timestamp) -> String {
    let Ok(then) = then.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    let seconds = now.as_second() - then.as_second();
    if seconds < -1 {
        return "<invalid>".to_owned();
    }
    short(seconds.max(0))
}

fn short(seconds: i64) -> String {
    const MINUTE: i64 = 60;
    const HOUR: i64 = 60 * MINUTE;
    const DAY: i64 = 24 * HOUR;
    const YEAR: i64 = 365 * DAY;
    let one = |unit: i64, name: &str| format!("{}{name}", seconds / unit);
    let two = |unit: i64, name: &str, part: i64, small: &str| match (seconds % unit) / part {
        0 => one(unit, name),
        rest => format!("{}{name}{rest}{small}", seconds / unit),
    };
    match seconds {
        ..=119 => format!("{seconds}s"),
        120..=599 => two(MINUTE, "m", 1, "s"),
        600..=10_799 => one(MINUTE, "m"),
        10_800..=28_799 => two(HOUR, "h", MINUTE, "m"),
        28_800..=172_799 => one(HOUR, "h"),
        172_800..=691_199 => two(DAY, "d", HOUR, "h"),
        691_200..=63_071_999 => one(DAY, "d"),
        63_072_000..=252_287_999 => two(YEAR, "y", DAY, "d"),
        _ => one(YEAR, "y"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_have_at_most_two_units() {
        let cases = [
            (0, "0s"),
            (119, "119s"),
            (125, "2m5s"),
            (180, "3m"),
            (700, "11m"),
            (11_000, "3h3m"),
            (90_000, "25h"),
            (200_000, "2d7h"),
            (1_000_000, "11d"),
            (70_000_000, "2y80d"),
            (300_000_000, "9y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(short(seconds), text);
        }
    }

    #[test]
    fn odd_times_are_named() {
        let now = "2026-11-30T10:00:00Z".parse().unwrap();
        assert_eq!(age("", now), "<unknown>");
        assert_eq!(age("2026-11-30T10:01:00Z", now), "<invalid>");
        assert_eq!(age("2026-11-30T09:59:57Z", now), "3s");
    }
}
