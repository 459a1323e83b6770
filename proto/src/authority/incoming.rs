//! Accepted connections as a stream for `serve_with_incoming`, each one repaired.
//!
//! tonic ends its server when the stream yields an error that it does not know to be harmless, so this one yields none: a connection that cannot be
//! accepted is logged, and the next one is waited for.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::Sleep;
use tokio_stream::Stream;

use super::{BEGIN_WITHIN, MAX_CONNECTIONS, Repaired};

/// How long to wait after an error of the process or the machine (too many open files, no memory): the same call at once would fail again.
const PAUSE: Duration = Duration::from_millis(500);

/// The connections of a listener, each behind a [`Repaired`] that ends after [`BEGIN_WITHIN`] of silence at its begin; no more than
/// [`MAX_CONNECTIONS`] at a time. Never ends, and never yields an error.
pub fn incoming(listener: UnixListener) -> Incoming {
    Incoming::new(listener)
}

/// See [`incoming`].
#[derive(Debug)]
pub struct Incoming<A = UnixListener> {
    accept: A,
    /// Set after an error that waiting may cure.
    pause: Option<Pin<Box<Sleep>>>,
    slots: Arc<Semaphore>,
    /// A connection was closed for want of a slot, and none was taken since.
    full: bool,
}

impl<A> Incoming<A> {
    fn new(accept: A) -> Self {
        Self { accept, pause: None, slots: Arc::new(Semaphore::new(MAX_CONNECTIONS)), full: false }
    }

    /// The connection with a slot, or nothing where all are taken: then it is closed.
    fn admit(&mut self, stream: UnixStream) -> Option<Repaired<UnixStream>> {
        let slot = self.slots.clone().try_acquire_owned().ok();
        let was_full = std::mem::replace(&mut self.full, slot.is_none());
        if self.full && !was_full {
            tracing::warn!("{MAX_CONNECTIONS} connections are open, closing further ones");
        }
        slot.map(|slot| Repaired::new(stream).begin_within(BEGIN_WITHIN).in_slot(slot))
    }
}

/// Gives connections: a listener, or a script of errors in a test.
trait Accept {
    fn poll_connection(&mut self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>>;
}

impl Accept for UnixListener {
    fn poll_connection(&mut self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.poll_accept(context).map_ok(|(stream, _)| stream)
    }
}

impl<A: Accept + Unpin> Stream for Incoming<A> {
    type Item = io::Result<Repaired<UnixStream>>;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = self.get_mut();
        loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(context));
                this.pause = None;
            }
            match ready!(this.accept.poll_connection(context)) {
                Ok(stream) => {
                    if let Some(connection) = this.admit(stream) {
                        return Poll::Ready(Some(Ok(connection)));
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "cannot accept a connection, going on");
                    this.pause = (!concerns_one_connection(&error)).then(|| Box::pin(tokio::time::sleep(PAUSE)));
                }
            }
        }
    }
}

/// Whether only the connection that was about to be accepted is lost, so that the next one may be fine.
fn concerns_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, Interrupted, TimedOut};
    matches!(error.kind(), BrokenPipe | ConnectionAborted | ConnectionReset | Interrupted | TimedOut)
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use tokio::io::AsyncReadExt;
    use tokio::time::Instant;
    use tokio_stream::StreamExt;

    use super::*;

    /// Fails with the given errors, one by one, then gives a connection.
    struct Script(VecDeque<io::Error>);

    impl Accept for Script {
        fn poll_connection(&mut self, _: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
            Poll::Ready(self.0.pop_front().map_or_else(|| UnixStream::pair().map(|(stream, _)| stream), Err))
        }
    }

    async fn time_to_connection(errors: impl IntoIterator<Item = io::Error>) -> Duration {
        let mut incoming = Incoming::new(Script(errors.into_iter().collect()));
        let start = Instant::now();
        assert!(incoming.next().await.unwrap().is_ok());
        start.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn an_aborted_connection_costs_no_time() {
        assert_eq!(time_to_connection([io::ErrorKind::ConnectionAborted.into()]).await, Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn too_many_open_files_are_waited_out() {
        let too_many_files = || io::Error::from_raw_os_error(24);
        let took = time_to_connection([too_many_files(), too_many_files()]).await;
        assert!(took >= 2 * PAUSE && took < 3 * PAUSE, "{took:?}");
    }

    #[tokio::test]
    async fn a_flood_of_connections_is_bounded_and_leaves_room_when_it_ends() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s.sock");
        let mut incoming = incoming(UnixListener::bind(&path).unwrap());
        let mut open = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            let client = UnixStream::connect(&path).await.unwrap();
            open.push((client, incoming.next().await.unwrap().unwrap()));
        }
        let mut refused = UnixStream::connect(&path).await.unwrap();
        let next = tokio::spawn(async move { incoming.next().await });
        assert_eq!(refused.read(&mut [0]).await.unwrap(), 0, "closed");
        open.pop();
        let _admitted = UnixStream::connect(&path).await.unwrap();
        assert!(next.await.unwrap().unwrap().is_ok());
    }
}
