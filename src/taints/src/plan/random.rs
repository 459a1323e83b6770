//! Plans under any order of verdicts, reports and time: exactly the pods that are due are handed out, and none twice.

use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use super::tests::{at, pod, verdict};
use super::*;
use crate::verdict::{Spared, Verdict};

/// What may happen between two plans.
#[derive(Clone, Debug)]
enum Act {
    /// A new verdict: the deadline, absent when nothing makes the pod leave.
    Judge(Option<i64>),
    /// The pod is ending.
    Ending,
    /// The pod is replaced by another of its name, with this deadline.
    Replace(Option<i64>),
    /// The pod is gone.
    Gone,
    /// The server took the eviction that is under way.
    Accept,
    /// It did not, or nobody knows.
    Fail(RetryAfter),
    /// Time goes on.
    Wait(i64),
}

fn act() -> impl Strategy<Value = Act> {
    let deadline = || proptest::option::of(0..100i64);
    let retry = prop_oneof![
        Just(RetryAfter::Error),
        Just(RetryAfter::Unanswered),
        Just(RetryAfter::Changed),
        (0..200i64).prop_map(|seconds| RetryAfter::Budget(Some(SignedDuration::from_secs(seconds)))),
    ];
    prop_oneof![
        4 => deadline().prop_map(Act::Judge),
        1 => Just(Act::Ending),
        1 => deadline().prop_map(Act::Replace),
        1 => Just(Act::Gone),
        2 => Just(Act::Accept),
        3 => retry.prop_map(Act::Fail),
        4 => (0..40i64).prop_map(Act::Wait),
    ]
}

/// What really is: the pod of the moment, and what was asked for.
#[derive(Debug, Default)]
struct Truth {
    now: i64,
    uid: usize,
    version: usize,
    known: bool,
    deadline: Option<i64>,
    ending: bool,
    in_flight: Option<String>,
    accepted: bool,
}

impl Truth {
    fn uid(&self) -> String {
        format!("u{}", self.uid)
    }

    fn verdict(&self) -> Verdict {
        let reasons: Vec<(Source, i64)> = self.deadline.map(|second| (Source::Device, second)).into_iter().collect();
        let spared = self.ending.then_some(Spared::Terminating);
        let mut verdict = verdict(&reasons);
        verdict.leave_at = verdict.leave_at.filter(|_| spared.is_none());
        Verdict { uid: self.uid(), resource_version: self.version.to_string(), spared, ..verdict }
    }

    fn judge(&mut self, planner: &mut Planner) {
        self.version += 1;
        self.known = true;
        planner.update(self.verdict());
    }

    fn take(&mut self, act: &Act, planner: &mut Planner) {
        match act {
            Act::Judge(_) | Act::Ending if !self.known => {}
            Act::Judge(deadline) => {
                self.deadline = *deadline;
                self.judge(planner);
            }
            Act::Ending => {
                self.ending = true;
                self.judge(planner);
            }
            Act::Replace(deadline) => {
                *self = Self { now: self.now, uid: self.uid + 1, deadline: *deadline, ..Self::default() };
                self.judge(planner);
            }
            Act::Gone => {
                planner.forget(&pod());
                *self = Self { now: self.now, uid: self.uid + 1, ..Self::default() };
            }
            Act::Accept => {
                if let Some(uid) = self.in_flight.take() {
                    planner.evicted(&pod(), &uid);
                    self.accepted = true;
                }
            }
            Act::Fail(retry) => {
                if let Some(uid) = self.in_flight.take() {
                    planner.failed(&pod(), &uid, at(self.now), *retry);
                }
            }
            Act::Wait(seconds) => self.now += seconds,
        }
    }

    /// Whether the pod may be asked to leave now.
    fn may_leave(&self) -> bool {
        let due = self.deadline.is_some_and(|deadline| deadline <= self.now);
        self.known && due && !self.ending && !self.accepted && self.in_flight.is_none()
    }

    fn plan(&mut self, planner: &mut Planner) {
        for action in planner.plan(at(self.now)) {
            if let Action::Evict(departure) = action {
                assert!(self.may_leave(), "{departure:?} at {self:?}");
                assert_eq!(departure.uid, self.uid(), "another pod of the name");
                assert_eq!(departure.resource_version, self.version.to_string(), "not as it was judged last");
                assert_eq!(Some(departure.deadline), self.deadline.map(at));
                self.in_flight = Some(departure.uid);
            }
        }
        for departure in planner.left() {
            assert!(!self.known || departure.uid != self.uid() || self.ending, "{departure:?} at {self:?}");
        }
    }

    /// After any delay that there is, whoever may leave is asked to.
    fn nobody_is_forgotten(&mut self, planner: &mut Planner) {
        self.now += 300;
        let due = self.may_leave();
        self.plan(planner);
        assert!(!due || self.in_flight.is_some(), "forgotten: {self:?}");
    }
}

proptest! {
    #[test]
    fn exactly_who_is_due_is_asked_to_leave_and_nobody_twice(acts in proptest::collection::vec(act(), 0..60)) {
        let mut planner = Planner::new(Modes { device: Mode::Enforce, node: Mode::Enforce });
        let mut truth = Truth { known: true, deadline: Some(10), ..Truth::default() };
        planner.update(truth.verdict());
        for act in &acts {
            truth.take(act, &mut planner);
            truth.plan(&mut planner);
            let wake = planner.wake();
            prop_assert!(wake.is_none_or(|wake: Timestamp| wake > at(truth.now)), "what was due is done: {wake:?}");
        }
        truth.nobody_is_forgotten(&mut planner);
    }
}
