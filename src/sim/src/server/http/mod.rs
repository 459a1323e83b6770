//! HTTP on the outside: connections, requests, answers. A request is read whole, meets the fault layer, and is handed to
//! discovery or to the objects.

pub(crate) mod accept;
mod objects;
pub(crate) mod render;
mod system;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, LengthLimitError, Limited, StreamBody};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::api::Cluster;
use super::error::ApiError;
use super::faults::{Caller, Faults, Hit};
use super::request::Parameters;

/// The largest body, as in a real API server.
const LARGEST: usize = 3 * 1024 * 1024;

/// The body of an answer; an error in it cuts the connection.
pub(crate) type Body = UnsyncBoxBody<Bytes, io::Error>;

/// What all connections share.
pub(crate) struct Service {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) cancel: CancellationToken,
}

/// A request, read whole.
pub(crate) struct Call {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) parameters: Parameters,
    pub(crate) accept: String,
    pub(crate) content_type: String,
    pub(crate) agent: String,
    pub(crate) body: Bytes,
}

impl Call {
    pub(crate) fn watch(&self) -> bool {
        self.method == Method::GET && self.parameters.flag("watch")
    }

    pub(crate) fn caller(&self) -> Caller<'_> {
        Caller { method: self.method.as_str(), path: &self.path, agent: &self.agent, watch: self.watch() }
    }
}

/// Serves one connection until the client leaves or the server stops.
pub(crate) async fn serve(service: Arc<Service>, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) {
    let cancel = service.cancel.clone();
    let answer = hyper::service::service_fn(move |request| {
        let service = service.clone();
        async move { service.answer(request).await }
    });
    let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer);
    tokio::select! {
        ended = connection => if let Err(error) = ended {
            tracing::debug!(%error, "a connection ended early");
        },
        () = cancel.cancelled() => {}
    }
}

impl Service {
    /// Answers one request; an error closes the connection without an answer.
    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let call = match read(request).await {
            Ok(call) => call,
            Err(error) => return Ok(refusal(&error)),
        };
        let response = if call.path.starts_with("/sim/") {
            self.control(&call)
        } else {
            match self.faults.take(call.caller()) {
                None => self.dispatch(&call, None),
                Some(hit) => self.answer_with_fault(&call, hit).await?,
            }
        };
        tracing::debug!(method = %call.method, path = call.path, agent = call.agent, status = %response.status(), "answered");
        Ok(response)
    }

    async fn answer_with_fault(&self, call: &Call, hit: Hit) -> io::Result<Response<Body>> {
        tracing::info!(method = %call.method, path = call.path, answer = ?hit.answer, "a request meets a fault");
        if let Some(delay) = hit.answer.delay_ms {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_millis(delay)) => {}
                () = hit.lifted.cancelled() => {}
                () = self.cancel.cancelled() => {}
            }
        }
        let answer = hit.answer.clone();
        // A watch carries its own faults: in the stream, where a real server has them too.
        let in_stream = call.watch() && (answer.after_events.is_some() || answer.status == Some(410));
        if in_stream || !(answer.cut || answer.status.is_some()) {
            return Ok(self.dispatch(call, Some(hit)));
        }
        if answer.applied {
            self.dispatch(call, None);
        }
        match answer.status {
            Some(code) if !answer.cut => Ok(refusal(&ApiError::fault(code, answer.retry_after))),
            _ => Err(io::Error::new(io::ErrorKind::ConnectionReset, "cut on purpose")),
        }
    }

    fn dispatch(&self, call: &Call, hit: Option<Hit>) -> Response<Body> {
        let answered = match call.path.as_str() {
            path if path == "/api" || path == "/apis" || path.starts_with("/api/") || path.starts_with("/apis/") => {
                self.api(call, hit)
            }
            _ => self.system(call),
        };
        answered.unwrap_or_else(|error| refusal(&error))
    }
}

async fn read(request: Request<Incoming>) -> Result<Call, ApiError> {
    let (parts, body) = request.into_parts();
    let header = |name: header::HeaderName| {
        let values: Vec<&str> = parts.headers.get_all(name).iter().filter_map(|value| value.to_str().ok()).collect();
        values.join(",")
    };
    let body = Limited::new(body, LARGEST).collect().await.map_err(|error| match error.is::<LengthLimitError>() {
        true => ApiError::too_large(LARGEST),
        false => ApiError::bad_request(format!("the body could not be read: {error}")),
    })?;
    Ok(Call {
        path: parts.uri.path().to_owned(),
        parameters: Parameters::parse(parts.uri.query().unwrap_or_default()),
        accept: header(header::ACCEPT),
        content_type: header(header::CONTENT_TYPE),
        agent: header(header::USER_AGENT),
        method: parts.method,
        body: body.to_bytes(),
    })
}

/// An answer in JSON.
pub(crate) fn json(code: u16, bytes: Bytes) -> Response<Body> {
    typed(code, "application/json", bytes)
}

/// An answer that is one value.
pub(crate) fn value(code: u16, value: &Value) -> Response<Body> {
    json(code, render::bytes(value))
}

/// An answer of a content type.
pub(crate) fn typed(code: u16, content_type: &'static str, bytes: Bytes) -> Response<Body> {
    let body = Full::new(bytes).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    response
}

/// The answer to a refused request.
pub(crate) fn refusal(error: &ApiError) -> Response<Body> {
    let mut response = value(error.code, &error.status());
    if let Some(seconds) = error.retry_after {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// An answer whose lines come as they happen.
pub(crate) fn stream(lines: tokio::sync::mpsc::Receiver<super::watch::Line>) -> Response<Body> {
    let mut response = Response::new(StreamBody::new(ReceiverStream::new(lines)).boxed_unsync());
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}
