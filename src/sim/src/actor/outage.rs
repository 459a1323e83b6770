//! A client that says once when its server is away, with the address, and once when it is back.
//!
//! What flows through: every request of an actor. Only a connection that cannot be made counts as an outage: a request that
//! is cut, or answered with an error, is the business of who asked.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

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
    away: AtomicBool,
}

/// The same client, with its outages told under the name of the component.
pub(crate) fn telling(client: Client, component: &str, server: &str) -> Client {
    let namespace = client.default_namespace().to_owned();
    let outage =
        Arc::new(Outage { component: component.to_owned(), server: server.to_owned(), away: AtomicBool::new(false) });
    let service = tower::service_fn(move |request: Request<Body>| {
        let (client, outage) = (client.clone(), Arc::clone(&outage));
        async move {
            let answer = client.send(request).await;
            match &answer {
                Ok(_) => outage.answered(),
                Err(error) if is_connect(error) => outage.unreachable(error),
                Err(_) => {}
            }
            answer
        }
    });
    Client::new(service, namespace)
}

impl Outage {
    fn unreachable(&self, error: &kube::Error) {
        if !self.away.swap(true, Ordering::Relaxed) {
            let (component, server, error) = (&self.component, &self.server, chain(error));
            tracing::warn!(
                component,
                server,
                error,
                "the API server cannot be reached; it is tried again until it answers"
            );
        }
    }

    fn answered(&self) {
        if self.away.swap(false, Ordering::Relaxed) {
            tracing::info!(component = self.component, server = self.server, "the API server answers");
        }
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
