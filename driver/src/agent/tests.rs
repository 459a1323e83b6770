//! The whole agent in this process: the stand-in NVML library, an API server over loopback, kubelet's side of the sockets.

mod marks;
mod owner;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use clap::Parser;
use hyper_util::rt::TokioIo;
use kubelet_api::dra::v1;
use kubelet_api::registration::v1 as registration_v1;
use nvidia_ml::control::{Control, Event};
use nvidia_ml::{Machine, built_library};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UnixStream};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use super::{AgentError, run};
use crate::config::Config;
use crate::plugin::Paths;
use crate::testing::{FakeServer, Fault};

const CARDS: [&str; 8] = [
    "0000:1b:00.0",
    "0000:3b:00.0",
    "0000:4e:00.0",
    "0000:5e:00.0",
    "0000:86:00.0",
    "0000:9b:00.0",
    "0000:ae:00.0",
    "0000:be:00.0",
];

/// A node with eight cards.
struct Node {
    dir: tempfile::TempDir,
    server: FakeServer,
    machine: Machine,
    control: Control,
    /// How many agents were started.
    lives: AtomicUsize,
}

struct Agent {
    /// Which one of the node's agents it is: its instance.
    life: usize,
    address: SocketAddr,
    stop: CancellationToken,
    task: JoinHandle<Result<(), AgentError>>,
}

impl Node {
    async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let server = FakeServer::new();
        fs::write(dir.path().join("kubeconfig"), server.listen().await).unwrap();
        fs::write(dir.path().join("boot"), "boot-1\n").unwrap();
        fs::create_dir(dir.path().join("nvml")).unwrap();
        let control = Control::eight_h100s(1);
        let machine = Machine::install(&built_library().unwrap(), &dir.path().join("nvml"), &control).unwrap();
        Self { dir, server, machine, control, lives: AtomicUsize::new(0) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn config(&self) -> Config {
        let path = |name: &str| self.path(name).display().to_string();
        let pairs = [
            ("--node-name", "node-a".to_owned()),
            ("--kubeconfig", path("kubeconfig")),
            ("--kubelet-root", path("kubelet")),
            ("--cdi-root", path("cdi")),
            ("--state-dir", path("state")),
            ("--sysfs-root", path("sys")),
            ("--boot-id-file", path("boot")),
            ("--dev-root", path("dev")),
            ("--nvml-library", path("nvml/libnvidia-ml.so.1")),
            ("--listen", "127.0.0.1:0".to_owned()),
            ("--poll-interval", "200ms".to_owned()),
            ("--other-owner-grace", "100ms".to_owned()),
        ];
        let flags = pairs.iter().flat_map(|(flag, value)| [(*flag).to_owned(), value.clone()]);
        Config::try_parse_from(std::iter::once("gpu-driver".to_owned()).chain(flags)).unwrap()
    }

    async fn start(&self) -> Agent {
        self.start_with(|_| ()).await
    }

    async fn start_with(&self, change: impl FnOnce(&mut Config)) -> Agent {
        let (stop, (tell, told)) = (CancellationToken::new(), oneshot::channel());
        let listening = |address| tell.send(address).unwrap();
        let mut config = self.config();
        change(&mut config);
        let (life, token) = (self.lives.fetch_add(1, Relaxed) + 1, stop.clone());
        let task = tokio::spawn(async move { run(config, &life.to_string(), listening, token).await });
        Agent { life, address: told.await.unwrap(), task, stop }
    }

    fn sockets(&self, life: usize) -> Paths {
        Paths::new(&self.path("kubelet"), "gpu.devicetaint.dev", Some(&life.to_string()))
    }

    fn change(&mut self, change: impl FnOnce(&mut Control)) {
        change(&mut self.control);
        self.machine.set(&self.control).unwrap();
    }

    /// Kubelet registers the agent that was started last, once it sees the socket.
    async fn register(&self) -> String {
        let path = self.sockets(self.lives.load(Relaxed)).registration;
        let channel = dial_when_there(path).await;
        let mut client = registration_v1::registration_client::RegistrationClient::new(channel);
        let info = client.get_info(registration_v1::InfoRequest {}).await.unwrap().into_inner();
        let status = registration_v1::RegistrationStatus { plugin_registered: true, error: String::new() };
        client.notify_registration_status(status).await.unwrap();
        info.endpoint
    }
}

impl Agent {
    /// The answer of the agent's HTTP server: status and body.
    async fn ask(&self, path: &str) -> Option<(u16, String)> {
        let mut stream = TcpStream::connect(self.address).await.ok()?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.ok()?;
        let code = answer.split(' ').nth(1)?.parse().ok()?;
        Some((code, answer))
    }

    /// Asks until the answer is as wanted.
    async fn until_told(&self, path: &str, wanted: impl Fn(u16, &str) -> bool) -> String {
        let mut last = None;
        let wait = async {
            loop {
                last = self.ask(path).await;
                if let Some((code, text)) = &last
                    && wanted(*code, text)
                {
                    return text.clone();
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(30), wait).await;
        told.unwrap_or_else(|_| panic!("the answer never came, the last one is {last:?}"))
    }

    async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap().unwrap();
    }

    /// As SIGKILL does: nothing is tidied up.
    async fn kill(self) {
        self.task.abort();
        assert!(self.task.await.unwrap_err().is_cancelled());
    }
}

async fn dial(path: PathBuf) -> Channel {
    let connector = tower::service_fn(move |_| {
        let path = path.clone();
        async move { Ok::<_, std::io::Error>(TokioIo::new(UnixStream::connect(path).await?)) }
    });
    Endpoint::from_static("http://localhost").connect_with_connector(connector).await.unwrap()
}

async fn dial_when_there(path: PathBuf) -> Channel {
    let wait = async {
        while !path.exists() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait).await.unwrap();
    dial(path).await
}

/// What unpreparing a claim answers: nothing is no error.
async fn unprepare(channel: Channel, uid: &str) -> String {
    let claim = v1::Claim { namespace: "ns".to_owned(), uid: uid.to_owned(), name: uid.to_owned() };
    let request = v1::NodeUnprepareResourcesRequest { claims: vec![claim] };
    let mut client = v1::dra_plugin_client::DraPluginClient::new(channel);
    client.node_unprepare_resources(request).await.unwrap().into_inner().claims[uid].error.clone()
}

/// `device key=value:Effect @time` of all taints on the server.
fn taints(slices: &[Value]) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let mut all = Vec::new();
    for device in slices.iter().flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default()) {
        for taint in device["taints"].as_array().cloned().unwrap_or_default() {
            let key = text(&taint["key"]).replace("gpu.devicetaint.dev/", "");
            all.push(format!(
                "{} {key}={}:{} @{}",
                text(&device["name"]),
                text(&taint["value"]),
                text(&taint["effect"]),
                text(&taint["timeAdded"])
            ));
        }
    }
    all
}

fn devices(slices: &[Value]) -> usize {
    slices.iter().map(|slice| slice["spec"]["devices"].as_array().map_or(0, Vec::len)).sum()
}

fn name(card: usize) -> String {
    format!("gpu-{}", CARDS[card].replace([':', '.'], "-"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fault_becomes_a_taint_that_outlives_a_kill_and_a_wipe() {
    let mut node = Node::new().await;
    let agent = node.start().await;
    node.server.until(|slices| devices(slices) == 8).await;
    assert_eq!(node.register().await, node.sockets(1).service.display().to_string());
    agent.until_told("/readyz", |code, _| code == 200).await;
    agent.until_told("/metrics", |_, text| text.contains("nvml_signals_total{kind=\"watching\"} 8")).await;

    node.change(|control| control.gpu_mut(CARDS[1]).unwrap().events.push(Event::xid("one", 79)));
    let wanted = vec![format!("{} xid=79:NoSchedule @1970-01-01T00:16:40Z", name(1))];
    node.server.until(|slices| taints(slices) == wanted).await;
    // The disk has it as well, once the state directory holds the server's moment.
    let stamps = node.path("state/stamps.json");
    agent.until_told("/readyz", |_, _| fs::read_to_string(&stamps).is_ok_and(|text| text.contains("00:16:40"))).await;
    agent.kill().await;

    node.server.wipe();
    node.server.set_clock(9_000);
    node.change(|control| control.gpu_mut(CARDS[1]).unwrap().events.clear());
    let agent = node.start().await;
    let first = node.server.until(|slices| devices(slices) == 8).await;
    assert_eq!(taints(&first), wanted, "the first publish holds all taints, with their moments");
    node.register().await;
    assert!(!node.sockets(1).registration.exists(), "kubelet does not find the one that was killed any more");
    agent.end().await;
    assert_eq!(taints(&node.server.slices()), wanted, "slices stay when the agent ends in order");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_card_is_tainted_alone_and_returns() {
    let mut node = Node::new().await;
    let agent = node.start().await;
    node.server.until(|slices| devices(slices) == 8).await;
    node.change(|control| control.gpu_mut(CARDS[2]).unwrap().lost = true);
    let lost = vec![format!("{} lost=:NoSchedule @1970-01-01T00:16:40Z", name(2))];
    node.server.until(|slices| taints(slices) == lost && devices(slices) == 8).await;
    node.change(|control| control.gpu_mut(CARDS[2]).unwrap().lost = false);
    node.server.until(|slices| taints(slices).is_empty() && devices(slices) == 8).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_nvml_an_empty_pool_is_published_and_cards_appear_when_it_comes() {
    let node = Node::new().await;
    let (library, away) = (node.path("nvml/libnvidia-ml.so.1"), node.path("nvml/away"));
    fs::rename(&library, &away).unwrap();
    let agent = node.start().await;
    let slices = node.server.until(|slices| slices.len() == 1).await;
    assert_eq!(devices(&slices), 0);
    node.register().await;
    let ready = agent.until_told("/readyz", |code, _| code == 200).await;
    assert!(ready.contains("[!]nvml degraded: NVML library") && ready.contains("--nvml-library"), "{ready}");
    fs::rename(&away, &library).unwrap();
    node.server.until(|slices| devices(slices) == 8).await;
    agent.until_told("/readyz", |_, text| text.contains("[+]nvml ok")).await;
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_without_gpus_says_so_and_a_card_that_is_plugged_in_appears() {
    let mut node = Node::new().await;
    let cards = std::mem::take(&mut node.control.gpus);
    node.change(|_| ());
    let agent = node.start().await;
    let slices = node.server.until(|slices| slices.len() == 1).await;
    assert_eq!(devices(&slices), 0);
    agent.until_told("/readyz", |_, text| text.contains("[!]nvml degraded: NVML works and lists no GPU")).await;
    agent.until_told("/metrics", |_, text| text.contains("nvml_state{state=\"no-gpus\"} 1")).await;
    node.change(|control| control.gpus = cards);
    node.server.until(|slices| devices(slices) == 8).await;
    agent.until_told("/readyz", |_, text| text.contains("[+]nvml ok")).await;
    agent.end().await;
}

/// Field report F15 over a real connection: the API server answers 409, 500, and not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_publish_is_retried_and_shows() {
    let mut node = Node::new().await;
    let agent = node.start().await;
    node.server.until(|slices| devices(slices) == 8).await;
    for (fault, times) in [(Fault::Status(409), 1), (Fault::Status(500), 3), (Fault::Cut, 2), (Fault::CutAfter, 1)] {
        node.server.plan("patch", fault, times);
    }
    node.register().await;
    node.change(|control| control.gpu_mut(CARDS[0]).unwrap().events.push(Event::xid("one", 79)));
    agent
        .until_told("/readyz", |code, text| code == 503 && text.contains("[-]slices failed: a change is not published"))
        .await;
    node.server.until(|slices| taints(slices).len() == 1).await;
    agent.until_told("/readyz", |code, _| code == 200).await;
    let metrics = agent.until_told("/metrics", |code, _| code == 200).await;
    assert!(metrics.contains("gpu_driver_slice_publish_failures_total 7"), "{metrics}");
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_operator_wrote_wrong_ends_with_code_2() {
    let node = Node::new().await;
    fs::write(node.path("policy.yaml"), "version: 1\nxid:\n  \"79\":\n    effect: Sometimes\n").unwrap();
    let policy = node.path("policy.yaml").display().to_string();
    let cases: [(&[&str], &str); 4] = [
        (&["--policy", &policy], "policy.yaml, line 4"),
        (&["--policy", "/no/such/policy"], "--policy"),
        (&["--kubeconfig", "/no/such/kubeconfig"], "/no/such/kubeconfig"),
        (&["--boot-id-file", "/no/such/boot"], "--boot-id-file"),
    ];
    for (flags, text) in cases {
        let mut config = node.config();
        let overridden =
            Config::try_parse_from(["gpu-driver", "--node-name", "x"].iter().chain(flags.iter()).copied()).unwrap();
        match flags[0] {
            "--policy" => config.policy = overridden.policy,
            "--kubeconfig" => config.kubeconfig = overridden.kubeconfig,
            _ => config.boot_id_file = overridden.boot_id_file,
        }
        let error = run(config, "1", |_| (), CancellationToken::new()).await.unwrap_err();
        assert!(error.exit_code() == 2 && error.to_string().contains(text), "{flags:?}: {error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_agent_stands_by_and_takes_over_without_a_gap() {
    let node = Node::new().await;
    let first = node.start().await;
    node.server.until(|slices| devices(slices) == 8).await;
    node.register().await;
    let second = node.start().await;
    assert_eq!(second.life, 2);
    let waiting = |code, text: &str| code == 200 && text.contains("[!]standby degraded: another gpu-driver serves");
    second.until_told("/readyz", waiting).await;
    second.until_told("/healthz", |code, _| code == 200).await;
    assert!(!node.sockets(2).registration.exists(), "kubelet does not call who stands by");

    first.stop.cancel();
    // The sockets of the second one come while those of the first are there.
    let service = dial_when_there(node.sockets(2).service).await;
    let held = tokio::spawn(unprepare(service, "unknown"));
    assert!(node.sockets(1).registration.exists() && node.sockets(1).service.exists());
    assert_eq!(unprepare(dial(node.sockets(1).service).await, "other").await, "", "the first one still answers");
    node.register().await;
    tokio::time::timeout(Duration::from_secs(20), first.task).await.unwrap().unwrap().unwrap();
    assert!(!node.sockets(1).registration.exists() && !node.sockets(1).service.exists());
    assert_eq!(held.await.unwrap(), "", "the call waited for the state directory");
    second.until_told("/readyz", |code, text| code == 200 && text.contains("[+]slices ok")).await;
    assert_eq!(devices(&node.server.slices()), 8);
    second.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_agent_that_waits_for_the_first_ends_at_once_when_told() {
    let node = Node::new().await;
    let first = node.start().await;
    node.server.until(|slices| devices(slices) == 8).await;
    let second = node.start().await;
    // Nobody takes over from an agent that kubelet does not call yet, so a rollout must not go on.
    second.until_told("/readyz", |code, text| code == 503 && text.contains("is about to serve this node")).await;
    second.stop.cancel();
    tokio::time::timeout(Duration::from_secs(5), second.task).await.unwrap().unwrap().unwrap();
    first.end().await;
}

/// What happened while nobody watched shows in a card's state only; no pod may be put on it in between.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_publish_holds_the_taints_of_cards_that_went_bad_before_the_start() {
    let mut node = Node::new().await;
    node.change(|control| control.gpu_mut(CARDS[1]).unwrap().health.recovery_action = Some(1));
    let agent = node.start().await;
    let first = node.server.until(|slices| devices(slices) == 8).await;
    assert_eq!(taints(&first), [format!("{} recovery=gpu-reset:NoSchedule @1970-01-01T00:16:40Z", name(1))]);
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_card_that_hangs_at_the_start_does_not_hold_up_the_others() {
    let mut node = Node::new().await;
    node.change(|control| {
        control.gpu_mut(CARDS[1]).unwrap().faults.push(nvidia_ml::control::Fault::hang("nvmlDeviceGetTemperature"));
        control.gpu_mut(CARDS[2]).unwrap().health.recovery_action = Some(1);
    });
    let agent = node.start().await;
    let first = node.server.until(|slices| devices(slices) == 8).await;
    assert_eq!(taints(&first), [format!("{} recovery=gpu-reset:NoSchedule @1970-01-01T00:16:40Z", name(2))]);
    node.change(|control| control.gpu_mut(CARDS[1]).unwrap().faults.clear());
    agent.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stores_no_taints_is_told_everywhere_once() {
    let mut node = Node::new().await;
    node.server.drop_taints();
    let agent = node.start().await;
    node.register().await;
    // The server is asked before the cards are read.
    node.server.until_events(1).await;
    node.server.until(|slices| devices(slices) == 8).await;
    node.change(|control| control.gpu_mut(CARDS[1]).unwrap().lost = true);
    // How many taints are wanted is not exact here: on a busy machine a card that is read late is unmonitored for a moment.
    let dropped = |text: &str| text.contains("[!]slices degraded") && !text.contains("degraded: 0 wanted");
    let told = agent.until_told("/readyz", |code, text| code == 200 && dropped(text)).await;
    assert!(told.contains("wanted taints are not stored") && told.contains("DRADeviceTaints"), "{told}");
    agent.until_told("/metrics", |_, text| text.contains("gpu_driver_device_taints_off 1")).await;
    node.change(|control| control.gpu_mut(CARDS[2]).unwrap().lost = true);
    let lost = |text: &str| text.contains("gpu_driver_findings{key=\"lost\"} 2");
    agent.until_told("/metrics", |_, text| lost(text) && !text.contains("gpu_driver_slice_dropped_taints 0")).await;
    agent.end().await;
    // A restarted agent says it again in its log, and the event stands already.
    let agent = node.start().await;
    agent.until_told("/metrics", |_, text| text.contains("gpu_driver_device_taints_off 1")).await;
    agent.until_told("/healthz", |_, _| node.server.count("event") >= 2).await;
    let events = node.server.events();
    assert_eq!((events.len(), &events[0]["reason"]), (1, &json!("DeviceTaintsOff")));
    agent.end().await;
}
