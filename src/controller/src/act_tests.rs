use super::*;
use crate::testkit::{self, Api, Fault, PODS, RULES};
use cluster::wire::{PodWire, decode};
use http::Method;
use serde_json::json;
use taints::fleet::Change;
use taints::object::Key;

struct Stage {
    api: Api,
    actor: Actor,
    reports: mpsc::Receiver<Report>,
    events: mpsc::Receiver<Event>,
}

fn stage() -> Stage {
    let api = Api::default();
    let (events, events_in) = mpsc::channel(8);
    let (reports, reports_in) = mpsc::channel(8);
    let actor = Actor {
        client: api.client(),
        fleet: Arc::default(),
        rules: watch::channel(Some(RuleVersion::V1)).1,
        clock: Clock::following_tokio(testkit::START.parse().unwrap()),
        metrics: Metrics::default(),
        events,
        reports,
    };
    Stage { api, actor, reports: reports_in, events: events_in }
}

impl Stage {
    /// Stores a pod, and lets the actor know it as it is stored.
    fn pod(&self, change: impl FnOnce(&mut serde_json::Value)) -> Pod {
        let mut pod = testkit::pod("train", None);
        change(&mut pod);
        self.api.put(PODS, pod);
        let pod = decode::<PodWire>(self.api.get(PODS, "ml/train").unwrap()).unwrap();
        self.actor.fleet.write().apply(Change::Pod(pod.clone()));
        pod
    }

    async fn evict(&mut self, pod: &Pod) -> Report {
        let departure = Departure {
            pod: pod.key.clone(),
            uid: pod.uid.clone(),
            resource_version: pod.resource_version.clone(),
            deadline: testkit::START.parse().unwrap(),
            reasons: Vec::new(),
        };
        self.actor.work(Job::Evict(departure)).await;
        self.reports.recv().await.unwrap()
    }

    fn posts(&self) -> usize {
        self.api.asked(&Method::POST, "/eviction")
    }
}

fn retry(report: &Report) -> Option<RetryAfter> {
    match report {
        Report::Failed { retry, .. } => Some(*retry),
        Report::Evicted { .. } | Report::MarkFailed(_) => None,
    }
}

#[tokio::test(start_paused = true)]
async fn an_accepted_eviction_is_told() {
    let mut stage = stage();
    let pod = stage.pod(|_| ());
    assert_eq!(stage.evict(&pod).await, Report::Evicted { pod: pod.key.clone(), uid: pod.uid.clone() });
    assert!(stage.events.recv().await.unwrap().message().starts_with("Marking for deletion"));
    assert_eq!(stage.api.leaving(), ["ml/train"]);
}

#[tokio::test(start_paused = true)]
async fn pods_that_are_not_as_judged_are_not_even_asked() {
    let mut stage = stage();
    let judged = stage.pod(|_| ());
    stage.pod(|pod| pod["metadata"]["labels"] = json!({"new": "label"}));
    assert_eq!(retry(&stage.evict(&judged).await), Some(RetryAfter::Changed));
    let other = stage.pod(|pod| pod["metadata"]["uid"] = json!("another"));
    assert_eq!(retry(&stage.evict(&judged).await), Some(RetryAfter::Changed));
    let finished = stage.pod(|pod| pod["status"]["phase"] = json!("Succeeded"));
    assert_eq!(retry(&stage.evict(&finished).await), Some(RetryAfter::Changed));
    stage.actor.fleet.write().apply(Change::PodGone(Key::new("ml", "train")));
    assert_eq!(retry(&stage.evict(&other).await), Some(RetryAfter::Changed));
    assert_eq!((stage.posts(), stage.api.leaving().len()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn another_pod_of_the_name_that_is_not_known_yet_is_spared_by_the_server() {
    let mut stage = stage();
    let judged = stage.pod(|_| ());
    stage.api.remove(PODS, "ml/train");
    let mut other = testkit::pod("train", None);
    other["metadata"]["uid"] = json!("another");
    stage.api.put(PODS, other);
    assert_eq!(retry(&stage.evict(&judged).await), Some(RetryAfter::Changed));
    assert_eq!((stage.posts(), stage.api.leaving().len()), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn each_fault_is_tried_again_in_its_way() {
    for (fault, expected) in [
        (Fault::Status(409), RetryAfter::Changed),
        (Fault::Budget, RetryAfter::Budget(Some(SignedDuration::from_secs(1)))),
        (Fault::Status(429), RetryAfter::Error),
        (Fault::Status(403), RetryAfter::Error),
        (Fault::Status(500), RetryAfter::Error),
        (Fault::Status(404), RetryAfter::Error),
        (Fault::Hang, RetryAfter::Unanswered),
        (Fault::Cut, RetryAfter::Unanswered),
    ] {
        let mut stage = stage();
        let pod = stage.pod(|_| ());
        stage.api.fail(Method::POST, "/eviction", 1, fault);
        assert_eq!(retry(&stage.evict(&pod).await), Some(expected), "{fault:?}");
        assert!(stage.api.leaving().is_empty(), "{fault:?}");
        assert!(matches!(stage.evict(&pod).await, Report::Evicted { .. }), "{fault:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_got_lost_does_not_evict_twice() {
    let mut stage = stage();
    let pod = stage.pod(|_| ());
    stage.api.fail(Method::POST, "/eviction", 1, Fault::Lost);
    assert_eq!(retry(&stage.evict(&pod).await), Some(RetryAfter::Unanswered));
    assert_eq!(stage.api.leaving(), ["ml/train"]);
    assert_eq!(retry(&stage.evict(&pod).await), Some(RetryAfter::Changed));
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_is_said_to_be_gone_is_left_to_the_watch() {
    let mut stage = stage();
    let pod = stage.pod(|_| ());
    stage.api.remove(PODS, "ml/train");
    assert_eq!(retry(&stage.evict(&pod).await), Some(RetryAfter::Error));
}

fn expired(api: &Api, name: &str) -> Expired {
    let rule = api.get(RULES, name).unwrap();
    Expired { kind: Kind::Rule, name: name.to_owned(), uid: rule["metadata"]["uid"].as_str().unwrap().to_owned() }
}

#[tokio::test(start_paused = true)]
async fn a_mark_is_deleted_with_an_event() {
    let mut stage = stage();
    stage.api.put(RULES, testkit::mark("dt-1", testkit::START));
    stage.actor.work(Job::Expire(expired(&stage.api, "dt-1"))).await;
    assert!(stage.api.get(RULES, "dt-1").is_none());
    let said = stage.events.recv().await.unwrap().message().to_owned();
    assert!(said.contains("on device gpu.devicetaint.dev/n1/gpu-9 by ada") && said.contains(testkit::START), "{said}");
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_was_extended_or_is_another_stays() {
    let stage = stage();
    stage.api.put(RULES, testkit::mark("later", "2026-11-01T10:00:01Z"));
    stage.api.put(RULES, testkit::mark("other", testkit::START));
    stage.api.put(RULES, testkit::rule("not-ours", "gpu-0"));
    let wrong = Expired { uid: "former".to_owned(), ..expired(&stage.api, "other") };
    for job in [expired(&stage.api, "later"), wrong, expired(&stage.api, "not-ours")] {
        stage.actor.work(Job::Expire(job)).await;
    }
    assert_eq!(stage.api.asked(&Method::DELETE, RULES), 0);
}

#[tokio::test(start_paused = true)]
async fn a_mark_that_cannot_be_deleted_is_tried_again() {
    for fault in [Fault::Status(409), Fault::Status(500), Fault::Hang, Fault::Cut] {
        let mut stage = stage();
        stage.api.put(RULES, testkit::mark("dt-1", testkit::START));
        stage.api.fail(Method::DELETE, RULES, 1, fault);
        let job = expired(&stage.api, "dt-1");
        stage.actor.work(Job::Expire(job.clone())).await;
        assert_eq!(stage.reports.recv().await, Some(Report::MarkFailed(job)), "{fault:?}");
    }
}
