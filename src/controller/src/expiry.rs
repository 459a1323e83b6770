//! Marks of ours whose time has come: which are due, and which are being deleted.
//!
//! Pure. People set few marks, so a plain walk over all of them is fast enough.

use std::collections::BTreeMap;

use cluster::Kind;
use jiff::{SignedDuration, Timestamp};
use taints::object::Rule;

/// How long after a failed deletion the next is tried.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// A mark whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// Whether it is a DeviceTaintRule or a DeviceMark.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

#[derive(Debug)]
struct Mark {
    uid: String,
    expires_at: Timestamp,
    /// When to try; later than `expires_at` after a failure.
    due: Timestamp,
    in_flight: bool,
}

/// The marks that end by themselves, by kind and name: one may have both forms after an upgrade of the server.
#[derive(Debug, Default)]
pub struct Expiries(BTreeMap<(Kind, String), Mark>);

impl Expiries {
    /// Takes a rule or DeviceMark as it is now. Those of others, and marks without an end, are of no interest.
    pub fn set(&mut self, kind: Kind, rule: &Rule) {
        let key = (kind, rule.name.clone());
        let Some(expires_at) = rule.expires_at.filter(|_| rule.managed) else {
            self.0.remove(&key);
            return;
        };
        let same = |mark: &Mark| mark.uid == rule.uid && mark.expires_at == expires_at;
        if !self.0.get(&key).is_some_and(same) {
            let mark = Mark { uid: rule.uid.clone(), expires_at, due: expires_at, in_flight: false };
            self.0.insert(key, mark);
        }
    }

    /// Forgets one that is gone.
    pub fn remove(&mut self, kind: Kind, name: &str) {
        self.0.remove(&(kind, name.to_owned()));
    }

    /// The marks whose time has come, of the kinds that are known to be as they were told; each is under way until
    /// [`Expiries::failed`] or [`Expiries::remove`].
    pub fn due(&mut self, now: Timestamp, is_known: impl Fn(Kind) -> bool) -> Vec<Expired> {
        let due = self.0.iter_mut().filter(|((kind, _), mark)| is_known(*kind) && !mark.in_flight && mark.due <= now);
        due.map(|((kind, name), mark)| {
            mark.in_flight = true;
            Expired { kind: *kind, name: name.clone(), uid: mark.uid.clone() }
        })
        .collect()
    }

    /// A deletion did not happen: it is tried again.
    pub fn failed(&mut self, expired: &Expired, now: Timestamp) {
        let key = (expired.kind, expired.name.clone());
        if let Some(mark) = self.0.get_mut(&key).filter(|mark| mark.uid == expired.uid) {
            mark.in_flight = false;
            mark.due = now.saturating_add(AGAIN).unwrap_or(Timestamp::MAX);
        }
    }

    /// When the next one of the known kinds is due.
    #[must_use]
    pub fn wake(&self, is_known: impl Fn(Kind) -> bool) -> Option<Timestamp> {
        let waiting = self.0.iter().filter(|((kind, _), mark)| is_known(*kind) && !mark.in_flight);
        waiting.map(|(_, mark)| mark.due).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use taints::object::Identity;
    use taints::{Effect, Taint};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn rule(managed: bool, expires_at: Option<i64>) -> Rule {
        let taint = Taint { key: "k".into(), value: String::new(), effect: Effect::NoSchedule, time_added: None };
        Rule {
            name: "dt-1".into(),
            uid: "u".into(),
            selector: None,
            taint,
            careful: false,
            identity: Identity::default(),
            expires_at: expires_at.map(at),
            managed,
            reason: None,
            by: None,
        }
    }

    fn all(_: Kind) -> bool {
        true
    }

    fn names(due: &[Expired]) -> Vec<&str> {
        due.iter().map(|expired| expired.name.as_str()).collect()
    }

    #[test]
    fn only_marks_of_ours_end_by_themselves() {
        let mut expiries = Expiries::default();
        expiries.set(Kind::Rule, &rule(false, Some(10)));
        expiries.set(Kind::Rule, &rule(true, None));
        assert_eq!((expiries.wake(all), expiries.due(at(99), all).len()), (None, 0));
    }

    #[test]
    fn a_mark_is_handed_out_once_and_again_after_a_failure() {
        let mut expiries = Expiries::default();
        expiries.set(Kind::Rule, &rule(true, Some(10)));
        assert_eq!(expiries.wake(all), Some(at(10)));
        assert!(expiries.due(at(9), all).is_empty());
        let due = expiries.due(at(10), all);
        assert_eq!(names(&due), ["dt-1"]);
        expiries.set(Kind::Rule, &rule(true, Some(10)));
        assert!(expiries.due(at(11), all).is_empty() && expiries.wake(all).is_none());
        expiries.failed(&due[0], at(12));
        assert_eq!(expiries.wake(all), Some(at(22)));
        assert_eq!(names(&expiries.due(at(22), all)), ["dt-1"]);
    }

    #[test]
    fn a_mark_that_is_extended_waits_for_its_new_time() {
        let mut expiries = Expiries::default();
        expiries.set(Kind::Rule, &rule(true, Some(10)));
        expiries.due(at(10), all);
        expiries.set(Kind::Rule, &rule(true, Some(100)));
        assert_eq!(expiries.wake(all), Some(at(100)));
        expiries.remove(Kind::Rule, "dt-1");
        assert_eq!(expiries.wake(all), None);
    }

    #[test]
    fn only_kinds_that_are_known_are_ended_and_both_forms_have_the_name() {
        let mut expiries = Expiries::default();
        expiries.set(Kind::Rule, &rule(true, Some(10)));
        expiries.set(Kind::Mark, &rule(true, Some(5)));
        let rules = |kind| kind == Kind::Rule;
        assert_eq!((expiries.wake(rules), expiries.wake(all)), (Some(at(10)), Some(at(5))));
        let due = expiries.due(at(11), rules);
        assert_eq!((due.len(), due[0].kind), (1, Kind::Rule));
        expiries.remove(Kind::Rule, "dt-1");
        assert_eq!(expiries.due(at(11), all)[0].kind, Kind::Mark);
    }
}
