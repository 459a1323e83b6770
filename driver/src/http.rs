//! `/metrics`, `/healthz` and `/readyz`.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::http_checks::{Check, Readiness};
use crate::metrics::Metrics;

/// How long an open connection may keep the agent from ending.
const LINGER: Duration = Duration::from_secs(2);

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
        source: std::io::Error,
    },
    /// The server broke.
    #[error("the HTTP server ended: {0}")]
    Serve(#[source] std::io::Error),
}

/// Takes the address. With port 0 the system chooses the port.
///
/// # Errors
/// When the address cannot be had.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, HttpError> {
    TcpListener::bind(address).await.map_err(|source| HttpError::Bind { address, source })
}

/// Serves until `stop`.
///
/// # Errors
/// When the server breaks.
pub async fn serve(listener: TcpListener, web: Web, stop: CancellationToken) -> Result<(), HttpError> {
    let routes = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .with_state(Arc::new(web));
    let serving = axum::serve(listener, routes).with_graceful_shutdown(stop.clone().cancelled_owned());
    let cut_off = async {
        stop.cancelled().await;
        tokio::time::sleep(LINGER).await;
    };
    tokio::select! {
        served = serving.into_future() => served.map_err(HttpError::Serve),
        () = cut_off => Ok(()),
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
