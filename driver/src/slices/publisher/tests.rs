//! The publisher against an API server with faults: the wanted state is always reached, and nothing loops.

use std::time::Duration;

use serde_json::{Value, json};
use taints::{Effect, Taint};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::super::api::{Owner, SliceApi};
use super::super::mirror::Mirror;
use super::super::model::{Attribute, Card, Device, Pool};
use super::{Published, Publisher, why_again};
use crate::metrics::SliceMetrics;
use crate::testing::{FakeServer, Fault};

const DRIVER: &str = "gpu.devicetaint.dev";
const LOST: &str = "gpu.devicetaint.dev/lost";

struct Bench {
    server: FakeServer,
    wanted: watch::Sender<Option<Pool>>,
    published: watch::Receiver<Published>,
    metrics: SliceMetrics,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Bench {
    fn start(server: FakeServer) -> Self {
        let owner = Owner { driver: DRIVER.to_owned(), node: "node-a".to_owned() };
        let (wanted, wanted_seen) = watch::channel(None);
        let (published_sender, published) = watch::channel(Published::default());
        let (metrics, stop) = (SliceMetrics::default(), CancellationToken::new());
        let api = SliceApi::new(server.client(), owner);
        let publisher = Publisher::new(api, wanted_seen, published_sender, metrics.clone());
        let task = tokio::spawn(publisher.run(stop.clone()));
        Self { server, wanted, published, metrics, stop, task }
    }

    fn want(&self, pool: Pool) {
        self.wanted.send_replace(Some(pool));
    }

    /// Waits until the publisher says that everything is on the server.
    async fn synced(&mut self) {
        let wait = self.published.wait_for(|published| published.ever && published.unpublished_since.is_none());
        tokio::time::timeout(Duration::from_secs(3600), wait).await.unwrap().unwrap();
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn device(name: &str, taints: &[&str]) -> Device {
    let taint = |key: &&str| Taint {
        key: (*key).to_owned(),
        value: String::new(),
        effect: Effect::NoSchedule,
        time_added: None,
    };
    Device {
        name: name.to_owned(),
        attributes: [("gpu.nvidia.com/uuid".to_owned(), Attribute::String(format!("GPU-{name}")))].into(),
        taints: taints.iter().map(taint).collect(),
        ..Device::default()
    }
}

fn pool(devices: impl IntoIterator<Item = Device>) -> Pool {
    Pool { cards: devices.into_iter().map(|device| Card { devices: vec![device] }).collect() }
}

/// So many cards that two slices are needed.
fn big(tainted: &[usize]) -> Pool {
    let taints = |n: usize| if tainted.contains(&n) { &[LOST][..] } else { &[] };
    pool((0..70).map(|n| device(&format!("gpu-{n}"), taints(n))))
}

fn tainted(slices: &[Value]) -> Vec<String> {
    let devices = slices.iter().flat_map(|slice| slice["spec"]["devices"].as_array().cloned().unwrap_or_default());
    let mut names: Vec<String> = devices
        .filter(|device| device["taints"].as_array().is_some_and(|taints| !taints.is_empty()))
        .map(|device| device["name"].as_str().unwrap().to_owned())
        .collect();
    names.sort();
    names
}

fn count(slices: &[Value]) -> usize {
    slices.iter().map(|slice| slice["spec"]["devices"].as_array().map_or(0, Vec::len)).sum()
}

#[tokio::test(start_paused = true)]
async fn the_first_slice_is_owned_by_the_node_and_an_empty_node_has_an_empty_one() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(Pool::default());
    bench.synced().await;
    let slices = bench.server.slices();
    assert_eq!((slices.len(), count(&slices)), (1, 0));
    let owner = &slices[0]["metadata"]["ownerReferences"][0];
    assert_eq!(
        (&owner["kind"], &owner["uid"], &owner["controller"]),
        (&json!("Node"), &json!("node-uid"), &json!(true))
    );
    let pool = json!({"name": "node-a", "generation": 1, "resourceSliceCount": 1});
    assert_eq!((&slices[0]["spec"]["pool"], &slices[0]["spec"]["nodeName"]), (&pool, &json!("node-a")));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_taint_is_one_patch_whose_moment_is_repeated_later() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(big(&[]));
    bench.synced().await;
    bench.want(big(&[3]));
    bench.server.until(|slices| tainted(slices) == ["gpu-3"]).await;
    bench.server.set_clock(2_000);
    bench.want(big(&[3, 4]));
    let slices = bench.server.until(|slices| tainted(slices) == ["gpu-3", "gpu-4"]).await;
    bench.synced().await;
    assert_eq!((bench.server.count("patch"), bench.server.count("create")), (2, 2));
    let times: Vec<_> = [3, 4].map(|n| slices[0]["spec"]["devices"][n]["taints"][0]["timeAdded"].clone()).into();
    assert_eq!(times, [json!("1970-01-01T00:16:40Z"), json!("1970-01-01T00:33:20Z")]);
    assert!(slices.iter().all(|slice| slice["spec"]["pool"]["generation"] == 1));
    let told = bench.published.borrow().taints["gpu-3"].taints[0].time_added;
    assert_eq!(told.map(jiff::Timestamp::as_second), Some(1_000));
    bench.end().await;
}

/// Kubelet deletes every slice of its node when it starts; a publisher that does not notice is stuck (dra-driver-nvidia-gpu#330).
#[tokio::test(start_paused = true)]
async fn wiped_slices_come_back_with_their_moments() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(big(&[3]));
    bench.synced().await;
    bench.server.set_clock(5_000);
    let mut remembered = big(&[3]);
    let at = bench.published.borrow().taints["gpu-3"].taints[0].time_added;
    remembered.cards[3].devices[0].taints[0].time_added = at;
    bench.want(remembered);
    bench.server.wipe();
    let slices = bench.server.until(|slices| count(slices) == 70).await;
    bench.synced().await;
    assert_eq!(slices[0]["spec"]["devices"][3]["taints"][0]["timeAdded"], json!("1970-01-01T00:16:40Z"));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_wipe_by_kubelet_is_told_from_a_change_by_somebody() {
    assert!(why_again(&Mirror::new("node-a")).contains("kubelet removes them when it starts"));
    let mut bench = Bench::start(FakeServer::new());
    bench.want(big(&[]));
    bench.synced().await;
    let api = SliceApi::new(bench.server.client(), Owner { driver: DRIVER.to_owned(), node: "node-a".to_owned() });
    let mut mirror = Mirror::new("node-a");
    mirror.replace(api.list().await.unwrap().0);
    assert!(why_again(&mirror).contains("changed by somebody else"));
    bench.end().await;
}

/// Field report F15, for every call and every way in which it can fail.
#[tokio::test(start_paused = true)]
async fn whatever_fails_the_taint_arrives() {
    let faults = [
        Fault::Status(409),
        Fault::Status(429),
        Fault::Status(500),
        Fault::Status(503),
        Fault::Status(410),
        Fault::Cut,
        Fault::CutAfter,
        Fault::Silent,
        Fault::Empty,
        Fault::Slow(Duration::from_secs(30)),
    ];
    for verb in ["list", "watch", "create", "patch", "delete", "node", "version"] {
        for fault in faults {
            for times in [1, 3] {
                let server = FakeServer::new();
                server.put_slice(json!({
                    "metadata": {"name": "0004a-old"},
                    "spec": {"driver": DRIVER, "nodeName": "node-a", "devices": [],
                        "pool": {"name": "node-a", "generation": 7, "resourceSliceCount": 1}},
                }));
                server.plan(verb, fault, times);
                let mut bench = Bench::start(server);
                bench.want(big(&[]));
                bench.server.until(|slices| count(slices) == 70 && slices.len() == 2).await;
                bench.want(big(&[5, 69]));
                bench.server.until(|slices| tainted(slices) == ["gpu-5", "gpu-69"] && slices.len() == 2).await;
                bench.synced().await;
                // A broken watch is opened once more; then all is quiet.
                tokio::time::sleep(Duration::from_secs(30)).await;
                let calls = bench.server.calls().len();
                tokio::time::sleep(Duration::from_secs(60)).await;
                assert_eq!(bench.server.calls().len(), calls, "{verb} {fault:?}: no further calls once all is there");
                bench.end().await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_counted_told_and_forgotten_after_success() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(big(&[]));
    bench.synced().await;
    bench.server.plan("patch", Fault::Status(500), 8);
    bench.want(big(&[1]));
    bench.published.wait_for(|published| published.error.is_some()).await.unwrap();
    assert_eq!(bench.metrics.unpublished.get(), 1);
    let error = bench.published.borrow().error.clone().unwrap();
    assert!(error.contains("cannot patch ResourceSlice 00000-") && error.contains("500"), "{error}");
    bench.server.until(|slices| tainted(slices) == ["gpu-1"]).await;
    bench.published.wait_for(|published| published.error.is_none()).await.unwrap();
    assert_eq!((bench.metrics.failures.get(), bench.metrics.unpublished.get()), (8, 0));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_taints_is_not_written_to_again_and_asked_seldom() {
    let server = FakeServer::new();
    server.drop_taints();
    let mut bench = Bench::start(server);
    bench.want(pool([device("gpu-0", &[LOST])]));
    bench.synced().await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((bench.server.count("create"), bench.server.count("patch")), (1, 0));
    assert!(bench.server.count("probe") <= 5, "{}", bench.server.count("probe"));
    assert_eq!((bench.published.borrow().taints_off, bench.published.borrow().dropped_taints), (true, 1));
    assert_eq!((bench.metrics.taints_off.get(), bench.metrics.dropped_taints.get()), (1, 1));
    bench.end().await;
}

/// Who installs the agent hears of it at once, and not when the first card is bad.
#[tokio::test(start_paused = true)]
async fn a_server_without_taints_is_found_out_before_the_first_taint() {
    let server = FakeServer::new();
    server.drop_taints();
    let mut bench = Bench::start(server);
    bench.want(pool([device("gpu-0", &[])]));
    bench.published.wait_for(|published| published.taints_off).await.unwrap();
    bench.synced().await;
    assert_eq!((bench.server.slices().len(), bench.server.count("create"), bench.server.count("patch")), (1, 1, 0));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn taints_are_published_once_the_server_stores_them() {
    let server = FakeServer::new();
    server.drop_taints();
    let mut bench = Bench::start(server);
    bench.want(big(&[3, 69]));
    bench.synced().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!((bench.server.count("create"), bench.server.count("patch")), (2, 0));
    bench.server.keep_taints();
    let (switched, generation) =
        (tokio::time::Instant::now(), |slice: &Value| slice["spec"]["pool"]["generation"].as_i64());
    let slices = bench.server.until(|slices| tainted(slices) == ["gpu-3", "gpu-69"]).await;
    assert!(switched.elapsed() <= Duration::from_secs(600), "{:?}", switched.elapsed());
    bench.published.wait_for(|published| !published.taints_off && published.dropped_taints == 0).await.unwrap();
    assert_eq!((bench.server.count("patch"), generation(&slices[0]), generation(&slices[1])), (2, Some(2), Some(2)));
    assert_eq!((bench.metrics.taints_off.get(), bench.metrics.dropped_taints.get()), (0, 0));
    let probes = bench.server.count("probe");
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(bench.server.count("probe"), probes, "a server that stores taints is not asked any more");
    bench.end().await;
}

/// A feature gate is turned on by a restart of the API server, which breaks the watch.
#[tokio::test(start_paused = true)]
async fn after_a_restart_of_the_server_taints_are_published_within_seconds() {
    let server = FakeServer::new();
    server.drop_taints();
    let mut bench = Bench::start(server);
    bench.want(pool([device("gpu-0", &[LOST])]));
    bench.synced().await;
    tokio::time::sleep(Duration::from_secs(3600)).await;
    bench.server.keep_taints();
    let restarted = tokio::time::Instant::now();
    bench.server.plan("watch", Fault::Cut, 1);
    bench.server.close_watches();
    bench.server.until(|slices| tainted(slices) == ["gpu-0"]).await;
    assert!(restarted.elapsed() < Duration::from_secs(10), "{:?}", restarted.elapsed());
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_trial_that_is_refused_or_silent_keeps_nothing_from_being_published() {
    for fault in [Fault::Status(403), Fault::Silent, Fault::Cut] {
        let server = FakeServer::new();
        server.plan("probe", fault, 1_000);
        let mut bench = Bench::start(server);
        bench.want(big(&[]));
        bench.synced().await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        let began = tokio::time::Instant::now();
        bench.want(big(&[1]));
        bench.server.until(|slices| tainted(slices) == ["gpu-1"]).await;
        assert_eq!(began.elapsed(), Duration::ZERO, "{fault:?}");
        tokio::time::sleep(Duration::from_secs(3600)).await;
        assert_eq!((bench.published.borrow().taints_off, bench.metrics.failures.get()), (false, 0), "{fault:?}");
        bench.end().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_old_server_gets_what_it_accepts() {
    let server = FakeServer::new();
    server.set_minor("34");
    let mut bench = Bench::start(server);
    let mut with_none = device("gpu-0", &[LOST]);
    with_none.taints.push(Taint {
        key: "gpu.devicetaint.dev/thermal".to_owned(),
        value: String::new(),
        effect: Effect::None,
        time_added: None,
    });
    bench.want(pool([with_none]));
    bench.synced().await;
    assert_eq!(bench.server.slices()[0]["spec"]["devices"][0]["taints"].as_array().unwrap().len(), 1);
    assert_eq!(bench.published.borrow().problems.len(), 1);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_foreign_change_is_put_right_at_once_and_a_fight_slows_down() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(pool([device("gpu-0", &[])]));
    bench.synced().await;
    let began = tokio::time::Instant::now();
    bench.server.spoil();
    bench.server.until(|slices| slices[0]["spec"]["devices"][0]["name"] == "gpu-0").await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    for _ in 0..300 {
        bench.server.spoil();
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    let patches = bench.server.count("patch");
    assert!(patches < 30, "{patches} writes in 300 s");
    bench.server.until(|slices| slices[0]["spec"]["devices"][0]["name"] == "gpu-0").await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn only_the_newest_wish_is_written_after_a_slow_write() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(big(&[]));
    bench.synced().await;
    bench.server.plan("patch", Fault::Slow(Duration::from_secs(2)), 1);
    for n in 0..20 {
        bench.want(big(&[n]));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    bench.server.until(|slices| tainted(slices) == ["gpu-19"]).await;
    assert_eq!(bench.server.count("patch"), 2);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_there_is_named_and_waited_for() {
    let server = FakeServer::new();
    server.set_node(None);
    let mut bench = Bench::start(server);
    bench.want(Pool::default());
    let published = bench.published.wait_for(|published| published.error.is_some()).await.unwrap();
    assert!(published.error.as_ref().unwrap().contains("--node-name"), "{published:?}");
    drop(published);
    bench.server.set_node(Some("late"));
    let slices = bench.server.until(|slices| slices.len() == 1).await;
    assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["uid"], "late");
    bench.end().await;
}

/// A node that was deleted and made again takes its slices with it, and has another UID.
#[tokio::test(start_paused = true)]
async fn slices_of_a_new_node_object_are_owned_by_it() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(Pool::default());
    bench.synced().await;
    bench.server.set_node(Some("second"));
    bench.server.wipe();
    let slices = bench.server.until(|slices| !slices.is_empty()).await;
    assert_eq!(slices[0]["metadata"]["ownerReferences"][0]["uid"], "second");
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn nothing_is_written_before_the_devices_are_known() {
    let bench = Bench::start(FakeServer::new());
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(bench.server.slices().len(), 0);
    assert!(!bench.published.borrow().ever);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_slice_of_ours_is_replaced() {
    let server = FakeServer::new();
    server.put_slice(json!({"metadata": {"name": "00000-odd"}, "spec": {"driver": DRIVER, "pool": "what?"}}));
    let mut bench = Bench::start(server);
    bench.want(pool([device("gpu-0", &[])]));
    bench.server.until(|slices| slices.len() == 1 && slices[0]["metadata"]["name"] != "00000-odd").await;
    bench.synced().await;
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_watch_that_ends_goes_on_where_it_was() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(big(&[]));
    bench.synced().await;
    for _ in 0..3 {
        tokio::time::sleep(Duration::from_secs(120)).await;
        bench.server.close_watches();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((bench.server.count("watch"), bench.server.count("list")), (4, 1));
    bench.server.wipe();
    bench.server.until(|slices| count(slices) == 70).await;
    bench.synced().await;
    assert_eq!(bench.server.count("list"), 1);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_ends_every_watch_at_once_is_not_asked_in_a_loop() {
    let server = FakeServer::new();
    server.plan("watch", Fault::Empty, 10_000);
    let mut bench = Bench::start(server);
    bench.want(big(&[]));
    bench.synced().await;
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(bench.server.count("watch") < 30, "{}", bench.server.count("watch"));
    bench.want(big(&[1]));
    bench.server.until(|slices| tainted(slices) == ["gpu-1"]).await;
    bench.end().await;
}

/// Eight cards that raise events for a while are no fight with another writer.
#[tokio::test(start_paused = true)]
async fn wishes_that_change_all_the_time_are_written_without_a_failure() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(big(&[]));
    bench.synced().await;
    bench.server.plan("patch", Fault::Slow(Duration::from_millis(10)), 1_000);
    for n in 0..200 {
        bench.want(big(&[n % 60]));
        tokio::time::sleep(Duration::from_millis(7)).await;
    }
    bench.server.until(|slices| tainted(slices) == ["gpu-19"]).await;
    assert_eq!(bench.metrics.failures.get(), 0);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn writes_that_were_begun_are_finished_before_the_end() {
    let mut bench = Bench::start(FakeServer::new());
    bench.want(big(&[]));
    bench.synced().await;
    bench.server.plan("patch", Fault::Slow(Duration::from_secs(1)), 2);
    bench.want(big(&[1, 69]));
    tokio::time::sleep(Duration::from_millis(500)).await;
    bench.stop.cancel();
    bench.task.await.unwrap();
    let slices = bench.server.slices();
    assert_eq!(tainted(&slices), ["gpu-1", "gpu-69"]);
    assert!(slices.iter().all(|slice| slice["spec"]["pool"]["generation"] == 2));
}
