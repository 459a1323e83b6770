use super::*;
use serde_json::json;

fn store() -> Store {
    let mut store = Store::new(3);
    for (namespace, name) in [("a", "1"), ("a", "2"), ("b", "1")] {
        put(&mut store, namespace, name, 0);
    }
    store
}

fn put(store: &mut Store, namespace: &str, name: &str, n: u32) {
    let value = json!({"metadata": {"namespace": namespace, "name": name}, "n": n});
    store.put("t", &Key::new(namespace, name), value);
}

#[test]
fn lists_stay_in_their_namespace() {
    let store = store();
    assert_eq!(store.list("t", Some("a")).len(), 2);
    assert_eq!(store.list("t", None).len(), 3);
    assert_eq!(store.list("other", None).len(), 0);
    assert!(store.uses("b") && !store.uses("c"));
}

#[test]
fn every_write_has_its_own_revision() {
    let mut store = store();
    assert_eq!(store.revision(), 4);
    let gone = store.delete("t", &Key::new("a", "1")).unwrap();
    assert_eq!(text(&gone, &["metadata", "resourceVersion"]), "5");
    assert!(store.delete("t", &Key::new("a", "1")).is_none());
    assert_eq!(store.revision(), 5);
}

#[test]
fn the_history_is_bounded_and_says_so() {
    let mut store = store();
    assert_eq!(store.since("t", 1).unwrap().len(), 3);
    put(&mut store, "a", "1", 1);
    assert_eq!(store.since("t", 1).unwrap_err(), TooOld { oldest: 2 });
    assert_eq!(store.since("t", 2).unwrap().len(), 3);
    store.compact();
    assert_eq!(store.since("t", 4).unwrap_err(), TooOld { oldest: 5 });
    assert_eq!(store.since("t", 5).unwrap().len(), 0);
    assert_eq!(store.since("never written", 4).unwrap_err(), TooOld { oldest: 5 });
}

#[test]
fn an_older_state_is_rebuilt_from_the_history() {
    let mut store = store();
    put(&mut store, "a", "2", 7);
    store.delete("t", &Key::new("b", "1"));
    let old = store.as_of("t", 4).unwrap();
    assert_eq!(old.len(), 3);
    assert_eq!(old[&Key::new("a", "2")]["n"], 0);
    assert_eq!(store.as_of("t", 3).unwrap().len(), 2);
}

#[test]
fn dependents_follow_the_owner_references() {
    let mut store = store();
    let owned = json!({"metadata": {"name": "x", "ownerReferences": [{"uid": "u1"}]}});
    store.put("t", &Key::new("", "x"), owned);
    assert_eq!(store.dependents("u1"), [("t".to_owned(), Key::new("", "x"))]);
    store.put("t", &Key::new("", "x"), json!({"metadata": {"name": "x"}}));
    assert!(store.dependents("u1").is_empty());
}

proptest::proptest! {
    /// Whatever is written and deleted: every state that the history still reaches is the state that there was, and the
    /// changes after it lead from it to the newest one.
    #[test]
    fn the_history_leads_to_every_state(writes in proptest::collection::vec((0_u8..4, proptest::bool::ANY), 1..40)) {
        let mut store = Store::new(16);
        let mut states = vec![(store.revision(), BTreeMap::new())];
        for (n, (name, delete)) in writes.into_iter().enumerate() {
            let key = Key::new("a", &name.to_string());
            if delete {
                store.delete("t", &key);
            } else {
                store.put("t", &key, json!({"metadata": {"namespace": "a", "name": key.name}, "n": n}));
            }
            states.push((store.revision(), store.as_of("t", store.revision()).unwrap()));
        }
        let newest = states.last().unwrap().1.clone();
        for (revision, state) in states {
            let Ok(old) = store.as_of("t", revision) else { continue };
            proptest::prop_assert_eq!(&old, &state);
            let mut replayed = old;
            for change in store.since("t", revision).unwrap() {
                if change.deleted {
                    replayed.remove(&change.key);
                } else {
                    replayed.insert(change.key.clone(), change.object.clone());
                }
            }
            proptest::prop_assert_eq!(&replayed, &newest);
        }
    }
}
