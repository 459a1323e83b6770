//! Reading: one object, or a page of a list, of now or of an older revision.

use super::{State, Target};
use crate::server::error::ApiError;
use crate::server::selector::{FieldSelector, LabelSelector};
use crate::server::store::{Key, Object, TooOld};

/// What a given resourceVersion means for a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RevisionMatch {
    /// At least as new as this.
    NotOlderThan(u64),
    /// The state right after this write.
    Exact(u64),
}

/// Which objects of a collection, and how many at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) labels: LabelSelector,
    pub(crate) fields: FieldSelector,
    /// Zero for no limit.
    pub(crate) limit: usize,
    /// Where the page before ended.
    pub(crate) token: Option<String>,
    pub(crate) revision: Option<RevisionMatch>,
}

/// A page of a list.
#[derive(Debug, PartialEq)]
pub(crate) struct Page {
    pub(crate) items: Vec<Object>,
    /// The revision that the list shows; a watch goes on from here.
    pub(crate) revision: u64,
    /// Where the next page begins, none on the last one.
    pub(crate) token: Option<String>,
    /// How many objects are left; unknown under a selector.
    pub(crate) remaining: Option<usize>,
}

impl Query {
    /// Whether an object is selected.
    pub(crate) fn selects(&self, object: &Object) -> bool {
        self.fields.matches(object) && self.labels.matches(object)
    }
}

impl State {
    /// One object, of now or of right after the write `stale`.
    pub(crate) fn get(&self, target: &Target, stale: Option<u64>) -> Result<Object, ApiError> {
        let missing = || ApiError::not_found(&target.resource, &target.name);
        let key = target.key();
        match stale {
            None => self.store.get(&target.resource.table, &key).cloned().ok_or_else(missing),
            Some(revision) => {
                let objects =
                    self.store.as_of(&target.resource.table, revision).map_err(|old| expired(revision, &old))?;
                objects.get(&key).cloned().ok_or_else(missing)
            }
        }
    }

    /// A page of a collection, of now or of right after the write `stale`.
    pub(crate) fn list(&self, target: &Target, query: &Query, stale: Option<u64>) -> Result<Page, ApiError> {
        let (asked, after) = self.begin(query, stale)?;
        let namespace = Some(target.namespace.as_str()).filter(|namespace| !namespace.is_empty());
        let table = &target.resource.table;
        let candidates = match asked {
            None => self.store.list(table, namespace),
            Some(revision) => {
                let objects = self.store.as_of(table, revision).map_err(|old| expired(revision, &old))?;
                let inside = |key: &Key| namespace.is_none_or(|namespace| key.namespace == namespace);
                objects.into_iter().filter(|(key, _)| inside(key)).map(|(_, object)| object).collect()
            }
        };
        let rest = candidates.into_iter().filter(|object| after.as_ref().is_none_or(|after| Key::of(object) > *after));
        let items: Vec<Object> = rest.filter(|object| query.selects(object)).collect();
        Ok(page(items, asked.unwrap_or(self.store.revision()), query))
    }

    /// The older revision to show, if any, and the key after which the page begins.
    fn begin(&self, query: &Query, stale: Option<u64>) -> Result<(Option<u64>, Option<Key>), ApiError> {
        if let Some(token) = &query.token {
            let mut parts = token.splitn(3, '.');
            let revision = parts.next().and_then(|text| text.parse().ok());
            let (Some(revision), Some(namespace), Some(name)) = (revision, parts.next(), parts.next()) else {
                return Err(ApiError::bad_request("continue key is not valid"));
            };
            return Ok((Some(revision), Some(Key::new(namespace, name))));
        }
        let current = self.store.revision();
        let asked = match query.revision {
            Some(RevisionMatch::NotOlderThan(revision) | RevisionMatch::Exact(revision)) if revision > current => {
                return Err(ApiError::future_version(revision, current));
            }
            Some(RevisionMatch::Exact(revision)) => Some(revision),
            Some(RevisionMatch::NotOlderThan(_)) | None => None,
        };
        Ok((stale.or(asked), None))
    }
}

fn page(mut items: Vec<Object>, revision: u64, query: &Query) -> Page {
    let total = items.len();
    if query.limit == 0 || total <= query.limit {
        return Page { items, revision, token: None, remaining: None };
    }
    items.truncate(query.limit);
    let token = items.last().map(|last| {
        let key = Key::of(last);
        format!("{revision}.{}.{}", key.namespace, key.name)
    });
    let plain = query.labels == LabelSelector::default() && query.fields == FieldSelector::default();
    Page { items, revision, token, remaining: plain.then_some(total - query.limit) }
}

pub(crate) fn expired(asked: u64, old: &TooOld) -> ApiError {
    ApiError::expired(asked, old.oldest)
}
