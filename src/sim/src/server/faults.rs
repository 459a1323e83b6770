//! Faults on purpose, for tests: the next N matching requests are answered with a status, a cut connection, a delay or an
//! older state. Set over HTTP at `/sim/faults`, or in the same process through [`Faults`].

use std::collections::BTreeMap;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::error::ApiError;

/// A fault: which requests it meets, how many of them, and what they get.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Fault {
    /// Which requests it meets; the empty match meets all.
    #[serde(rename = "match", default)]
    pub matching: Match,
    /// How many requests it meets before it is used up; absent for all until it is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// What these requests get.
    pub answer: Answer,
}

/// Which requests a fault meets. Texts are patterns in which `*` stands for anything; absent fields match all.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Match {
    /// HTTP method, as `PUT`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// Path without the query.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The `User-Agent` header.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_agent: Option<String>,
    /// Watches only, or all but watches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub watch: Option<bool>,
    /// The watches that are open at this moment, at once, instead of requests to come.
    #[serde(default)]
    pub open: bool,
}

/// What a request gets that meets a fault.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Answer {
    /// A `Status` with this code instead of the answer. A watch gets 410 as an `ERROR` event, as from a real server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// The `Retry-After` header of that status, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u32>,
    /// The connection is closed without an answer, or in the middle of a watch.
    #[serde(default)]
    pub cut: bool,
    /// Milliseconds to wait first; deleting the fault ends the wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// The answer shows the state at the time when the fault was set; a watch stays there until the fault is deleted.
    #[serde(default)]
    pub stale: bool,
    /// The request is carried out first, and only its answer is lost.
    #[serde(default)]
    pub applied: bool,
    /// For a watch: the fault comes after this many events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after_events: Option<u32>,
}

/// A fault with its counts.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Listed {
    /// The number to delete it by.
    pub id: u64,
    /// Requests that met it.
    pub hits: u64,
    /// Requests that it will still meet; absent for no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left: Option<u32>,
    /// The fault as it was set.
    #[serde(flatten)]
    pub fault: Fault,
}

/// The part of a request that faults look at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Caller<'a> {
    pub(crate) method: &'a str,
    pub(crate) path: &'a str,
    pub(crate) agent: &'a str,
    pub(crate) watch: bool,
}

/// A fault that a request met.
#[derive(Debug, Clone)]
pub(crate) struct Hit {
    pub(crate) answer: Answer,
    /// The last write at the time when the fault was set.
    pub(crate) revision: u64,
    /// Fires when the fault is deleted.
    pub(crate) lifted: CancellationToken,
}

/// What happens to an open watch.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Interruption {
    Cut,
    Error(ApiError),
    End,
}

#[derive(Debug)]
struct Active {
    listed: Listed,
    revision: u64,
    lifted: CancellationToken,
}

#[derive(Debug)]
struct Open {
    method: String,
    path: String,
    agent: String,
    interrupt: mpsc::UnboundedSender<Interruption>,
}

#[derive(Debug, Default)]
struct Inner {
    next: u64,
    active: BTreeMap<u64, Active>,
    open: BTreeMap<u64, Open>,
}

/// All faults that are set, and the watches that are open.
#[derive(Debug, Default)]
pub struct Faults {
    inner: Mutex<Inner>,
}

impl Match {
    fn meets(&self, caller: Caller<'_>) -> bool {
        let fits = |pattern: &Option<String>, text: &str| pattern.as_ref().is_none_or(|pattern| glob(pattern, text));
        fits(&self.method, caller.method)
            && fits(&self.path, caller.path)
            && fits(&self.user_agent, caller.agent)
            && self.watch.is_none_or(|watch| watch == caller.watch)
    }
}

impl Answer {
    /// What an open watch gets.
    pub(crate) fn interruption(&self) -> Interruption {
        match (self.cut, self.status) {
            (true, _) => Interruption::Cut,
            (false, Some(code)) => Interruption::Error(ApiError::fault(code, self.retry_after)),
            (false, None) => Interruption::End,
        }
    }
}

impl Faults {
    /// Sets a fault; `revision` is the last write so far. Gives its number. A fault for open watches acts at once and is
    /// used up.
    pub(crate) fn add(&self, fault: Fault, revision: u64) -> u64 {
        let mut inner = self.inner.lock();
        inner.next += 1;
        let id = inner.next;
        let mut listed = Listed { id, hits: 0, left: fault.times, fault };
        if listed.fault.matching.open {
            listed.hits = inner.interrupt(&listed.fault);
            listed.left = Some(0);
        }
        inner.active.insert(id, Active { listed, revision, lifted: CancellationToken::new() });
        id
    }

    /// All faults, the used-up ones too, with their counts.
    pub fn list(&self) -> Vec<Listed> {
        self.inner.lock().active.values().map(|active| active.listed.clone()).collect()
    }

    /// Deletes one fault; says whether it was there.
    pub fn remove(&self, id: u64) -> bool {
        let removed = self.inner.lock().active.remove(&id);
        if let Some(active) = &removed {
            active.lifted.cancel();
        }
        removed.is_some()
    }

    /// Deletes all faults.
    pub fn clear(&self) {
        for active in std::mem::take(&mut self.inner.lock().active).values() {
            active.lifted.cancel();
        }
    }

    /// The oldest fault that this request meets, counted.
    pub(crate) fn take(&self, caller: Caller<'_>) -> Option<Hit> {
        let mut inner = self.inner.lock();
        let usable = |active: &&mut Active| active.listed.left != Some(0) && active.listed.fault.matching.meets(caller);
        let active = inner.active.values_mut().find(usable)?;
        active.listed.hits += 1;
        active.listed.left = active.listed.left.map(|left| left - 1);
        Some(Hit {
            answer: active.listed.fault.answer.clone(),
            revision: active.revision,
            lifted: active.lifted.clone(),
        })
    }

    /// Notes an open watch, so that a fault can interrupt it. Gives its number and the receiver.
    pub(crate) fn opened(&self, caller: Caller<'_>) -> (u64, mpsc::UnboundedReceiver<Interruption>) {
        let (interrupt, receiver) = mpsc::unbounded_channel();
        let mut inner = self.inner.lock();
        inner.next += 1;
        let id = inner.next;
        let open = Open {
            method: caller.method.to_owned(),
            path: caller.path.to_owned(),
            agent: caller.agent.to_owned(),
            interrupt,
        };
        inner.open.insert(id, open);
        (id, receiver)
    }

    /// Forgets a watch that ended.
    pub(crate) fn closed(&self, id: u64) {
        self.inner.lock().open.remove(&id);
    }
}

impl Inner {
    fn interrupt(&self, fault: &Fault) -> u64 {
        let meets = |open: &&Open| {
            fault.matching.meets(Caller { method: &open.method, path: &open.path, agent: &open.agent, watch: true })
        };
        let hit =
            self.open.values().filter(meets).filter(|open| open.interrupt.send(fault.answer.interruption()).is_ok());
        u64::try_from(hit.count()).unwrap_or(u64::MAX)
    }
}

/// Whether a text fits a pattern in which `*` stands for any letters, none too.
fn glob(pattern: &str, text: &str) -> bool {
    let Some((head, mut rest)) = pattern.split_once('*') else { return pattern == text };
    let Some(mut text) = text.strip_prefix(head) else { return false };
    while let Some((middle, tail)) = rest.split_once('*') {
        let Some(found) = text.find(middle) else { return false };
        text = &text[found + middle.len()..];
        rest = tail;
    }
    text.ends_with(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put<'a>(path: &'a str, agent: &'a str) -> Caller<'a> {
        Caller { method: "PUT", path, agent, watch: false }
    }

    fn fault(json: &str) -> Fault {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn patterns_match_anything_at_a_star() {
        assert!(
            glob("*", "") && glob("a*", "abc") && glob("*c", "abc") && glob("a*b*c", "aXbYc") && glob("abc", "abc")
        );
        assert!(!glob("a*", "b") && !glob("a*b*c", "ac") && !glob("abc", "abcd") && !glob("", "a"));
        assert!(glob("*/slices/*", "/apis/slices/x") && !glob("ab*ba", "aba"));
    }

    #[test]
    fn a_fault_meets_its_requests_and_is_used_up() {
        let faults = Faults::default();
        let id = faults.add(
            fault(r#"{"match": {"method": "PUT", "path": "/s/*", "userAgent": "gpu-driver*"}, "times": 2, "answer": {"status": 409}}"#),
            7,
        );
        assert!(faults.take(put("/s/a", "kubectl")).is_none());
        assert_eq!(faults.take(put("/s/a", "gpu-driver/1")).unwrap().answer.status, Some(409));
        assert_eq!(faults.take(put("/s/b", "gpu-driver/1")).unwrap().revision, 7);
        assert!(faults.take(put("/s/b", "gpu-driver/1")).is_none());
        let listed = &faults.list()[0];
        assert_eq!((listed.hits, listed.left), (2, Some(0)));
        assert!(faults.remove(id) && !faults.remove(id));
    }

    #[test]
    fn deleting_a_fault_lifts_it() {
        let faults = Faults::default();
        faults.add(fault(r#"{"answer": {"delayMs": 100000}}"#), 1);
        let hit = faults.take(put("/", "")).unwrap();
        assert!(!hit.lifted.is_cancelled());
        faults.clear();
        assert!(hit.lifted.is_cancelled() && faults.list().is_empty());
    }

    #[test]
    fn open_watches_are_interrupted_at_once() {
        let faults = Faults::default();
        let caller = Caller { method: "GET", path: "/api/v1/pods", agent: "x", watch: true };
        let (id, mut receiver) = faults.opened(caller);
        faults.add(fault(r#"{"match": {"path": "*/pods", "open": true}, "answer": {"cut": true}}"#), 1);
        assert_eq!(receiver.try_recv().unwrap(), Interruption::Cut);
        assert_eq!(faults.list()[0].hits, 1);
        faults.closed(id);
        faults.add(fault(r#"{"match": {"open": true}, "answer": {"cut": true}}"#), 1);
        assert!(receiver.try_recv().is_err());
    }

    #[test]
    fn a_misspelt_fault_is_refused() {
        assert!(serde_json::from_str::<Fault>(r#"{"answer": {"state": 409}}"#).is_err());
        assert!(serde_json::from_str::<Fault>(r#"{"match": {}}"#).is_err());
    }
}
