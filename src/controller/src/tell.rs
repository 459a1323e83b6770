//! The telling task: it writes events, some at once, as many as the token bucket allows. Nobody waits for it.

use cluster::event::{Bucket, Event};
use futures::StreamExt as _;
use kube::Client;
use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::metrics::Metrics;

/// So many events are written at once.
const AT_ONCE: usize = 8;

/// So many events may come together, and then so many a second.
const BURST: u32 = 1000;
const PER_SECOND: u32 = 20;

/// Writes events until told to stop, or until there is nobody left to send any.
pub async fn run(
    client: Client,
    events: mpsc::Receiver<Event>,
    clock: Clock,
    metrics: Metrics,
    stop: CancellationToken,
) {
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
    queue.take_until(stop.cancelled()).for_each_concurrent(AT_ONCE, write).await;
}
