//! Whether the controller is alive, and whether it knows everything that it must know to decide.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::Arc;
use std::time::Duration;

use cluster::Kind;
use parking_lot::Mutex;
use tokio::time::Instant;

/// The deciding task comes by at least every few seconds; after so long without it, something is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(60);

/// How a kind is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sync {
    /// It has not been listed yet.
    Waiting,
    /// Everything that there is of it is known.
    Synced,
    /// Its watch failed and begins anew.
    Failed(String),
    /// The server does not serve it: there is none.
    NotServed,
}

impl Sync {
    /// Whether what is known may be acted on.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        matches!(self, Self::Synced | Self::NotServed)
    }
}

impl fmt::Display for Sync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("waiting for the first list"),
            Self::Synced => f.write_str("synced"),
            Self::Failed(problem) => write!(f, "not synced: {problem}"),
            Self::NotServed => f.write_str("not served by this API server"),
        }
    }
}

/// How each kind is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncState(BTreeMap<Kind, Sync>);

impl Default for SyncState {
    fn default() -> Self {
        Self(Kind::ALL.into_iter().map(|kind| (kind, Sync::Waiting)).collect())
    }
}

impl SyncState {
    /// Sets how a kind is known.
    pub fn set(&mut self, kind: Kind, sync: Sync) {
        self.0.insert(kind, sync);
    }

    /// Whether everything is known that decides who is evicted: only then may anybody be. DeviceMarks that cannot be read any more
    /// do not hold anything up: they add who and why to taints that stand in slices.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        let spared = |kind: Kind, sync: &Sync| kind == Kind::Mark && matches!(sync, Sync::Failed(_));
        self.0.iter().all(|(kind, sync)| sync.is_settled() || spared(*kind, sync))
    }

    /// Whether all is known that there is.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.0.values().all(Sync::is_settled)
    }

    /// Each kind, in a fixed order.
    pub fn iter(&self) -> impl Iterator<Item = (Kind, &Sync)> {
        self.0.iter().map(|(kind, sync)| (*kind, sync))
    }
}

#[derive(Debug)]
struct State {
    kinds: SyncState,
    server: Result<String, String>,
    beat: Instant,
}

/// What the HTTP server tells about the other tasks. Cheap to clone; all clones are one.
#[derive(Clone, Debug)]
pub struct Health(Arc<Mutex<State>>);

impl Default for Health {
    fn default() -> Self {
        let server = Err("not asked yet".to_owned());
        Self(Arc::new(Mutex::new(State { kinds: SyncState::default(), server, beat: Instant::now() })))
    }
}

impl Health {
    /// The deciding task came by, and this is what it knows.
    pub fn beat(&self, kinds: &SyncState) {
        let mut state = self.0.lock();
        state.beat = Instant::now();
        if state.kinds != *kinds {
            state.kinds = kinds.clone();
        }
    }

    /// The server said what it is, or why not.
    pub fn server(&self, answer: Result<String, String>) {
        self.0.lock().server = answer;
    }

    /// Whether the controller works at all: who asks may restart it if not.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.0.lock().beat.elapsed() < STUCK_AFTER
    }

    /// Whether everything is known, with a line for each thing that must be.
    #[must_use]
    pub fn readiness(&self) -> (bool, String) {
        let state = self.0.lock();
        let mut text = match &state.server {
            Ok(version) => format!("server: {version}\n"),
            Err(problem) => format!("server: {problem}\n"),
        };
        for (kind, sync) in state.kinds.iter() {
            // Writing to a String cannot fail.
            writeln!(text, "{kind}: {sync}").ok();
        }
        (state.server.is_ok() && state.kinds.is_complete(), text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settled() -> SyncState {
        let mut kinds = SyncState::default();
        Kind::ALL.into_iter().for_each(|kind| kinds.set(kind, Sync::Synced));
        kinds
    }

    #[tokio::test]
    async fn ready_is_only_who_knows_everything() {
        let health = Health::default();
        health.server(Ok("v1.37.0".to_owned()));
        health.beat(&settled());
        assert!(health.readiness().0);
        let mut kinds = settled();
        kinds.set(Kind::Rule, Sync::NotServed);
        health.beat(&kinds);
        assert!(health.readiness().0);
        kinds.set(Kind::Pod, Sync::Failed("no connection".to_owned()));
        health.beat(&kinds);
        let (ready, text) = health.readiness();
        assert!(!ready);
        assert!(text.contains("pods: not synced: no connection") && text.contains("nodes: synced"), "{text}");
    }

    #[test]
    fn marks_that_cannot_be_read_any_more_hold_no_eviction_up() {
        let mut kinds = settled();
        kinds.set(Kind::Mark, Sync::Waiting);
        assert!(!kinds.is_settled(), "their first list is waited for: it says who and why");
        kinds.set(Kind::Mark, Sync::Failed("forbidden".to_owned()));
        assert!(kinds.is_settled() && !kinds.is_complete());
        kinds.set(Kind::Rule, Sync::Failed("forbidden".to_owned()));
        assert!(!kinds.is_settled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_stuck_decider_is_noticed() {
        let health = Health::default();
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(health.is_alive());
        tokio::time::advance(Duration::from_secs(2)).await;
        assert!(!health.is_alive());
        health.beat(&settled());
        assert!(health.is_alive());
    }
}
