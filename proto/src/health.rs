//! How a driver tells kubelet about the health of devices (KEP-4680).
//!
//! Both versions have the same messages, so a driver makes [`v1`] and serves [`v1alpha1`] through the `From` conversion here.

/// Names [`v1::dra_resource_health_server::DraResourceHealth`] in `supported_versions`; kubelet 1.37 and newer prefer it.
pub const V1_SERVICE: &str = "v1.DRAResourceHealth";

/// Names [`v1alpha1::dra_resource_health_server::DraResourceHealth`] in `supported_versions`; all that kubelet 1.34 to 1.36 know.
pub const V1ALPHA1_SERVICE: &str = "v1alpha1.DRAResourceHealth";

/// Longest [`v1::DeviceHealth::message`] that kubelet keeps; it shortens a longer one to 1021 characters and three dots.
pub const MAX_MESSAGE: usize = 1024;

/// Package `v1`: from kubelet 1.37 on.
pub mod v1 {
    #![expect(clippy::too_many_lines, reason = "generated code")]
    include!("generated/health_v1.rs");
}

/// Package `v1alpha1`: kubelet 1.34 to 1.39.
pub mod v1alpha1 {
    #![expect(clippy::too_many_lines, reason = "generated code")]
    include!("generated/health_v1alpha1.rs");
}

impl From<v1::DeviceIdentifier> for v1alpha1::DeviceIdentifier {
    fn from(device: v1::DeviceIdentifier) -> Self {
        Self { pool_name: device.pool_name, device_name: device.device_name }
    }
}

impl From<v1::DeviceHealth> for v1alpha1::DeviceHealth {
    fn from(health: v1::DeviceHealth) -> Self {
        Self {
            device: health.device.map(Into::into),
            health: health.health,
            last_updated_time: health.last_updated_time,
            health_check_timeout_seconds: health.health_check_timeout_seconds,
            message: health.message,
        }
    }
}

impl From<v1::NodeWatchResourcesResponse> for v1alpha1::NodeWatchResourcesResponse {
    fn from(news: v1::NodeWatchResourcesResponse) -> Self {
        Self { devices: news.devices.into_iter().map(Into::into).collect() }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::{v1, v1alpha1};

    #[test]
    fn a_v1_report_becomes_the_v1alpha1_report_of_the_same_bytes() {
        let report = v1::NodeWatchResourcesResponse {
            devices: vec![v1::DeviceHealth {
                device: Some(v1::DeviceIdentifier { pool_name: "node-a".to_owned(), device_name: "gpu-0".to_owned() }),
                health: v1::HealthStatus::Unhealthy.into(),
                last_updated_time: 1_770_000_000,
                health_check_timeout_seconds: 90,
                message: "Xid 79".to_owned(),
            }],
        };
        let bytes = report.encode_to_vec();
        assert_eq!(v1alpha1::NodeWatchResourcesResponse::from(report).encode_to_vec(), bytes);
    }
}
