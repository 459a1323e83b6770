//! Keeps one socket there, and hands its connections to a server that does not notice when the socket had to be made again.

use std::path::{Path, PathBuf};
use std::time::Duration;

use futures::StreamExt;
use kubelet_api::authority::{Repaired, incoming};
use prometheus_client::metrics::counter::Counter;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::socket::{Presence, SocketError, SocketFile, bind};

/// How often the socket's file is looked for.
const LOOK: Duration = Duration::from_secs(1);

/// An accepted connection, with the `:authority` that kubelet sends repaired.
pub type Connection = Repaired<UnixStream>;

/// A socket that is kept there.
pub struct Socket {
    /// Its path.
    pub path: PathBuf,
    /// How often it had to be made again.
    pub restored: Counter,
    /// Told when somebody connects.
    pub reached: watch::Sender<bool>,
}

/// Serves the path until `stop`: binds it, tries again each second while that fails, makes it again when somebody removed it, and
/// removes it at the end. `ready` is told once the first socket is visible.
pub async fn run(
    socket: Socket,
    connections: mpsc::Sender<std::io::Result<Connection>>,
    ready: oneshot::Sender<()>,
    stop: CancellationToken,
) {
    let Socket { path, restored, reached } = socket;
    let mut ready = Some(ready);
    while let Some((listener, file)) = bind_until(&path, &stop).await {
        if let Some(ready) = ready.take() {
            // Who does not wait for it does not need it.
            ready.send(()).ok();
        }
        tracing::info!(path = %path.display(), "serving kubelet");
        if accept(listener, &file, &connections, &reached, &stop).await == Ended::Stopped {
            file.remove();
            return;
        }
        tracing::warn!(path = %path.display(), "somebody removed the socket; making it again");
        restored.inc();
    }
}

#[derive(PartialEq, Eq)]
enum Ended {
    Stopped,
    Removed,
}

async fn accept(
    listener: UnixListener,
    file: &SocketFile,
    connections: &mpsc::Sender<std::io::Result<Connection>>,
    reached: &watch::Sender<bool>,
    stop: &CancellationToken,
) -> Ended {
    let mut accepted = incoming(listener);
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut replaced = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return Ended::Stopped,
            Some(connection) = accepted.next() => {
                reached.send_replace(true);
                if connections.send(connection).await.is_err() {
                    return Ended::Stopped;
                }
            }
            _ = look.tick() => match file.presence() {
                Presence::Ours => replaced = false,
                Presence::Missing => return Ended::Removed,
                Presence::Foreign if !replaced => {
                    replaced = true;
                    tracing::error!(path = %file.path().display(), "another process took over the socket; kubelet talks to it now");
                }
                Presence::Foreign => {}
            }
        }
    }
}

/// Binds, trying again until it works; `None` when stopped before.
async fn bind_until(path: &Path, stop: &CancellationToken) -> Option<(UnixListener, SocketFile)> {
    let mut told = None;
    loop {
        match bound(path) {
            Ok(bound) => return Some(bound),
            Err(error) => {
                let text = error.to_string();
                if told.as_ref() != Some(&text) {
                    tracing::error!(error = %text, "cannot serve kubelet, trying again");
                    told = Some(text);
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return None,
            () = tokio::time::sleep(LOOK) => {}
        }
    }
}

fn bound(path: &Path) -> Result<(UnixListener, SocketFile), SocketError> {
    let bound = bind(path)?;
    let listener = UnixListener::from_std(bound.listener).map_err(|source| SocketError::Io {
        verb: "listen on",
        path: path.to_owned(),
        source,
    })?;
    Ok((listener, bound.file))
}
