//! Whether the API server stores device taints, and when to ask it. Pure but for [`TaintSupport::asked`].
//!
//! A server whose feature gate `DRADeviceTaints` is off (by default before Kubernetes 1.36) takes a slice and leaves the taints out. It is asked by a
//! write that it only tries (a dry run), once at the start: a person should hear of it before a GPU is bad. While the gate is off it is asked again,
//! seldom; at once after the connection to it broke, since a server that restarted may have another setting. What real writes show counts as well.

use std::future::pending;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::time::Instant;

use super::api::{SliceApi, SliceError};
use super::backoff::Backoff;

/// Waits between two questions while taints are off, or nothing is known.
const FIRST_WAIT: Duration = Duration::from_secs(60);
const LONGEST_WAIT: Duration = Duration::from_secs(600);
/// A connection that breaks all the time does not make it more often than this.
const SHORTEST_WAIT: Duration = Duration::from_secs(5);

/// What became known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Turn {
    /// The server does not store device taints.
    Off,
    /// It stores them, and did not before.
    On,
}

/// Whether the server stores device taints, as far as it is known.
pub struct TaintSupport {
    stored: Option<bool>,
    backoff: Backoff,
    last: Option<Instant>,
    next: Option<Instant>,
    asking: Option<BoxFuture<'static, Result<bool, SliceError>>>,
}

impl TaintSupport {
    /// Nothing is known, and the server is to be asked `now`.
    #[must_use]
    pub fn new(now: Instant, seed: u64) -> Self {
        let backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, seed);
        Self { stored: None, backoff, last: None, next: Some(now), asking: None }
    }

    /// Whether it is known that the server does not store them.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.stored == Some(false)
    }

    /// Waits until it is time, asks, and gives the answer. One that is dropped on the way goes on where it was.
    pub async fn asked(&mut self, api: &SliceApi) -> Result<bool, SliceError> {
        let asking = match &mut self.asking {
            Some(asking) => asking,
            None => {
                match self.next {
                    Some(next) => tokio::time::sleep_until(next).await,
                    None => pending().await,
                }
                let api = api.clone();
                self.asking.insert(async move { api.stores_taints().await }.boxed())
            }
        };
        let answer = asking.await;
        self.asking = None;
        answer
    }

    /// Takes in an answer; `None` is none.
    pub fn answered(&mut self, stored: Option<bool>, now: Instant) -> Option<Turn> {
        self.last = Some(now);
        self.next = (stored != Some(true)).then(|| now + self.backoff.after_failure());
        self.learn(stored?, now)
    }

    /// Takes in what a write showed: how many taints it held, and how many of them the server left out.
    pub fn wrote(&mut self, sent: usize, dropped: usize, now: Instant) -> Option<Turn> {
        if sent == 0 { None } else { self.learn(dropped == 0, now) }
    }

    /// The connection broke and is there again. A server that stores taints need not be asked: a write will tell.
    pub fn reconnected(&mut self, now: Instant) {
        if self.stored == Some(true) {
            return;
        }
        self.backoff.reset();
        self.next = Some(self.last.map_or(now, |last| now.max(last + SHORTEST_WAIT)));
    }

    fn learn(&mut self, stored: bool, now: Instant) -> Option<Turn> {
        let before = self.stored.replace(stored);
        if stored {
            self.next = None;
            return (before == Some(false)).then_some(Turn::On);
        }
        if self.next.is_none_or(|next| next <= now) {
            self.next = Some(now + self.backoff.after_failure());
        }
        (before != Some(false)).then_some(Turn::Off)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(start: Instant, support: &TaintSupport) -> Option<u64> {
        support.next.map(|next| next.saturating_duration_since(start).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_stores_taints_is_asked_once() {
        let now = Instant::now();
        let mut support = TaintSupport::new(now, 0);
        assert_eq!(after(now, &support), Some(0));
        assert_eq!((support.answered(Some(true), now), support.next), (None, None));
        support.reconnected(now);
        assert_eq!((support.wrote(3, 0, now), support.next, support.is_off()), (None, None, false));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_does_not_is_told_once_and_asked_seldom() {
        let mut now = Instant::now();
        let mut support = TaintSupport::new(now, 0);
        assert_eq!(support.answered(Some(false), now), Some(Turn::Off));
        let mut waits = Vec::new();
        for _ in 0..8 {
            let next = support.next.unwrap();
            waits.push((next - now).as_secs());
            now = next;
            assert_eq!(support.answered(Some(false), now), None);
        }
        assert!(waits[0] > 40 && waits[0] <= 60 && waits[7] > 440 && waits[7] <= 600, "{waits:?}");
        assert_eq!((support.answered(Some(true), now), support.next), (Some(Turn::On), None));
    }

    #[tokio::test(start_paused = true)]
    async fn a_broken_connection_is_a_reason_to_ask_and_not_to_hurry() {
        let start = Instant::now();
        let mut support = TaintSupport::new(start, 0);
        support.answered(Some(false), start);
        support.reconnected(start + Duration::from_secs(1));
        assert_eq!(after(start, &support), Some(5));
        support.reconnected(start + Duration::from_secs(30));
        assert_eq!(after(start, &support), Some(30));
    }

    #[tokio::test(start_paused = true)]
    async fn writes_show_it_as_well_but_not_those_without_taints() {
        let now = Instant::now();
        let mut support = TaintSupport::new(now, 0);
        support.answered(None, now);
        assert_eq!((support.wrote(0, 0, now), support.stored), (None, None));
        assert_eq!((support.wrote(2, 2, now), support.wrote(2, 2, now)), (Some(Turn::Off), None));
        assert_eq!(support.wrote(2, 0, now), Some(Turn::On));
        support.reconnected(now);
        assert_eq!((support.wrote(1, 1, now), support.is_off()), (Some(Turn::Off), true));
        assert!(support.next.is_some(), "from now on it is asked again");
    }
}
