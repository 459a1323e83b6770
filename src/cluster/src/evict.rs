//! The Eviction API (policy/v1 `Eviction`): budgets are the server's business, preconditions are ours.
//!
//! kube's own `Api::evict` is not used: it writes the options as `delete_options`, a field that no API server knows, so that the
//! preconditions would be lost without a word.

use std::time::Duration;

use http::{Request, header::CONTENT_TYPE};
use kube::Client;
use kube::core::Status;
use serde_json::{Value, json};
use taints::object::Key;

use crate::call::{CallError, within};

/// The pod that is to go: this one, as it was judged, and no other of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Namespace and name.
    pub pod: Key,
    /// The UID, as a precondition.
    pub uid: String,
    /// The version that was judged, as a precondition.
    pub resource_version: String,
}

/// What came of asking for an eviction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The server accepted it: the pod ends, with its own grace period.
    Accepted,
    /// A PodDisruptionBudget allows none now (429).
    BudgetRefused {
        /// How long the server asked us to wait.
        retry_after: Option<Duration>,
        /// What it said, with the budget's name.
        message: String,
    },
    /// The pod is not the one that was judged, or not as it was (409): look again.
    Changed {
        /// What the server said.
        message: String,
    },
    /// There is no pod of this name.
    Gone,
    /// The server, or a webhook, refuses, and says why. It may be of another mind later.
    Denied {
        /// What it said.
        message: String,
    },
    /// An error of the server.
    Retry {
        /// How long the server asked us to wait.
        after: Option<Duration>,
        /// What happened.
        message: String,
    },
    /// No answer, or none of the server itself (502, 504): the eviction may or may not have been accepted.
    Unanswered {
        /// What happened.
        message: String,
    },
}

impl Outcome {
    /// One word, for a metric's label.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::BudgetRefused { .. } => "budget_refused",
            Self::Changed { .. } => "changed",
            Self::Gone => "gone",
            Self::Denied { .. } => "denied",
            Self::Retry { .. } => "error",
            Self::Unanswered { .. } => "unanswered",
        }
    }
}

/// Asks once for the eviction, for no longer than `limit`. Never forces anything, and sets no grace period.
pub async fn evict(client: &Client, target: &Target, limit: Duration) -> Outcome {
    match request(target) {
        Ok(request) => outcome(within(limit, client.request::<Value>(request)).await),
        Err(error) => Outcome::Denied { message: format!("the pod's name makes no request: {error}") },
    }
}

fn request(target: &Target) -> Result<Request<Vec<u8>>, http::Error> {
    let Key { namespace, name } = &target.pod;
    let body = json!({
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": namespace, "name": name},
        "deleteOptions": {"preconditions": {"uid": target.uid, "resourceVersion": target.resource_version}},
    });
    Request::post(format!("/api/v1/namespaces/{namespace}/pods/{name}/eviction"))
        .header(CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
}

fn outcome(answer: Result<Value, CallError>) -> Outcome {
    let error = match answer {
        // The body of a success is of no interest, and a body that cannot be read came with a code of success.
        Ok(_) | Err(CallError::Answer(_)) => return Outcome::Accepted,
        Err(error) => error,
    };
    let after = error.retry_after();
    let said = error.status().map_or_else(|| error.to_string(), |status| status.message.clone());
    match error.code() {
        Some(404) => Outcome::Gone,
        Some(409) => Outcome::Changed { message: said },
        Some(429) if error.status().is_some_and(is_budget) => {
            Outcome::BudgetRefused { retry_after: after, message: said }
        }
        // 401 passes when the token is renewed.
        Some(code) if (400..500).contains(&code) && code != 401 && code != 429 => Outcome::Denied { message: said },
        None | Some(502 | 504) => Outcome::Unanswered { message: error.to_string() },
        Some(_) => Outcome::Retry { after, message: error.to_string() },
    }
}

/// Priority and fairness answers 429 too; only a budget names itself as the cause.
fn is_budget(status: &Status) -> bool {
    let causes = status.details.iter().flat_map(|details| &details.causes);
    causes.into_iter().any(|cause| cause.reason == "DisruptionBudget")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answer, body_of, fake_client};

    fn target() -> Target {
        Target { pod: Key::new("ml", "train"), uid: "p1".into(), resource_version: "77".into() }
    }

    async fn answered(code: u16, body: Value) -> Outcome {
        evict(&fake_client(move |_, _| answer(code, &body)), &target(), Duration::from_secs(1)).await
    }

    fn refusal(causes: &Value) -> Value {
        json!({"kind": "Status", "status": "Failure", "code": 429, "reason": "TooManyRequests",
            "message": "Cannot evict pod as it would violate the pod's disruption budget.",
            "details": {"causes": causes, "retryAfterSeconds": 10}})
    }

    #[tokio::test]
    async fn the_request_names_the_very_pod() {
        let (sent, mut seen) = tokio::sync::mpsc::unbounded_channel();
        let client = fake_client(move |request, _| {
            let path = request.uri().path().to_owned();
            sent.send((path, body_of(request))).unwrap();
            answer(201, &json!({"kind": "Status", "status": "Success"}))
        });
        assert_eq!(evict(&client, &target(), Duration::from_secs(1)).await, Outcome::Accepted);
        let (path, body) = seen.recv().await.unwrap();
        assert_eq!(path, "/api/v1/namespaces/ml/pods/train/eviction");
        let body = body.await;
        assert_eq!(body["apiVersion"], "policy/v1");
        assert_eq!(body["deleteOptions"]["preconditions"], json!({"uid": "p1", "resourceVersion": "77"}));
        assert!(body["deleteOptions"].get("gracePeriodSeconds").is_none());
    }

    #[tokio::test]
    async fn each_answer_has_its_meaning() {
        assert_eq!(answered(404, json!({})).await, Outcome::Gone);
        assert!(matches!(answered(409, json!({})).await, Outcome::Changed { .. }));
        for code in [400, 403, 422] {
            assert!(matches!(answered(code, json!({})).await, Outcome::Denied { .. }), "{code}");
        }
        for code in [502, 504] {
            assert!(matches!(answered(code, json!({})).await, Outcome::Unanswered { .. }), "{code}");
        }
        for code in [401, 500, 503] {
            assert!(matches!(answered(code, json!({})).await, Outcome::Retry { .. }), "{code}");
        }
    }

    #[tokio::test]
    async fn only_a_budget_counts_as_a_budget() {
        let budget = answered(429, refusal(&json!([{"reason": "DisruptionBudget", "message": "db needs 2"}]))).await;
        let Outcome::BudgetRefused { retry_after, message } = budget else { panic!("{budget:?}") };
        assert_eq!(retry_after, Some(Duration::from_secs(10)));
        assert!(message.contains("disruption budget"));
        let overload = answered(429, refusal(&json!([]))).await;
        assert!(matches!(overload, Outcome::Retry { after: Some(_), .. }), "{overload:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_hangs_is_given_up() {
        let service = tower::service_fn(|_: Request<kube::client::Body>| {
            std::future::pending::<Result<http::Response<kube::client::Body>, std::convert::Infallible>>()
        });
        let client = Client::new(service, "default");
        let outcome = evict(&client, &target(), Duration::from_secs(5)).await;
        assert!(matches!(outcome, Outcome::Unanswered { .. }), "{outcome:?}");
    }

    #[tokio::test]
    async fn a_cut_connection_is_no_answer() {
        let service = tower::service_fn(|_: Request<kube::client::Body>| async {
            Err::<http::Response<kube::client::Body>, _>(std::io::Error::from(std::io::ErrorKind::ConnectionReset))
        });
        let outcome = evict(&Client::new(service, "default"), &target(), Duration::from_secs(5)).await;
        assert!(matches!(outcome, Outcome::Unanswered { .. }), "{outcome:?}");
    }
}
