//! Marks of ours whose time has come: which are due, and which are being deleted.
//!
//! Pure. People set few marks, so a plain walk over all of them is fast enough.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use taints::object::Rule;

/// How long after a failed deletion the next is tried.
const AGAIN: SignedDuration = SignedDuration::from_secs(10);

/// A mark whose time has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expired {
    /// The DeviceTaintRule's name.
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

/// The marks that end by themselves.
#[derive(Debug, Default)]
pub struct Expiries(BTreeMap<String, Mark>);

impl Expiries {
    /// Takes a rule as it is now. Rules of others, and marks without an end, are of no interest.
    pub fn set(&mut self, rule: &Rule) {
        let Some(expires_at) = rule.expires_at.filter(|_| rule.managed) else {
            self.0.remove(&rule.name);
            return;
        };
        let same = |mark: &Mark| mark.uid == rule.uid && mark.expires_at == expires_at;
        if !self.0.get(&rule.name).is_some_and(same) {
            let mark = Mark { uid: rule.uid.clone(), expires_at, due: expires_at, in_flight: false };
            self.0.insert(rule.name.clone(), mark);
        }
    }

    /// Forgets a rule that is gone.
    pub fn remove(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The marks whose time has come; each is under way until [`Expiries::failed`] or [`Expiries::remove`].
    pub fn due(&mut self, now: Timestamp) -> Vec<Expired> {
        let due = self.0.iter_mut().filter(|(_, mark)| !mark.in_flight && mark.due <= now);
        due.map(|(name, mark)| {
            mark.in_flight = true;
            Expired { name: name.clone(), uid: mark.uid.clone() }
        })
        .collect()
    }

    /// A deletion did not happen: it is tried again.
    pub fn failed(&mut self, expired: &Expired, now: Timestamp) {
        if let Some(mark) = self.0.get_mut(&expired.name).filter(|mark| mark.uid == expired.uid) {
            mark.in_flight = false;
            mark.due = now.saturating_add(AGAIN).unwrap_or(Timestamp::MAX);
        }
    }

    /// When the next one is due.
    #[must_use]
    pub fn wake(&self) -> Option<Timestamp> {
        self.0.values().filter(|mark| !mark.in_flight).map(|mark| mark.due).min()
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

    fn names(due: &[Expired]) -> Vec<&str> {
        due.iter().map(|expired| expired.name.as_str()).collect()
    }

    #[test]
    fn only_marks_of_ours_end_by_themselves() {
        let mut expiries = Expiries::default();
        expiries.set(&rule(false, Some(10)));
        expiries.set(&rule(true, None));
        assert_eq!((expiries.wake(), expiries.due(at(99)).len()), (None, 0));
    }

    #[test]
    fn a_mark_is_handed_out_once_and_again_after_a_failure() {
        let mut expiries = Expiries::default();
        expiries.set(&rule(true, Some(10)));
        assert_eq!(expiries.wake(), Some(at(10)));
        assert!(expiries.due(at(9)).is_empty());
        let due = expiries.due(at(10));
        assert_eq!(names(&due), ["dt-1"]);
        expiries.set(&rule(true, Some(10)));
        assert!(expiries.due(at(11)).is_empty() && expiries.wake().is_none());
        expiries.failed(&due[0], at(12));
        assert_eq!(expiries.wake(), Some(at(22)));
        assert_eq!(names(&expiries.due(at(22))), ["dt-1"]);
    }

    #[test]
    fn a_mark_that_is_extended_waits_for_its_new_time() {
        let mut expiries = Expiries::default();
        expiries.set(&rule(true, Some(10)));
        expiries.due(at(10));
        expiries.set(&rule(true, Some(100)));
        assert_eq!(expiries.wake(), Some(at(100)));
        expiries.remove("dt-1");
        assert_eq!(expiries.wake(), None);
    }
}
