//! Being kubelet's plugin: two unix sockets, registration, the DRA service, the health service.
//!
//! ```text
//!  kubelet ─► plugins_registry/<driver>-<instance>-reg.sock ─► accept ─► Registrar
//!  kubelet ─► plugins/<driver>/dra-<instance>.sock ──────────► accept ─► DraService ─► claims (once they are read)
//!                                                                   └──► HealthService ◄─ reports (watch channel)
//! ```
//!
//! Each process is an instance with sockets of its own: kubelet calls the newest one, so a new agent can be registered before the old one goes.
//! Started in that order: the service answers before kubelet hears of it. Stopped the other way round: kubelet is told by the
//! removal of the registration socket, calls that run are finished, then the service goes.

pub mod accept;
pub mod dra;
pub mod health;
pub mod leftovers;
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
use accept::{Connection, Socket};
use dra::DraService;
use health::{HealthService, Report};
use registration::Registrar;
pub use registration::Registration;

/// How long calls that run may take to end. Kubelet gives a call 45 s; a pod gets 30 s to end by default.
const DRAIN: Duration = Duration::from_secs(25);
/// Connections that were accepted and not yet taken by the server.
const BACKLOG: usize = 16;

/// The longest path of a unix socket, in bytes.
const MAX_PATH: usize = 107;

/// Where kubelet looks for us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The registration socket.
    pub registration: PathBuf,
    /// The service socket.
    pub service: PathBuf,
}

impl Paths {
    /// Of an instance of this driver under kubelet's root. Both must be the same path on the host: kubelet uses the service's literally.
    #[must_use]
    pub fn new(kubelet_root: &Path, driver: &str, instance: Option<&str>) -> Self {
        let of = instance.map(|instance| format!("-{instance}")).unwrap_or_default();
        let registry = kubelet_root.join("plugins_registry");
        let long = registry.join(format!("{driver}{of}-reg.sock"));
        let registration = match instance {
            // Kubelet asks for the driver's name; the file's may be any.
            Some(instance) if long.as_os_str().len() > MAX_PATH => registry.join(format!("{instance}-reg.sock")),
            _ => long,
        };
        Self { registration, service: kubelet_root.join("plugins").join(driver).join(format!("dra{of}.sock")) }
    }

    /// The instance that a service socket's file name stands for; `None` for other files.
    fn instance(name: &Path) -> Option<Option<String>> {
        match name.to_str()?.strip_prefix("dra")?.strip_suffix(".sock")? {
            "" => Some(None),
            instance => Some(Some(instance.strip_prefix('-')?.to_owned())),
        }
    }
}

/// What the plugin serves.
pub struct Plugin {
    /// The DRA driver.
    pub driver: String,
    /// The sockets.
    pub paths: Paths,
    /// The claims, once they are read: calls wait for them.
    pub claims: watch::Receiver<Option<Claims>>,
    /// The health of the devices.
    pub reports: watch::Receiver<Arc<Report>>,
    /// What kubelet said about our registration.
    pub registration: watch::Sender<Registration>,
    /// Told when kubelet connects to the service.
    pub reached: watch::Sender<bool>,
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
        let restored = self.metrics.sockets_restored;
        let socket = Socket { path: self.paths.service, restored: restored.clone(), reached: self.reached };
        let serve_claims = serve(service, socket, service_ready, service_stop.clone());
        let introduce = async {
            // The service ended, or was told to, before it was ready: then there is nothing to introduce.
            let served = tokio::select! {
                ready = service_is_ready => ready.is_ok(),
                () = stop.cancelled() => false,
            };
            if served {
                let socket = Socket { path: self.paths.registration, restored, reached: watch::Sender::new(false) };
                serve(registration, socket, oneshot::channel().0, stop.clone()).await?;
            }
            stop.cancelled().await;
            let claims = self.claims.borrow().clone();
            if let Some(claims) = claims {
                claims.drain().await;
            }
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
    socket: Socket,
    ready: oneshot::Sender<()>,
    stop: CancellationToken,
) -> Result<(), ServeError> {
    let path = socket.path.clone();
    let (sender, connections) = mpsc::channel::<std::io::Result<Connection>>(BACKLOG);
    let accepting = accept::run(socket, sender, ready, stop.clone());
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
