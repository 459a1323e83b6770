//! A connection to a driver's service socket that tells when it is lost: kubelet watches its connections, and a driver that is gone
//! loses its slices some time later.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;
use tokio::sync::oneshot;
use tonic::transport::{Channel, Endpoint, Uri};

/// How long one attempt to connect may take.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// A live connection.
pub(super) struct Connected {
    /// For the clients of all services of the driver.
    pub(super) channel: Channel,
    /// Ends when the connection does.
    pub(super) lost: oneshot::Receiver<()>,
}

/// Connects as `grpc.NewClient("unix:" + endpoint)` does: the authority is `localhost`.
pub(super) async fn connect(endpoint: &Path) -> Result<Connected, tonic::transport::Error> {
    let (open, lost) = oneshot::channel();
    let mut open = Some(open);
    let path: PathBuf = endpoint.to_owned();
    // The channel would connect anew by itself after a loss. It is replaced then, so its later attempts are refused.
    let connector = tower::service_fn(move |_: Uri| {
        let (open, path) = (open.take(), path.clone());
        async move {
            let open = open.ok_or_else(|| io::Error::from(io::ErrorKind::NotConnected))?;
            let stream = UnixStream::connect(path).await?;
            Ok::<_, io::Error>(TokioIo::new(Monitored { stream, _open: open }))
        }
    });
    let endpoint = Endpoint::from_static("http://localhost").connect_timeout(CONNECT_LIMIT);
    let channel = endpoint.connect_with_connector(connector).await?;
    Ok(Connected { channel, lost })
}

/// A stream whose end is seen by whoever holds the other half of `_open`: hyper drops it as soon as the peer is gone.
struct Monitored {
    stream: UnixStream,
    _open: oneshot::Sender<()>,
}

impl AsyncRead for Monitored {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, buffer)
    }
}

impl AsyncWrite for Monitored {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
