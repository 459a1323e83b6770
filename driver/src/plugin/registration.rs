//! The registration service: who we are, and what kubelet made of it.

use std::path::Path;

use kubelet_api::registration::PLUGIN_TYPE;
use kubelet_api::registration::v1::registration_server::Registration as Service;
use kubelet_api::registration::v1::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use kubelet_api::{dra, health};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::metrics::PluginMetrics;

/// What kubelet last said about our registration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Registration {
    /// Nothing yet.
    #[default]
    Waiting,
    /// It is registered.
    Registered,
    /// It is not, and why.
    Refused(String),
}

/// Answers kubelet's plugin manager. It calls again after each of its restarts, and gives up after a second: the answer is
/// made once and waits for nothing.
#[derive(Debug)]
pub struct Registrar {
    info: PluginInfo,
    state: watch::Sender<Registration>,
    metrics: PluginMetrics,
}

impl Registrar {
    /// Introduces the driver that serves this socket.
    #[must_use]
    pub fn new(driver: &str, endpoint: &Path, state: watch::Sender<Registration>, metrics: PluginMetrics) -> Self {
        // Kubelet takes the first DRA service that it knows, so the newest stands first.
        let versions = [dra::V1_SERVICE, dra::V1BETA1_SERVICE, health::V1_SERVICE, health::V1ALPHA1_SERVICE];
        let info = PluginInfo {
            r#type: PLUGIN_TYPE.to_owned(),
            name: driver.to_owned(),
            endpoint: endpoint.display().to_string(),
            supported_versions: versions.map(ToOwned::to_owned).to_vec(),
        };
        Self { info, state, metrics }
    }
}

#[tonic::async_trait]
impl Service for Registrar {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let status = request.into_inner();
        let (state, outcome) = if status.plugin_registered {
            tracing::info!(driver = %self.info.name, "registered with kubelet");
            (Registration::Registered, "registered")
        } else {
            tracing::error!(driver = %self.info.name, error = %status.error, "kubelet did not register the driver, and will try again");
            (Registration::Refused(status.error), "refused")
        };
        self.metrics.registered.set(i64::from(state == Registration::Registered));
        self.metrics.registrations.with(&[("outcome", outcome)]).inc();
        self.state.send_replace(state);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
