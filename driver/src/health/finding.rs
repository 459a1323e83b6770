//! A finding: one thing that is, or was, wrong with a card, with its evidence and the way out.

use std::collections::VecDeque;
use std::fmt;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use crate::policy::{Clear, LONGEST_REPEAT, Response, Row};

/// Events remembered of one finding. A repeat threshold beyond it is never reached; policies count in single digits.
const RECENT: usize = 64;
/// A finding that comes back within this time of its clearing is a relapse, and each doubles the time that clearing takes ...
const RELAPSE_WINDOW: SignedDuration = SignedDuration::from_hours(24);
/// ... up to two to this power.
const RELAPSE_DOUBLINGS: u32 = 5;
/// How long a condition that clears at once must stay away after its first relapse.
const FLAP_HOLD: SignedDuration = SignedDuration::from_secs(30);
/// Events are remembered for this time; the policy refuses longer repeat windows.
const EVENT_WINDOW: SignedDuration = LONGEST_REPEAT;
/// How long a finding without a rule of its own stays: it isolates nothing.
const DEFAULT_TIMER: SignedDuration = SignedDuration::from_hours(24);

/// What a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Scope {
    /// The card, and so all of its partitions.
    Card,
    /// One GPU instance, or one compute instance of it.
    #[serde(rename_all = "camelCase")]
    Partition {
        /// GPU instance id.
        gpu_instance: u32,
        /// Compute instance id; `None` means all of the GPU instance.
        compute_instance: Option<u32>,
    },
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Card => f.write_str("the whole card"),
            Self::Partition { gpu_instance, compute_instance: None } => write!(f, "GPU instance {gpu_instance}"),
            Self::Partition { gpu_instance, compute_instance: Some(compute) } => {
                write!(f, "GPU instance {gpu_instance}, compute instance {compute}")
            }
        }
    }
}

/// Which row of the policy judges a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// An XID event of this code.
    Xid(u64),
    /// A state that is read again and again.
    State,
}

/// Which finding of a card. Two signals with the same id are the same finding.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FindingId {
    /// Key of the taint, without its domain.
    pub key: String,
    /// Value of the taint.
    pub value: String,
    /// What it is about.
    pub scope: Scope,
}

impl FindingId {
    /// A finding about a whole card.
    #[must_use]
    pub fn card(key: &str, value: &str) -> Self {
        Self { key: key.to_owned(), value: value.to_owned(), scope: Scope::Card }
    }
}

impl fmt::Display for FindingId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value.as_str() {
            "" => f.write_str(&self.key),
            value => write!(f, "{}={value}", self.key),
        }
    }
}

/// An open finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Finding {
    /// Which.
    pub id: FindingId,
    /// Which row judges it. The row itself is not saved: after a restart today's policy judges.
    pub source: Source,
    /// The repeat threshold was reached.
    #[serde(default)]
    pub escalated: bool,
    /// When it was opened.
    pub first_seen: Timestamp,
    /// The last event, or the last reading that showed it.
    pub last_seen: Timestamp,
    /// How many events; 0 for a state.
    #[serde(default)]
    pub events: u64,
    /// The boot in which it was last seen.
    pub boot_id: String,
    /// What was seen, for people.
    pub evidence: String,
    /// The hardware's flag was read set while it was open.
    #[serde(default)]
    pub flag_seen: bool,
    /// What shows that the card was reset after it was last seen.
    #[serde(default)]
    pub reset_proof: Option<String>,
    /// How many times it came back soon after it had gone.
    #[serde(default)]
    pub relapses: u32,
    /// What it does.
    #[serde(skip, default = "ignore")]
    pub response: Response,
    /// How it goes.
    #[serde(skip)]
    pub clear: Option<Clear>,
    /// What it is, from the policy.
    #[serde(skip)]
    pub note: String,
    /// Which row decided.
    #[serde(skip)]
    pub origin: String,
    /// The condition was read, and does not hold any more.
    #[serde(skip)]
    pub(super) ended: bool,
    /// Since when everything that its clearing needs is given, without a gap in what was read.
    #[serde(skip)]
    pub(super) ready_since: Option<Timestamp>,
}

fn ignore() -> Response {
    Response::Ignore
}

impl Finding {
    /// Takes what a row says. A finding that several rows judge keeps the strongest.
    pub(super) fn judge(&mut self, row: &Row, events: u32, action_readable: bool) {
        let (response, clear) = row.response_to(if self.escalated { u32::MAX } else { events }, action_readable);
        self.escalated |= row.repeat.as_ref().is_some_and(|repeat| events >= repeat.times);
        if (&response, clear) >= (&self.response, self.clear) {
            self.response = response;
            self.clear = clear;
            self.origin.clone_from(&row.origin);
        }
        if !row.note.is_empty() {
            self.note.clone_from(&row.note);
        }
    }

    /// It was seen again: nothing that was on its way to clear it counts any more.
    pub(super) fn seen(&mut self, now: Timestamp, boot_id: &str, evidence: &str, flag: bool) {
        self.last_seen = now;
        self.evidence = evidence.to_owned();
        self.boot_id = boot_id.to_owned();
        self.flag_seen |= flag;
        self.reset_proof = None;
        self.ended = false;
        self.ready_since = None;
    }

    /// Whether this finding concerns the partition with these ids. A card has none, and only whole-card findings concern it.
    #[must_use]
    pub fn concerns(&self, gpu_instance: Option<u32>, compute_instance: Option<u32>) -> bool {
        match self.id.scope {
            Scope::Card => true,
            Scope::Partition { gpu_instance: gpu, compute_instance: compute } => {
                gpu_instance == Some(gpu) && (compute.is_none() || compute == compute_instance)
            }
        }
    }

    /// How it goes, with the default for rows without a rule.
    pub(super) fn rule(&self) -> Clear {
        self.clear.unwrap_or(Clear::Timer(DEFAULT_TIMER))
    }

    /// A time that relapses have lengthened.
    pub(super) fn lengthened(&self, base: SignedDuration) -> SignedDuration {
        doubled(base, self.relapses)
    }

    /// How long a condition that may clear at once must stay away.
    pub(super) fn flap_hold(&self) -> SignedDuration {
        match self.relapses {
            0 => SignedDuration::ZERO,
            again => doubled(FLAP_HOLD, again - 1),
        }
    }
}

/// A product that does not fit stands for ever: the policy set a time of centuries.
fn doubled(base: SignedDuration, times: u32) -> SignedDuration {
    base.checked_mul(1 << times.min(RELAPSE_DOUBLINGS)).unwrap_or(SignedDuration::MAX)
}

/// What is remembered of a finding beyond its clearing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct History {
    /// Which finding.
    pub id: FindingId,
    /// Times of its last events, oldest first.
    #[serde(default)]
    pub recent: VecDeque<Timestamp>,
    /// Relapses so far.
    #[serde(default)]
    pub relapses: u32,
    /// When and why it was last cleared.
    #[serde(default)]
    pub cleared: Option<Cleared>,
}

/// How a finding went.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Cleared {
    /// When.
    pub at: Timestamp,
    /// What showed that it is over.
    pub why: String,
}

impl History {
    pub(super) fn new(id: FindingId) -> Self {
        Self { id, recent: VecDeque::new(), relapses: 0, cleared: None }
    }

    /// Notes an event and says how many there were within a window.
    pub(super) fn note_event(&mut self, now: Timestamp, window: SignedDuration) -> u32 {
        if self.recent.len() == RECENT {
            self.recent.pop_front();
        }
        self.recent.push_back(now);
        let within = self.recent.iter().filter(|at| now.duration_since(**at) <= window).count();
        u32::try_from(within).unwrap_or(u32::MAX)
    }

    /// The finding opens again, or for the first time: how many relapses does that make?
    pub(super) fn reopen(&mut self, now: Timestamp) -> u32 {
        let soon = self.cleared.as_ref().is_some_and(|cleared| now.duration_since(cleared.at) <= RELAPSE_WINDOW);
        self.relapses = if soon { self.relapses.saturating_add(1) } else { 0 };
        self.relapses
    }

    /// Whether nothing in it matters any more.
    pub(super) fn is_over(&self, now: Timestamp) -> bool {
        let old = |at: Timestamp| now.duration_since(at) > EVENT_WINDOW;
        self.recent.back().is_none_or(|at| old(*at)) && self.cleared.as_ref().is_none_or(|cleared| old(cleared.at))
    }
}
