//! What a pod's containers do, since nothing really runs: by annotations of the pod.

use std::collections::BTreeMap;
use std::time::Duration;

/// How long the containers run before they end; without it they run until they are stopped.
pub(super) const EXIT_AFTER: &str = "sim.devicetaint.dev/exit-after";
/// With which code they end (0); alone it means that they end at once.
pub(super) const EXIT_CODE: &str = "sim.devicetaint.dev/exit-code";
/// How long they need to stop when they are asked to (0s). The pod's grace ends it earlier.
pub(super) const STOP_AFTER: &str = "sim.devicetaint.dev/stop-after";

/// See the module.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Behaviour {
    pub(super) exit_after: Option<Duration>,
    pub(super) exit_code: i32,
    pub(super) stop_after: Duration,
}

impl Behaviour {
    /// Reads the annotations.
    ///
    /// # Errors
    /// Which annotation cannot be understood, and what it may be.
    pub(super) fn read(annotations: Option<&BTreeMap<String, String>>) -> Result<Self, String> {
        let get = |name: &str| annotations.and_then(|annotations| annotations.get(name));
        let duration = |name: &str| get(name).map(|text| duration(text).ok_or_else(|| wrong(name, text))).transpose();
        let exit_code = match get(EXIT_CODE) {
            Some(text) => Some(text.parse().map_err(|_| wrong(EXIT_CODE, text))?),
            None => None,
        };
        Ok(Self {
            exit_after: duration(EXIT_AFTER)?.or(exit_code.map(|_| Duration::ZERO)),
            exit_code: exit_code.unwrap_or(0),
            stop_after: duration(STOP_AFTER)?.unwrap_or_default(),
        })
    }
}

fn wrong(name: &str, text: &str) -> String {
    let form = if name == EXIT_CODE { "a number such as 1" } else { "a time such as 500ms, 2s or 1m" };
    format!("the annotation {name} is {text:?}, but must be {form}")
}

fn duration(text: &str) -> Option<Duration> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok()?;
    match unit {
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        "m" => number.checked_mul(60).map(Duration::from_secs),
        "h" => number.checked_mul(3600).map(Duration::from_secs),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(annotations: &[(&str, &str)]) -> Result<Behaviour, String> {
        let annotations = annotations.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Behaviour::read(Some(&annotations))
    }

    #[test]
    fn containers_run_for_ever_unless_they_are_told_to_end() {
        assert_eq!(Behaviour::read(None), Ok(Behaviour::default()));
        let ends = read(&[(EXIT_AFTER, "1500ms"), (STOP_AFTER, "2m")]).unwrap();
        assert_eq!(ends.exit_after, Some(Duration::from_millis(1500)));
        assert_eq!(ends.stop_after, Duration::from_secs(120));
        let at_once = read(&[(EXIT_CODE, "3")]).unwrap();
        assert_eq!((at_once.exit_after, at_once.exit_code), (Some(Duration::ZERO), 3));
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (name, value) in
            [(EXIT_AFTER, "2"), (EXIT_AFTER, "s"), (STOP_AFTER, "1d"), (EXIT_CODE, "x"), (EXIT_AFTER, "-1s")]
        {
            let error = read(&[(name, value)]).unwrap_err();
            assert!(error.contains(name) && error.contains(value), "{error}");
        }
    }
}
