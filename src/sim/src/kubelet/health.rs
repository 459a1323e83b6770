//! What drivers say of their devices (KEP-4680): the newest report of each device, until it is too old to be believed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::BoxStream;
use kubelet_api::health::v1::dra_resource_health_client::DraResourceHealthClient;
use kubelet_api::health::v1alpha1::dra_resource_health_client::DraResourceHealthClient as DraResourceHealthClientAlpha;
use kubelet_api::health::{v1, v1alpha1};
use parking_lot::Mutex;
use taints::object::DeviceId;
use tokio::sync::watch;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::Channel;

use super::registration::{Driver, HealthVersion};

/// How long a report holds when the driver does not say.
const HOLDS: Duration = Duration::from_secs(30);
/// How long to wait before asking again after a stream ended.
const REOPEN: Duration = Duration::from_secs(5);

/// A device's health, in the words of the pod's status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Health {
    Healthy,
    Unhealthy,
    Unknown,
}

impl Health {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Healthy => "Healthy",
            Self::Unhealthy => "Unhealthy",
            Self::Unknown => "Unknown",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Report {
    health: Health,
    message: String,
    until: Instant,
}

/// One device of a message of either version.
#[derive(Clone, Debug, PartialEq, Eq)]
struct News {
    pool: String,
    device: String,
    health: Health,
    holds: Duration,
    message: String,
}

/// The reports of all drivers, and a counter that moves with each change.
pub(super) struct Reports {
    by_device: Mutex<BTreeMap<DeviceId, Report>>,
    changed: watch::Sender<u64>,
}

impl Default for Reports {
    fn default() -> Self {
        Self { by_device: Mutex::default(), changed: watch::Sender::new(0) }
    }
}

impl Reports {
    /// Moves whenever the health of any device is another one.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The health of a device and the driver's words about it.
    pub(super) fn of(&self, id: &DeviceId) -> (Health, String) {
        let reports = self.by_device.lock();
        reports.get(id).map_or((Health::Unknown, String::new()), |report| (report.health, report.message.clone()))
    }

    /// A message lists what the driver has news of; a device that it leaves out keeps its report.
    fn take(&self, driver: &str, news: Vec<News>, now: Instant) {
        self.update(|reports| {
            let mut changed = false;
            for item in news {
                let id = DeviceId { driver: driver.to_owned(), pool: item.pool, device: item.device };
                let report = Report { health: item.health, message: item.message, until: now + item.holds };
                let old = reports.insert(id, report.clone());
                changed |= old.is_none_or(|old| (old.health, old.message) != (report.health, report.message));
            }
            changed
        });
    }

    /// The driver's stream ended: nothing is known of its devices.
    pub(super) fn clear(&self, driver: &str) {
        self.update(|reports| {
            let before = reports.len();
            reports.retain(|id, _| id.driver != driver);
            reports.len() != before
        });
    }

    /// Forgets reports of the driver that are too old; says when the next one will be.
    fn expire(&self, driver: &str, now: Instant) -> Option<Instant> {
        self.update(|reports| {
            let before = reports.len();
            reports.retain(|id, report| id.driver != driver || report.until > now);
            reports.len() != before
        });
        let reports = self.by_device.lock();
        reports.iter().filter(|(id, _)| id.driver == driver).map(|(_, report)| report.until).min()
    }

    fn update(&self, change: impl FnOnce(&mut BTreeMap<DeviceId, Report>) -> bool) {
        let changed = change(&mut self.by_device.lock());
        if changed {
            self.changed.send_modify(|count| *count += 1);
        }
    }
}

/// Listens to a driver for as long as it is polled: opens its stream, takes what it says, opens it again when it ends.
pub(super) async fn listen(channel: Channel, driver: Driver, version: HealthVersion, reports: &Reports) {
    loop {
        match open(channel.clone(), version).await {
            Ok(stream) => follow(stream, &driver.name, reports).await,
            Err(error) => tracing::debug!(driver = driver.name, %error, "no health stream"),
        }
        reports.clear(&driver.name);
        tokio::time::sleep(REOPEN).await;
    }
}

async fn open(
    channel: Channel,
    version: HealthVersion,
) -> Result<BoxStream<'static, Result<Vec<News>, Status>>, Status> {
    match version {
        HealthVersion::V1 => {
            let request = v1::NodeWatchResourcesRequest {};
            let stream = DraResourceHealthClient::new(channel).node_watch_resources(request).await?.into_inner();
            Ok(stream
                .map(|message| message.map(|message| message.devices.into_iter().filter_map(news).collect()))
                .boxed())
        }
        HealthVersion::V1alpha1 => {
            let request = v1alpha1::NodeWatchResourcesRequest {};
            let stream = DraResourceHealthClientAlpha::new(channel).node_watch_resources(request).await?.into_inner();
            let read = |message: v1alpha1::NodeWatchResourcesResponse| {
                message.devices.into_iter().filter_map(|device| news(from_alpha(device))).collect()
            };
            Ok(stream.map(move |message| message.map(read)).boxed())
        }
    }
}

async fn follow(mut stream: BoxStream<'static, Result<Vec<News>, Status>>, driver: &str, reports: &Reports) {
    loop {
        let next = reports.expire(driver, Instant::now());
        let far = Instant::now() + HOLDS;
        tokio::select! {
            message = stream.next() => match message {
                Some(Ok(news)) => reports.take(driver, news, Instant::now()),
                Some(Err(error)) => {
                    tracing::debug!(driver, %error, "health stream failed");
                    return;
                }
                None => return,
            },
            () = tokio::time::sleep_until(next.unwrap_or(far)) => {}
        }
    }
}

fn news(device: v1::DeviceHealth) -> Option<News> {
    let health = match v1::HealthStatus::try_from(device.health) {
        Ok(v1::HealthStatus::Healthy) => Health::Healthy,
        Ok(v1::HealthStatus::Unhealthy) => Health::Unhealthy,
        Ok(v1::HealthStatus::Unknown) | Err(_) => Health::Unknown,
    };
    let seconds = u64::try_from(device.health_check_timeout_seconds).ok().filter(|seconds| *seconds > 0);
    let id = device.device?;
    Some(News {
        pool: id.pool_name,
        device: id.device_name,
        health,
        holds: seconds.map_or(HOLDS, Duration::from_secs),
        message: device.message,
    })
}

fn from_alpha(device: v1alpha1::DeviceHealth) -> v1::DeviceHealth {
    v1::DeviceHealth {
        device: device.device.map(|id| v1::DeviceIdentifier { pool_name: id.pool_name, device_name: id.device_name }),
        health: device.health,
        last_updated_time: device.last_updated_time,
        health_check_timeout_seconds: device.health_check_timeout_seconds,
        message: device.message,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(driver: &str, device: &str) -> DeviceId {
        DeviceId { driver: driver.to_owned(), pool: "node-a".to_owned(), device: device.to_owned() }
    }

    fn report(device: &str, health: Health) -> News {
        let (device, pool) = (device.to_owned(), "node-a".to_owned());
        News { pool, device, health, holds: Duration::from_secs(10), message: String::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn reports_hold_for_their_time_and_only_changes_are_told() {
        let reports = Reports::default();
        let mut changes = reports.changes();
        let moved = |changes: &mut watch::Receiver<u64>| {
            let moved = changes.has_changed().unwrap();
            changes.mark_unchanged();
            moved
        };
        let start = Instant::now();
        reports.take("d", vec![report("gpu-0", Health::Healthy), report("gpu-1", Health::Unhealthy)], start);
        assert!(moved(&mut changes));
        reports.take("d", vec![report("gpu-0", Health::Healthy)], start + Duration::from_secs(5));
        assert!(!moved(&mut changes), "a heartbeat is no news");
        assert_eq!(reports.expire("d", start + Duration::from_secs(9)), Some(start + Duration::from_secs(10)));
        assert_eq!(reports.of(&id("d", "gpu-1")).0, Health::Unhealthy, "left out, so it keeps its report");
        reports.expire("d", start + Duration::from_secs(10));
        assert!(moved(&mut changes));
        assert_eq!(reports.of(&id("d", "gpu-1")).0, Health::Unknown, "too old");
        assert_eq!(reports.of(&id("d", "gpu-0")).0, Health::Healthy);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_of_a_stream_clears_that_driver_only() {
        let reports = Reports::default();
        for driver in ["d", "e"] {
            reports.take(driver, vec![report("gpu-0", Health::Healthy)], Instant::now());
        }
        reports.clear("d");
        assert_eq!(reports.of(&id("d", "gpu-0")).0, Health::Unknown);
        assert_eq!(reports.of(&id("e", "gpu-0")).0, Health::Healthy);
    }
}
