//! kubelet's side of the sockets, over real unix sockets: a tonic client, raw bytes, and somebody who removes files.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use kubelet_api::dra::{v1, v1beta1};
use kubelet_api::health::v1 as health_v1;
use kubelet_api::health::v1alpha1 as health_v1alpha1;
use kubelet_api::registration::v1 as registration_v1;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use super::health::{DeviceReport, Report};
use super::registration::Registration;
use super::{Paths, Plugin, ServeError};
use crate::cdi::Cdi;
use crate::claims::{Checkpoints, Claims, ClaimsConfig, Condition, Devices, Hardware, Identity, Scope};
use crate::health::HealthState;
use crate::metrics::{ClaimMetrics, PluginMetrics};
use crate::testing::{FakeServer, Fault};

const DRIVER: &str = "gpu.devicetaint.dev";

struct Bench {
    dir: tempfile::TempDir,
    server: FakeServer,
    paths: Paths,
    reports: watch::Sender<Arc<Report>>,
    registration: watch::Receiver<Registration>,
    metrics: PluginMetrics,
    stop: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
    _devices: watch::Sender<Option<Arc<Devices>>>,
}

impl Bench {
    async fn start() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = FakeServer::new();
        let hardware =
            Hardware { identity: Identity::default(), minor: None, condition: Condition::Ready, other_owner: None };
        let devices = Devices([("gpu-0".to_owned(), hardware)].into());
        let (devices, devices_seen) = watch::channel(Some(Arc::new(devices)));
        let claims = Claims::load(ClaimsConfig {
            scope: Scope { driver: DRIVER.to_owned(), pool: "node-a".to_owned(), boot_id: "b".to_owned() },
            client: server.client(),
            devices: devices_seen,
            checkpoints: Checkpoints::open(&dir.path().join("claims")).unwrap(),
            cdi: Cdi::new(&dir.path().join("cdi"), &dir.path().join("dev"), DRIVER),
            metrics: ClaimMetrics::default(),
        })
        .unwrap();
        let paths = Paths::new(dir.path(), DRIVER, Some("1a2b"));
        let (reports, reports_seen) = watch::channel(Arc::new(report(HealthState::Healthy)));
        let (registration_sender, registration) = watch::channel(Registration::default());
        let (metrics, stop) = (PluginMetrics::default(), CancellationToken::new());
        let plugin = Plugin {
            driver: DRIVER.to_owned(),
            paths: paths.clone(),
            claims: watch::Sender::new(Some(claims)).subscribe(),
            reports: reports_seen,
            registration: registration_sender,
            reached: watch::Sender::new(false),
            metrics: metrics.clone(),
        };
        let task = tokio::spawn(plugin.run(stop.clone()));
        let bench = Self { dir, server, paths, reports, registration, metrics, stop, task, _devices: devices };
        bench.until(|bench| bench.paths.registration.exists()).await;
        bench
    }

    /// Waits for a state of the file system, which tells nobody when it changes.
    async fn until(&self, reached: impl Fn(&Self) -> bool) {
        let wait = async {
            while !reached(self) {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap();
    }

    fn claim(&self, name: &str, device: &str) -> v1::Claim {
        let result = json!({"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": device});
        let status = json!({"allocation": {"devices": {"results": [result]}}});
        let uid = format!("uid-{name}");
        self.server.put_claim("ns", name, json!({"metadata": {"uid": uid}, "status": status}));
        v1::Claim { namespace: "ns".to_owned(), uid, name: name.to_owned() }
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(10), self.task).await.unwrap().unwrap().unwrap();
        assert!(!self.paths.registration.exists() && !self.paths.service.exists());
    }
}

fn report(state: HealthState) -> Report {
    let device = DeviceReport {
        device: "gpu-0".to_owned(),
        state,
        message: "why".to_owned(),
        updated: jiff::Timestamp::from_second(7).unwrap(),
    };
    Report { pool: "node-a".to_owned(), devices: vec![device] }
}

async fn dial(path: &Path) -> Channel {
    let path: PathBuf = path.to_owned();
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
}

async fn info(bench: &Bench) -> registration_v1::PluginInfo {
    let channel = dial(&bench.paths.registration).await;
    let mut client = registration_v1::registration_client::RegistrationClient::new(channel);
    client.get_info(registration_v1::InfoRequest {}).await.unwrap().into_inner()
}

#[tokio::test]
async fn kubelet_registers_us_and_may_do_so_again() {
    let mut bench = Bench::start().await;
    for path in [&bench.paths.registration, &bench.paths.service] {
        assert_eq!(std::fs::metadata(path).unwrap().permissions().mode() & 0o777, 0o600);
    }
    let told = info(&bench).await;
    assert_eq!((told.r#type.as_str(), told.name.as_str()), ("DRAPlugin", DRIVER));
    assert_eq!(told.endpoint, bench.paths.service.display().to_string());
    let versions = ["v1.DRAPlugin", "v1beta1.DRAPlugin", "v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth"];
    assert_eq!(told.supported_versions, versions);
    let mut client =
        registration_v1::registration_client::RegistrationClient::new(dial(&bench.paths.registration).await);
    let mut notify = async |plugin_registered, error: &str| {
        let status = registration_v1::RegistrationStatus { plugin_registered, error: error.to_owned() };
        client.notify_registration_status(status).await.unwrap();
    };
    notify(true, "").await;
    notify(false, "no such version").await;
    let refused = Registration::Refused("no such version".to_owned());
    assert_eq!(*bench.registration.borrow_and_update(), refused);
    assert_eq!(bench.metrics.registered.get(), 0);
    notify(true, "").await;
    assert_eq!(*bench.registration.borrow_and_update(), Registration::Registered);
    bench.end().await;
}

#[tokio::test]
async fn both_versions_prepare_and_every_claim_has_an_entry() {
    let bench = Bench::start().await;
    let (good, bad) = (bench.claim("good", "gpu-0"), bench.claim("bad", "gpu-7"));
    let channel = dial(&bench.paths.service).await;
    let mut client = v1::dra_plugin_client::DraPluginClient::new(channel.clone());
    let request = v1::NodePrepareResourcesRequest { claims: vec![good.clone(), bad] };
    let answer = client.node_prepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(answer["uid-good"].devices[0].device_name, "gpu-0");
    assert_eq!(answer["uid-good"].devices[0].request_names, ["gpu"]);
    assert!(answer["uid-bad"].error.contains("gpu-7") && answer["uid-bad"].devices.is_empty());

    let mut old = v1beta1::dra_plugin_client::DraPluginClient::new(channel);
    let claim = v1beta1::Claim { namespace: good.namespace, uid: good.uid, name: good.name };
    let request = v1beta1::NodePrepareResourcesRequest { claims: vec![claim.clone()] };
    let again = old.node_prepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(again["uid-good"].devices[0].cdi_device_ids, answer["uid-good"].devices[0].cdi_device_ids);
    let request = v1beta1::NodeUnprepareResourcesRequest { claims: vec![claim] };
    let undone = old.node_unprepare_resources(request).await.unwrap().into_inner().claims;
    assert_eq!(undone["uid-good"].error, "");
    bench.end().await;
}

#[tokio::test]
async fn health_comes_at_once_at_each_change_and_on_every_stream() {
    let bench = Bench::start().await;
    let channel = dial(&bench.paths.service).await;
    let mut new = health_v1::dra_resource_health_client::DraResourceHealthClient::new(channel.clone());
    let mut news = new.node_watch_resources(health_v1::NodeWatchResourcesRequest {}).await.unwrap().into_inner();
    let mut old = health_v1alpha1::dra_resource_health_client::DraResourceHealthClient::new(channel);
    let request = health_v1alpha1::NodeWatchResourcesRequest {};
    let mut olds = old.node_watch_resources(request).await.unwrap().into_inner();
    let first = news.message().await.unwrap().unwrap().devices;
    assert_eq!(first[0].health, i32::from(health_v1::HealthStatus::Healthy));
    assert_eq!((first[0].last_updated_time, first[0].health_check_timeout_seconds), (7, 30));
    assert_eq!(olds.message().await.unwrap().unwrap().devices.len(), 1);
    bench.reports.send_replace(Arc::new(report(HealthState::Unhealthy)));
    let unhealthy = i32::from(health_v1::HealthStatus::Unhealthy);
    assert_eq!(news.message().await.unwrap().unwrap().devices[0].health, unhealthy);
    assert_eq!(olds.message().await.unwrap().unwrap().devices[0].health, unhealthy);
    assert_eq!(bench.metrics.health_streams.get(), 2);
    bench.stop.cancel();
    assert_eq!(news.message().await.unwrap(), None, "the stream ends in order");
    bench.end().await;
}

#[tokio::test]
async fn garbage_costs_its_own_connection_only() {
    let bench = Bench::start().await;
    let kubelet = dial(&bench.paths.service).await;
    let garbage: [&[u8]; 4] = [
        b"GET / HTTP/1.1\r\n\r\n",
        &[0xff; 4096],
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x09\x01\x04\x00\x00\x00\x01\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        b"",
    ];
    for path in [&bench.paths.service, &bench.paths.registration] {
        for bytes in garbage {
            let mut stream = UnixStream::connect(path).await.unwrap();
            // The server may close before it has read all.
            stream.write_all(bytes).await.ok();
            stream.shutdown().await.ok();
            let mut rest = Vec::new();
            tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut rest)).await.unwrap().ok();
        }
    }
    assert_eq!(info(&bench).await.name, DRIVER);
    let claim = bench.claim("a", "gpu-0");
    let request = v1::NodePrepareResourcesRequest { claims: vec![claim] };
    let mut client = v1::dra_plugin_client::DraPluginClient::new(kubelet);
    assert_eq!(client.node_prepare_resources(request).await.unwrap().into_inner().claims["uid-a"].error, "");
    bench.end().await;
}

#[tokio::test]
async fn a_removed_socket_is_made_again_and_open_connections_live_on() {
    let bench = Bench::start().await;
    let mut kubelet = v1::dra_plugin_client::DraPluginClient::new(dial(&bench.paths.service).await);
    std::fs::remove_file(&bench.paths.registration).unwrap();
    std::fs::remove_dir_all(bench.paths.service.parent().unwrap()).unwrap();
    bench.until(|bench| bench.paths.registration.exists() && bench.paths.service.exists()).await;
    assert_eq!(info(&bench).await.name, DRIVER);
    let request = || v1::NodeUnprepareResourcesRequest { claims: Vec::new() };
    kubelet.node_unprepare_resources(request()).await.unwrap();
    let mut new = v1::dra_plugin_client::DraPluginClient::new(dial(&bench.paths.service).await);
    new.node_unprepare_resources(request()).await.unwrap();
    assert_eq!(bench.metrics.sockets_restored.get(), 2);
    bench.end().await;
}

#[tokio::test]
async fn a_call_that_runs_is_finished_before_the_end() {
    let bench = Bench::start().await;
    let claim = bench.claim("slow", "gpu-0");
    bench.server.plan("claim", Fault::Slow(Duration::from_millis(300)), 1);
    let mut client = v1::dra_plugin_client::DraPluginClient::new(dial(&bench.paths.service).await);
    let request = v1::NodePrepareResourcesRequest { claims: vec![claim] };
    let call = tokio::spawn(async move { client.node_prepare_resources(request).await });
    bench.until(|bench| bench.server.count("claim") == 1).await;
    bench.stop.cancel();
    bench.until(|bench| !bench.paths.registration.exists()).await;
    assert_eq!(call.await.unwrap().unwrap().into_inner().claims["uid-slow"].error, "");
    let checkpoint = bench.dir.path().join("claims/uid-slow.json");
    assert!(checkpoint.exists());
    bench.end().await;
}
