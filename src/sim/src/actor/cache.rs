//! What an actor knows of one kind: what its watch told, and what its own writes were answered with since.
//!
//! An actor that decides on a watch alone may decide twice before the first decision comes back to it. So the answer of a write
//! goes into the cache at once, and an older version that the watch still tells does not replace it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::Resource;
use kube::runtime::watcher::Event;
use taints::object::Key;

use super::key;

/// The objects of one kind.
#[derive(Debug)]
pub(crate) struct Cache<K> {
    objects: BTreeMap<Key, Arc<K>>,
    /// The names of a list that is being told.
    listed: Option<BTreeSet<Key>>,
    synced: bool,
}

impl<K> Default for Cache<K> {
    fn default() -> Self {
        Self { objects: BTreeMap::new(), listed: None, synced: false }
    }
}

/// What became of an object.
#[derive(Debug)]
pub(crate) enum Delta<K> {
    /// It is so now.
    Now(Arc<K>),
    /// It is gone; this is how it was.
    Gone(Arc<K>),
}

impl<K: Resource> Cache<K> {
    /// Whether a whole list was told since the start.
    pub(crate) const fn synced(&self) -> bool {
        self.synced
    }

    /// Takes what a watch tells, and says what changed.
    pub(crate) fn apply(&mut self, event: Event<K>) -> Vec<Delta<K>> {
        match event {
            Event::Init => {
                self.listed = Some(BTreeSet::new());
                Vec::new()
            }
            Event::InitApply(object) => {
                if let Some(listed) = &mut self.listed {
                    listed.insert(key(&object));
                }
                self.put(object)
            }
            Event::InitDone => self.end_list(),
            Event::Apply(object) => self.put(object),
            Event::Delete(object) => self.remove(&object),
        }
    }

    fn end_list(&mut self) -> Vec<Delta<K>> {
        self.synced = true;
        let Some(listed) = self.listed.take() else { return Vec::new() };
        let gone: Vec<Key> = self.objects.keys().filter(|key| !listed.contains(key)).cloned().collect();
        gone.iter().filter_map(|key| self.objects.remove(key)).map(Delta::Gone).collect()
    }

    /// Takes an object, from a watch or as the answer of a write, unless a newer version of it is known.
    pub(crate) fn put(&mut self, object: K) -> Vec<Delta<K>> {
        let key = key(&object);
        let mut deltas = Vec::new();
        if let Some(known) = self.objects.get(&key) {
            if known.meta().uid != object.meta().uid {
                deltas.push(Delta::Gone(Arc::clone(known)));
            } else if version(known.as_ref()) >= version(&object) && version(&object).is_some() {
                return deltas;
            }
        }
        let object = Arc::new(object);
        self.objects.insert(key, Arc::clone(&object));
        deltas.push(Delta::Now(object));
        deltas
    }

    /// Takes away an object that is gone, unless another one has its name by now.
    pub(crate) fn remove(&mut self, object: &K) -> Vec<Delta<K>> {
        let key = key(object);
        let same = self.objects.get(&key).is_some_and(|known| known.meta().uid == object.meta().uid);
        let gone = if same { self.objects.remove(&key) } else { None };
        gone.map(Delta::Gone).into_iter().collect()
    }

    /// An object by name.
    pub(crate) fn get(&self, key: &Key) -> Option<&Arc<K>> {
        self.objects.get(key)
    }

    /// An object of a kind without namespaces, by name.
    pub(crate) fn named(&self, name: &str) -> Option<&Arc<K>> {
        self.objects.get(&Key::new("", name))
    }

    /// All objects, in the order of their names.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<K>> {
        self.objects.values()
    }
}

/// The resourceVersion as a number, which it is in every Kubernetes; within one object it only grows.
fn version(object: &impl Resource) -> Option<u64> {
    object.meta().resource_version.as_deref()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Node;
    use serde_json::json;

    use super::*;

    fn node(name: &str, uid: &str, version: u64) -> Node {
        serde_json::from_value(json!({"metadata": {"name": name, "uid": uid, "resourceVersion": version.to_string()}}))
            .unwrap()
    }

    fn known(cache: &Cache<Node>) -> Vec<(&str, u64)> {
        cache.iter().map(|n| (n.metadata.uid.as_deref().unwrap(), version(n.as_ref()).unwrap())).collect()
    }

    #[test]
    fn a_stale_notice_does_not_undo_an_own_write() {
        let mut cache = Cache::default();
        cache.apply(Event::Apply(node("a", "1", 5)));
        cache.put(node("a", "1", 9));
        assert!(cache.apply(Event::Apply(node("a", "1", 7))).is_empty());
        assert_eq!(known(&cache), [("1", 9)]);
        cache.apply(Event::Apply(node("a", "1", 10)));
        assert_eq!(known(&cache), [("1", 10)]);
    }

    #[test]
    fn an_object_of_the_same_name_is_another_object() {
        let mut cache = Cache::default();
        cache.put(node("a", "old", 9));
        let deltas = cache.put(node("a", "new", 3));
        assert!(matches!(&deltas[..], [Delta::Gone(_), Delta::Now(_)]), "{deltas:?}");
        assert!(cache.apply(Event::Delete(node("a", "old", 9))).is_empty(), "the old one is gone already");
        assert_eq!(known(&cache), [("new", 3)]);
    }

    #[test]
    fn a_new_list_takes_away_what_it_does_not_name() {
        let mut cache = Cache::default();
        cache.put(node("a", "1", 1));
        cache.put(node("b", "2", 2));
        assert!(!cache.synced());
        cache.apply(Event::Init);
        cache.apply(Event::InitApply(node("b", "2", 2)));
        let deltas = cache.apply(Event::InitDone);
        assert!(matches!(&deltas[..], [Delta::Gone(gone)] if gone.metadata.name.as_deref() == Some("a")));
        assert!(cache.synced());
        assert_eq!(known(&cache), [("2", 2)]);
    }
}
