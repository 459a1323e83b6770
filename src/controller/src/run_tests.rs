//! All tasks together, on the paused clock, against the API server of the testkit.

use super::*;
use crate::args::ModeArg;
use crate::testkit::*;
use ::http::Method;
use clap::Parser as _;
use serde_json::json;
use tokio::task::JoinHandle;

/// A controller at work.
struct Running {
    shared: Shared,
    stop: CancellationToken,
    task: JoinHandle<Result<(), RunError>>,
}

impl Running {
    fn start(api: &Api, args: &Args, clock: &Clock) -> Self {
        let stop = CancellationToken::new();
        let shared = Shared { health: Health::default(), metrics: Metrics::default() };
        let mut tasks = Tasks { set: JoinSet::new(), stop: stop.clone() };
        let seen = args.state_dir.as_deref().map(|directory| store::load(directory).unwrap());
        spawn_flow(&mut tasks, args, api.client(), clock.clone(), &shared, seen);
        Self { shared, stop, task: tokio::spawn(tasks.wait()) }
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap().unwrap();
    }

    fn metric(&self, line: &str) -> bool {
        self.shared.metrics.text().lines().any(|found| found == line)
    }
}

fn clock() -> Clock {
    Clock::following_tokio(START.parse().unwrap())
}

fn seconds(clock: &Clock) -> i64 {
    clock.now().duration_since(START.parse().unwrap()).as_secs()
}

fn enforce() -> Args {
    let mut args = Args::parse_from(["device-taint-controller"]);
    (args.device_mode, args.node_mode) = (ModeArg::Enforce, ModeArg::Enforce);
    args
}

/// Node n1; two pods that share gpu-0, one that tolerates for 10 s on gpu-1, one for ever on gpu-2, one without a GPU.
fn cluster() -> Api {
    let api = Api::default();
    api.put(NODES, node(None));
    api.put(SLICES, slice(&["gpu-0", "gpu-1", "gpu-2"]));
    api.put(CLAIMS, claim("shared", "gpu-0", &json!([]), &["a", "b"]));
    api.put(CLAIMS, claim("ten", "gpu-1", &tolerates(Some(10)), &["c"]));
    api.put(CLAIMS, claim("ever", "gpu-2", &tolerates(None), &["d"]));
    for (name, claim) in
        [("a", Some("shared")), ("b", Some("shared")), ("c", Some("ten")), ("d", Some("ever")), ("e", None)]
    {
        api.put(PODS, pod(name, claim));
    }
    api
}

/// Taints every device.
fn taint_all(api: &Api) {
    for device in ["gpu-0", "gpu-1", "gpu-2"] {
        api.put(RULES, rule(&format!("broken-{device}"), device));
    }
}

#[tokio::test(start_paused = true)]
async fn exactly_the_right_pods_go_at_their_time() {
    let (api, clock) = (cluster(), clock());
    let running = Running::start(&api, &enforce(), &clock);
    api.until("ready", |_| running.shared.health.readiness().0).await;
    taint_all(&api);
    api.until("two pods leave at once", |api| api.leaving() == ["ml/a", "ml/b"]).await;
    assert!(seconds(&clock) < 5);
    api.until("the third leaves", |api| api.leaving() == ["ml/a", "ml/b", "ml/c"]).await;
    assert_eq!(seconds(&clock), 10);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((api.leaving().len(), api.asked(&Method::POST, "/eviction")), (3, 3));
    let (warned, events): (Vec<String>, Vec<String>) =
        api.events().into_iter().partition(|event| event.contains("Countdown"));
    assert_eq!(events.len(), 3);
    assert_eq!(warned.len(), 1, "who leaves at once is not warned");
    assert!(
        warned[0].starts_with("ml/c DeviceTaintCountdown: Will be evicted at 2026-11-01T10:00:10Z: device"),
        "{warned:?}"
    );
    assert!(events[0].starts_with("ml/a DeviceTaintManagerEviction: Marking for deletion: device"), "{events:?}");
    assert!(
        events[0].contains("example.com/broken") && events[0].contains("DeviceTaintRule broken-gpu-0"),
        "{events:?}"
    );
    assert!(running.metric("device_taint_evictions_total{outcome=\"accepted\"} 3"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn observing_evicts_nobody_and_says_who_would_go() {
    let (api, clock) = (cluster(), clock());
    taint_all(&api);
    let running = Running::start(&api, &Args::parse_from(["c"]), &clock);
    api.until("told", |_| running.metric("device_taint_told_total 3")).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!((api.asked(&Method::POST, ""), api.leaving().len()), (0, 0));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_countdown_that_loses_its_taint_is_cancelled() {
    let (api, clock) = (cluster(), clock());
    api.put(RULES, rule("broken", "gpu-1"));
    let running = Running::start(&api, &enforce(), &clock);
    api.until("counting", |_| running.metric("device_taint_pods_pending 1")).await;
    api.remove(RULES, "broken");
    api.until("cancelled", |api| api.events().iter().any(|event| event.contains("Cancelling deletion"))).await;
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert!(api.leaving().is_empty() && running.metric("device_taint_pods_pending 0"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_taint_and_a_device_taint_are_one_verdict() {
    let (api, clock) = (cluster(), clock());
    api.put(RULES, rule("broken", "gpu-0"));
    let mut tainted = node(Some("example.com/maintenance"));
    tainted["metadata"]["uid"] = json!("uid-n1");
    api.put(NODES, tainted);
    let running = Running::start(&api, &enforce(), &clock);
    api.until("all leave", |api| api.leaving().len() == 5 && api.events().len() == 5).await;
    let of = |pod: &str| api.events().into_iter().find(|event| event.starts_with(pod)).unwrap();
    let (both, alone) = (of("ml/a "), of("ml/e "));
    assert!(both.contains("DeviceTaintManagerEviction") && both.contains("maintenance"), "{both}");
    assert!(alone.contains(" TaintManagerEviction: Marking for deletion Pod ml/e: node n1"), "{alone}");
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_fault_of_an_eviction_ends_in_exactly_one() {
    for fault in [
        Fault::Status(409),
        Fault::Status(429),
        Fault::Status(500),
        Fault::Status(403),
        Fault::Status(404),
        Fault::Budget,
        Fault::Hang,
        Fault::Cut,
        Fault::Lost,
    ] {
        let (api, clock) = (cluster(), clock());
        api.put(RULES, rule("broken", "gpu-1"));
        api.fail(Method::POST, "/eviction", 2, fault);
        let running = Running::start(&api, &enforce(), &clock);
        api.until("it leaves", |api| api.leaving() == ["ml/c"]).await;
        tokio::time::sleep(Duration::from_secs(600)).await;
        assert!(api.asked(&Method::POST, "/eviction") <= 3, "{fault:?}");
        let told = |what: &str| api.events().iter().filter(|event| event.contains(what)).count();
        assert_eq!((told("Countdown"), told("Marking")), (1, 1), "{fault:?}: each once: {:?}", api.events());
        assert!(running.metric("device_taint_evictions_total{outcome=\"accepted\"} 1"), "{fault:?}");
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_keeps_deadlines_and_evicts_nobody_twice() {
    let (api, clock) = (cluster(), clock());
    taint_all(&api);
    let first = Running::start(&api, &enforce(), &clock);
    api.until("the first leave", |api| api.leaving() == ["ml/a", "ml/b"]).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    first.stop().await;
    let second = Running::start(&api, &enforce(), &clock);
    api.until("the third leaves", |api| api.leaving() == ["ml/a", "ml/b", "ml/c"]).await;
    assert_eq!(seconds(&clock), 10);
    tokio::time::sleep(Duration::from_secs(600)).await;
    assert_eq!(api.asked(&Method::POST, "/eviction"), 3);
    assert_eq!(api.asked(&Method::POST, "/events"), 5, "the second warns again, not knowing of the first");
    assert_eq!(api.events().iter().filter(|event| event.contains("Countdown")).count(), 1, "and it is one event");
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_countdown_without_a_time_goes_on_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let args = Args { state_dir: Some(directory.path().to_owned()), ..enforce() };
    let (api, clock) = (cluster(), clock());
    let mut patient = pod("e", None);
    patient["spec"]["tolerations"] = tolerates(Some(30));
    api.put(PODS, patient);
    let first = Running::start(&api, &args, &clock);
    api.until("ready", |_| first.shared.health.readiness().0).await;
    let mut tainted = node(Some("example.com/maintenance"));
    tainted["metadata"]["uid"] = json!("uid-n1");
    api.put(NODES, tainted);
    api.until("counting", |api| api.leaving().len() == 4).await;
    let began = seconds(&clock);
    tokio::time::sleep(Duration::from_secs(20)).await;
    first.stop().await;
    let second = Running::start(&api, &args, &clock);
    api.until("it leaves", |api| api.leaving().len() == 5).await;
    assert!((30..=31).contains(&(seconds(&clock) - began)), "after {} s", seconds(&clock) - began);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_at_the_start_is_waited_for() {
    let (api, clock) = (cluster(), clock());
    taint_all(&api);
    api.fail(Method::GET, "/version", 5, Fault::Cut);
    api.fail(Method::GET, "/resourceslices", 4, Fault::Status(503));
    let running = Running::start(&api, &enforce(), &clock);
    api.until("the failures are shown", |_| running.shared.health.readiness().1.contains("resourceslices: not synced"))
        .await;
    assert!(api.leaving().is_empty() && !running.shared.health.readiness().0);
    api.until("ready", |_| running.shared.health.readiness().0).await;
    api.until("they leave", |api| api.leaving().len() == 3).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn nobody_is_evicted_on_a_picture_that_is_not_whole() {
    let (api, clock) = (cluster(), clock());
    api.put(RULES, rule("broken", "gpu-1"));
    let running = Running::start(&api, &enforce(), &clock);
    api.until("counting", |_| running.metric("device_taint_pods_pending 1")).await;
    api.fail(Method::GET, "/devicetaintrules", 8, Fault::Status(500));
    api.cut_watches();
    api.remove(RULES, "broken");
    api.until("not ready", |_| !running.shared.health.readiness().0).await;
    api.until("ready again", |_| running.shared.health.readiness().0).await;
    assert!(seconds(&clock) > 10);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(api.asked(&Method::POST, "/eviction"), 0);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_without_rules_still_has_slices_and_nodes() {
    let (api, clock) = (cluster(), clock());
    api.serve_rules(false);
    let mut tainted = slice(&["gpu-0", "gpu-1", "gpu-2"]);
    tainted["metadata"]["uid"] = json!(format!("uid-n1-slice"));
    tainted["spec"]["devices"][0]["taints"] =
        json!([{"key": "gpu.devicetaint.dev/lost", "effect": "NoExecute", "timeAdded": START}]);
    api.put(SLICES, tainted);
    let running = Running::start(&api, &enforce(), &clock);
    api.until("they leave", |api| api.leaving() == ["ml/a", "ml/b"]).await;
    assert!(running.shared.health.readiness().1.contains("devicetaintrules: not served"));
    api.put(RULES, rule("broken", "gpu-1"));
    api.serve_rules(true);
    api.until("rules count too, once they are served", |api| api.leaving() == ["ml/a", "ml/b", "ml/c"]).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stops_serving_rules_is_met_with_a_new_start() {
    let (api, clock) = (cluster(), clock());
    let running = Running::start(&api, &enforce(), &clock);
    api.until("ready", |_| running.shared.health.readiness().0).await;
    api.serve_rules(false);
    let error = running.task.await.unwrap().unwrap_err().to_string();
    assert!(error.contains("no version now, and were in v1"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_mark_ends_at_its_time_even_when_only_observing() {
    for form in [RULES, MARKS] {
        let (api, clock) = (cluster(), clock());
        api.serve_rules(form == RULES);
        api.put(form, mark("dt-1", "2026-11-01T10:01:00Z"));
        api.fail(Method::DELETE, form, 2, Fault::Status(500));
        let running = Running::start(&api, &Args::parse_from(["c"]), &clock);
        api.until("it is gone", |api| api.get(form, "dt-1").is_none()).await;
        assert!((60..=90).contains(&seconds(&clock)), "after {} s", seconds(&clock));
        api.until("told", |api| api.events().iter().any(|event| event.starts_with("dt-1 MarkExpired"))).await;
        running.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_eviction_for_a_taint_of_the_slice_says_who_marked_the_device() {
    let (api, clock) = (cluster(), clock());
    api.serve_rules(false);
    let mut wished = rule("dt-1", "gpu-0");
    wished["metadata"]["annotations"] = json!({"devicetaint.dev/by": "ada", "devicetaint.dev/reason": "replace a fan"});
    let taint = wished["spec"]["taint"].clone();
    api.put(MARKS, wished);
    let mut tainted = slice(&["gpu-0", "gpu-1", "gpu-2"]);
    tainted["metadata"]["uid"] = json!("uid-n1-slice");
    tainted["metadata"]["labels"] = json!({"devicetaint.dev/follows-marks": "v1alpha1"});
    tainted["spec"]["devices"][0]["taints"] = json!([taint]);
    api.put(SLICES, tainted);
    let running = Running::start(&api, &enforce(), &clock);
    api.until("they leave", |api| api.leaving() == ["ml/a", "ml/b"]).await;
    let words = "by DeviceMark dt-1 of ada: \"replace a fan\"";
    api.until("told", |api| api.events().iter().filter(|event| event.contains(words)).count() == 2).await;
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn marks_that_may_not_be_read_hold_no_eviction_up() {
    let (api, clock) = (cluster(), clock());
    taint_all(&api);
    api.fail(Method::GET, MARKS, usize::MAX, Fault::Status(403));
    let running = Running::start(&api, &enforce(), &clock);
    api.until("they leave", |api| api.leaving().len() == 3).await;
    assert!(running.shared.health.readiness().1.contains("devicemarks: not synced"));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn objects_that_cannot_be_understood_are_counted_and_stop_nothing() {
    let (api, clock) = (cluster(), clock());
    let mut odd = pod("odd", Some("shared"));
    odd["status"]["phase"] = json!("Dreaming");
    api.put(PODS, odd);
    taint_all(&api);
    let running = Running::start(&api, &enforce(), &clock);
    api.until("the others leave", |api| api.leaving() == ["ml/a", "ml/b", "ml/c"]).await;
    assert!(running.metric("device_taint_malformed_objects_total{kind=\"pods\"} 1"));
    running.stop().await;
}

/// The same over a real connection, with the client that `connect` makes: kube's retries would show here, and only here.
#[tokio::test]
async fn over_http_three_hundred_pods_go_together() {
    let directory = tempfile::tempdir().unwrap();
    let api = Api::default();
    let names: Vec<String> = (0..300).map(|number| format!("p{number:03}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    api.put(NODES, node(None));
    api.put(SLICES, slice(&["gpu-0"]));
    api.put(CLAIMS, claim("shared", "gpu-0", &json!([]), &names));
    names.iter().for_each(|name| api.put(PODS, pod(name, Some("shared"))));
    let kubeconfig = directory.path().join("kubeconfig");
    std::fs::write(&kubeconfig, api.listen().await).unwrap();
    let listen = "127.0.0.1:0".parse().unwrap();
    let args = Args { kubeconfig: Some(kubeconfig), state_dir: Some(directory.path().to_owned()), listen, ..enforce() };
    api.fail(Method::POST, "/eviction", 3, Fault::Status(429));
    api.fail(Method::POST, "/eviction", 3, Fault::Cut);
    let stop = CancellationToken::new();
    let ending = stop.clone();
    let task = tokio::spawn(async move { run(&args, Clock::system(), &mut Vec::new(), ending).await });
    api.put(RULES, rule("broken", "gpu-0"));
    api.until("all leave", |api| api.leaving().len() == 300).await;
    assert_eq!(api.asked(&Method::POST, "/eviction"), 306);
    stop.cancel();
    task.await.unwrap().unwrap();
}
