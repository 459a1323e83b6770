//! A proxy before a real API server that fails on purpose: the fault layer of this server, and behind it that one.
//!
//! What flows through: a request of a program under test -> the faults -> the same request with the rights of a kubeconfig -> the answer as it comes, so
//! that watches work. Only what a proxy can do is a fault here: a status, a cut connection, a delay.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ::http::{Method, Request, Response, header};
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use kube::Client;
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use super::error::ApiError;
use super::faults::{Answer, Caller, Fault, Faults, Hit};
use super::http::{Body, refusal, value};
use super::write_kubeconfig;

/// The largest body, as in a real API server.
const LARGEST: usize = 3 * 1024 * 1024;
/// Headers that are about one connection or one client, and not about the request.
const NOT_FORWARDED: [header::HeaderName; 5] =
    [header::HOST, header::AUTHORIZATION, header::CONNECTION, header::CONTENT_LENGTH, header::TRANSFER_ENCODING];

/// Serves until cancelled, on a free port of the loopback interface; `ready` is told the address, and a kubeconfig for it lies in `root` by then.
///
/// # Errors
/// When there is no port, or the kubeconfig cannot be written.
pub async fn run(
    client: Client,
    root: &Path,
    ready: impl FnOnce(SocketAddr) -> io::Result<()>,
    cancel: CancellationToken,
) -> io::Result<()> {
    let listener = TcpListener::bind(SocketAddr::from(([127, 0, 0, 1], 0))).await?;
    let address = listener.local_addr()?;
    write_kubeconfig(&root.join("kubeconfig"), &format!("http://{address}"), None)?;
    ready(address)?;
    let proxy = Arc::new(Proxy { client, faults: Faults::default() });
    let _: Option<()> = cancel.run_until_cancelled(accept(&listener, &proxy)).await;
    Ok(())
}

async fn accept(listener: &TcpListener, proxy: &Arc<Proxy>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => drop(tokio::spawn(serve(Arc::clone(proxy), stream))),
            // Out of file descriptors, most likely: others may close soon.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(proxy: Arc<Proxy>, stream: TcpStream) {
    let answer = hyper::service::service_fn(move |request| {
        let proxy = Arc::clone(&proxy);
        async move { proxy.answer(request).await }
    });
    if let Err(error) = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), answer).await
    {
        tracing::debug!(%error, "a connection ended early");
    }
}

struct Proxy {
    client: Client,
    faults: Faults,
}

impl Proxy {
    /// An error closes the connection without an answer.
    async fn answer(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        if request.uri().path() == "/sim/faults" {
            return Ok(self.control(request).await.unwrap_or_else(|error| refusal(&error)));
        }
        match self.take(&request) {
            None => self.forward(request).await,
            Some(hit) => self.fail(request, hit).await,
        }
    }

    fn take(&self, request: &Request<Incoming>) -> Option<Hit> {
        let agent = request.headers().get(header::USER_AGENT).and_then(|agent| agent.to_str().ok()).unwrap_or_default();
        let watch = request.uri().query().is_some_and(|query| query.split('&').any(is_watch));
        let (method, path) = (request.method().as_str(), request.uri().path());
        self.faults.take(Caller { method, path, agent, watch })
    }

    async fn fail(&self, request: Request<Incoming>, Hit { answer, lifted, .. }: Hit) -> io::Result<Response<Body>> {
        tracing::info!(method = %request.method(), path = request.uri().path(), ?answer, "a request meets a fault");
        if let Some(delay) = answer.delay_ms {
            let wait = tokio::time::sleep(Duration::from_millis(delay));
            let _: Option<()> = lifted.run_until_cancelled(wait).await;
        }
        match answer.status {
            Some(code) if !answer.cut => Ok(refusal(&ApiError::fault(code, answer.retry_after))),
            None if !answer.cut => self.forward(request).await,
            _ => Err(io::Error::new(io::ErrorKind::ConnectionReset, "cut on purpose")),
        }
    }

    async fn forward(&self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let (mut parts, body) = request.into_parts();
        NOT_FORWARDED.iter().for_each(|name| drop(parts.headers.remove(name)));
        let body = Limited::new(body, LARGEST).collect().await.map_err(io::Error::other)?.to_bytes();
        let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        let response = self.client.send(request).await.map_err(io::Error::other)?;
        let (mut parts, body) = response.into_parts();
        NOT_FORWARDED.iter().for_each(|name| drop(parts.headers.remove(name)));
        Ok(Response::from_parts(parts, body.map_err(io::Error::other).boxed_unsync()))
    }

    /// Sets, lists and clears faults, as the fault layer of the small cluster does.
    async fn control(&self, request: Request<Incoming>) -> Result<Response<Body>, ApiError> {
        match *request.method() {
            Method::GET => Ok(value(200, &json!(self.faults.list()))),
            Method::DELETE => {
                self.faults.clear();
                Ok(value(200, &json!({})))
            }
            Method::POST => {
                let body = Limited::new(request.into_body(), LARGEST).collect().await;
                let body =
                    body.map_err(|error| ApiError::bad_request(format!("the body could not be read: {error}")))?;
                let fault: Fault = serde_json::from_slice(&body.to_bytes())
                    .map_err(|error| ApiError::bad_request(format!("this is no fault: {error}")))?;
                possible(&fault)?;
                Ok(value(201, &json!({"id": self.faults.add(fault, 0)})))
            }
            _ => Err(ApiError::method_not_allowed()),
        }
    }
}

/// A parameter that asks for a watch.
fn is_watch(parameter: &str) -> bool {
    matches!(parameter, "watch" | "watch=true" | "watch=1")
}

/// What needs the state behind an answer, or an open watch, no proxy can do.
fn possible(fault: &Fault) -> Result<(), ApiError> {
    let Answer { stale, applied, after_events, .. } = fault.answer;
    if stale || applied || after_events.is_some() || fault.matching.open {
        return Err(ApiError::bad_request("a proxy knows status, cut and delayMs, of requests to come".to_owned()));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::Namespace;
    use kube::Api;
    use kube::api::ListParams;

    use super::*;
    use crate::server::{Options, Server};
    use crate::up;

    async fn post(address: SocketAddr, fault: &str) -> u16 {
        use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
        let mut stream = TcpStream::connect(address).await.unwrap();
        let length = fault.len();
        let text = format!(
            "POST /sim/faults HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{fault}"
        );
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer.split(' ').nth(1).unwrap().parse().unwrap()
    }

    #[tokio::test]
    async fn requests_go_through_and_meet_faults() {
        let (behind, before) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let server = Server::start(Options::new(behind.path())).await.unwrap();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let (client, root) = (up::client(&server.kubeconfig, "proxy").await.unwrap(), before.path().to_owned());
        let cancel = CancellationToken::new();
        let token = cancel.clone();
        let ready = |address| sender.send(address).map_err(|_| io::Error::other("nobody waits"));
        let running = tokio::spawn(async move { run(client, &root, ready, token).await });
        let address = receiver.await.unwrap();

        let through = up::client(&before.path().join("kubeconfig"), "gpu-driver").await.unwrap();
        let namespaces: Api<Namespace> = Api::all(through);
        assert!(!namespaces.list(&ListParams::default()).await.unwrap().items.is_empty());
        let fault =
            r#"{"match": {"userAgent": "gpu-driver*", "path": "/api/v1/*"}, "times": 1, "answer": {"status": 500}}"#;
        assert_eq!(post(address, fault).await, 201);
        let error = namespaces.list(&ListParams::default()).await.unwrap_err();
        assert!(matches!(error, kube::Error::Api(status) if status.code == 500));
        assert!(namespaces.list(&ListParams::default()).await.is_ok(), "it is used up");
        assert_eq!(post(address, r#"{"answer": {"stale": true}}"#).await, 400);
        cancel.cancel();
        running.await.unwrap().unwrap();
    }
}
