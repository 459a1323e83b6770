//! Watches. Each has a task of its own that sleeps until a write of its kind wakes it, reads the changes after its last
//! revision under the lock, and sends them as lines. A watch that falls behind the history ends with 410, as a real one does.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hyper::body::Frame;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::api::{Cluster, Query, RevisionMatch, Target, expired};
use super::error::ApiError;
use super::faults::{Caller, Faults, Hit, Interruption};
use super::http::accept::Form;
use super::http::render;
use super::request::Parameters;
use super::store::{Change, Object};
use super::value::set;

/// A line of a watch, or the error that cuts the connection.
pub(crate) type Line = Result<Frame<Bytes>, io::Error>;

/// How often a quiet watch that asked for bookmarks gets one.
const BOOKMARK: Duration = Duration::from_secs(30);
/// How long a watch lasts that names no end.
const LIFETIME: Duration = Duration::from_secs(40 * 60);
/// Batches that may wait for a slow client.
const WAITING: usize = 16;

/// What a client asked to watch.
pub(crate) struct Watch {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) target: Target,
    pub(crate) query: Query,
    pub(crate) form: Form,
    pub(crate) bookmarks: bool,
    /// Show all objects first, then a bookmark that says so.
    initial: Initial,
    lifetime: Duration,
}

/// How a watch begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Initial {
    /// With what is written from now on.
    Nothing,
    /// With all objects as added ones.
    Objects,
    /// So too, and then a bookmark that ends this part.
    ObjectsThenBookmark,
}

impl Watch {
    /// Reads the parameters of a watch.
    pub(crate) fn new(
        cluster: &Arc<Cluster>,
        target: Target,
        form: Form,
        parameters: &Parameters,
    ) -> Result<Self, ApiError> {
        let mut query = parameters.query(&target.resource)?;
        if !target.name.is_empty() {
            query =
                Parameters::parse(&format!("fieldSelector=metadata.name%3D{}", target.name)).query(&target.resource)?;
            query.revision = parameters.number("resourceVersion")?.map(RevisionMatch::NotOlderThan);
        }
        let fresh = !matches!(query.revision, Some(RevisionMatch::NotOlderThan(1..) | RevisionMatch::Exact(_)));
        let initial = match parameters.get("sendInitialEvents") {
            "true" if parameters.get("resourceVersionMatch") != "NotOlderThan" => {
                return Err(ApiError::bad_request(
                    "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan",
                ));
            }
            "true" => Initial::ObjectsThenBookmark,
            "false" => Initial::Nothing,
            _ if fresh => Initial::Objects,
            _ => Initial::Nothing,
        };
        let lifetime = parameters.number("timeoutSeconds")?.map_or(LIFETIME, Duration::from_secs);
        let bookmarks = parameters.flag("allowWatchBookmarks");
        Ok(Self { cluster: cluster.clone(), target, query, form, bookmarks, initial, lifetime })
    }

    /// Starts the watch in a task of its own; its lines come through the receiver.
    pub(crate) fn start(
        self,
        caller: Caller<'_>,
        faults: &Arc<Faults>,
        hit: Option<Hit>,
        cancel: CancellationToken,
    ) -> mpsc::Receiver<Line> {
        let (lines, receiver) = mpsc::channel(WAITING);
        let (id, interruptions) = faults.opened(caller);
        let faults = faults.clone();
        let task = Task { feed: Feed::new(&self, hit), lines, interruptions, cancel, watch: self };
        tokio::spawn(async move {
            task.run().await;
            faults.closed(id);
        });
        receiver
    }
}

struct Task {
    watch: Watch,
    feed: Feed,
    lines: mpsc::Sender<Line>,
    interruptions: mpsc::UnboundedReceiver<Interruption>,
    cancel: CancellationToken,
}

/// The watch is over.
struct Over;

impl Task {
    async fn run(mut self) {
        let end = Instant::now() + self.watch.lifetime;
        let mut changes = self.watch.cluster.read(|state| state.store.subscribe(&self.watch.target.resource.table));
        let mut bookmark = tokio::time::interval_at(Instant::now() + BOOKMARK, BOOKMARK);
        let begun = self.feed.begin(&self.watch);
        if self.send(begun).await.is_err() {
            return;
        }
        loop {
            changes.mark_unchanged();
            let news = self.feed.news(&self.watch);
            if self.send(news).await.is_err() {
                return;
            }
            let held = self.feed.held.clone();
            let lifted = held.clone().unwrap_or_default();
            tokio::select! {
                changed = changes.changed() => if changed.is_err() { return },
                () = lifted.cancelled(), if held.is_some() => self.feed.release(),
                interruption = self.interruptions.recv() => {
                    if let Some(interruption) = interruption {
                        self.interrupt(interruption).await;
                    }
                    return;
                }
                _ = bookmark.tick(), if self.watch.bookmarks => {
                    let line = self.feed.bookmark(&self.watch, false);
                    if self.send(Ok(line)).await.is_err() {
                        return;
                    }
                }
                () = tokio::time::sleep_until(end) => return,
                () = self.lines.closed() => return,
                () = self.cancel.cancelled() => return,
            }
        }
    }

    async fn send(&mut self, batch: Result<Bytes, ApiError>) -> Result<(), Over> {
        match batch {
            Ok(bytes) if bytes.is_empty() => {}
            Ok(bytes) => self.lines.send(Ok(Frame::data(bytes))).await.map_err(|_| Over)?,
            Err(error) => {
                self.interrupt(Interruption::Error(error)).await;
                return Err(Over);
            }
        }
        match self.feed.ending.take_if(|(left, _)| *left == 0) {
            Some((_, interruption)) => {
                self.interrupt(interruption).await;
                Err(Over)
            }
            None => Ok(()),
        }
    }

    async fn interrupt(&self, interruption: Interruption) {
        let line = match interruption {
            Interruption::End => return,
            Interruption::Cut => {
                self.flush().await;
                Err(io::Error::new(io::ErrorKind::ConnectionReset, "cut on purpose"))
            }
            Interruption::Error(error) => Ok(Frame::data(render::raw_event("ERROR", &error.status()))),
        };
        // A client that is gone needs no farewell.
        self.lines.send(line).await.ok();
    }
}

impl Task {
    /// Lets the connection send what it has: a cut must not take back events that came before it.
    async fn flush(&self) {
        if self.lines.reserve_many(WAITING).await.is_ok() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

/// The position of a watch in the history.
struct Feed {
    revision: u64,
    /// No event was sent yet, so the next one carries the columns of a table.
    first: bool,
    /// A fault that comes after so many more events.
    ending: Option<(u32, Interruption)>,
    /// A stale watch sees nothing after this revision until the token fires.
    ceiling: Option<u64>,
    held: Option<CancellationToken>,
}

impl Feed {
    fn new(watch: &Watch, hit: Option<Hit>) -> Self {
        let revision = match watch.query.revision {
            Some(RevisionMatch::NotOlderThan(revision) | RevisionMatch::Exact(revision)) => revision,
            None => 0,
        };
        let mut feed = Self { revision, first: true, ending: None, ceiling: None, held: None };
        if let Some(hit) = hit {
            if hit.answer.stale {
                feed.ceiling = Some(hit.revision);
                feed.held = Some(hit.lifted.clone());
            }
            if hit.answer.cut || hit.answer.status.is_some() || hit.answer.after_events.is_some() {
                feed.ending = Some((hit.answer.after_events.unwrap_or(0), hit.answer.interruption()));
            }
        }
        feed
    }

    fn release(&mut self) {
        self.ceiling = None;
        self.held = None;
    }

    /// The part before the changes: all objects, if asked for.
    fn begin(&mut self, watch: &Watch) -> Result<Bytes, ApiError> {
        let query = Query { limit: 0, token: None, revision: None, ..watch.query.clone() };
        let page = watch.cluster.read(|state| state.list(&watch.target, &query, self.ceiling))?;
        if watch.initial == Initial::Nothing {
            self.revision = if self.revision == 0 { page.revision } else { self.revision };
            return Ok(Bytes::new());
        }
        self.revision = page.revision;
        let mut out = BytesMut::new();
        for object in &page.items {
            self.push(&mut out, watch, "ADDED", object);
        }
        if watch.initial == Initial::ObjectsThenBookmark && self.ending.is_none() {
            out.extend_from_slice(&self.bookmark(watch, true));
        }
        Ok(out.freeze())
    }

    /// The changes since the last call.
    fn news(&mut self, watch: &Watch) -> Result<Bytes, ApiError> {
        let table = &watch.target.resource.table;
        let from = self.revision;
        let (changes, newest) = watch.cluster.read(|state| {
            let changes = state.store.since(table, from).map_err(|old| expired(from, &old))?;
            Ok::<_, ApiError>((changes, state.store.revision()))
        })?;
        let mut out = BytesMut::new();
        let ceiling = self.ceiling.unwrap_or(newest);
        for change in changes.iter().filter(|change| change.revision <= ceiling) {
            if let Some((kind, object)) = seen(change, watch) {
                self.push(&mut out, watch, kind, &object);
            }
        }
        self.revision = self.revision.max(newest.min(ceiling));
        Ok(out.freeze())
    }

    fn push(&mut self, out: &mut BytesMut, watch: &Watch, kind: &str, object: &Object) {
        if let Some((left, _)) = &mut self.ending {
            if *left == 0 {
                return;
            }
            *left -= 1;
        }
        let line = render::event(watch.form, &watch.target, kind, object, watch.cluster.now(), self.first);
        self.first = false;
        out.extend_from_slice(&line);
    }

    /// A bookmark: the revision up to which everything was sent.
    fn bookmark(&self, watch: &Watch, initial: bool) -> Bytes {
        let mut meta = json!({"resourceVersion": self.revision.to_string()});
        if initial {
            set(&mut meta, &["annotations", "k8s.io/initial-events-end"], "true");
        }
        let resource = &watch.target.resource;
        let object = match watch.form {
            Form::Plain => json!({"kind": resource.kind, "apiVersion": watch.target.api_version(), "metadata": meta}),
            Form::Metadata => {
                json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": meta})
            }
            Form::Table => json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": meta, "rows": [],
                                  "columnDefinitions": null}),
        };
        render::raw_event("BOOKMARK", &object)
    }
}

/// How a change looks through the selectors of a watch: an object that enters the selection is added, one that leaves it
/// is deleted, in its last selected form.
fn seen(change: &Change, watch: &Watch) -> Option<(&'static str, Object)> {
    let namespace = &watch.target.namespace;
    if !namespace.is_empty() && change.key.namespace != *namespace {
        return None;
    }
    let before = change.before.as_ref().filter(|before| watch.query.selects(before));
    let after = Some(&change.object).filter(|object| !change.deleted && watch.query.selects(object));
    match (before, after) {
        (None, Some(after)) => Some(("ADDED", after.clone())),
        (Some(_), Some(after)) => Some(("MODIFIED", after.clone())),
        (Some(_), None) if change.deleted => Some(("DELETED", change.object.clone())),
        (Some(before), None) => {
            let mut last = Value::clone(before);
            set(&mut last, &["metadata", "resourceVersion"], change.revision.to_string());
            Some(("DELETED", Arc::new(last)))
        }
        (None, None) => None,
    }
}
