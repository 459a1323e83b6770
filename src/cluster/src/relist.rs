//! From what a watch tells to exact changes: what a list repeats is dropped, what it lacks has gone.
//!
//! A watch that lost its place lists everything anew. Only the difference to what is known goes on, so that a relist of ten
//! thousand pods in which nothing happened costs the rules nothing.

use std::collections::{BTreeMap, BTreeSet};

use kube::Resource;
use kube::runtime::watcher::Event;
use taints::fleet::Change;
use taints::object::Key;

use crate::wire::{Guarded, Malformed, Wire};

/// What came out of one event.
#[derive(Debug, Default)]
pub(crate) struct Step {
    /// In this order.
    pub(crate) changes: Vec<Change>,
    /// An object that could not be understood. What was known of it stays, unless it was another object.
    pub(crate) malformed: Option<Malformed>,
    /// Everything that there is has been seen.
    pub(crate) synced: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct Version {
    uid: String,
    resource_version: String,
}

/// The objects of one kind that were passed on, by name, and the list that is being read.
#[derive(Debug, Default)]
pub(crate) struct Known {
    objects: BTreeMap<Key, Version>,
    listed: BTreeSet<Key>,
}

impl Known {
    pub(crate) fn step<W: Wire>(&mut self, event: Event<Guarded<W>>) -> Step {
        match event {
            Event::Init => {
                self.listed.clear();
                Step::default()
            }
            Event::InitApply(object) => {
                self.listed.insert(key(&object));
                self.applied(object)
            }
            Event::InitDone => Step { changes: self.unlisted::<W>(), synced: true, ..Step::default() },
            Event::Apply(object) => self.applied(object),
            Event::Delete(object) => {
                Step { changes: self.gone::<W>(&key(&object)).into_iter().collect(), ..Step::default() }
            }
        }
    }

    /// There is no object of the kind, as the kind itself is gone.
    pub(crate) fn none<W: Wire>(&mut self) -> Step {
        self.listed.clear();
        Step { changes: self.unlisted::<W>(), ..Step::default() }
    }

    fn applied<W: Wire>(&mut self, guarded: Guarded<W>) -> Step {
        let key = key(&guarded);
        let now = version(&guarded);
        let mut step = Step::default();
        match self.objects.get(&key) {
            // A version without text cannot be compared.
            Some(known) if *known == now && !now.resource_version.is_empty() => return step,
            Some(known) if known.uid != now.uid => step.changes.extend(self.gone::<W>(&key)),
            _ => {}
        }
        match guarded.object {
            Ok(object) => {
                self.objects.insert(key, now);
                step.changes.push(W::applied(object));
            }
            Err(malformed) => step.malformed = Some(malformed),
        }
        step
    }

    fn gone<W: Wire>(&mut self, key: &Key) -> Option<Change> {
        self.objects.remove(key).map(|_| W::gone(key.clone()))
    }

    fn unlisted<W: Wire>(&mut self) -> Vec<Change> {
        let listed = std::mem::take(&mut self.listed);
        let missing: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        missing.iter().filter_map(|key| self.gone::<W>(key)).collect()
    }
}

fn key<W: Wire>(object: &Guarded<W>) -> Key {
    let meta = object.meta();
    Key::new(meta.namespace.clone().unwrap_or_default(), meta.name.clone().unwrap_or_default())
}

fn version<W: Wire>(object: &Guarded<W>) -> Version {
    let meta = object.meta();
    Version {
        uid: meta.uid.clone().unwrap_or_default(),
        resource_version: meta.resource_version.clone().unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::NodeWire;
    use proptest::prelude::*;
    use serde_json::json;

    fn node(name: &str, uid: &str, version: &str) -> Guarded<NodeWire> {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": uid, "resourceVersion": version}})).unwrap()
    }

    fn broken(name: &str, uid: &str, version: &str) -> Guarded<NodeWire> {
        let meta = json!({"name": name, "uid": uid, "resourceVersion": version});
        serde_json::from_value(json!({"metadata": meta, "spec": {"taints": 7}})).unwrap()
    }

    /// Changes in short: `+name` and `-name`.
    fn run(known: &mut Known, events: Vec<Event<Guarded<NodeWire>>>) -> Vec<String> {
        let changes = events.into_iter().flat_map(|event| known.step(event).changes);
        changes
            .map(|change| match change {
                Change::Node(node) => format!("+{}", node.name),
                Change::NodeGone(name) => format!("-{name}"),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn listing(objects: Vec<Guarded<NodeWire>>) -> Vec<Event<Guarded<NodeWire>>> {
        let objects = objects.into_iter().map(Event::InitApply);
        std::iter::once(Event::Init).chain(objects).chain([Event::InitDone]).collect()
    }

    #[test]
    fn a_relist_is_the_difference() {
        let mut known = Known::default();
        assert_eq!(
            run(&mut known, listing(vec![node("a", "1", "1"), node("b", "2", "2"), node("c", "3", "3")])),
            ["+a", "+b", "+c"]
        );
        assert_eq!(
            run(&mut known, listing(vec![node("a", "1", "1"), node("b", "2", "9"), node("d", "4", "10")])),
            ["+b", "+d", "-c"]
        );
        assert!(
            run(&mut known, listing(vec![node("a", "1", "1"), node("b", "2", "9"), node("d", "4", "10")])).is_empty()
        );
    }

    #[test]
    fn a_list_that_broke_off_removes_nothing() {
        let mut known = Known::default();
        run(&mut known, listing(vec![node("a", "1", "1"), node("b", "2", "2")]));
        assert!(run(&mut known, vec![Event::Init, Event::InitApply(node("a", "1", "1")), Event::Init]).is_empty());
        assert_eq!(run(&mut known, vec![Event::InitApply(node("b", "2", "2")), Event::InitDone]), ["-a"]);
    }

    #[test]
    fn another_object_of_the_same_name_is_first_gone_and_then_there() {
        let mut known = Known::default();
        assert_eq!(run(&mut known, vec![Event::Apply(node("a", "1", "1"))]), ["+a"]);
        assert_eq!(run(&mut known, vec![Event::Apply(node("a", "2", "5"))]), ["-a", "+a"]);
        assert_eq!(run(&mut known, vec![Event::Delete(node("a", "2", "6"))]), ["-a"]);
        assert!(run(&mut known, vec![Event::Delete(node("a", "2", "6"))]).is_empty());
    }

    #[test]
    fn an_object_that_cannot_be_read_keeps_what_is_known_of_it() {
        let mut known = Known::default();
        run(&mut known, listing(vec![node("a", "1", "1"), node("b", "2", "2")]));
        let step = known.step(Event::Apply(broken("a", "1", "7")));
        assert!(step.changes.is_empty() && step.malformed.is_some());
        assert_eq!(run(&mut known, vec![Event::Apply(node("a", "1", "8"))]), ["+a"]);
        assert_eq!(run(&mut known, vec![Event::Apply(broken("a", "other", "9"))]), ["-a"]);
        assert!(run(&mut known, listing(vec![broken("a", "other", "9"), node("b", "2", "2")])).is_empty());
    }

    #[test]
    fn only_a_complete_list_is_synced() {
        let mut known = Known::default();
        let synced: Vec<bool> =
            listing(vec![node("a", "1", "1")]).into_iter().map(|event| known.step(event).synced).collect();
        assert_eq!(synced, [false, false, true]);
    }

    /// What a server may do to three names, and what a watch may tell of it.
    #[derive(Clone, Debug)]
    enum Act {
        Put(usize, bool),
        Remove(usize),
        /// The watch breaks and nothing is told until the next list, which may break off after some objects.
        Relist(Option<usize>),
    }

    fn act() -> impl Strategy<Value = Act> {
        prop_oneof![
            (0..3usize, any::<bool>()).prop_map(|(name, fresh)| Act::Put(name, fresh)),
            (0..3usize).prop_map(Act::Remove),
            proptest::option::of(0..3usize).prop_map(Act::Relist),
        ]
    }

    /// The server's objects by name, with UID and version.
    type Truth = BTreeMap<String, (u64, u64)>;

    fn listed(truth: &Truth) -> Vec<Guarded<NodeWire>> {
        truth.iter().map(|(name, (uid, version))| node(name, &uid.to_string(), &version.to_string())).collect()
    }

    /// Keeps what the changes say, as the fleet does; a change that repeats or contradicts what is known fails.
    fn keep(kept: &mut BTreeMap<String, String>, step: Step) {
        for change in step.changes {
            match change {
                Change::Node(node) => {
                    let old = kept.insert(node.name.clone(), node.uid.clone());
                    assert!(old.is_none_or(|uid| uid == node.uid), "{} became another without going", node.name);
                }
                Change::NodeGone(name) => assert!(kept.remove(&name).is_some(), "{name} went twice"),
                other => panic!("{other:?}"),
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_told_is_what_is_there(acts in proptest::collection::vec(act(), 0..40)) {
            let (mut truth, mut known, mut kept) = (Truth::new(), Known::default(), BTreeMap::new());
            let mut clock = 0;
            for act in acts {
                clock += 1;
                match act {
                    Act::Put(name, fresh) => {
                        let name = format!("n{name}");
                        let uid = truth.get(&name).filter(|_| !fresh).map_or(clock, |(uid, _)| *uid);
                        truth.insert(name.clone(), (uid, clock));
                        keep(&mut kept, known.step(Event::Apply(node(&name, &uid.to_string(), &clock.to_string()))));
                    }
                    Act::Remove(name) => {
                        let name = format!("n{name}");
                        if let Some((uid, _)) = truth.remove(&name) {
                            keep(&mut kept, known.step(Event::Delete(node(&name, &uid.to_string(), &clock.to_string()))));
                        }
                    }
                    Act::Relist(broken) => {
                        // While the watch was broken, the first name changed hands.
                        truth.insert("n0".to_owned(), (clock, clock));
                        if let Some(after) = broken {
                            let partly = listed(&truth).into_iter().take(after).map(Event::InitApply);
                            std::iter::once(Event::Init).chain(partly).for_each(|event| keep(&mut kept, known.step(event)));
                        }
                        listing(listed(&truth)).into_iter().for_each(|event| keep(&mut kept, known.step(event)));
                    }
                }
                let there: BTreeMap<String, String> =
                    truth.iter().map(|(name, (uid, _))| (name.clone(), uid.to_string())).collect();
                prop_assert_eq!(&kept, &there);
            }
        }
    }
}
