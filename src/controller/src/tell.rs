//! The telling task: it writes events, some at once, as many as the token bucket allows. Nobody waits for it.

use cluster::event::{Bucket, Event};
use futures::StreamExt as _;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::clock::Clock;
use crate::metrics::Metrics;

/// So many events are written at once.
const AT_ONCE: usize = 8;

/// So many events may come together, and then so many a second.
const BURST: u32 = 1000;
const PER_SECOND: u32 = 20;

/// Writes events until nobody is left to send any: what was evicted last is told too.
pub async fn run(client: Client, events: mpsc::Receiver<Event>, clock: Clock, metrics: Metrics) {
    let bucket = Mutex::new(Bucket::new(BURST, PER_SECOND));
    let queue = futures::stream::unfold(events, |mut events| async move { Some((events.recv().await?, events)) });
    let (client, clock, metrics, bucket) = (&client, &clock, &metrics, &bucket);
    let write = |event: Event| async move {
        if !bucket.lock().take(Instant::now()) {
            metrics.event("limited");
            return;
        }
        match event.write(client, clock.now()).await {
            Ok(()) => metrics.event("written"),
            Err(error) => {
                metrics.event("failed");
                tracing::warn!(%error, event = event.message(), "event not written");
            }
        }
    };
    queue.for_each_concurrent(AT_ONCE, write).await;
}
