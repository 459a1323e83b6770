//! What is known, and what follows from it: notices and reports in, actions out. No I/O and no clock in here.
//!
//! Nothing is planned unless every kind is synced: an eviction on half a picture cannot be taken back. What changes meanwhile is
//! remembered as touched, and judged when the picture is whole again.

use std::collections::HashSet;
use std::sync::Arc;

use cluster::Kind;
use cluster::watch::Notice;
use jiff::Timestamp;
use parking_lot::RwLock;
use taints::fleet::{Change, Fleet, Touched};
use taints::object::Key;
use taints::plan::{Action, Counts, Departure, Modes, Planner, RetryAfter};
use taints::verdict::{FirstSeen, Settings, judge};

use crate::expiry::{Expired, Expiries};
use crate::health::{Sync, SyncState};
use crate::notice::{Observed, Told};

/// What came of what was handed out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Report {
    /// The pod's eviction was accepted, or the pod is gone.
    Evicted {
        /// Which pod.
        pod: Key,
        /// Its UID.
        uid: String,
    },
    /// It was not evicted.
    Failed {
        /// Which pod.
        pod: Key,
        /// Its UID.
        uid: String,
        /// Why, and so when to try again.
        retry: RetryAfter,
    },
    /// A mark was not deleted. One that was deleted shows in the watch.
    MarkFailed(Expired),
}

/// What is to be done now.
#[derive(Debug, Default)]
pub struct Decision {
    /// About pods.
    pub actions: Vec<Action>,
    /// Evictions that will come, each told of for the first time.
    pub coming: Vec<Departure>,
    /// What is only observed, each deadline once.
    pub observed: Vec<Observed>,
    /// Pods that leave by an eviction whose answer was lost.
    pub left: Vec<Departure>,
    /// Marks whose time has come.
    pub expired: Vec<Expired>,
}

/// Everything that deciding needs. The fleet is shared: who acts compares the newest pod right before acting.
#[derive(Debug)]
pub struct Decider {
    fleet: Arc<RwLock<Fleet>>,
    seen: FirstSeen,
    unstored: bool,
    modes: Modes,
    planner: Planner,
    told: Told,
    expiries: Expiries,
    settings: Settings,
    sync: SyncState,
    touched: Touched,
    /// The pods that the planner knows: most pods never have a deadline, and cost it nothing.
    planned: HashSet<Key>,
}

impl Decider {
    /// One that knows nothing but what was stored.
    #[must_use]
    pub fn new(fleet: Arc<RwLock<Fleet>>, seen: FirstSeen, modes: Modes, settings: Settings) -> Self {
        Self {
            fleet,
            seen,
            unstored: false,
            modes,
            planner: Planner::new(modes),
            told: Told::default(),
            expiries: Expiries::default(),
            settings,
            sync: SyncState::default(),
            touched: Touched::new(),
            planned: HashSet::new(),
        }
    }

    /// Takes what a watch told.
    pub fn take(&mut self, notice: Notice, now: Timestamp) {
        match notice {
            Notice::Change(change) => self.apply(*change, now),
            Notice::Synced(kind) => self.synced(kind),
            Notice::Failed { kind, problem } => self.failed(kind, problem),
            Notice::NotServed(kind) => self.sync.set(kind, Sync::NotServed),
            Notice::Malformed(_) => {}
        }
    }

    fn apply(&mut self, change: Change, now: Timestamp) {
        self.unstored |= self.observe(&change, now);
        self.touched.extend(self.fleet.write().apply(lean(change)));
    }

    /// First observations come before the fleet's: a verdict of this very change must find them.
    fn observe(&mut self, change: &Change, now: Timestamp) -> bool {
        match change {
            Change::Node(node) => self.seen.observe(node, now),
            Change::NodeGone(name) => {
                let fleet = self.fleet.read();
                fleet.node(name).is_some_and(|node| self.seen.forget_node(&node.uid))
            }
            Change::Slice(slice) => self.seen.observe_slice(slice, now),
            Change::Rule(rule) => {
                self.expiries.set(Kind::Rule, rule);
                self.seen.observe_rule(rule, now)
            }
            Change::RuleGone(name) => {
                self.expiries.remove(Kind::Rule, name);
                let fleet = self.fleet.read();
                fleet.rule(name).is_some_and(|rule| self.seen.forget_rule(&rule.uid))
            }
            // What a mark says is in force through a slice, and counts from the time that stands there.
            Change::Mark(mark) => {
                self.expiries.set(Kind::Mark, mark);
                false
            }
            Change::MarkGone(name) => {
                self.expiries.remove(Kind::Mark, name);
                false
            }
            Change::SliceGone(_) | Change::Claim(_) | Change::ClaimGone(_) | Change::Pod(_) | Change::PodGone(_) => {
                false
            }
        }
    }

    /// From here until it is synced again, a node's taints may have gone and come back unseen.
    fn failed(&mut self, kind: Kind, problem: String) {
        self.sync.set(kind, Sync::Failed(problem));
        if kind == Kind::Node {
            self.seen.interrupted();
        }
    }

    fn synced(&mut self, kind: Kind) {
        self.sync.set(kind, Sync::Synced);
        if kind == Kind::Node {
            self.seen.resumed();
            let fleet = self.fleet.read();
            let uids: HashSet<&str> = fleet.nodes().map(|node| node.uid.as_str()).collect();
            self.unstored |= self.seen.retain_nodes(|uid| uids.contains(uid));
        }
    }

    /// Takes what came of something that was handed out.
    pub fn report(&mut self, report: &Report, now: Timestamp) {
        match report {
            Report::Evicted { pod, uid } => self.planner.evicted(pod, uid),
            Report::Failed { pod, uid, retry } => self.planner.failed(pod, uid, now, *retry),
            Report::MarkFailed(expired) => self.expiries.failed(expired, now),
        }
    }

    /// An eviction could not even be queued.
    pub fn dropped(&mut self, departure: &Departure, now: Timestamp) {
        self.planner.failed(&departure.pod, &departure.uid, now, RetryAfter::Error);
    }

    /// What is to be done at `now`.
    pub fn decide(&mut self, now: Timestamp) -> Decision {
        let sync = &self.sync;
        let mut decision =
            Decision { expired: self.expiries.due(now, |kind| knows(sync, kind)), ..Decision::default() };
        if self.sync.is_settled() {
            (decision.coming, decision.observed) = self.judge(now);
            decision.actions = self.planner.plan(now);
            decision.left = self.planner.left();
        }
        decision
    }

    /// Judges every pod that was touched; returns the evictions to come that nobody was told of, and what is only observed.
    fn judge(&mut self, now: Timestamp) -> (Vec<Departure>, Vec<Observed>) {
        let (mut coming, mut observed) = (Vec::new(), Vec::new());
        let fleet = self.fleet.read();
        for key in std::mem::take(&mut self.touched) {
            match judge(&fleet, &key, &self.seen, &self.settings) {
                Some(verdict) if verdict.leave_at.is_some() || self.planned.contains(&key) => {
                    coming.extend(self.told.news(&verdict, self.modes, now));
                    observed.extend(self.told.observed(&verdict, self.modes));
                    self.planner.update(verdict);
                    self.planned.insert(key);
                }
                Some(_) => {}
                None => {
                    self.told.forget(&key);
                    self.planner.forget(&key);
                    self.planned.remove(&key);
                }
            }
        }
        (coming, observed)
    }

    /// When to decide again, if nothing comes before. Nothing is due while the picture is not whole.
    #[must_use]
    pub fn wake(&self) -> Option<Timestamp> {
        let pods = self.planner.wake().filter(|_| self.sync.is_settled());
        let marks = self.expiries.wake(|kind| knows(&self.sync, kind));
        pods.into_iter().chain(marks).min()
    }

    /// First observations, if they changed since the last call.
    pub fn to_store(&mut self) -> Option<FirstSeen> {
        std::mem::take(&mut self.unstored).then(|| self.seen.clone())
    }

    /// How each kind is known.
    #[must_use]
    pub const fn sync(&self) -> &SyncState {
        &self.sync
    }

    /// How many pods are in which state.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.planner.counts()
    }
}

fn knows(sync: &SyncState, kind: Kind) -> bool {
    sync.iter().any(|(known, sync)| known == kind && *sync == Sync::Synced)
}

/// What verdicts do not look at is not kept: attributes are the largest part of a fleet.
fn lean(mut change: Change) -> Change {
    match &mut change {
        Change::Node(node) => node.labels.clear(),
        Change::Slice(slice) => {
            for device in &mut slice.devices {
                device.attributes.clear();
                device.capacity.clear();
            }
        }
        _ => {}
    }
    change
}

#[cfg(test)]
#[path = "decider_tests.rs"]
mod tests;
