//! A fleet over time, for the cases that ask who is evicted when: objects change, verdicts follow, and what the plan says is
//! done at once. Evicted pods are gone.

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use taints::fleet::{Change, Fleet};
use taints::object::{Key, Pod, Rule};
use taints::plan::{Action, Departure, Mode, Modes, Planner};
use taints::preview::{Preview, preview};
use taints::verdict::{FirstSeen, Settings, Source, judge};

use super::given::At;

/// What still happens after the last change: deadlines within a hundred years. Saturated seconds never come.
const HORIZON: SignedDuration = SignedDuration::from_hours(100 * 365 * 24);

pub(super) struct World {
    pub(super) fleet: Fleet,
    pub(super) now: Timestamp,
    seen: FirstSeen,
    settings: Settings,
    planner: Planner,
    /// Pods by UID that were evicted: what a case says of them later is about a pod that is gone.
    evicted: BTreeSet<String>,
    deletions: Vec<(Timestamp, Key, String)>,
    events: Vec<(Timestamp, Key, Source, &'static str)>,
}

const ENFORCE: Modes = Modes { device: Mode::Enforce, node: Mode::Enforce };

impl World {
    pub(super) fn new(now: Timestamp, settings: Settings) -> Self {
        Self {
            fleet: Fleet::default(),
            now,
            seen: FirstSeen::default(),
            settings,
            planner: Planner::new(ENFORCE),
            evicted: BTreeSet::new(),
            deletions: Vec::new(),
            events: Vec::new(),
        }
    }

    /// Takes a change that happens now.
    pub(super) fn apply(&mut self, change: Change) {
        match &change {
            Change::Node(node) => {
                self.seen.observe(node, self.now);
            }
            Change::NodeGone(name) => {
                if let Some(node) = self.fleet.node(name) {
                    self.seen.forget_node(&node.uid);
                }
            }
            Change::Slice(slice) => {
                self.seen.observe_slice(slice, self.now);
            }
            Change::Rule(rule) => {
                self.seen.observe_rule(rule, self.now);
            }
            Change::Pod(pod) if self.evicted.contains(&pod.uid) => return,
            _ => {}
        }
        for pod in self.fleet.apply(change) {
            self.judge(&pod);
        }
    }

    fn judge(&mut self, pod: &Key) {
        match judge(&self.fleet, pod, &self.seen, &self.settings) {
            Some(verdict) => self.planner.update(verdict),
            None => self.planner.forget(pod),
        }
    }

    /// Does everything that is due before `until`, and stands there.
    pub(super) fn advance(&mut self, until: Timestamp) {
        while let Some(at) = self.planner.wake().filter(|at| *at < until) {
            self.now = at.max(self.now);
            self.act();
        }
        self.now = until.max(self.now);
    }

    /// Does what is due now.
    pub(super) fn act(&mut self) {
        for action in self.planner.plan(self.now) {
            match action {
                Action::Evict(departure) => self.evict(departure),
                Action::Cancel { pod, source, .. } => self.events.push((self.now, pod, source, "Cancelling deletion")),
                Action::Tell(_) => {}
            }
        }
    }

    fn evict(&mut self, departure: Departure) {
        let Departure { pod, uid, reasons, .. } = departure;
        let source = reasons.first().map_or(Source::Node, taints::verdict::Reason::source);
        self.events.push((self.now, pod.clone(), source, "Marking for deletion"));
        self.deletions.push((self.now, pod.clone(), uid.clone()));
        self.planner.evicted(&pod, &uid);
        self.evicted.insert(uid);
        self.apply(Change::PodGone(pod));
    }

    /// A new controller over the same objects: of the old one only the stored observations are left.
    pub(super) fn restart(&mut self) -> Result<(), serde_json::Error> {
        self.seen = serde_json::from_value(serde_json::to_value(&self.seen)?)?;
        self.planner = Planner::new(ENFORCE);
        for node in self.fleet.nodes() {
            self.seen.observe(node, self.now);
        }
        let pods: Vec<Key> = self.fleet.pods().map(|pod| pod.key.clone()).collect();
        pods.iter().for_each(|pod| self.judge(pod));
        Ok(())
    }

    /// Lets everything happen that is still to come.
    pub(super) fn finish(&mut self) {
        let end = self.now.saturating_add(HORIZON).unwrap_or(Timestamp::MAX);
        self.act();
        self.advance(end);
    }

    /// What a rule would do.
    pub(super) fn preview(&self, rule: &Rule) -> Preview {
        preview(&self.fleet, rule, &self.settings)
    }

    /// When a pod that is there was bound.
    pub(super) fn bound_at(&self, pod: &Pod) -> Option<Timestamp> {
        self.fleet.pod(&pod.key).filter(|known| known.uid == pod.uid).and_then(|known| known.bound_at)
    }

    /// Who was deleted when.
    pub(super) fn deletions(&self) -> Vec<Value> {
        let deletion = |(at, pod, uid): &(Timestamp, Key, String)| json!({ "pod": pod.name, "namespace": pod.namespace, "uid": uid, "at": At(*at).seconds() });
        self.deletions.iter().map(deletion).collect()
    }

    /// What was said of whom when, in the words that kube-controller-manager begins with.
    pub(super) fn events(&self) -> Vec<Value> {
        let event = |(at, pod, source, message): &(Timestamp, Key, Source, &str)| {
            let (reason, message) = match source {
                Source::Node => ("TaintManagerEviction", format!("{message} of Pod {pod}")),
                Source::Device => ("DeviceTaintManagerEviction", (*message).to_owned()),
            };
            json!({ "at": At(*at).seconds(), "pod": pod.name, "reason": reason, "message": message })
        };
        self.events.iter().map(event).collect()
    }
}
