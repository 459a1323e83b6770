//! Preparing and unpreparing on a real directory, against an API server with faults.

mod crashes;
mod keeping;
mod orders;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;

use super::super::checkpoint::Checkpoints;
use super::super::decide::Scope;
use super::super::error::ClaimError;
use super::super::hardware::{Condition, Devices, Hardware, Identity};
use super::super::sweep;
use super::{ClaimRef, Claims, ClaimsConfig, Prepared};
use crate::cdi::Cdi;
use crate::metrics::ClaimMetrics;
use crate::testing::{FakeServer, Fault};

const DRIVER: &str = "gpu.devicetaint.dev";

/// A node: its disk, its devices, and the API server.
struct Node {
    dir: tempfile::TempDir,
    server: FakeServer,
    devices: watch::Sender<Option<Arc<Devices>>>,
    boot: String,
}

impl Node {
    fn new() -> Self {
        let devices = (0..4).map(|n| (format!("gpu-{n}"), hardware(&format!("GPU-{n}"), n))).collect();
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("dev")).unwrap();
        for n in 0..8 {
            fs::write(dir.path().join(format!("dev/nvidia{n}")), "").unwrap();
        }
        let devices = watch::channel(Some(Arc::new(Devices(devices)))).0;
        Self { dir, server: FakeServer::new(), devices, boot: "boot-1".to_owned() }
    }

    /// The agent starts.
    fn start(&self) -> Claims {
        Claims::load(ClaimsConfig {
            scope: Scope { driver: DRIVER.to_owned(), pool: "node-a".to_owned(), boot_id: self.boot.clone() },
            client: self.server.client(),
            devices: self.devices.subscribe(),
            checkpoints: Checkpoints::open(&self.path("state/claims")).unwrap(),
            cdi: Cdi::new(&self.path("cdi"), &self.path("dev"), DRIVER),
            metrics: ClaimMetrics::default(),
        })
        .unwrap()
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The scheduler allocates devices to a claim.
    fn allocate(&self, name: &str, devices: &[&str]) -> ClaimRef {
        let result = |device: &&str| json!({"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": device});
        self.allocated(name, &devices.iter().map(result).collect::<Vec<_>>())
    }

    fn allocated(&self, name: &str, results: &[Value]) -> ClaimRef {
        let claim = claim(name);
        self.server.put_claim(
            "ns",
            name,
            json!({
                "metadata": {"namespace": "ns", "name": name, "uid": claim.uid},
                "spec": {},
                "status": {"allocation": {"devices": {"results": results}}},
            }),
        );
        claim
    }

    fn change(&self, device: &str, change: impl FnOnce(&mut Hardware)) {
        self.devices.send_modify(|devices| {
            let mut all = devices.as_deref().cloned().unwrap_or_default();
            change(all.0.get_mut(device).unwrap());
            *devices = Some(Arc::new(all));
        });
    }

    fn reboot(&mut self) {
        self.boot.push('+');
        fs::remove_dir_all(self.path("cdi")).ok();
    }

    fn spec(&self, claim: &ClaimRef) -> Option<Value> {
        let path = self.path("cdi").join(format!("k8s.{DRIVER}-claim_{}.json", claim.uid));
        fs::read(path).ok().map(|text| serde_json::from_slice(&text).unwrap())
    }

    fn checkpoint(&self, claim: &ClaimRef) -> Option<Value> {
        let path = self.path("state/claims").join(format!("{}.json", claim.uid));
        fs::read(path).ok().map(|text| serde_json::from_slice(&text).unwrap())
    }

    fn is_clean(&self, claim: &ClaimRef) -> bool {
        self.spec(claim).is_none() && self.checkpoint(claim).is_none()
    }
}

fn hardware(uuid: &str, minor: u32) -> Hardware {
    Hardware {
        identity: Identity { uuid: Some(uuid.to_owned()), serial: None, pci: format!("0000:{minor:02x}:00.0") },
        minor: Some(minor),
        condition: Condition::Ready,
        other_owner: None,
    }
}

fn claim(name: &str) -> ClaimRef {
    ClaimRef { uid: format!("uid-{name}"), namespace: "ns".to_owned(), name: name.to_owned() }
}

async fn prepare(claims: &Claims, claim: &ClaimRef) -> Prepared {
    claims.prepare(vec![claim.clone()]).await.remove(&claim.uid).unwrap()
}

async fn unprepare(claims: &Claims, claim: &ClaimRef) {
    claims.unprepare(vec![claim.clone()]).await.remove(&claim.uid).unwrap().unwrap();
}

fn files(dir: &Path) -> usize {
    fs::read_dir(dir).map_or(0, Iterator::count)
}

#[tokio::test(start_paused = true)]
async fn a_claim_is_prepared_answered_again_and_undone() {
    let node = Node::new();
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-1", "gpu-2"]);
    let answer = prepare(&claims, &asked).await.unwrap();
    let ids: Vec<_> = answer.iter().flat_map(|device| device.cdi_ids.clone()).collect();
    assert_eq!(ids, [1, 2].map(|n| format!("k8s.{DRIVER}/claim=uid-a-gpu-{n}")));
    assert_eq!((answer[0].request.as_str(), answer[0].pool.as_str()), ("gpu", "node-a"));
    assert_eq!(node.checkpoint(&asked).unwrap()["state"], "Completed");
    assert_eq!(node.checkpoint(&asked).unwrap()["bootId"], "boot-1");

    fs::remove_dir_all(node.path("cdi")).unwrap();
    let again = prepare(&node.start(), &asked).await.unwrap();
    assert_eq!(again, answer);
    assert!(node.spec(&asked).is_some(), "the spec is made again");

    let claims = node.start();
    node.server.plan("claim", Fault::Cut, 100);
    unprepare(&claims, &asked).await;
    assert!(node.is_clean(&asked));
    unprepare(&claims, &asked).await;
    assert_eq!((files(&node.path("cdi")), files(&node.path("state/claims"))), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn every_refusal_says_what_to_do_and_leaves_nothing() {
    let node = Node::new();
    let claims = node.start();
    node.change("gpu-2", |device| device.condition = Condition::Lost("GPU_IS_LOST (15)".to_owned()));
    node.change("gpu-3", |device| device.condition = Condition::Unknown("NVML is away".to_owned()));
    node.allocate("good", &["gpu-0"]);
    node.allocate("unknown", &["gpu-9"]);
    node.allocate("lost", &["gpu-1", "gpu-2"]);
    node.allocate("unchecked", &["gpu-3"]);
    node.allocated("foreign", &[json!({"request": "r", "driver": DRIVER, "pool": "node-b", "device": "gpu-0"})]);
    node.server.put_claim("ns", "pending", json!({"metadata": {"uid": "uid-pending"}, "spec": {}, "status": {}}));
    node.server.put_claim("ns", "replaced", json!({"metadata": {"uid": "another"}, "spec": {}}));
    let refused = [
        ("unknown", "device gpu-9 is not on this node"),
        ("lost", "device gpu-2 does not answer: GPU_IS_LOST"),
        ("unchecked", "device gpu-3 cannot be checked: NVML is away; it is tried again"),
        ("foreign", "this node serves pool node-a"),
        ("pending", "not allocated"),
        ("replaced", "replaced by another one of the same name (UID another)"),
        ("missing", "does not exist any more"),
    ];
    let asked: Vec<_> = refused.iter().map(|(name, _)| claim(name)).chain([claim("good")]).collect();
    let mut answers = claims.prepare(asked).await;
    assert_eq!(answers.remove("uid-good").unwrap().unwrap().len(), 1, "a bad claim does not harm its neighbour");
    for (name, text) in refused {
        let error = answers.remove(&format!("uid-{name}")).unwrap().unwrap_err().to_string();
        assert!(error.contains(text) && !error.contains('\n'), "{name}: {error}");
        assert!(node.is_clean(&claim(name)), "{name}");
    }
    assert_eq!(prepare(&claims, &node.allocate("after", &["gpu-1"])).await.unwrap().len(), 1, "gpu-1 was not kept");
}

#[tokio::test(start_paused = true)]
async fn a_uid_that_is_no_file_name_is_refused_both_ways() {
    let node = Node::new();
    let claims = node.start();
    let evil = ClaimRef { uid: "../../etc/passwd".to_owned(), ..claim("a") };
    assert!(matches!(prepare(&claims, &evil).await, Err(ClaimError::Uid(_))));
    let answer = claims.unprepare(vec![evil.clone()]).await.remove(&evil.uid).unwrap();
    assert!(matches!(answer, Err(ClaimError::Uid(_))));
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_fails_is_told_and_a_prepared_claim_does_not_need_it() {
    let node = Node::new();
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-0"]);
    for fault in [Fault::Status(500), Fault::Status(503), Fault::Cut, Fault::Silent] {
        node.server.plan("claim", fault, 1);
        let error = prepare(&claims, &asked).await.unwrap_err();
        assert!(matches!(error, ClaimError::Read(_)), "{fault:?}: {error}");
        assert!(node.is_clean(&asked));
    }
    let answer = prepare(&claims, &asked).await.unwrap();
    node.server.plan("claim", Fault::Cut, 1);
    assert_eq!(prepare(&claims, &asked).await.unwrap(), answer);
}

#[tokio::test(start_paused = true)]
async fn devices_of_another_driver_are_not_ours() {
    let node = Node::new();
    let asked = node.allocated("a", &[json!({"request": "r", "driver": "net.example", "pool": "x", "device": "eth"})]);
    assert_eq!(prepare(&node.start(), &asked).await.unwrap(), []);
    assert!(node.is_clean(&asked));
}

#[tokio::test(start_paused = true)]
async fn main_request_names_and_share_ids_are_answered() {
    let node = Node::new();
    let claims = node.start();
    let result = |share: &str| json!({"request": "main/small", "driver": DRIVER, "pool": "node-a", "device": "gpu-0", "shareID": share});
    let first = prepare(&claims, &node.allocated("a", &[result("s1"), result("s2")])).await.unwrap();
    let told: Vec<_> =
        first.iter().map(|d| (d.request.as_str(), d.share_id.as_deref(), d.cdi_ids[0].as_str())).collect();
    let id = |share: &str| format!("k8s.{DRIVER}/claim=uid-a-gpu-0-{share}");
    assert_eq!(told, [("main", Some("s1"), id("s1").as_str()), ("main", Some("s2"), id("s2").as_str())]);
    assert!(prepare(&claims, &node.allocated("b", &[result("s3")])).await.is_ok(), "another share of the same device");
}

/// Field report F24: a forced deletion hands the card over while the old container still runs.
#[tokio::test(start_paused = true)]
async fn a_device_belongs_to_one_claim_until_that_is_unprepared() {
    let node = Node::new();
    let (first, second) = (node.allocate("first", &["gpu-0"]), node.allocate("second", &["gpu-1", "gpu-0"]));
    prepare(&node.start(), &first).await.unwrap();
    let claims = node.start();
    let error = prepare(&claims, &second).await.unwrap_err().to_string();
    assert!(error.contains("gpu-0 is still prepared for claim ns/first"), "{error}");
    assert!(node.is_clean(&second));
    let admin = json!({"request": "r", "driver": DRIVER, "pool": "node-a", "device": "gpu-0", "adminAccess": true});
    assert!(prepare(&claims, &node.allocated("monitor", &[admin])).await.is_ok());
    unprepare(&claims, &first).await;
    assert!(prepare(&claims, &second).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn what_cannot_be_checked_is_answered_within_a_boot_and_not_after_it() {
    let mut node = Node::new();
    let asked = node.allocate("a", &["gpu-0"]);
    let answer = prepare(&node.start(), &asked).await.unwrap();
    node.change("gpu-0", |device| device.condition = Condition::Unknown("NVML is away".to_owned()));
    assert_eq!(prepare(&node.start(), &asked).await.unwrap(), answer);
    node.reboot();
    assert!(matches!(prepare(&node.start(), &asked).await, Err(ClaimError::Unchecked { .. })));
    node.change("gpu-0", |device| device.condition = Condition::Lost("Xid 79".to_owned()));
    assert!(matches!(prepare(&node.start(), &asked).await, Err(ClaimError::Lost { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_claim_allocated_anew_waits_for_its_old_pod_or_a_reboot() {
    let mut node = Node::new();
    let asked = node.allocate("a", &["gpu-0"]);
    prepare(&node.start(), &asked).await.unwrap();
    node.allocate("a", &["gpu-1"]);
    let error = prepare(&node.start(), &asked).await.unwrap_err().to_string();
    assert!(error.contains("allocated anew (gpu-1)") && error.contains("prepared with gpu-0"), "{error}");
    node.reboot();
    let claims = node.start();
    assert_eq!(prepare(&claims, &asked).await.unwrap()[0].device, "gpu-1");
    assert!(prepare(&claims, &node.allocate("b", &["gpu-0"])).await.is_ok(), "the old device is free");
}

#[tokio::test(start_paused = true)]
async fn many_calls_for_one_claim_give_one_answer() {
    let node = Node::new();
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-0"]);
    node.server.plan("claim", Fault::Slow(Duration::from_secs(1)), 3);
    let answers = futures::future::join_all((0..12).map(|_| prepare(&claims, &asked))).await;
    let first = answers[0].as_ref().unwrap();
    assert!(answers.iter().all(|answer| answer.as_ref().unwrap() == first));
}

/// Field report F23 and dra-driver-nvidia-gpu#641: unprepare overtakes prepare, or prepare comes while unprepare is at work.
#[tokio::test(start_paused = true)]
async fn calls_of_one_claim_take_effect_in_the_order_in_which_they_came() {
    let node = Node::new();
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-0"]);
    node.server.plan("claim", Fault::Slow(Duration::from_secs(5)), 1);
    let preparing = tokio::spawn({
        let (claims, asked) = (claims.clone(), asked.clone());
        async move { prepare(&claims, &asked).await }
    });
    while node.server.count("claim") == 0 {
        tokio::task::yield_now().await;
    }
    unprepare(&claims, &asked).await;
    assert!(preparing.await.unwrap().is_ok());
    assert!(node.is_clean(&asked), "the later unprepare wins");
    assert!(prepare(&claims, &asked).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_call_that_waits_too_long_for_its_turn_says_so() {
    let node = Node::new();
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-0"]);
    let turn = claims.0.locks.lock(&asked.uid).await;
    assert!(matches!(prepare(&claims, &asked).await, Err(ClaimError::Busy(25))));
    drop(turn);
    assert!(prepare(&claims, &asked).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_gives_up_does_not_stop_the_work() {
    let node = Node::new();
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-0"]);
    node.server.plan("claim", Fault::Slow(Duration::from_secs(3)), 1);
    let call = prepare(&claims, &asked);
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err());
    claims.drain().await;
    assert_eq!(node.checkpoint(&asked).unwrap()["state"], "Completed");
}

#[tokio::test(start_paused = true)]
async fn before_the_first_look_calls_wait_a_moment() {
    let node = Node::new();
    let all = node.devices.send_replace(None);
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-0"]);
    assert!(matches!(prepare(&claims, &asked).await, Err(ClaimError::Unread)));
    let waiting = tokio::spawn({
        let (claims, asked) = (claims.clone(), asked.clone());
        async move { prepare(&claims, &asked).await }
    });
    tokio::time::sleep(Duration::from_secs(2)).await;
    node.devices.send_replace(all);
    assert!(waiting.await.unwrap().is_ok());
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_refuses_is_told_and_nothing_is_kept() {
    let node = Node::new();
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-0"]);
    fs::write(node.path("cdi"), "a file where a directory should be").unwrap();
    let error = prepare(&claims, &asked).await.unwrap_err().to_string();
    assert!(error.contains("--cdi-root"), "{error}");
    assert!(node.checkpoint(&asked).is_none());
    fs::remove_file(node.path("cdi")).unwrap();
    fs::remove_dir_all(node.path("state/claims")).unwrap();
    let error = prepare(&claims, &asked).await.unwrap_err().to_string();
    assert!(error.contains("--state-dir"), "{error}");
    fs::create_dir(node.path("state/claims")).unwrap();
    assert!(prepare(&claims, &node.allocate("b", &["gpu-0"])).await.is_ok(), "the device was let go");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_gone_is_swept_after_two_looks() {
    let node = Node::new();
    let claims = node.start();
    let (gone, kept) = (node.allocate("gone", &["gpu-0"]), node.allocate("kept", &["gpu-1"]));
    prepare(&claims, &gone).await.unwrap();
    prepare(&claims, &kept).await.unwrap();
    node.server.remove_claim("ns", "gone");
    let stop = tokio_util::sync::CancellationToken::new();
    let sweeping = tokio::spawn(sweep::run(claims.clone(), stop.clone()));
    tokio::time::sleep(sweep::INTERVAL + Duration::from_secs(1)).await;
    assert!(!node.is_clean(&gone), "the container may still run");
    tokio::time::sleep(sweep::INTERVAL).await;
    assert!(node.is_clean(&gone) && !node.is_clean(&kept));
    stop.cancel();
    sweeping.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_device_with_another_owner_gets_no_new_claim_and_keeps_its_old_ones() {
    let mut node = Node::new();
    let claims = node.start();
    let (old, new) = (node.allocate("old", &["gpu-1"]), node.allocate("new", &["gpu-2"]));
    let answered = prepare(&claims, &old).await.unwrap();
    for device in ["gpu-1", "gpu-2"] {
        node.change(device, |hardware| hardware.other_owner = Some("driver gpu.nvidia.com".to_owned()));
    }
    let error = prepare(&claims, &new).await.unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, ClaimError::OtherOwner { .. }), "{text}");
    assert!(text.contains("driver gpu.nvidia.com") && text.contains("--ignore-other-owners"), "{text}");
    assert!(node.is_clean(&new), "a refused claim leaves nothing");
    assert_eq!(prepare(&claims, &old).await.unwrap(), answered, "what is prepared is answered again");
    // After a restart of the agent, and after a reboot, too.
    node.reboot();
    let claims = node.start();
    assert_eq!(prepare(&claims, &old).await.unwrap(), answered);
    unprepare(&claims, &old).await;
    assert!(node.is_clean(&old));
    prepare(&claims, &old).await.unwrap_err();
    node.change("gpu-1", |hardware| hardware.other_owner = None);
    prepare(&claims, &old).await.unwrap();
}
