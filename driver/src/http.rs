//! `/metrics`, `/healthz` and `/readyz`.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::http_checks::{Check, Readiness};
use crate::metrics::Metrics;

/// How long an open connection may keep the agent from ending.
const LINGER: Duration = Duration::from_secs(2);
/// Connections at a time; each holds a file that the agent may need for a claim. Probes and scrapers need a handful.
const CONNECTIONS: usize = 128;
/// How long a client may take for the head of a request, and stay without one.
const SILENCE: Duration = Duration::from_secs(2);
/// Wait after a connection that could not be accepted: the same call at once would fail again.
const PAUSE: Duration = Duration::from_millis(500);

/// What is served.
pub struct Web {
    /// All metrics.
    pub metrics: Arc<Metrics>,
    /// What readiness and liveness follow from.
    pub readiness: Readiness,
}

/// Why nothing is served.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address cannot be had.
    #[error("cannot listen on {address}: {source}; choose another address with --listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The system does not tell which address was taken.
    #[error("cannot tell the address of the HTTP server: {0}")]
    Address(#[source] io::Error),
}

/// Takes the address. With port 0 the system chooses the port.
///
/// # Errors
/// When the address cannot be had.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address).await.map_err(|source| HttpError::Bind { address, source })
}

/// Serves until `stop`. Whatever clients do, they hold no more than [`CONNECTIONS`] connections, and none in silence.
pub async fn serve(listener: TcpListener, web: Web, stop: CancellationToken) {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(web));
    let connections = TaskTracker::new();
    let slots = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let accepted = tokio::select! {
            () = stop.cancelled() => break,
            accepted = accept(&listener, &slots) => accepted,
        };
        match accepted {
            Ok((stream, slot)) => {
                let serving = answer_all(stream, routes.clone(), stop.clone());
                connections.spawn(async move {
                    serving.await;
                    drop(slot);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "cannot accept an HTTP connection, going on");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
    connections.close();
    // One that is still open then ends with the process.
    tokio::time::timeout(LINGER, connections.wait()).await.unwrap_or_default();
}

/// The next connection, once there is room for it.
async fn accept(listener: &TcpListener, slots: &Arc<Semaphore>) -> io::Result<(TcpStream, OwnedSemaphorePermit)> {
    let slot = slots.clone().acquire_owned().await.map_err(io::Error::other)?;
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

/// Serves a connection until it ends, says nothing for too long, or the agent stops.
async fn answer_all(stream: TcpStream, routes: Router, stop: CancellationToken) {
    let serving = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(SILENCE)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    tokio::pin!(serving);
    let served = tokio::select! {
        served = &mut serving => served,
        () = stop.cancelled() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "an HTTP connection broke");
    }
}

async fn metrics(State(web): State<Arc<Web>>) -> Response {
    match web.metrics.encode() {
        Ok(text) => {
            let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
            ([(header::CONTENT_TYPE, kind)], text).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn healthz(State(web): State<Arc<Web>>) -> Response {
    answer("healthz", &[web.readiness.alive(Instant::now())])
}

async fn readyz(State(web): State<Arc<Web>>) -> Response {
    answer("readyz", &web.readiness.checks(Instant::now()))
}

fn answer(name: &str, checks: &[Check]) -> Response {
    let good = checks.iter().all(Check::passes);
    let mut text = checks.iter().map(|check| format!("{check}\n")).collect::<String>();
    text.push_str(&format!("{name} check {}\n", if good { "passed" } else { "failed" }));
    let code = if good { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (code, text).into_response()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpStream;
    use tokio::sync::watch;
    use tokio::time::Instant;
    use tokio_util::sync::CancellationToken;

    use super::{CONNECTIONS, Web, bind, serve};
    use crate::http_checks::{Level, Readiness};
    use crate::marks::Marks;
    use crate::metrics::Metrics;
    use crate::plugin::Registration;
    use crate::slices::Published;

    fn web() -> Web {
        let readiness = Readiness {
            standby: watch::channel(None).1,
            registration: watch::channel(Registration::Waiting).1,
            published: watch::channel(Published::default()).1,
            nvml: watch::channel(Level::Good).1,
            owner: watch::channel(Level::Good).1,
            marks: watch::channel(Marks::default()).1,
            state: watch::channel(Level::Good).1,
            cdi: watch::channel(Level::Good).1,
            checkpoints: watch::channel(Level::Good).1,
            heartbeat: watch::channel(Instant::now()).1,
        };
        Web { metrics: Arc::new(Metrics::new()), readiness }
    }

    /// Probes are answered although silent, half-spoken and garbling clients hold every place.
    #[tokio::test(start_paused = true)]
    async fn clients_that_hold_connections_open_do_not_keep_probes_out() {
        let listener = bind("127.0.0.1:0".parse().unwrap()).await.unwrap();
        let (address, stop) = (listener.local_addr().unwrap(), CancellationToken::new());
        let serving = tokio::spawn(serve(listener, web(), stop.clone()));
        let mut held = Vec::new();
        for number in 0..2 * CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all([&b""[..], b"GET /hea", b"\0\xff\r\n\r\n"][number % 3]).await.unwrap();
            held.push(stream);
        }
        let mut probe = TcpStream::connect(address).await.unwrap();
        probe.write_all(b"GET /healthz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut answer = String::new();
        probe.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("[+]agent ok"), "{answer}");
        stop.cancel();
        serving.await.unwrap();
    }
}
