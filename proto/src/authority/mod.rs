//! The `:authority` repair for accepted unix connections.
//!
//! Kubelet's plugin manager dials a registration socket with grpc-go on the bare path. The `:authority` of its requests is then that path,
//! percent-encoded (`%2Fvar%2Flib%2Fkubelet%2F...`; older grpc-go: as it is), which Rust's `http` crate refuses to hold: h2 answers
//! PROTOCOL_ERROR, and the driver is never registered. Kubelet up to 1.33 dials the service socket the same way.
//!
//! [`Repaired`] sits between the accepted connection and the server. What the client sends flows through it:
//!
//! connection -> preface and frames -> header blocks through HPACK, with `:authority` replaced by `localhost` -> frames -> h2.
//!
//! Everything but header blocks passes unchanged and is not held back, and so does everything that the server sends. Serve tonic with
//! [`incoming`]:
//!
//! ```no_run
//! # async fn serve(routes: tonic::transport::server::Router) -> Result<(), Box<dyn std::error::Error>> {
//! let listener = tokio::net::UnixListener::bind("/var/lib/kubelet/plugins_registry/gpu.example.com-reg.sock")?;
//! routes.serve_with_incoming(kubelet_api::authority::incoming(listener)).await?;
//! # Ok(())
//! # }
//! ```

mod incoming;
mod repair;
#[cfg(test)]
mod tests;

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Sleep;
use tonic::transport::server::Connected;

pub use self::incoming::{Incoming, incoming};
pub use self::repair::RepairError;
pub use crate::hpack::HpackError;

use self::repair::Repair;

/// What every request gets for an authority; grpc-go sends the same when it dials `unix:PATH`.
pub const AUTHORITY: &str = "localhost";

/// Most bytes that one encoded header block may have, over all its frames. A request of kubelet takes about 200.
pub const MAX_HEADER_BLOCK: usize = 64 * 1024;

/// Most bytes that the fields of one header block may have, counted as RFC 9113 6.5.2 does (32 for each field beyond its name and value). Above
/// what a tonic server takes by default (16 KiB), so that a request between the two still gets its proper answer from h2.
pub const MAX_HEADER_LIST: usize = 64 * 1024;

/// Most CONTINUATION frames of one header block; 64 KiB in frames of the smallest allowed maximum take four.
pub const MAX_CONTINUATIONS: usize = 64;

/// Bytes of HPACK table that a client may use: HTTP/2's default. A tonic server never announces another SETTINGS_HEADER_TABLE_SIZE.
pub const HEADER_TABLE_SIZE: usize = 4096;

/// How long a client may take to begin to speak HTTP/2. Kubelet does so at once; one that never does would hold a file open for ever.
pub const BEGIN_WITHIN: Duration = Duration::from_secs(10);

/// Most connections of one socket at a time. Kubelet keeps one or two; further ones are closed at once, since each holds a file of the process.
pub const MAX_CONNECTIONS: usize = 64;

/// Bytes read from the connection at once.
const CHUNK: usize = 8 * 1024;

/// An accepted connection whose client may send any `:authority`.
///
/// Holds at most 8 KiB of read bytes, one header block of [`MAX_HEADER_BLOCK`], and what these become for the reader. A client that breaks the
/// rules of HTTP/2 framing or HPACK, or exceeds a limit, makes reads fail with [`io::ErrorKind::InvalidData`] and a [`RepairError`] inside; the server
/// then closes this one connection.
#[derive(Debug)]
pub struct Repaired<IO> {
    inner: IO,
    repair: Repair,
    /// Read from the connection, not repaired yet.
    raw: BytesMut,
    /// Repaired, not taken by the reader yet.
    ready: BytesMut,
    /// Why nothing more can be read, once `ready` is taken.
    failed: Option<RepairError>,
    /// Until when the client must have begun; `None` once it has, and where it has all the time there is.
    begin_by: Option<Pin<Box<Sleep>>>,
    /// Given back when the connection ends.
    slot: Option<OwnedSemaphorePermit>,
}

impl<IO> Repaired<IO> {
    /// Wraps a connection of which nothing was read yet.
    pub fn new(inner: IO) -> Self {
        let (raw, ready) = (BytesMut::new(), BytesMut::new());
        Self { inner, repair: Repair::new(), raw, ready, failed: None, begin_by: None, slot: None }
    }

    /// Gives the client this long to send HTTP/2's preface; then reads fail with [`io::ErrorKind::TimedOut`]. Needs a tokio runtime.
    #[must_use]
    pub fn begin_within(mut self, time: Duration) -> Self {
        self.begin_by = Some(Box::pin(tokio::time::sleep(time)));
        self
    }

    fn in_slot(mut self, slot: OwnedSemaphorePermit) -> Self {
        self.slot = Some(slot);
        self
    }

    fn poll_begun(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.repair.has_begun() {
            self.begin_by = None;
        }
        let is_late = self.begin_by.as_mut().is_some_and(|end| end.as_mut().poll(context).is_ready());
        if is_late {
            return Err(io::Error::new(io::ErrorKind::TimedOut, "the client has not begun to speak HTTP/2 in time"));
        }
        Ok(())
    }

    /// Repairs what was read, until there is something for the reader. One step adds at most one header block, so `ready` stays small even where
    /// few bytes stand for many fields.
    fn advance(&mut self) {
        while !self.raw.is_empty() && self.ready.len() < CHUNK && self.failed.is_none() {
            match self.repair.step(&self.raw, &mut self.ready) {
                Ok(taken) => self.raw.advance(taken),
                Err(error) => self.failed = Some(error),
            }
        }
    }

    fn take_ready(&mut self, buffer: &mut ReadBuf<'_>) {
        let count = self.ready.len().min(buffer.remaining());
        buffer.put_slice(&self.ready.split_to(count));
    }
}

impl<IO: AsyncRead + Unpin> Repaired<IO> {
    /// Reads a chunk; ready with the number of bytes, 0 at the end of the stream.
    fn poll_fill(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut chunk = [0; CHUNK];
        let mut buffer = ReadBuf::new(&mut chunk);
        ready!(Pin::new(&mut self.inner).poll_read(context, &mut buffer))?;
        self.raw.extend_from_slice(buffer.filled());
        Poll::Ready(Ok(buffer.filled().len()))
    }
}

impl<IO: AsyncRead + Unpin> AsyncRead for Repaired<IO> {
    fn poll_read(self: Pin<&mut Self>, context: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.ready.is_empty() {
                this.take_ready(buffer);
                return Poll::Ready(Ok(()));
            }
            if let Some(error) = &this.failed {
                return Poll::Ready(Err(error.clone().into()));
            }
            if this.raw.is_empty() {
                this.poll_begun(context)?;
                if ready!(this.poll_fill(context))? == 0 {
                    return Poll::Ready(Ok(()));
                }
            }
            this.advance();
        }
    }
}

impl<IO: AsyncWrite + Unpin> AsyncWrite for Repaired<IO> {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(context)
    }
}

impl<IO: Connected> Connected for Repaired<IO> {
    type ConnectInfo = IO::ConnectInfo;

    fn connect_info(&self) -> Self::ConnectInfo {
        self.inner.connect_info()
    }
}
