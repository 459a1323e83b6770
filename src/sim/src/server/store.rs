//! The objects of the cluster and their history. Every write gets the next number of one counter, the resourceVersion;
//! the last writes of each table are kept, so that a watch can begin at any of them and an older state can be read.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;

use super::value::{list, set, text};

/// A stored object; it never changes, a write puts a new one in its place.
pub(crate) type Object = Arc<Value>;

/// The place of an object in its table; the namespace is empty for cluster-scoped kinds.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Key {
    pub(crate) namespace: String,
    pub(crate) name: String,
}

impl Key {
    pub(crate) fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// The key of an object by its own metadata.
    pub(crate) fn of(object: &Value) -> Self {
        Self::new(text(object, &["metadata", "namespace"]), text(object, &["metadata", "name"]))
    }
}

/// One write, as watches see it.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) revision: u64,
    pub(crate) key: Key,
    /// The object before the write, none when it was made by it.
    pub(crate) before: Option<Object>,
    /// The object after the write, or the last state of a deleted one, with the revision of the write.
    pub(crate) object: Object,
    pub(crate) deleted: bool,
}

/// The asked revision is not in the history any more.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct TooOld {
    /// The oldest revision that can still be asked for.
    pub(crate) oldest: u64,
}

#[derive(Debug)]
struct Table {
    objects: BTreeMap<Key, Object>,
    history: VecDeque<Arc<Change>>,
    /// The history is complete after this revision.
    complete_after: u64,
    newest: watch::Sender<u64>,
}

impl Default for Table {
    fn default() -> Self {
        let (newest, _) = watch::channel(0);
        Self { objects: BTreeMap::new(), history: VecDeque::new(), complete_after: 0, newest }
    }
}

/// All tables. One per server, behind one lock.
#[derive(Debug)]
pub(crate) struct Store {
    revision: u64,
    limit: usize,
    /// Nothing is known of tables without a write after this revision.
    forgotten: u64,
    tables: HashMap<String, Table>,
    /// Objects by the UID of an owner that they name.
    dependents: HashMap<String, BTreeSet<(String, Key)>>,
}

impl Store {
    /// An empty store that keeps the last `limit` writes of each table.
    pub(crate) fn new(limit: usize) -> Self {
        Self { revision: 1, limit, forgotten: 0, tables: HashMap::new(), dependents: HashMap::new() }
    }

    /// The number of the last write.
    pub(crate) fn revision(&self) -> u64 {
        self.revision
    }

    pub(crate) fn get(&self, table: &str, key: &Key) -> Option<&Object> {
        self.tables.get(table)?.objects.get(key)
    }

    /// The objects of a table in order of their keys, of one namespace or of all.
    pub(crate) fn list(&self, table: &str, namespace: Option<&str>) -> Vec<Object> {
        let Some(table) = self.tables.get(table) else { return Vec::new() };
        in_namespace(&table.objects, namespace).cloned().collect()
    }

    /// Whether any table has an object in this namespace.
    pub(crate) fn uses(&self, namespace: &str) -> bool {
        self.tables.values().any(|table| in_namespace(&table.objects, Some(namespace)).next().is_some())
    }

    /// The objects that name this UID as an owner: table and key.
    pub(crate) fn dependents(&self, uid: &str) -> Vec<(String, Key)> {
        self.dependents.get(uid).map(|set| set.iter().cloned().collect()).unwrap_or_default()
    }

    /// Writes an object under the next revision and tells the watches.
    pub(crate) fn put(&mut self, table: &str, key: &Key, mut value: Value) -> Object {
        self.revision += 1;
        set(&mut value, &["metadata", "resourceVersion"], self.revision.to_string());
        let object = Arc::new(value);
        let before = self.table(table).objects.insert(key.clone(), object.clone());
        if let Some(before) = &before {
            self.unlink(table, key, before);
        }
        self.link(table, key, &object);
        self.record(
            table,
            Change { revision: self.revision, key: key.clone(), before, object: object.clone(), deleted: false },
        );
        object
    }

    /// Takes an object out under the next revision and tells the watches. Gives its last state.
    pub(crate) fn delete(&mut self, table: &str, key: &Key) -> Option<Object> {
        let before = self.table(table).objects.remove(key)?;
        self.revision += 1;
        self.unlink(table, key, &before);
        let mut last = Value::clone(&before);
        set(&mut last, &["metadata", "resourceVersion"], self.revision.to_string());
        let object = Arc::new(last);
        let change = Change {
            revision: self.revision,
            key: key.clone(),
            before: Some(before),
            object: object.clone(),
            deleted: true,
        };
        self.record(table, change);
        Some(object)
    }

    /// The writes of a table after `revision`.
    pub(crate) fn since(&self, table: &str, revision: u64) -> Result<Vec<Arc<Change>>, TooOld> {
        self.reaches(table, revision)?;
        let Some(table) = self.tables.get(table) else { return Ok(Vec::new()) };
        let first = table.history.partition_point(|change| change.revision <= revision);
        Ok(table.history.range(first..).cloned().collect())
    }

    /// The objects of a table as they were right after `revision`.
    pub(crate) fn as_of(&self, table: &str, revision: u64) -> Result<BTreeMap<Key, Object>, TooOld> {
        self.reaches(table, revision)?;
        let Some(table) = self.tables.get(table) else { return Ok(BTreeMap::new()) };
        let mut objects = table.objects.clone();
        for change in table.history.iter().rev().take_while(|change| change.revision > revision) {
            match &change.before {
                Some(before) => objects.insert(change.key.clone(), before.clone()),
                None => objects.remove(&change.key),
            };
        }
        Ok(objects)
    }

    /// A receiver that wakes up on every write of a table.
    pub(crate) fn subscribe(&mut self, table: &str) -> watch::Receiver<u64> {
        self.table(table).newest.subscribe()
    }

    /// Forgets the history of every table, so that older revisions answer "too old".
    pub(crate) fn compact(&mut self) {
        self.forgotten = self.revision;
        for table in self.tables.values_mut() {
            table.history.clear();
            table.complete_after = self.revision;
        }
    }

    fn reaches(&self, table: &str, revision: u64) -> Result<(), TooOld> {
        let oldest = self.tables.get(table).map_or(self.forgotten, |table| table.complete_after);
        if revision < oldest { Err(TooOld { oldest }) } else { Ok(()) }
    }

    fn table(&mut self, name: &str) -> &mut Table {
        let complete_after = self.forgotten;
        self.tables.entry(name.to_owned()).or_insert_with(|| Table { complete_after, ..Table::default() })
    }

    fn record(&mut self, table: &str, change: Change) {
        let (limit, revision) = (self.limit, change.revision);
        let table = self.table(table);
        table.history.push_back(Arc::new(change));
        while table.history.len() > limit {
            if let Some(gone) = table.history.pop_front() {
                table.complete_after = gone.revision;
            }
        }
        table.newest.send_replace(revision);
    }

    fn link(&mut self, table: &str, key: &Key, object: &Value) {
        for owner in list(object, &["metadata", "ownerReferences"]) {
            let uid = text(owner, &["uid"]).to_owned();
            self.dependents.entry(uid).or_default().insert((table.to_owned(), key.clone()));
        }
    }

    fn unlink(&mut self, table: &str, key: &Key, object: &Value) {
        for owner in list(object, &["metadata", "ownerReferences"]) {
            let uid = text(owner, &["uid"]);
            if let Some(set) = self.dependents.get_mut(uid) {
                set.remove(&(table.to_owned(), key.clone()));
                if set.is_empty() {
                    self.dependents.remove(uid);
                }
            }
        }
    }
}

fn in_namespace<'a>(
    objects: &'a BTreeMap<Key, Object>,
    namespace: Option<&'a str>,
) -> impl Iterator<Item = &'a Object> + use<'a> {
    let start = match namespace {
        Some(namespace) => Bound::Included(Key::new(namespace, "")),
        None => Bound::Unbounded,
    };
    objects
        .range((start, Bound::Unbounded))
        .take_while(move |(key, _)| namespace.is_none_or(|namespace| key.namespace == namespace))
        .map(|(_, object)| object)
}

#[cfg(test)]
mod tests;
