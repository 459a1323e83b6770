//! Watches that never give up, into one bounded channel.

use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use cluster::connect::WATCH_SECONDS;
use futures::StreamExt as _;
use kube::runtime::watcher::{self, Event};
use kube::{Api, Resource};
use serde::de::DeserializeOwned;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::Backoff;

/// How many notices may wait for the actor. A full channel holds the watches, not the memory.
pub(crate) const QUEUE: usize = 1024;

/// The watch's own waits after an error: the server may be starting, or a test may have cut the connection.
const fn waits() -> Backoff {
    Backoff::new(Duration::from_millis(50), Duration::from_secs(5))
}

/// Follows a kind until the channel closes.
pub(crate) fn follow<K, N>(
    tasks: &mut JoinSet<()>,
    api: Api<K>,
    config: watcher::Config,
    notices: mpsc::Sender<N>,
    wrap: fn(Event<K>) -> N,
) where
    K: Resource + Clone + DeserializeOwned + Debug + Send + 'static,
    N: Send + 'static,
{
    tasks.spawn(async move {
        let mut waits = waits();
        let mut events = pin!(watcher::watcher(api, config.timeout(WATCH_SECONDS)));
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    // `Init` only says that a list is about to be asked for: it comes before every attempt that fails.
                    if !matches!(event, Event::Init) {
                        waits.reset();
                    }
                    if notices.send(wrap(event)).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    tracing::debug!(%error, "watch failed; it goes on");
                    tokio::time::sleep(waits.wait()).await;
                }
            }
        }
    });
}
