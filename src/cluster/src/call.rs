//! One call with an end: a timeout around it, and an error that people can read.

use std::future::Future;
use std::time::Duration;

use kube::Error as KubeError;
use kube::core::Status;

use crate::connect::Unreachable;

/// Why a call brought no answer that could be used.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// Nothing came in time. Whether the server did what was asked is not known.
    #[error("no answer within {}s", .0.as_secs_f64())]
    Timeout(Duration),
    /// The server said no.
    #[error("the server answered {}: {}", .0.code, .0.message)]
    Status(Box<Status>),
    /// The connection failed. Whether the server did what was asked is not known.
    #[error("no connection to {0}")]
    Transport(String),
    /// The answer is not what the API promises.
    #[error("the answer cannot be read: {0}")]
    Answer(String),
}

impl CallError {
    /// The server's status, when it answered with one.
    #[must_use]
    pub fn status(&self) -> Option<&Status> {
        match self {
            Self::Status(status) => Some(status),
            Self::Timeout(_) | Self::Transport(_) | Self::Answer(_) => None,
        }
    }

    /// The HTTP status code, when the server answered.
    #[must_use]
    pub fn code(&self) -> Option<u16> {
        self.status().map(|status| status.code)
    }

    /// Whether the object, or the resource, is not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        self.code() == Some(404)
    }

    /// Whether a precondition, a version or a name was in the way.
    #[must_use]
    pub fn is_conflict(&self) -> bool {
        self.code() == Some(409)
    }

    /// Whether the same call may succeed later without anybody's help: an overloaded or absent server, a lost connection.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        self.code().is_none_or(|code| code == 429 || code >= 500)
    }

    /// How long the server asked us to wait.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        let seconds = self.status()?.details.as_ref()?.retry_after_seconds;
        (seconds > 0).then(|| Duration::from_secs(u64::from(seconds)))
    }
}

impl From<KubeError> for CallError {
    fn from(error: KubeError) -> Self {
        match error {
            KubeError::Api(status) => Self::Status(status),
            KubeError::SerdeError(error) => Self::Answer(error.to_string()),
            KubeError::FromUtf8(error) => Self::Answer(error.to_string()),
            // A client of ours says where to, and all causes.
            KubeError::Service(error) if error.is::<Unreachable>() => Self::Transport(error.to_string()),
            other => Self::Transport(format!("the API server: {}", chain(&other))),
        }
    }
}

/// The error with its causes, each said once: hyper's own text says only "client error", and ours hold their cause already.
#[must_use]
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text.push_str(": ");
            text.push_str(&more);
        }
        cause = inner.source();
    }
    text
}

/// Waits for a call, but no longer than `limit`.
///
/// # Errors
/// When the call fails or does not end in time.
pub async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, KubeError>>) -> Result<T, CallError> {
    match tokio::time::timeout(limit, call).await {
        Ok(answer) => answer.map_err(CallError::from),
        Err(_) => Err(CallError::Timeout(limit)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::response::StatusDetails;
    use serde_json::{from_value, json};

    fn answered(code: u16) -> CallError {
        CallError::from(KubeError::Api(Status::failure("no", "Reason").with_code(code).boxed()))
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_never_ends_ends_here() {
        let never = std::future::pending::<Result<(), KubeError>>();
        let error = within(Duration::from_secs(3), never).await.unwrap_err();
        assert_eq!(error.to_string(), "no answer within 3s");
        assert!(error.is_transient());
    }

    #[test]
    fn answers_are_told_apart() {
        assert!(answered(404).is_not_found() && !answered(404).is_transient());
        assert!(answered(409).is_conflict() && !answered(409).is_transient());
        for code in [429, 500, 503, 504] {
            assert!(answered(code).is_transient(), "{code}");
        }
        assert!(!answered(403).is_transient());
    }

    #[test]
    fn a_cause_is_said_once() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot read: {source}")]
        struct Told {
            source: std::io::Error,
        }
        #[derive(Debug, thiserror::Error)]
        #[error("no start")]
        struct Hidden(#[source] Told);
        let told = Told { source: std::io::Error::other("no such file") };
        assert_eq!(chain(&Hidden(told)), "no start: cannot read: no such file");
    }

    #[test]
    fn the_wish_to_wait_is_read_from_the_details() {
        let details: StatusDetails = from_value(json!({"retryAfterSeconds": 7})).unwrap();
        let status = Status::failure("slow down", "TooManyRequests").with_code(429).with_details(details);
        assert_eq!(CallError::from(KubeError::Api(status.boxed())).retry_after(), Some(Duration::from_secs(7)));
        assert_eq!(answered(429).retry_after(), None);
    }
}
