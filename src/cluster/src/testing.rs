//! A server in the process for this crate's tests: a closure that answers requests.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{Request, Response};
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// An answer with a JSON body; of a status from 400 up, the body becomes a `Status` when it is not one.
pub(crate) fn answer(code: u16, body: &Value) -> Response<Body> {
    let body = if code >= 400 && body.get("kind").is_none() {
        serde_json::json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "Test"})
    } else {
        body.clone()
    };
    Response::builder().status(code).body(Body::from(body.to_string().into_bytes())).unwrap()
}

/// A client whose calls go to `reply`, with the call's number (from 0).
pub(crate) fn fake_client<F>(reply: F) -> Client
where
    F: Fn(Request<Body>, usize) -> Response<Body> + Send + Sync + 'static,
{
    let reply = Arc::new(reply);
    let calls = Arc::new(AtomicUsize::new(0));
    let service = tower::service_fn(move |request: Request<Body>| {
        let (reply, calls) = (reply.clone(), calls.clone());
        async move { Ok::<_, Infallible>(reply(request, calls.fetch_add(1, Ordering::SeqCst))) }
    });
    Client::new(service, "default")
}

/// The JSON body of a request, to be awaited outside of the closure that answers it.
pub(crate) async fn body_of(request: Request<Body>) -> Value {
    let bytes = request.into_body().collect_bytes().await.unwrap();
    serde_json::from_slice(&bytes).unwrap_or_default()
}
