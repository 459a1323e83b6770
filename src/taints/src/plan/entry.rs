//! What the planner knows about one pod.

use jiff::{SignedDuration, Timestamp};

use super::{Action, Departure, Mode, Modes, RetryAfter};
use crate::verdict::{Reason, Spared, Verdict};

/// The first delay after an error; it doubles with each further one.
const FIRST_DELAY: SignedDuration = SignedDuration::from_secs(1);
/// The longest delay, after an error and whatever a server asks for.
const LONGEST_DELAY: SignedDuration = SignedDuration::from_mins(1);
/// How long a refusal by a budget is waited for when the server gives no time.
const BUDGET_DELAY: SignedDuration = SignedDuration::from_secs(10);

/// How far the eviction of a pod has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    /// Nothing is under way.
    Idle,
    /// The edge is at it.
    InFlight,
    /// It failed, and is tried again at this time.
    Waiting(Timestamp),
    /// The pod changed under the attempt: again at this time, or as soon as the change is seen.
    LookingAgain(Timestamp),
    /// The server accepted it.
    Done,
}

/// A countdown that somebody may have been told of.
#[derive(Debug)]
struct Countdown {
    /// What made it count, when that was last known.
    reasons: Vec<Reason>,
    /// The number of the plan before which it began.
    began: u64,
    /// Whether it is only kept because what made it count is unknown now.
    held: bool,
}

#[derive(Debug)]
pub(super) struct Entry {
    verdict: Verdict,
    attempt: Attempt,
    failures: u32,
    told: bool,
    /// What was last asked for.
    asked: Option<Departure>,
    /// Whether any of what was asked for may have been accepted, for all that is known.
    unanswered: bool,
    countdown: Option<Countdown>,
}

impl Entry {
    pub(super) fn new(verdict: Verdict, modes: Modes, plan: u64) -> Self {
        let mut entry = Self {
            verdict,
            attempt: Attempt::Idle,
            failures: 0,
            told: false,
            asked: None,
            unanswered: false,
            countdown: None,
        };
        entry.count(modes, plan);
        entry
    }

    pub(super) fn uid(&self) -> &str {
        &self.verdict.uid
    }

    /// Takes a new verdict on the same pod; answers with a cancellation where its countdown has ended.
    pub(super) fn update(&mut self, verdict: Verdict, modes: Modes, plan: u64) -> Option<Action> {
        if matches!(self.attempt, Attempt::LookingAgain(_)) && verdict.resource_version != self.verdict.resource_version
        {
            self.attempt = Attempt::Idle;
        }
        self.verdict = verdict;
        let old = self.count(modes, plan)?;
        let announced = old.began < plan && self.verdict.spared.is_none() && self.attempt != Attempt::Done;
        let source = old.reasons.first().map(Reason::source).filter(|_| announced)?;
        Some(Action::Cancel { pod: self.verdict.pod.clone(), uid: self.verdict.uid.clone(), source })
    }

    /// Brings the countdown up to date; answers with the one that has ended. One whose reason is unknown now is held.
    fn count(&mut self, modes: Modes, plan: u64) -> Option<Countdown> {
        let spared = self.verdict.spared.is_some();
        let enforced = |reason: &&Reason| !spared && modes.of(reason.source()) == Mode::Enforce;
        let reasons: Vec<Reason> = self.verdict.reasons.iter().filter(enforced).cloned().collect();
        if !reasons.is_empty() {
            let began = self.countdown.as_ref().map_or(plan, |old| old.began);
            self.countdown = Some(Countdown { reasons, began, held: false });
            return None;
        }
        let old = self.countdown.take()?;
        let unknown = |reason: &Reason| self.verdict.held.iter().any(|held| held.covers(reason));
        if spared || !old.reasons.iter().any(unknown) {
            return Some(old);
        }
        self.countdown = Some(Countdown { held: true, ..old });
        None
    }

    /// The earliest reason among the sources in a mode; none for a pod that is spared.
    fn reason(&self, modes: Modes, mode: Mode) -> Option<&Reason> {
        let reasons = self.verdict.reasons.iter().filter(|_| self.verdict.spared.is_none());
        reasons.filter(|reason| modes.of(reason.source()) == mode).min_by_key(|reason| reason.deadline)
    }

    fn deadline(&self, modes: Modes, mode: Mode) -> Option<Timestamp> {
        self.reason(modes, mode).and_then(|reason| reason.deadline)
    }

    /// When the pod is to be evicted, or tried again.
    fn evict_at(&self, modes: Modes) -> Option<Timestamp> {
        let deadline = self.deadline(modes, Mode::Enforce)?;
        match self.attempt {
            Attempt::Idle => Some(deadline),
            Attempt::Waiting(at) | Attempt::LookingAgain(at) => Some(deadline.max(at)),
            Attempt::InFlight | Attempt::Done => None,
        }
    }

    /// When its time is over by a source that is only observed, unless it is evicted before.
    fn tell_at(&self, modes: Modes) -> Option<Timestamp> {
        if self.told || self.attempt == Attempt::Done {
            return None;
        }
        let deadline = self.deadline(modes, Mode::Observe)?;
        let first = self.deadline(modes, Mode::Enforce).is_none_or(|enforced| deadline < enforced);
        first.then_some(deadline)
    }

    /// When to look at this pod next.
    pub(super) fn due(&self, modes: Modes) -> Option<Timestamp> {
        self.evict_at(modes).into_iter().chain(self.tell_at(modes)).min()
    }

    /// What is due.
    pub(super) fn act(&mut self, modes: Modes, now: Timestamp) -> Option<Action> {
        if self.evict_at(modes).is_some_and(|at| at <= now) {
            self.attempt = Attempt::InFlight;
            self.asked = self.deadline(modes, Mode::Enforce).map(|deadline| self.departure(deadline));
            return self.asked.clone().map(Action::Evict);
        }
        let deadline = self.tell_at(modes).filter(|at| *at <= now)?;
        self.told = true;
        Some(Action::Tell(self.departure(deadline)))
    }

    fn departure(&self, deadline: Timestamp) -> Departure {
        Departure {
            pod: self.verdict.pod.clone(),
            uid: self.verdict.uid.clone(),
            resource_version: self.verdict.resource_version.clone(),
            deadline,
            reasons: self.verdict.reasons.clone(),
        }
    }

    pub(super) fn evicted(&mut self) {
        self.attempt = Attempt::Done;
        self.failures = 0;
        self.unanswered = false;
        self.asked = None;
    }

    /// When the pod is leaving: by which eviction, if by one of ours whose answer was lost.
    pub(super) fn left(&mut self) -> Option<Departure> {
        let leaving = self.verdict.spared == Some(Spared::Terminating);
        if leaving { self.gone() } else { None }
    }

    /// The pod is not there any more: by which eviction, if by one of ours whose answer was lost. One that is under way still
    /// answers for itself.
    pub(super) fn gone(&mut self) -> Option<Departure> {
        if self.attempt == Attempt::InFlight || !std::mem::take(&mut self.unanswered) {
            return None;
        }
        self.attempt = Attempt::Done;
        self.asked.take()
    }

    pub(super) fn failed(&mut self, now: Timestamp, retry: RetryAfter) {
        if self.attempt != Attempt::InFlight {
            return;
        }
        self.unanswered |= retry == RetryAfter::Unanswered;
        self.attempt = match retry {
            RetryAfter::Error | RetryAfter::Unanswered => {
                let doubled = FIRST_DELAY.saturating_mul(1 << self.failures.min(6));
                self.failures = self.failures.saturating_add(1);
                Attempt::Waiting(after(now, doubled.min(LONGEST_DELAY)))
            }
            RetryAfter::Budget(delay) => Attempt::Waiting(after(now, delay.unwrap_or(BUDGET_DELAY).min(LONGEST_DELAY))),
            RetryAfter::Changed => Attempt::LookingAgain(after(now, FIRST_DELAY)),
        };
    }

    /// Whether nothing would be lost by forgetting the pod.
    pub(super) fn is_quiet(&self) -> bool {
        self.verdict.reasons.is_empty() && self.countdown.is_none() && self.attempt == Attempt::Idle
    }

    pub(super) fn is_counting(&self) -> bool {
        self.countdown.is_some() && self.attempt != Attempt::Done
    }

    pub(super) fn is_in_flight(&self) -> bool {
        self.attempt == Attempt::InFlight
    }

    pub(super) fn is_retrying(&self) -> bool {
        matches!(self.attempt, Attempt::Waiting(_) | Attempt::LookingAgain(_))
    }

    pub(super) fn is_held(&self) -> bool {
        self.countdown.as_ref().is_some_and(|countdown| countdown.held)
    }
}

fn after(now: Timestamp, delay: SignedDuration) -> Timestamp {
    now.checked_add(delay).unwrap_or(Timestamp::MAX)
}
