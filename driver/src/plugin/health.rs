//! The health service (KEP-4680), v1 and v1alpha1: what kubelet writes into `allocatedResourcesStatus` of pods.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt, stream};
use jiff::Timestamp;
use kubelet_api::health::{MAX_MESSAGE, v1, v1alpha1};
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};

use crate::health::HealthState;

/// Kubelet takes a device's health for unknown after this long without news. A third of it is the time between two messages.
const TIMEOUT: Duration = Duration::from_secs(30);
const HEARTBEAT: Duration = Duration::from_secs(10);

/// One device in a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceReport {
    /// The device's name.
    pub device: String,
    /// How it is.
    pub state: HealthState,
    /// Why, for people.
    pub message: String,
    /// Since when this is so.
    pub updated: Timestamp,
}

/// All devices of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// The pool.
    pub pool: String,
    /// Its devices.
    pub devices: Vec<DeviceReport>,
}

/// Streams reports to kubelet: the whole list at once, at every change, and every 10 s without one, since kubelet forgets otherwise.
#[derive(Clone)]
pub struct HealthService {
    reports: watch::Receiver<Arc<Report>>,
    open: Gauge,
    stop: CancellationToken,
}

/// A stream of the answers of one version.
pub type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

impl HealthService {
    /// A service over these reports; its streams end with `stop`.
    #[must_use]
    pub fn new(reports: watch::Receiver<Arc<Report>>, open: Gauge, stop: CancellationToken) -> Self {
        Self { reports, open, stop }
    }

    fn stream<T: From<v1::NodeWatchResourcesResponse> + 'static>(&self) -> Answers<T> {
        let watcher = Watcher {
            reports: self.reports.clone(),
            stop: self.stop.clone(),
            first: true,
            _open: OpenStream::new(self.open.clone()),
        };
        stream::unfold(watcher, Watcher::next).map(|answer| Ok(answer.into())).boxed()
    }
}

struct Watcher {
    reports: watch::Receiver<Arc<Report>>,
    stop: CancellationToken,
    first: bool,
    _open: OpenStream,
}

impl Watcher {
    async fn next(mut self) -> Option<(v1::NodeWatchResourcesResponse, Self)> {
        if !std::mem::take(&mut self.first) {
            tokio::select! {
                () = self.stop.cancelled() => return None,
                changed = self.reports.changed() => changed.ok()?,
                () = tokio::time::sleep(HEARTBEAT) => {}
            }
        }
        let report = self.reports.borrow_and_update().clone();
        Some((answer(&report), self))
    }
}

/// Counts a stream for as long as it lives.
struct OpenStream(Gauge);

impl OpenStream {
    fn new(gauge: Gauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.dec();
    }
}

fn answer(report: &Report) -> v1::NodeWatchResourcesResponse {
    let device = |device: &DeviceReport| v1::DeviceHealth {
        device: Some(v1::DeviceIdentifier { pool_name: report.pool.clone(), device_name: device.device.clone() }),
        health: health(device.state).into(),
        last_updated_time: device.updated.as_second(),
        health_check_timeout_seconds: TIMEOUT.as_secs().cast_signed(),
        message: device.message.chars().take(MAX_MESSAGE).collect(),
    };
    v1::NodeWatchResourcesResponse { devices: report.devices.iter().map(device).collect() }
}

fn health(state: HealthState) -> v1::HealthStatus {
    match state {
        HealthState::Unknown => v1::HealthStatus::Unknown,
        HealthState::Healthy => v1::HealthStatus::Healthy,
        HealthState::Unhealthy => v1::HealthStatus::Unhealthy,
    }
}

#[tonic::async_trait]
impl v1::dra_resource_health_server::DraResourceHealth for HealthService {
    type NodeWatchResourcesStream = Answers<v1::NodeWatchResourcesResponse>;

    async fn node_watch_resources(
        &self,
        _: Request<v1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(Response::new(self.stream()))
    }
}

#[tonic::async_trait]
impl v1alpha1::dra_resource_health_server::DraResourceHealth for HealthService {
    type NodeWatchResourcesStream = Answers<v1alpha1::NodeWatchResourcesResponse>;

    async fn node_watch_resources(
        &self,
        _: Request<v1alpha1::NodeWatchResourcesRequest>,
    ) -> Result<Response<Self::NodeWatchResourcesStream>, Status> {
        Ok(Response::new(self.stream()))
    }
}
