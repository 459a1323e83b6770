//! A client that says once when its server is away, with the address, and once when it is back.
//!
//! What flows through: every request of an actor. Only a connection that cannot be made counts as an outage: a request that
//! is cut, or answered with an error, is the business of who asked.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cluster::call::chain;
use http::Request;
use hyper_util::client::legacy;
use kube::Client;
use kube::client::Body;

/// What one client knows of its server.
#[derive(Debug)]
struct Outage {
    component: String,
    server: String,
    /// Grows with each change: odd while the server is away. A request says something of the times in which it began only:
    /// one that an ending server still answers does not make it come back.
    times: AtomicU64,
}

/// The same client, with its outages told under the name of the component.
pub(crate) fn telling(client: Client, component: &str, server: &str) -> Client {
    let namespace = client.default_namespace().to_owned();
    let (component, server) = (component.to_owned(), server.to_owned());
    let outage = Arc::new(Outage { component, server, times: AtomicU64::new(0) });
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, outage) = (client.clone(), Arc::clone(&outage));
        async move {
            let began = outage.times.load(Ordering::Relaxed);
            let answer = client.send(request).await;
            match &answer {
                Ok(_) => outage.answered(began),
                Err(error) if is_connect(error) => outage.unreachable(began, error),
                Err(_) => {}
            }
            answer
        }
    });
    Client::new(service, namespace)
}

impl Outage {
    fn unreachable(&self, began: u64, error: &kube::Error) {
        if began.is_multiple_of(2) && self.end(began) {
            let (component, server, error) = (&self.component, &self.server, chain(error));
            tracing::warn!(
                component,
                server,
                error,
                "the API server cannot be reached; it is tried again until it answers"
            );
        }
    }

    fn answered(&self, began: u64) {
        if !began.is_multiple_of(2) && self.end(began) {
            tracing::info!(component = self.component, server = self.server, "the API server answers");
        }
    }

    /// Ends these times, unless they are over already.
    fn end(&self, times: u64) -> bool {
        self.times.compare_exchange(times, times + 1, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }
}

/// Whether no connection could be made.
fn is_connect(error: &kube::Error) -> bool {
    let mut cause: Option<&(dyn Error + 'static)> = Some(error);
    while let Some(inner) = cause {
        if inner.downcast_ref::<legacy::Error>().is_some_and(legacy::Error::is_connect) {
            return true;
        }
        cause = inner.source();
    }
    false
}
