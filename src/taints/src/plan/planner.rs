//! The planner: one entry a pod, and a queue of the moments at which one of them is due.

use std::collections::{BTreeSet, HashMap};

use jiff::Timestamp;

use super::{Action, Departure, Modes, RetryAfter, entry::Entry};
use crate::object::Key;
use crate::verdict::Verdict;

/// Holds the newest verdict of every pod and what became of it.
#[derive(Debug, Default)]
pub struct Planner {
    modes: Modes,
    entries: HashMap<Key, Entry>,
    /// When each pod is due: at most one moment a pod.
    queue: BTreeSet<(Timestamp, Key)>,
    /// Cancellations that the next plan hands out.
    cancelled: Vec<Action>,
    /// Pods that leave by an eviction whose answer was lost.
    left: Vec<Departure>,
    /// How many plans were made.
    plans: u64,
}

/// How many pods are in which state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Enforced reasons give them a deadline.
    pub counting: usize,
    /// Of those: what made them count is unknown for the moment.
    pub held: usize,
    /// An eviction is under way.
    pub in_flight: usize,
    /// An eviction failed and is tried again.
    pub retrying: usize,
}

impl Planner {
    /// A planner that knows no pod.
    #[must_use]
    pub fn new(modes: Modes) -> Self {
        Self { modes, ..Self::default() }
    }

    /// Takes the newest verdict on a pod. A pod of the same name with another UID is another pod: nothing is remembered.
    ///
    /// Verdicts of pods without evicting taints are welcome: they end a countdown, and are not kept.
    pub fn update(&mut self, verdict: Verdict) {
        let key = verdict.pod.clone();
        self.unqueue(&key);
        match self.entries.get_mut(&key).filter(|entry| entry.uid() == verdict.uid) {
            Some(entry) => {
                self.cancelled.extend(entry.update(verdict, self.modes, self.plans));
                self.left.extend(entry.left());
            }
            None => {
                self.entries.insert(key.clone(), Entry::new(verdict, self.modes, self.plans));
            }
        }
        if self.entries.get(&key).is_some_and(Entry::is_quiet) {
            self.entries.remove(&key);
        }
        self.enqueue(&key);
    }

    /// Forgets a pod that is gone.
    pub fn forget(&mut self, pod: &Key) {
        self.unqueue(pod);
        if let Some(mut entry) = self.entries.remove(pod) {
            self.left.extend(entry.gone());
        }
    }

    /// The pods that are leaving, or are gone, after an eviction that nobody answered: it was accepted after all. Each once.
    pub fn left(&mut self) -> Vec<Departure> {
        std::mem::take(&mut self.left)
    }

    /// What is due at `now`, the earliest deadline first, and what was cancelled since the last plan.
    ///
    /// Each eviction that is handed out is under way until [`Planner::evicted`] or [`Planner::failed`] is called for it.
    pub fn plan(&mut self, now: Timestamp) -> Vec<Action> {
        self.plans += 1;
        let mut actions = std::mem::take(&mut self.cancelled);
        while self.queue.first().is_some_and(|(at, _)| *at <= now) {
            let Some((_, key)) = self.queue.pop_first() else { break };
            if let Some(entry) = self.entries.get_mut(&key) {
                actions.extend(entry.act(self.modes, now));
            }
            self.enqueue(&key);
        }
        actions
    }

    /// When to plan next, if no verdict comes before. It may lie in the past, and as far as time goes in the future.
    #[must_use]
    pub fn wake(&self) -> Option<Timestamp> {
        self.queue.first().map(|(at, _)| *at)
    }

    /// The server accepted an eviction, or the pod was gone already: this UID is never evicted again.
    pub fn evicted(&mut self, pod: &Key, uid: &str) {
        self.settle(pod, uid, Entry::evicted);
    }

    /// An eviction did not happen: it is tried again, unless a verdict says otherwise before.
    pub fn failed(&mut self, pod: &Key, uid: &str, now: Timestamp, retry: RetryAfter) {
        self.settle(pod, uid, |entry| entry.failed(now, retry));
        let entry = self.entries.get_mut(pod).filter(|entry| entry.uid() == uid);
        self.left.extend(entry.and_then(Entry::left));
    }

    fn settle(&mut self, pod: &Key, uid: &str, change: impl FnOnce(&mut Entry)) {
        self.unqueue(pod);
        if let Some(entry) = self.entries.get_mut(pod).filter(|entry| entry.uid() == uid) {
            change(entry);
        }
        self.enqueue(pod);
    }

    /// How many pods are in which state, for metrics: looks at every pod.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let count = |is: fn(&Entry) -> bool| self.entries.values().filter(|entry| is(entry)).count();
        Counts {
            counting: count(Entry::is_counting),
            held: count(Entry::is_held),
            in_flight: count(Entry::is_in_flight),
            retrying: count(Entry::is_retrying),
        }
    }

    fn unqueue(&mut self, key: &Key) {
        if let Some(at) = self.entries.get(key).and_then(|entry| entry.due(self.modes)) {
            self.queue.remove(&(at, key.clone()));
        }
    }

    fn enqueue(&mut self, key: &Key) {
        if let Some(at) = self.entries.get(key).and_then(|entry| entry.due(self.modes)) {
            self.queue.insert((at, key.clone()));
        }
    }
}
