//! A snapshot in the words of the vocabulary: for each key, what holds, what does not, and what could not be read.

use std::collections::{BTreeSet, VecDeque};

use jiff::{SignedDuration, Timestamp};

use crate::nvml::{Fabric, Presence, Reading, Snapshot, Thermal};

/// Throttling is judged over this time ...
const THERMAL_WINDOW: SignedDuration = SignedDuration::from_mins(10);
/// ... from this many readings on ...
const THERMAL_READINGS: usize = 5;
/// ... and counts when it is seen in this share of them, in tenths.
const THERMAL_TENTHS: usize = 6;
/// Bounds the window's memory, whatever the poll interval.
const THERMAL_MOST: usize = 256;

/// What one reading says of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Look {
    pub(super) key: &'static str,
    /// The value that was looked at; `None` where the look covers all values of the key.
    pub(super) only: Option<&'static str>,
    /// What holds; `None` where it could not be read.
    pub(super) held: Option<Vec<Held>>,
}

/// A condition that holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Held {
    pub(super) value: String,
    pub(super) evidence: String,
}

impl Held {
    fn new(value: impl Into<String>, evidence: impl Into<String>) -> Self {
        Self { value: value.into(), evidence: evidence.into() }
    }
}

/// What the looks of one card remember between readings. Lost with the agent: these conditions are informative.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Watch {
    links_up: BTreeSet<usize>,
    throttled: VecDeque<(Timestamp, u64)>,
}

/// Everything that a snapshot says. Values count only where the card answered.
pub(super) fn looks(snapshot: &Snapshot, watch: &mut Watch, now: Timestamp) -> Vec<Look> {
    let mut looks = vec![lost(&snapshot.presence), unreadable(&snapshot.presence), recovery(snapshot)];
    if snapshot.presence == Presence::Answering {
        looks.extend(memory(snapshot));
        looks.push(thermal(snapshot, watch, now));
        looks.extend(link(snapshot, watch));
        looks.push(fabric(&snapshot.fabric));
    }
    looks
}

fn whole(key: &'static str, held: Option<Vec<Held>>) -> Look {
    Look { key, only: None, held }
}

fn lost(presence: &Presence) -> Look {
    let held = |evidence: &str| Some(vec![Held::new("", evidence)]);
    let held = match presence {
        Presence::Answering | Presence::ResetRequired => Some(Vec::new()),
        Presence::Lost => held("NVML answers GPU_IS_LOST"),
        Presence::Absent => held("NVML knows no GPU at this address"),
        Presence::OtherCard { uuid } => held(&format!("another card, {uuid}, answers at this address")),
        Presence::Unreadable(_) => None,
    };
    whole("lost", held)
}

fn unreadable(presence: &Presence) -> Look {
    let held = match presence {
        Presence::Unreadable(code) => vec![Held::new("unreadable", format!("NVML answers {code}"))],
        _ => Vec::new(),
    };
    Look { key: "unmonitored", only: Some("unreadable"), held: Some(held) }
}

/// The driver's verdict. `RESET_REQUIRED` says the same in a stronger voice.
fn recovery(snapshot: &Snapshot) -> Look {
    if snapshot.presence == Presence::ResetRequired {
        return whole("recovery", Some(vec![Held::new("gpu-reset", "NVML answers RESET_REQUIRED")]));
    }
    let action = match snapshot.presence {
        Presence::Answering => snapshot.recovery_action.get(),
        _ => None,
    };
    let held = action.map(|action| match action {
        0 => Vec::new(),
        _ => vec![Held::new(action_name(action), format!("the driver's recovery action reads {action}"))],
    });
    whole("recovery", held)
}

/// Field 230 in words. A number that came after this program is no "none".
pub(super) fn action_name(action: u32) -> String {
    let name = match action {
        0 => "none",
        1 => "gpu-reset",
        2 => "node-reboot",
        3 => "drain-p2p",
        4 => "drain-and-reset",
        5 => "recover-imex-domain",
        6 => "bus-reset",
        7 => "system-reboot",
        other => return format!("action-{other}"),
    };
    name.to_owned()
}

fn memory(snapshot: &Snapshot) -> [Look; 4] {
    let rows = &snapshot.remapped_rows;
    [
        flag("remap-failed", rows.failed, "a memory row could not be remapped"),
        flag("sram-threshold", snapshot.sram_threshold_exceeded, "the SRAM error threshold is exceeded"),
        flag("remap-pending", rows.pending, "a row remap waits for a reset"),
        flag("retire-pending", snapshot.retired_pages_pending, "a page retirement waits for a reset"),
    ]
}

fn flag(value: &'static str, reading: Reading<bool>, evidence: &str) -> Look {
    let held = reading.get().map(|set| if set { vec![Held::new(value, evidence)] } else { Vec::new() });
    Look { key: "memory", only: Some(value), held }
}

/// Throttling for a moment is normal; throttling most of the time is not.
fn thermal(snapshot: &Snapshot, watch: &mut Watch, now: Timestamp) -> Look {
    let Some(reasons) = snapshot.thermal.throttle_reasons.get() else { return whole("thermal", None) };
    watch.throttled.push_back((now, reasons));
    let old = |at: Timestamp| now.duration_since(at) > THERMAL_WINDOW;
    while watch.throttled.len() > THERMAL_MOST || watch.throttled.front().is_some_and(|(at, _)| old(*at)) {
        watch.throttled.pop_front();
    }
    let seen = watch.throttled.len();
    let causes = [
        ("hardware-thermal", Thermal::HARDWARE_THERMAL),
        ("software-thermal", Thermal::SOFTWARE_THERMAL),
        ("power-brake", Thermal::POWER_BRAKE),
    ];
    let mostly = |bit: u64| {
        let hits = watch.throttled.iter().filter(|(_, reasons)| reasons & bit != 0).count();
        seen >= THERMAL_READINGS && hits * 10 >= seen * THERMAL_TENTHS
    };
    let held = causes.iter().filter(|(_, bit)| mostly(*bit));
    let evidence = "clocks were lowered for most of the last ten minutes";
    whole("thermal", Some(held.map(|(value, _)| Held::new(*value, evidence)).collect()))
}

/// Width, not generation: the generation drops when a card idles. A link counts as down only after it was seen up, for many
/// boards leave some unconnected.
fn link(snapshot: &Snapshot, watch: &mut Watch) -> [Look; 2] {
    let width = match (snapshot.pcie.width.get(), snapshot.pcie.max_width.get()) {
        (Some(width), Some(most)) if width < most => {
            Some(vec![Held::new("pcie-width", format!("PCIe runs with {width} of {most} lanes"))])
        }
        (Some(_), Some(_)) => Some(Vec::new()),
        _ => None,
    };
    let up = |reading: &Reading<bool>| reading.get();
    watch
        .links_up
        .extend(snapshot.nvlinks.iter().enumerate().filter(|(_, link)| up(link) == Some(true)).map(|(n, _)| n));
    let down: Vec<String> = (snapshot.nvlinks.iter().enumerate())
        .filter(|(number, link)| up(link) == Some(false) && watch.links_up.contains(number))
        .map(|(number, _)| number.to_string())
        .collect();
    let unread = snapshot.nvlinks.iter().any(|link| matches!(link, Reading::Failed(_)));
    let nvlink = match (down.is_empty(), unread) {
        (false, _) => Some(vec![Held::new("nvlink-down", format!("NVLink {} went down", down.join(", ")))]),
        (true, true) => None,
        (true, false) => Some(Vec::new()),
    };
    [
        Look { key: "link", only: Some("pcie-width"), held: width },
        Look { key: "link", only: Some("nvlink-down"), held: nvlink },
    ]
}

fn fabric(reading: &Reading<Fabric>) -> Look {
    let held = match reading {
        Reading::Failed(_) => None,
        Reading::NotSupported => Some(Vec::new()),
        Reading::Value(fabric) => Some(fabric_problem(fabric).into_iter().collect()),
    };
    whole("fabric", held)
}

/// The status counts only once registration has completed.
fn fabric_problem(fabric: &Fabric) -> Option<Held> {
    match (fabric.state, fabric.status, fabric.health_summary) {
        (1 | 2, _, _) => Some(Held::new("incomplete", "the fabric registration has not completed")),
        (3, status, _) if status != 0 => {
            Some(Held::new("failed", format!("the fabric registration ended with code {status}")))
        }
        (3, _, Some(2)) => Some(Held::new("unhealthy", "the fabric reports this card unhealthy")),
        (3, _, Some(3)) => Some(Held::new("limited", "the fabric reports limited capacity")),
        _ => None,
    }
}
