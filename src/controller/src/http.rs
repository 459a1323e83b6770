//! `/metrics`, `/healthz` and `/readyz`.

use std::io::Write;
use std::net::SocketAddr;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::health::Health;
use crate::metrics::Metrics;

/// Why there is no HTTP server.
#[derive(Debug, thiserror::Error)]
pub enum HttpError {
    /// The address is taken, or not ours.
    #[error("cannot listen on {address}: {source}; choose another with --listen")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: std::io::Error,
    },
    /// It ended by itself.
    #[error("the HTTP server ended: {0}")]
    Serve(#[source] std::io::Error),
}

/// What the answers are made of.
#[derive(Clone, Debug)]
pub struct Shared {
    /// Whether we are alive and ready.
    pub health: Health,
    /// What was counted.
    pub metrics: Metrics,
}

/// Takes the address, and says on `out` which one it became: `listening on 127.0.0.1:9401`. That nobody reads it is no reason not to work.
///
/// # Errors
/// When the address cannot be had.
pub async fn bind(address: SocketAddr, out: &mut impl Write) -> Result<TcpListener, HttpError> {
    let wrong = |source| HttpError::Bind { address, source };
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let bound = listener.local_addr().map_err(wrong)?;
    if let Err(error) = writeln!(out, "listening on {bound}").and_then(|()| out.flush()) {
        tracing::info!(%error, address = %bound, "stdout is closed; listening");
    }
    Ok(listener)
}

/// Answers until told to stop.
///
/// # Errors
/// When the server fails.
pub async fn serve(listener: TcpListener, shared: Shared, stop: CancellationToken) -> Result<(), HttpError> {
    let served = axum::serve(listener, router(shared)).with_graceful_shutdown(stop.cancelled_owned());
    served.await.map_err(HttpError::Serve)
}

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(shared)
}

async fn metrics(State(shared): State<Shared>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    ([(header::CONTENT_TYPE, kind)], shared.metrics.text())
}

async fn healthz(State(shared): State<Shared>) -> impl IntoResponse {
    if shared.health.is_alive() {
        (StatusCode::OK, "ok\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "the deciding task has not come by for a minute\n")
    }
}

async fn readyz(State(shared): State<Shared>) -> impl IntoResponse {
    let (ready, text) = shared.health.readiness();
    (if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE }, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use tower::ServiceExt as _;

    async fn ask(shared: &Shared, path: &str) -> StatusCode {
        let request = http::Request::get(path).body(axum::body::Body::empty()).unwrap();
        router(shared.clone()).oneshot(request).await.unwrap().status()
    }

    #[tokio::test]
    async fn each_path_answers() {
        let shared = Shared { health: Health::default(), metrics: Metrics::default() };
        assert_eq!(ask(&shared, "/metrics").await, StatusCode::OK);
        assert_eq!(ask(&shared, "/healthz").await, StatusCode::OK);
        assert_eq!(ask(&shared, "/readyz").await, StatusCode::SERVICE_UNAVAILABLE);
        assert_eq!(ask(&shared, "/other").await, StatusCode::NOT_FOUND);
    }

    #[tokio::test]
    async fn the_address_is_announced() {
        let mut out = Vec::new();
        let listener = bind("127.0.0.1:0".parse().unwrap(), &mut out).await.unwrap();
        let said = String::from_utf8(out).unwrap();
        assert_eq!(said, format!("listening on {}\n", listener.local_addr().unwrap()));
        let taken = bind(listener.local_addr().unwrap(), &mut Vec::new()).await.unwrap_err().to_string();
        assert!(taken.contains("--listen"), "{taken}");
    }
}
