//! Plans over time: what is due, once; what failed, again; what changed, anew.

use jiff::{SignedDuration, Timestamp};

use super::*;
use crate::object::DeviceId;
use crate::verdict::{Held, HeldWhy, Origin, Spared, Subject, Tolerance, Verdict};
use crate::{Effect, Taint};

pub(super) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

pub(super) fn pod() -> Key {
    Key::new("ns", "w")
}

fn subject(source: Source) -> Subject {
    match source {
        Source::Node => Subject::Node { name: "n".into() },
        Source::Device => Subject::Device {
            id: DeviceId { driver: "d".into(), pool: "n".into(), device: "g0".into() },
            claim: Key::new("ns", "c"),
            request: "r".into(),
        },
    }
}

fn reason((source, second): (Source, i64)) -> Reason {
    let origin = match source {
        Source::Node => Origin::Node,
        Source::Device => Origin::Slice { name: "s".into() },
    };
    Reason {
        subject: subject(source),
        taint: Taint { key: "k".into(), value: String::new(), effect: Effect::NoExecute, time_added: None },
        origin,
        tolerance: Tolerance::No { nearest: None },
        since: Some(at(second)),
        deadline: Some(at(second)),
    }
}

pub(super) fn verdict(reasons: &[(Source, i64)]) -> Verdict {
    let reasons: Vec<Reason> = reasons.iter().copied().map(reason).collect();
    Verdict {
        pod: pod(),
        uid: "u".into(),
        resource_version: "7".into(),
        leave_at: reasons.iter().filter_map(|reason| reason.deadline).min(),
        reasons,
        tolerated: Vec::new(),
        held: Vec::new(),
        warnings: Vec::new(),
        spared: None,
    }
}

fn unlisted() -> Verdict {
    let held = Held { subject: subject(Source::Device), why: HeldWhy::NotListed };
    Verdict { held: vec![held], ..verdict(&[]) }
}

fn planner(device: Mode, node: Mode) -> Planner {
    Planner::new(Modes { device, node })
}

fn enforcing() -> Planner {
    planner(Mode::Enforce, Mode::Enforce)
}

/// The actions of a plan in short.
fn plan(planner: &mut Planner, second: i64) -> Vec<String> {
    let short = |action: Action| match action {
        Action::Evict(departure) => format!("evict {} of {}", departure.uid, departure.deadline.as_second()),
        Action::Tell(departure) => format!("tell {} of {}", departure.uid, departure.deadline.as_second()),
        Action::Cancel { uid, .. } => format!("cancel {uid}"),
    };
    planner.plan(at(second)).into_iter().map(short).collect()
}

const NOTHING: [&str; 0] = [];

#[test]
fn a_pod_is_evicted_at_its_deadline_and_once() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(planner.wake(), Some(at(10)));
    assert_eq!(plan(&mut planner, 9), NOTHING);
    assert_eq!(plan(&mut planner, 10), ["evict u of 10"]);
    assert_eq!(planner.counts().in_flight, 1);
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(plan(&mut planner, 11), NOTHING, "it is under way");
    planner.evicted(&pod(), "u");
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!((plan(&mut planner, 100), planner.wake()), (vec![], None));
}

#[test]
fn a_pod_of_the_same_name_is_another_pod() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(plan(&mut planner, 10), ["evict u of 10"]);
    planner.update(Verdict { uid: "u2".into(), ..verdict(&[(Source::Device, 20)]) });
    planner.failed(&pod(), "u", at(11), RetryAfter::Error);
    planner.evicted(&pod(), "u");
    assert_eq!(plan(&mut planner, 20), ["evict u2 of 20"]);
}

#[test]
fn deadlines_follow_the_newest_verdict() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 10)]));
    planner.update(verdict(&[(Source::Device, 30)]));
    assert_eq!(plan(&mut planner, 20), NOTHING);
    planner.update(verdict(&[(Source::Device, 15)]));
    assert_eq!(plan(&mut planner, 20), ["evict u of 15"]);
}

#[test]
fn a_countdown_that_was_announced_is_cancelled_aloud() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 10)]));
    planner.update(verdict(&[]));
    assert_eq!(plan(&mut planner, 1), NOTHING, "nobody saw it begin");
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(plan(&mut planner, 2), NOTHING);
    planner.update(verdict(&[]));
    assert_eq!(plan(&mut planner, 3), ["cancel u"]);
    assert_eq!(plan(&mut planner, 20), NOTHING);
}

#[test]
fn a_missing_slice_holds_a_countdown() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(plan(&mut planner, 1), NOTHING);
    planner.update(unlisted());
    assert_eq!(planner.counts().held, 1);
    assert_eq!(plan(&mut planner, 50), NOTHING, "neither evicted nor cancelled");
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(plan(&mut planner, 60), ["evict u of 10"], "the deadline is absolute");
}

#[test]
fn a_held_countdown_is_cancelled_when_the_device_returns_clean() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(plan(&mut planner, 1), NOTHING);
    planner.update(unlisted());
    planner.update(verdict(&[]));
    assert_eq!(plan(&mut planner, 2), ["cancel u"]);
}

#[test]
fn only_what_may_still_stand_is_held() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Node, 10)]));
    assert_eq!(plan(&mut planner, 1), NOTHING);
    planner.update(unlisted());
    assert_eq!(plan(&mut planner, 2), ["cancel u"], "the node's taint is gone for certain");
}

#[test]
fn a_pod_that_ends_is_left_alone_in_silence() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(plan(&mut planner, 1), NOTHING);
    planner.update(Verdict { spared: Some(Spared::Terminating), leave_at: None, ..verdict(&[(Source::Device, 10)]) });
    assert_eq!((plan(&mut planner, 50), planner.wake()), (vec![], None));
    planner.forget(&pod());
    assert_eq!(planner.counts(), Counts::default());
}

#[test]
fn errors_are_retried_ever_more_slowly() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 0)]));
    let mut now = 0;
    for delay in [1, 2, 4, 8, 16, 32, 60, 60, 60] {
        assert_eq!(plan(&mut planner, now), ["evict u of 0"], "at {now}");
        planner.failed(&pod(), "u", at(now), RetryAfter::Error);
        assert_eq!(planner.wake(), Some(at(now + delay)));
        now += delay;
    }
    assert_eq!(planner.counts().retrying, 1);
}

#[test]
fn a_budget_is_waited_for_and_is_no_error() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 0)]));
    for (now, delay, next) in [(0, None, 10), (10, Some(SignedDuration::from_secs(3)), 13)] {
        assert_eq!(plan(&mut planner, now).len(), 1);
        planner.failed(&pod(), "u", at(now), RetryAfter::Budget(delay));
        assert_eq!(planner.wake(), Some(at(next)));
    }
    assert_eq!(plan(&mut planner, 13).len(), 1);
    planner.failed(&pod(), "u", at(13), RetryAfter::Error);
    assert_eq!(planner.wake(), Some(at(14)), "the first error");
}

#[test]
fn a_server_that_asks_for_days_is_asked_again_after_a_minute() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 0)]));
    assert_eq!(plan(&mut planner, 0).len(), 1);
    planner.failed(&pod(), "u", at(0), RetryAfter::Budget(Some(SignedDuration::from_hours(48))));
    assert_eq!(planner.wake(), Some(at(60)));
}

fn ending() -> Verdict {
    Verdict { spared: Some(Spared::Terminating), leave_at: None, ..verdict(&[(Source::Device, 10)]) }
}

/// A planner whose only eviction failed in this way, at second 10.
fn failed(retry: RetryAfter) -> Planner {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 10)]));
    assert_eq!(plan(&mut planner, 10), ["evict u of 10"]);
    planner.failed(&pod(), "u", at(10), retry);
    planner
}

#[test]
fn a_pod_that_leaves_after_a_lost_answer_is_handed_out_once() {
    let mut planner = failed(RetryAfter::Unanswered);
    assert_eq!((planner.wake(), planner.left().len()), (Some(at(11)), 0));
    planner.update(ending());
    let left = planner.left();
    assert_eq!((left.len(), left[0].deadline, left[0].reasons.len()), (1, at(10), 1));
    planner.update(ending());
    planner.forget(&pod());
    assert_eq!((planner.left().len(), plan(&mut planner, 60)), (0, vec![]));

    let mut gone = failed(RetryAfter::Unanswered);
    gone.forget(&pod());
    assert_eq!(gone.left().len(), 1, "it went without being seen to leave");
}

#[test]
fn an_eviction_that_is_under_way_answers_for_itself() {
    for (retry, handed_out) in [(None, 0), (Some(RetryAfter::Changed), 1)] {
        let mut planner = failed(RetryAfter::Unanswered);
        assert_eq!(plan(&mut planner, 11), ["evict u of 10"]);
        planner.update(ending());
        assert_eq!(planner.left().len(), 0);
        match retry {
            None => planner.evicted(&pod(), "u"),
            Some(retry) => planner.failed(&pod(), "u", at(12), retry),
        }
        planner.update(ending());
        planner.forget(&pod());
        assert_eq!(planner.left().len(), handed_out, "{retry:?}");
    }
}

#[test]
fn a_pod_that_leaves_by_another_hand_is_not_ours() {
    let mut refused = failed(RetryAfter::Error);
    refused.update(ending());
    assert_eq!(refused.left().len(), 0);
    let mut accepted_later = failed(RetryAfter::Unanswered);
    assert_eq!(plan(&mut accepted_later, 11), ["evict u of 10"]);
    accepted_later.evicted(&pod(), "u");
    accepted_later.update(ending());
    assert_eq!(accepted_later.left().len(), 0, "the second answer was told already");
}

#[test]
fn a_conflict_waits_for_the_next_version() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 0)]));
    assert_eq!(plan(&mut planner, 0).len(), 1);
    planner.failed(&pod(), "u", at(0), RetryAfter::Changed);
    planner.update(verdict(&[(Source::Device, 0)]));
    assert_eq!(planner.wake(), Some(at(1)), "nothing newer was seen");
    planner.update(Verdict { resource_version: "8".into(), ..verdict(&[(Source::Device, 0)]) });
    let actions = planner.plan(at(0));
    let [Action::Evict(departure)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!(departure.resource_version, "8");
}

#[test]
fn a_verdict_that_changed_its_mind_ends_the_retries() {
    let mut planner = enforcing();
    planner.update(verdict(&[(Source::Device, 0)]));
    assert_eq!(plan(&mut planner, 0).len(), 1);
    planner.update(verdict(&[]));
    planner.failed(&pod(), "u", at(0), RetryAfter::Error);
    assert_eq!(planner.wake(), None);
}

#[test]
fn an_observed_source_is_told_of_once_and_evicts_nobody() {
    let mut planner = planner(Mode::Observe, Mode::Observe);
    planner.update(verdict(&[(Source::Device, 10), (Source::Node, 20)]));
    assert_eq!(plan(&mut planner, 10), ["tell u of 10"]);
    planner.update(verdict(&[(Source::Device, 10), (Source::Node, 20)]));
    assert_eq!((plan(&mut planner, 100), planner.wake()), (vec![], None));
}

#[test]
fn an_observed_reason_never_sets_the_deadline() {
    let mut planner = planner(Mode::Enforce, Mode::Observe);
    planner.update(verdict(&[(Source::Node, 10), (Source::Device, 20)]));
    assert_eq!(plan(&mut planner, 10), ["tell u of 10"]);
    let actions = planner.plan(at(20));
    let [Action::Evict(departure)] = &actions[..] else { panic!("{actions:?}") };
    assert_eq!((departure.deadline, departure.reasons.len()), (at(20), 2));
}

#[test]
fn the_earliest_deadline_comes_first() {
    let mut planner = enforcing();
    for (name, second) in [("a", 30), ("b", 10), ("c", 20)] {
        planner.update(Verdict { pod: Key::new("ns", name), uid: name.into(), ..verdict(&[(Source::Node, second)]) });
    }
    assert_eq!(plan(&mut planner, 40), ["evict b of 10", "evict c of 20", "evict a of 30"]);
}
