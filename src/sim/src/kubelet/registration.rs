//! Registering a driver: GetInfo over the raw dial, the choice of a version, NotifyRegistrationStatus.

use std::path::{Path, PathBuf};
use std::time::Duration;

use kubelet_api::registration::PLUGIN_TYPE;
use kubelet_api::registration::v1::{InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse};
use kubelet_api::{dra, health};

use super::dial::{Connection, DialError};

/// The path of the first call.
pub(super) const GET_INFO: &str = "/pluginregistration.Registration/GetInfo";
/// The path of the last call.
pub(super) const NOTIFY: &str = "/pluginregistration.Registration/NotifyRegistrationStatus";
/// How long kubelet dials.
const DIAL_LIMIT: Duration = Duration::from_secs(10);
/// How long GetInfo may take: kubelet allows one second, so a driver must answer without looking at anything.
const GET_INFO_LIMIT: Duration = Duration::from_secs(1);
/// How long NotifyRegistrationStatus may take.
const NOTIFY_LIMIT: Duration = Duration::from_secs(5);

/// A version of the DRA service that this kubelet speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DraVersion {
    V1,
    V1beta1,
}

/// A version of the health service that this kubelet speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum HealthVersion {
    V1,
    V1alpha1,
}

/// A driver that may be registered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Driver {
    /// Its name.
    pub(super) name: String,
    /// Where its DRA service listens.
    pub(super) endpoint: PathBuf,
    /// Which version it is spoken to.
    pub(super) dra: DraVersion,
    /// Which version of the health service it offers, if any.
    pub(super) health: Option<HealthVersion>,
}

/// Why a driver is not registered. It is told, and tried again.
#[derive(Debug, thiserror::Error)]
pub(super) enum RegistrationError {
    #[error("dial: {0}")]
    Dial(#[source] DialError),
    #[error("GetInfo: {0}")]
    GetInfo(#[source] DialError),
    #[error("the plugin type {0:?} is unknown, this kubelet knows {PLUGIN_TYPE:?}")]
    Type(String),
    #[error("the plugin gives no name")]
    NoName,
    #[error("none of the versions {0:?} is supported, this kubelet speaks v1.DRAPlugin and v1beta1.DRAPlugin")]
    Versions(Vec<String>),
    #[error("the driver name {name} is in use with the same endpoint {}", endpoint.display())]
    SameEndpoint { name: String, endpoint: PathBuf },
    #[error("NotifyRegistrationStatus: {0}")]
    Notify(#[source] DialError),
}

/// One attempt: dials, asks, lets `admit` take the driver in, and tells the driver. Returns what was admitted.
pub(super) async fn register<T>(
    socket: &Path,
    admit: impl FnOnce(Driver) -> Result<T, RegistrationError>,
) -> Result<T, RegistrationError> {
    let mut connection = Connection::open(socket, DIAL_LIMIT).await.map_err(RegistrationError::Dial)?;
    let info = connection.unary(GET_INFO, &InfoRequest {}, GET_INFO_LIMIT).await.map_err(RegistrationError::GetInfo)?;
    let admitted = read_info(info, socket).and_then(admit);
    let error = admitted.as_ref().err().map(ToString::to_string);
    let status = RegistrationStatus { plugin_registered: error.is_none(), error: error.unwrap_or_default() };
    let told: Result<RegistrationStatusResponse, _> = connection.unary(NOTIFY, &status, NOTIFY_LIMIT).await;
    let admitted = admitted?;
    told.map_err(RegistrationError::Notify)?;
    Ok(admitted)
}

/// Reads what a plugin says of itself. An empty endpoint is the registration socket; of the DRA versions the first known one of the
/// plugin's list is taken, of the health versions v1 wins, wherever it stands.
fn read_info(info: PluginInfo, socket: &Path) -> Result<Driver, RegistrationError> {
    if info.r#type != PLUGIN_TYPE {
        return Err(RegistrationError::Type(info.r#type));
    }
    if info.name.is_empty() {
        return Err(RegistrationError::NoName);
    }
    let known = |version: &String| match version.as_str() {
        dra::V1_SERVICE => Some(DraVersion::V1),
        dra::V1BETA1_SERVICE => Some(DraVersion::V1beta1),
        _ => None,
    };
    let offers = |service: &str| info.supported_versions.iter().any(|version| version == service);
    let health = if offers(health::V1_SERVICE) {
        Some(HealthVersion::V1)
    } else {
        offers(health::V1ALPHA1_SERVICE).then_some(HealthVersion::V1alpha1)
    };
    let dra = info.supported_versions.iter().find_map(known);
    let dra = dra.ok_or_else(|| RegistrationError::Versions(info.supported_versions.clone()))?;
    let endpoint = if info.endpoint.is_empty() { socket.to_owned() } else { PathBuf::from(info.endpoint) };
    Ok(Driver { name: info.name, endpoint, dra, health })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(versions: &[&str]) -> PluginInfo {
        PluginInfo {
            r#type: "DRAPlugin".to_owned(),
            name: "gpu.devicetaint.dev".to_owned(),
            endpoint: "/plugins/dra.sock".to_owned(),
            supported_versions: versions.iter().map(|version| (*version).to_owned()).collect(),
        }
    }

    fn read(info: PluginInfo) -> Result<Driver, RegistrationError> {
        read_info(info, Path::new("/registry/reg.sock"))
    }

    #[test]
    fn the_first_known_version_of_the_list_is_spoken() {
        assert_eq!(read(info(&["v2.DRAPlugin", "v1.DRAPlugin", "v1beta1.DRAPlugin"])).unwrap().dra, DraVersion::V1);
        assert_eq!(read(info(&["v1beta1.DRAPlugin", "v1.DRAPlugin"])).unwrap().dra, DraVersion::V1beta1);
        let error = read(info(&["v1alpha4.Node"])).unwrap_err().to_string();
        assert!(error.contains("v1alpha4.Node") && error.contains("v1.DRAPlugin"), "{error}");
    }

    #[test]
    fn v1_health_is_preferred_wherever_it_stands() {
        let health = |versions: &[&str]| read(info(versions)).unwrap().health;
        assert_eq!(
            health(&["v1.DRAPlugin", "v1alpha1.DRAResourceHealth", "v1.DRAResourceHealth"]),
            Some(HealthVersion::V1)
        );
        assert_eq!(health(&["v1.DRAPlugin", "v1alpha1.DRAResourceHealth"]), Some(HealthVersion::V1alpha1));
        assert_eq!(health(&["v1.DRAPlugin"]), None);
    }

    #[test]
    fn an_empty_endpoint_is_the_registration_socket() {
        let mut common = info(&["v1.DRAPlugin"]);
        common.endpoint = String::new();
        assert_eq!(read(common).unwrap().endpoint, Path::new("/registry/reg.sock"));
        assert_eq!(read(info(&["v1.DRAPlugin"])).unwrap().endpoint, Path::new("/plugins/dra.sock"));
    }

    #[test]
    fn other_plugins_are_refused_with_a_reason() {
        let other = PluginInfo { r#type: "CSIPlugin".to_owned(), ..info(&["1.0.0"]) };
        assert!(read(other).unwrap_err().to_string().contains("CSIPlugin"));
        let nameless = PluginInfo { name: String::new(), ..info(&["v1.DRAPlugin"]) };
        assert!(matches!(read(nameless), Err(RegistrationError::NoName)));
    }
}
