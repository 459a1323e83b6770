//! When a taint was first seen: what the core cannot know from the objects alone, and so the edge keeps for it.
//!
//! A node taint often has no time, and Kubernetes starts its seconds anew with each controller. Here they count from the moment
//! the taint's key and effect became continuously present on the node object, which survives a restart: the edge stores this
//! value and reads it back. Taints may have changed while nobody watched, so the first look after a restart compares the time
//! that `managedFields` give for the last change of `spec.taints` with the one recorded: the same, and all observations hold;
//! another, and what cannot be told apart counts from that change.
//!
//! Device taints have their time from the API server. Where one has none, its first sight counts here too.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::object::{DeviceId, Node, Rule, Slice};
use crate::taint::{Effect, Taint};

const NOT_READY: &str = "node.kubernetes.io/not-ready";
const UNREACHABLE: &str = "node.kubernetes.io/unreachable";

/// First observations of taints, by node UID, key and effect. Serialised, it is the controller's state on disk.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct FirstSeen {
    nodes: BTreeMap<String, NodeSeen>,
    /// Device taints without a time, by where they are written.
    untimed: BTreeMap<String, Vec<Seen>>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct NodeSeen {
    /// When `spec.taints` was last changed, as it was at the last look.
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<Timestamp>,
    taints: Vec<Seen>,
    /// Whether the node was watched without a gap since the last look: not so after a restart.
    #[serde(skip)]
    watched: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Seen {
    key: String,
    effect: Effect,
    since: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    time_added: Option<Timestamp>,
}

impl Seen {
    fn is_of(&self, taint: &Taint) -> bool {
        self.key == outage_key(&taint.key) && self.effect == taint.effect
    }
}

/// `not-ready` and `unreachable` take turns during one outage, so both count as one taint.
fn outage_key(key: &str) -> &str {
    if key == NOT_READY { UNREACHABLE } else { key }
}

impl FirstSeen {
    /// Looks at a node: what it had before keeps its time, what is new gets one. Answers whether there is something to store.
    ///
    /// To be called for every version of a node, before it goes into the fleet.
    pub fn observe(&mut self, node: &Node, now: Timestamp) -> bool {
        let old = self.nodes.get(&node.uid);
        let taints = merge(old, node, now);
        if taints.is_empty() {
            return self.nodes.remove(&node.uid).is_some();
        }
        let new = NodeSeen { changed: node.taints_changed, taints, watched: true };
        let changed = old.is_none_or(|old| old.taints != new.taints || old.changed != new.changed);
        self.nodes.insert(node.uid.clone(), new);
        changed
    }

    /// Says that nodes may have changed unseen, as when a watch broke and a list replaces it: the next look at each compares
    /// times as after a restart.
    pub fn interrupted(&mut self) {
        for node in self.nodes.values_mut() {
            node.watched = false;
        }
    }

    /// Says that every node has been looked at, or did not change: from here on changes are watched again.
    pub fn resumed(&mut self) {
        for node in self.nodes.values_mut() {
            node.watched = true;
        }
    }

    /// Looks at a slice: a device taint without a time counts from its first sight. Answers whether there is something to store.
    pub fn observe_slice(&mut self, slice: &Slice, now: Timestamp) -> bool {
        let mut changed = false;
        for device in &slice.devices {
            if self.untimed.is_empty() && device.taints.iter().all(|taint| taint.time_added.is_some()) {
                continue;
            }
            changed |= self.observe_untimed(place_of(&slice.driver, &slice.pool, &device.name), &device.taints, now);
        }
        changed
    }

    /// Looks at a rule, as [`FirstSeen::observe_slice`] does at a slice.
    pub fn observe_rule(&mut self, rule: &Rule, now: Timestamp) -> bool {
        self.observe_untimed(format!("rule/{}", rule.uid), std::slice::from_ref(&rule.taint), now)
    }

    fn observe_untimed(&mut self, place: String, taints: &[Taint], now: Timestamp) -> bool {
        let old = self.untimed.remove(&place).unwrap_or_default();
        let untimed = taints.iter().filter(|taint| taint.time_added.is_none());
        let new: Vec<Seen> = untimed
            .map(|taint| {
                let since = old.iter().find(|seen| seen.is_of(taint)).map_or(now, |seen| seen.since);
                Seen { key: outage_key(&taint.key).to_owned(), effect: taint.effect.clone(), since, time_added: None }
            })
            .collect();
        let changed = new != old;
        if !new.is_empty() {
            self.untimed.insert(place, new);
        }
        changed
    }

    /// Forgets a node object that is gone: a node that returns is another object.
    pub fn forget_node(&mut self, uid: &str) -> bool {
        self.nodes.remove(uid).is_some()
    }

    /// Forgets a rule that is gone.
    pub fn forget_rule(&mut self, uid: &str) -> bool {
        self.untimed.remove(&format!("rule/{uid}")).is_some()
    }

    /// Forgets the nodes that are not there any more, after a complete list. Answers whether there is something to store.
    pub fn retain_nodes(&mut self, is_there: impl Fn(&str) -> bool) -> bool {
        let before = self.nodes.len();
        self.nodes.retain(|uid, _| is_there(uid));
        before != self.nodes.len()
    }

    /// Since when a taint's key and effect are on a node without a break.
    #[must_use]
    pub fn since(&self, node_uid: &str, taint: &Taint) -> Option<Timestamp> {
        let seen = self.nodes.get(node_uid)?.taints.iter().find(|seen| seen.is_of(taint))?;
        Some(seen.since)
    }

    /// Since when a device's own taint stands: its time, else its first sight.
    #[must_use]
    pub fn slice_since(&self, id: &DeviceId, taint: &Taint) -> Option<Timestamp> {
        taint.time_added.or_else(|| self.untimed_since(&place_of(&id.driver, &id.pool, &id.device), taint))
    }

    /// Since when a rule's taint stands: its time, else its first sight.
    #[must_use]
    pub fn rule_since(&self, rule: &Rule) -> Option<Timestamp> {
        rule.taint.time_added.or_else(|| self.untimed_since(&format!("rule/{}", rule.uid), &rule.taint))
    }

    fn untimed_since(&self, place: &str, taint: &Taint) -> Option<Timestamp> {
        let seen = self.untimed.get(place)?.iter().find(|seen| seen.is_of(taint))?;
        Some(seen.since)
    }
}

fn place_of(driver: &str, pool: &str, device: &str) -> String {
    format!("slice/{driver}/{pool}/{device}")
}

/// The node's taints with the time from which each counts.
fn merge(old: Option<&NodeSeen>, node: &Node, now: Timestamp) -> Vec<Seen> {
    let gap = old.and_then(|old| changed_unseen(old, node));
    let mut taints: Vec<Seen> = Vec::new();
    for taint in &node.taints {
        let known = old.and_then(|old| old.taints.iter().find(|seen| seen.is_of(taint)));
        let since = since(known, taint, gap, now);
        if let Some(twin) = taints.iter_mut().find(|seen| seen.is_of(taint)) {
            twin.since = twin.since.min(since);
            continue;
        }
        taints.push(Seen {
            key: outage_key(&taint.key).to_owned(),
            effect: taint.effect.clone(),
            since,
            time_added: taint.time_added,
        });
    }
    taints.sort_by(|a, b| (&a.key, &a.effect).cmp(&(&b.key, &b.effect)));
    taints
}

/// The time of a change of the taints that nobody watched.
fn changed_unseen(old: &NodeSeen, node: &Node) -> Option<Timestamp> {
    let changed = node.taints_changed?;
    (!old.watched && old.changed != Some(changed)).then_some(changed)
}

/// A taint that is there was there by now, whatever a clock elsewhere says: no time lies in the future.
fn since(known: Option<&Seen>, taint: &Taint, gap: Option<Timestamp>, now: Timestamp) -> Timestamp {
    match (known, gap) {
        (Some(known), None) => known.since,
        (Some(known), Some(_)) if taint.time_added.is_some() && taint.time_added == known.time_added => known.since,
        (Some(_), Some(gap)) => taint.time_added.unwrap_or(gap).min(now),
        (None, _) => taint.time_added.unwrap_or(now).min(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn node(changed: Option<i64>, taints: &[(&str, Option<i64>)]) -> Node {
        let taint = |(key, added): &(&str, Option<i64>)| Taint {
            key: (*key).to_owned(),
            value: String::new(),
            effect: Effect::NoExecute,
            time_added: added.map(at),
        };
        Node {
            name: "n".into(),
            uid: "u".into(),
            taints: taints.iter().map(taint).collect(),
            taints_changed: changed.map(at),
            ..Node::default()
        }
    }

    fn since(seen: &FirstSeen, key: &str) -> Option<i64> {
        let taint = Taint { key: key.into(), value: "any".into(), effect: Effect::NoExecute, time_added: None };
        seen.since("u", &taint).map(Timestamp::as_second)
    }

    fn restart(seen: &FirstSeen) -> FirstSeen {
        serde_json::from_str(&serde_json::to_string(seen).unwrap()).unwrap()
    }

    #[test]
    fn a_taint_that_stays_keeps_its_time_and_one_that_returns_does_not() {
        let mut seen = FirstSeen::default();
        assert!(seen.observe(&node(None, &[("a", None)]), at(10)));
        assert!(!seen.observe(&node(None, &[("a", None)]), at(20)));
        assert!(seen.observe(&node(None, &[("a", None), ("b", None)]), at(30)));
        assert_eq!((since(&seen, "a"), since(&seen, "b")), (Some(10), Some(30)));
        assert!(seen.observe(&node(None, &[]), at(40)));
        seen.observe(&node(None, &[("a", None)]), at(50));
        assert_eq!(since(&seen, "a"), Some(50));
    }

    #[test]
    fn the_time_on_the_taint_counts_but_never_lies_in_the_future() {
        let mut seen = FirstSeen::default();
        seen.observe(&node(None, &[("a", Some(5)), ("b", Some(500))]), at(10));
        assert_eq!((since(&seen, "a"), since(&seen, "b")), (Some(5), Some(10)));
    }

    #[test]
    fn an_outage_goes_on_when_its_taint_changes_its_name() {
        let mut seen = FirstSeen::default();
        seen.observe(&node(None, &[(NOT_READY, Some(0))]), at(1));
        seen.observe(&node(None, &[(NOT_READY, Some(0)), (UNREACHABLE, Some(100))]), at(100));
        seen.observe(&node(None, &[(UNREACHABLE, Some(100))]), at(101));
        assert_eq!(since(&seen, UNREACHABLE), Some(0));
    }

    #[test]
    fn after_a_restart_observations_hold_while_the_taints_did_not_change() {
        let mut before = FirstSeen::default();
        before.observe(&node(Some(10), &[("a", None), ("b", Some(7))]), at(11));

        let mut same = restart(&before);
        same.observe(&node(Some(10), &[("a", None), ("b", Some(7))]), at(200));
        assert_eq!((since(&same, "a"), since(&same, "b")), (Some(11), Some(7)));

        let mut changed = restart(&before);
        changed.observe(&node(Some(150), &[("a", None), ("b", Some(7))]), at(200));
        assert_eq!((since(&changed, "a"), since(&changed, "b")), (Some(150), Some(7)));
        assert!(!changed.observe(&node(Some(150), &[("a", None), ("b", Some(7))]), at(210)));
    }

    #[test]
    fn a_broken_watch_is_like_a_restart() {
        let mut seen = FirstSeen::default();
        seen.observe(&node(Some(10), &[("a", None)]), at(10));
        seen.interrupted();
        seen.observe(&node(Some(50), &[("a", None)]), at(60));
        assert_eq!(since(&seen, "a"), Some(50));
    }

    #[test]
    fn a_node_that_a_broken_watch_did_not_change_is_watched_again() {
        let mut seen = FirstSeen::default();
        seen.observe(&node(Some(10), &[("a", None)]), at(10));
        seen.interrupted();
        seen.resumed();
        seen.observe(&node(Some(50), &[("a", None), ("b", None)]), at(50));
        assert_eq!(since(&seen, "a"), Some(10));
    }

    #[test]
    fn a_change_that_was_watched_moves_nothing_that_stayed() {
        let mut seen = FirstSeen::default();
        seen.observe(&node(Some(10), &[("a", None)]), at(10));
        seen.observe(&node(Some(50), &[("a", None), ("b", None)]), at(50));
        assert_eq!(since(&seen, "a"), Some(10));
    }

    #[test]
    fn nodes_that_are_gone_are_forgotten() {
        let mut seen = FirstSeen::default();
        seen.observe(&node(None, &[("a", None)]), at(10));
        assert!(!seen.retain_nodes(|uid| uid == "u"));
        assert!(seen.retain_nodes(|_| false));
        assert_eq!(since(&seen, "a"), None);
    }
}
