//! Events: where a person finds out, with `kubectl describe`, why a pod was asked to leave, or what a node's agent met.
//!
//! Reasons and the beginning of each message are those of Kubernetes' own controllers, so that existing searches and alerts
//! work; what follows is ours. An event is a courtesy: it is bounded by a [`Bucket`], and nothing waits for it.

use std::fmt::Write as _;
use std::time::Duration;

use http::{Request, header::CONTENT_TYPE};
use jiff::Timestamp;
use kube::Client;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use taints::object::Key;
use tokio::time::Instant;

use crate::call::{CallError, within};
use crate::kind::Kind;
use crate::mark::Form;

/// The component that the controller's events name as their source.
pub const COMPONENT: &str = "device-taint-controller";

/// The namespace for events about objects that have none.
const CLUSTER_NAMESPACE: &str = "default";

/// events.k8s.io allows no more bytes.
const MESSAGE_LIMIT: usize = 1024;

/// How long one event may take to be written.
const LIMIT: Duration = Duration::from_secs(5);

/// Which of the taints a pod's event is about; Kubernetes has one controller, and so one event reason, for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// At least one device (`DeviceTaintManagerEviction`).
    Device,
    /// The node alone (`TaintManagerEviction`).
    Node,
}

/// An event to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    regarding: Value,
    namespace: String,
    name: String,
    uid: String,
    reason: &'static str,
    message: String,
    /// `Normal` or `Warning`.
    kind: &'static str,
    /// Who says it.
    component: &'static str,
    same: Same,
}

/// What makes two writings one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Same {
    /// Its words, at this moment.
    Moment,
    /// This deadline, in whatever words.
    Deadline(Timestamp),
    /// Its words, whenever they are told: as long as the server keeps the event, it is not written anew.
    Words,
}

/// A pod that an event is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PodRef {
    /// Namespace and name.
    pub key: Key,
    /// The UID.
    pub uid: String,
}

impl Event {
    /// The pod's eviction was accepted, for these reasons.
    #[must_use]
    pub fn marking(pod: &PodRef, about: About, reasons: &[String]) -> Self {
        Self::of_pod(pod, about, "Marking for deletion", reasons)
    }

    /// The pod's countdown ended before its time; it stays.
    #[must_use]
    pub fn cancelling(pod: &PodRef, about: About, reasons: &[String]) -> Self {
        Self::of_pod(pod, about, "Cancelling deletion", reasons)
    }

    /// The pod will be asked to leave at this time, for these reasons, unless something changes. Told once for each time: a controller that was
    /// started anew does not repeat it.
    #[must_use]
    pub fn counting_down(pod: &PodRef, about: About, deadline: Timestamp, reasons: &[String]) -> Self {
        let reason = match about {
            About::Device => "DeviceTaintCountdown",
            About::Node => "NodeTaintCountdown",
        };
        let head = format!("Will be evicted at {deadline:.0}");
        let event = Self::about_pod(pod, reason, with_reasons(head, reasons));
        Self { kind: "Warning", same: Same::Deadline(deadline), ..event }
    }

    fn about_pod(pod: &PodRef, reason: &'static str, message: String) -> Self {
        let Key { namespace, name } = &pod.key;
        let regarding =
            json!({"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod.uid});
        Self::new(regarding, namespace, name, &pod.uid, reason, message)
    }

    fn of_pod(pod: &PodRef, about: About, what: &str, reasons: &[String]) -> Self {
        let (reason, head) = match (about, what) {
            (About::Device, what) => ("DeviceTaintManagerEviction", what.to_owned()),
            (About::Node, "Cancelling deletion") => ("TaintManagerEviction", format!("{what} of Pod {}", pod.key)),
            (About::Node, what) => ("TaintManagerEviction", format!("{what} Pod {}", pod.key)),
        };
        Self::about_pod(pod, reason, with_reasons(head, reasons))
    }

    /// A mark of ours was deleted because its time had come.
    #[must_use]
    pub fn mark_expired(form: Form, name: &str, uid: &str, message: String) -> Self {
        let api_version = form.resource().api_version;
        let regarding = json!({"apiVersion": api_version, "kind": form.kind().name(), "name": name, "uid": uid});
        Self::new(regarding, CLUSTER_NAMESPACE, name, uid, "MarkExpired", message)
    }

    /// Something that this component found out about a node, and that a person should know. Told once in these words, by a component that was
    /// started anew too.
    #[must_use]
    pub fn node_warning(component: &'static str, node: &str, uid: &str, reason: &'static str, message: String) -> Self {
        let regarding = json!({"apiVersion": "v1", "kind": Kind::Node.name(), "name": node, "uid": uid});
        let event = Self::new(regarding, CLUSTER_NAMESPACE, node, uid, reason, message);
        Self { kind: "Warning", component, same: Same::Words, ..event }
    }

    fn new(regarding: Value, namespace: &str, name: &str, uid: &str, reason: &'static str, message: String) -> Self {
        let (namespace, name, uid) = (namespace.to_owned(), name.to_owned(), uid.to_owned());
        let message = cut(message, MESSAGE_LIMIT);
        Self {
            regarding,
            namespace,
            name,
            uid,
            reason,
            message,
            kind: "Normal",
            component: COMPONENT,
            same: Same::Moment,
        }
    }

    /// What it says.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The core/v1 `Event` to write.
    fn object(&self, now: Timestamp) -> Value {
        // The API's `Time` has whole seconds.
        let time = format!("{now:.0}");
        json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"namespace": self.namespace, "name": self.object_name(now)},
            "involvedObject": self.regarding,
            "reason": self.reason,
            "message": self.message,
            "type": self.kind,
            "source": {"component": self.component},
            "reportingComponent": self.component,
            "firstTimestamp": time,
            "lastTimestamp": time,
            "count": 1,
        })
    }

    /// Like client-go's: the object's name and a suffix. Here it follows from what the event says, so that a retry after a lost
    /// answer meets its own first attempt.
    fn object_name(&self, now: Timestamp) -> String {
        let mut hash = Sha256::new();
        let (words, time) = match self.same {
            Same::Moment => (self.message.as_str(), now.to_string()),
            Same::Deadline(deadline) => ("", deadline.to_string()),
            Same::Words => (self.message.as_str(), String::new()),
        };
        for part in [&self.uid, self.reason, words, &time] {
            hash.update(part.as_bytes());
            hash.update([0]);
        }
        let mut name: String = self.name.chars().take(230).collect();
        name.push('.');
        for byte in hash.finalize().iter().take(8) {
            // Writing to a String cannot fail.
            write!(name, "{byte:02x}").ok();
        }
        name
    }

    /// Writes the event, in a few seconds or not at all. One that is there already is no error.
    ///
    /// # Errors
    /// When the call fails.
    pub async fn write(&self, client: &Client, now: Timestamp) -> Result<(), CallError> {
        let request = Request::post(format!("/api/v1/namespaces/{}/events", self.namespace))
            .header(CONTENT_TYPE, "application/json")
            .body(self.object(now).to_string().into_bytes())
            .map_err(|error| CallError::Answer(error.to_string()))?;
        match within(LIMIT, client.request::<Value>(request)).await {
            Ok(_) => Ok(()),
            Err(error) if error.is_conflict() => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// As many whole reasons as the server takes, and how many more there are.
fn with_reasons(mut message: String, reasons: &[String]) -> String {
    let mut separator = ": ";
    for (told, reason) in reasons.iter().enumerate() {
        let rest = more(reasons.len() - told - 1);
        if told > 0 && message.len() + separator.len() + reason.len() + rest.len() > MESSAGE_LIMIT {
            return message + &more(reasons.len() - told);
        }
        message.push_str(separator);
        message.push_str(reason);
        if message.len() + rest.len() > MESSAGE_LIMIT {
            return cut(message, MESSAGE_LIMIT - rest.len()) + &rest;
        }
        separator = "; ";
    }
    message
}

fn more(reasons: usize) -> String {
    match reasons {
        0 => String::new(),
        1 => "; and 1 more reason".to_owned(),
        many => format!("; and {many} more reasons"),
    }
}

/// Cuts a text at a character.
fn cut(mut text: String, limit: usize) -> String {
    if text.len() > limit {
        let mut end = limit - 3;
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        text.truncate(end);
        text.push_str("...");
    }
    text
}

/// A token bucket: so many at once, then so many a second.
#[derive(Clone, Debug)]
pub struct Bucket {
    capacity: f64,
    per_second: f64,
    tokens: f64,
    filled: Option<Instant>,
}

impl Bucket {
    /// A full bucket.
    #[must_use]
    pub fn new(capacity: u32, per_second: u32) -> Self {
        let capacity = f64::from(capacity);
        Self { capacity, per_second: f64::from(per_second), tokens: capacity, filled: None }
    }

    /// Takes a token, if there is one.
    pub fn take(&mut self, now: Instant) -> bool {
        let passed = self.filled.map_or(Duration::ZERO, |then| now.saturating_duration_since(then));
        self.tokens = (self.tokens + passed.as_secs_f64() * self.per_second).min(self.capacity);
        self.filled = Some(now);
        let there = self.tokens >= 1.0;
        if there {
            self.tokens -= 1.0;
        }
        there
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::RuleVersion;
    use crate::testing::{answer, body_of, fake_client};

    fn pod() -> PodRef {
        PodRef { key: Key::new("ml", "train"), uid: "p1".into() }
    }

    fn now() -> Timestamp {
        "2026-11-01T10:00:00.25Z".parse().unwrap()
    }

    #[test]
    fn messages_begin_as_kubernetes_own_and_go_on_with_our_reasons() {
        let reasons = ["gpu-0 has k:NoExecute".to_owned(), "node n1 has x:NoExecute".to_owned()];
        let device = Event::marking(&pod(), About::Device, &reasons);
        assert_eq!(device.reason, "DeviceTaintManagerEviction");
        assert_eq!(device.message(), "Marking for deletion: gpu-0 has k:NoExecute; node n1 has x:NoExecute");
        let node = Event::marking(&pod(), About::Node, &reasons[1..]);
        assert_eq!(node.reason, "TaintManagerEviction");
        assert_eq!(node.message(), "Marking for deletion Pod ml/train: node n1 has x:NoExecute");
        assert_eq!(Event::cancelling(&pod(), About::Device, &[]).message(), "Cancelling deletion");
        assert_eq!(Event::cancelling(&pod(), About::Node, &[]).message(), "Cancelling deletion of Pod ml/train");
    }

    #[test]
    fn a_long_message_is_cut_at_a_character() {
        let event = Event::marking(&pod(), About::Device, &["ä".repeat(2000)]);
        assert!(event.message().len() <= MESSAGE_LIMIT && event.message().ends_with("..."));
    }

    #[test]
    fn reasons_that_do_not_fit_are_counted() {
        let reasons: Vec<String> = (0..20).map(|number| format!("{number:099}")).collect();
        let told = Event::marking(&pod(), About::Device, &reasons).message().to_owned();
        assert!(told.len() <= MESSAGE_LIMIT, "{}", told.len());
        let whole = (0..20).filter(|number| told.contains(&format!("{number:099}"))).count();
        assert!(told.ends_with(&format!("; and {} more reasons", 20 - whole)) && whole == 9, "{told}");
        let two = ["ä".repeat(2000), "b".to_owned()];
        let told = Event::marking(&pod(), About::Device, &two).message().to_owned();
        assert!(told.len() <= MESSAGE_LIMIT && told.ends_with("ä...; and 1 more reason"), "{told}");
    }

    #[test]
    fn as_many_reasons_are_told_as_fit() {
        for length in 1..600 {
            let reasons = vec!["r".repeat(length); 3];
            let told = Event::marking(&pod(), About::Node, &reasons).message().to_owned();
            let told_of = told.matches(&reasons[0]).count();
            assert!(told.len() <= MESSAGE_LIMIT && told_of > 0, "{length}: {told}");
            assert_eq!(
                told.contains("more reason"),
                "Marking for deletion Pod ml/train".len() + 3 * (length + 2) > MESSAGE_LIMIT
            );
        }
    }

    #[test]
    fn the_same_event_has_the_same_name_and_a_later_one_another() {
        let event = Event::marking(&pod(), About::Device, &[]);
        assert_eq!(event.object_name(now()), event.object_name(now()));
        let later = "2026-11-01T10:00:01Z".parse().unwrap();
        assert_ne!(event.object_name(now()), event.object_name(later));
        assert!(event.object_name(now()).starts_with("train."));
    }

    #[test]
    fn a_countdown_is_told_once_for_each_deadline() {
        let told = |second: i64, reason: &str| {
            let deadline = Timestamp::from_second(second).unwrap();
            Event::counting_down(&pod(), About::Device, deadline, &[reason.to_owned()])
        };
        let event = told(60, "gpu-0 has k:NoExecute");
        assert_eq!(event.message(), "Will be evicted at 1970-01-01T00:01:00Z: gpu-0 has k:NoExecute");
        let object = event.object(now());
        assert_eq!((&object["type"], &object["reason"]), (&json!("Warning"), &json!("DeviceTaintCountdown")));
        let later = "2026-11-01T10:00:01Z".parse().unwrap();
        assert_eq!(event.object_name(now()), told(60, "in other words").object_name(later));
        assert_ne!(event.object_name(now()), told(61, "gpu-0 has k:NoExecute").object_name(now()));
    }

    #[test]
    fn what_an_agent_says_of_its_node_is_one_event_as_long_as_the_words_are_the_same() {
        let said = |words: &str| Event::node_warning("gpu-driver", "n1", "u1", "Contested", words.to_owned());
        let later = "2026-11-02T10:00:00Z".parse().unwrap();
        assert_eq!(said("a").object_name(now()), said("a").object_name(later));
        assert_ne!(said("a").object_name(now()), said("b").object_name(now()));
        let object = said("a").object(now());
        assert_eq!((&object["source"]["component"], &object["type"]), (&json!("gpu-driver"), &json!("Warning")));
        assert_eq!(
            (&object["involvedObject"]["kind"], &object["metadata"]["namespace"]),
            (&json!("Node"), &json!("default"))
        );
    }

    #[tokio::test]
    async fn an_event_is_written_where_its_object_is() {
        let (sent, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let client = fake_client(move |request, _| {
            let path = request.uri().path().to_owned();
            sent.send((path, body_of(request))).unwrap();
            answer(409, &json!({}))
        });
        let rule = Event::mark_expired(Form::Rule(RuleVersion::V1), "dt-1", "r1", "the time has come".to_owned());
        rule.write(&client, now()).await.unwrap();
        let (path, body) = seen.recv().await.unwrap();
        assert_eq!(path, "/api/v1/namespaces/default/events");
        let body = body.await;
        assert_eq!(body["involvedObject"]["kind"], "DeviceTaintRule");
        assert_eq!(body["firstTimestamp"], "2026-11-01T10:00:00Z");
    }

    #[tokio::test(start_paused = true)]
    async fn a_bucket_gives_what_it_has_and_fills_with_time() {
        let start = Instant::now();
        let mut bucket = Bucket::new(2, 4);
        assert_eq!([bucket.take(start), bucket.take(start), bucket.take(start)], [true, true, false]);
        let later = start + Duration::from_millis(250);
        assert_eq!([bucket.take(later), bucket.take(later)], [true, false]);
        let much_later = start + Duration::from_secs(60);
        assert_eq!([bucket.take(much_later), bucket.take(much_later), bucket.take(much_later)], [true, true, false]);
    }
}
