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

fn about(departure: &Departure) -> About {
    let of_device = departure.reasons.iter().any(|reason| reason.source() == Source::Device);
    if of_device { About::Device } else { About::Node }
}

fn pod(departure: &Departure) -> PodRef {
    PodRef { key: departure.pod.clone(), uid: departure.uid.clone() }
}

/// The pod was asked to leave, for these reasons.
pub(crate) fn marking(departure: &Departure) -> Event {
    Event::marking(&pod(departure), about(departure), &words(departure))
}

/// The pod will be asked to leave, for these reasons.
pub(crate) fn counting_down(departure: &Departure) -> Event {
    Event::counting_down(&pod(departure), about(departure), departure.deadline, &words(departure))
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
