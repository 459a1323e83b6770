//! Being kubelet's plugin: two unix sockets, registration, the DRA service, the health service.
//!
//! ```text
//!  kubelet ─► plugins_registry/<driver>-reg.sock ─► accept ─► Registrar
//!  kubelet ─► plugins/<driver>/dra.sock ──────────► accept ─► DraService ─► claims
//!                                                        └──► HealthService ◄─ reports (watch channel)
//! ```
//!
//! Started in that order: the service answers before kubelet hears of it. Stopped the other way round: kubelet is told by the
//! removal of the registration socket, calls that run are finished, then the service goes.

pub mod accept;
pub mod dra;
pub mod health;
pub mod registration;
pub mod socket;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use kubelet_api::dra as dra_api;
use kubelet_api::health as health_api;
use kubelet_api::registration::v1::registration_server::RegistrationServer;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::transport::Server;
use tonic::transport::server::Router;

use crate::claims::Claims;
use crate::metrics::PluginMetrics;
use accept::Connection;
use dra::DraService;
use health::{HealthService, Report};
use registration::Registrar;
pub use registration::Registration;

/// How long calls that run may take to end. Kubelet gives a call 45 s; a pod gets 30 s to end by default.
const DRAIN: Duration = Duration::from_secs(25);
/// Connections that were accepted and not yet taken by the server.
const BACKLOG: usize = 16;

/// Where kubelet looks for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The registration socket.
    pub registration: PathBuf,
    /// The service socket.
    pub service: PathBuf,
}

impl Paths {
    /// Of this driver under kubelet's root. Both must be the same path on the host: kubelet uses the service's literally.
    #[must_use]
    pub fn new(kubelet_root: &Path, driver: &str) -> Self {
        Self {
            registration: kubelet_root.join("plugins_registry").join(format!("{driver}-reg.sock")),
            service: kubelet_root.join("plugins").join(driver).join("dra.sock"),
        }
    }
}

/// What the plugin serves.
pub struct Plugin {
    /// The DRA driver.
    pub driver: String,
    /// The sockets.
    pub paths: Paths,
    /// The claims.
    pub claims: Claims,
    /// The health of the devices.
    pub reports: watch::Receiver<Arc<Report>>,
    /// What kubelet said about our registration.
    pub registration: watch::Sender<Registration>,
    /// Counters.
    pub metrics: PluginMetrics,
}

/// A server of a socket of ours broke, which it does not do for anything that a client sends.
#[derive(Debug, thiserror::Error)]
#[error("the server of {} ended: {source}", path.display())]
pub struct ServeError {
    path: PathBuf,
    source: tonic::transport::Error,
}

impl Plugin {
    /// Serves kubelet until `stop`, then ends in order.
    ///
    /// # Errors
    /// When one of the servers breaks.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServeError> {
        let service_stop = CancellationToken::new();
        let dra = DraService::new(self.claims.clone());
        let health = HealthService::new(self.reports, self.metrics.health_streams.clone(), service_stop.clone());
        let service = Server::builder()
            .add_service(dra_api::v1::dra_plugin_server::DraPluginServer::new(dra.clone()))
            .add_service(dra_api::v1beta1::dra_plugin_server::DraPluginServer::new(dra))
            .add_service(health_api::v1::dra_resource_health_server::DraResourceHealthServer::new(health.clone()))
            .add_service(health_api::v1alpha1::dra_resource_health_server::DraResourceHealthServer::new(health));
        let registrar = Registrar::new(&self.driver, &self.paths.service, self.registration, self.metrics.clone());
        let registration = Server::builder().add_service(RegistrationServer::new(registrar));

        let (service_ready, service_is_ready) = oneshot::channel();
        let (registration_ready, _) = oneshot::channel();
        let restored = self.metrics.sockets_restored;
        let serve_claims = serve(service, self.paths.service, service_ready, restored.clone(), service_stop.clone());
        let introduce = async {
            // The service ended, or was told to, before it was ready: then there is nothing to introduce.
            let served = tokio::select! {
                ready = service_is_ready => ready.is_ok(),
                () = stop.cancelled() => false,
            };
            if served {
                serve(registration, self.paths.registration, registration_ready, restored, stop.clone()).await?;
            }
            stop.cancelled().await;
            self.claims.drain().await;
            service_stop.cancel();
            Ok(())
        };
        let ((), ()) = tokio::try_join!(serve_claims, introduce)?;
        Ok(())
    }
}

/// Serves a socket until `stop`, and then for as long as its calls run, but no longer than [`DRAIN`].
async fn serve(
    router: Router,
    path: PathBuf,
    ready: oneshot::Sender<()>,
    restored: prometheus_client::metrics::counter::Counter,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let (sender, connections) = mpsc::channel::<std::io::Result<Connection>>(BACKLOG);
    let accepting = accept::run(path.clone(), sender, ready, restored, stop.clone());
    let serving = router.serve_with_incoming_shutdown(ReceiverStream::new(connections), stop.clone().cancelled_owned());
    let cut_off = async {
        stop.cancelled().await;
        tokio::time::sleep(DRAIN).await;
    };
    tokio::select! {
        ((), served) = async { tokio::join!(accepting, serving) } => {
            served.map_err(|source| ServeError { path, source })
        }
        () = cut_off => {
            tracing::warn!(path = %path.display(), "calls of kubelet still run; ending anyway");
            Ok(())
        }
    }
}
