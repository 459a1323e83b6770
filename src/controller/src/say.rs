//! What people are told: of evictions, of countdowns that end, and of marks whose time has come.

use cluster::event::{About, Event, PodRef};
use cluster::mark::{Mark, Stored};
use taints::object::Key;
use taints::plan::Departure;
use taints::verdict::Source;

/// Every reason of a departure, on one line.
pub(crate) fn reasons(departure: &Departure) -> String {
    words(departure).join("; ")
}

fn words(departure: &Departure) -> Vec<String> {
    departure.reasons.iter().map(ToString::to_string).collect()
}

/// The pod was asked to leave, for these reasons.
pub(crate) fn marking(departure: &Departure) -> Event {
    let of_device = departure.reasons.iter().any(|reason| reason.source() == Source::Device);
    let about = if of_device { About::Device } else { About::Node };
    let pod = PodRef { key: departure.pod.clone(), uid: departure.uid.clone() };
    Event::marking(&pod, about, &words(departure))
}

/// The pod may stay after all.
pub(crate) fn cancelling(pod: Key, uid: String, source: Source) -> Event {
    let about = match source {
        Source::Device => About::Device,
        Source::Node => About::Node,
    };
    let why = "no taint is left that would make it leave".to_owned();
    Event::cancelling(&PodRef { key: pod, uid }, about, &[why])
}

/// A mark is gone because its time has come.
pub(crate) fn farewell(stored: &Stored) -> String {
    let rule = &stored.rule;
    let on = Mark::of_rule(rule).map(|mark| format!(" on device {}", mark.device)).unwrap_or_default();
    let until = rule.expires_at.map(|time| format!("{time:.0}")).unwrap_or_default();
    let by = rule.by.as_deref().unwrap_or("somebody");
    let reason = rule.reason.as_deref().map(|reason| format!(" ({reason})")).unwrap_or_default();
    format!("Mark {}{on} by {by}{reason} expired at {until} and was deleted", rule.taint)
}
