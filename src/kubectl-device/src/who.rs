//! Who asks, for the annotation `devicetaint.dev/by` of a mark: a note for people, which proves nothing.
//!
//! What flows through: a SelfSubjectReview, by which the API server says which user it takes us for; where it does not serve
//! that, or takes everybody for nobody, the user of the shell.

use cluster::CallError;
use cluster::call::within;
use cluster::connect::CALL_TIMEOUT;
use kube::Client;
use serde_json::{Value, json};

/// What a server calls a client that did not say who it is.
const NOBODY: &str = "system:anonymous";

/// The name; absent where nothing is known of it. That a server does not tell is no reason not to mark a device.
pub(crate) async fn ask(client: &Client) -> Option<String> {
    let told = review(client).await.ok().as_ref().and_then(user);
    told.or_else(|| of_shell(|name| std::env::var(name).ok()))
}

async fn review(client: &Client) -> Result<Value, CallError> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let request = http::Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(body.to_string().into_bytes())
        .map_err(|error| CallError::Answer(error.to_string()))?;
    within(CALL_TIMEOUT, client.request::<Value>(request)).await
}

/// The user of a review, if it is somebody.
fn user(review: &Value) -> Option<String> {
    let name = review.pointer("/status/userInfo/username")?.as_str()?;
    (!name.is_empty() && name != NOBODY).then(|| name.to_owned())
}

/// The user of the shell. One who became root with sudo is still who it was.
fn of_shell(variable: impl Fn(&str) -> Option<String>) -> Option<String> {
    ["SUDO_USER", "USER", "LOGNAME"].into_iter().filter_map(variable).find(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_knows_us_is_believed() {
        let review = |name: &str| json!({"status": {"userInfo": {"username": name, "groups": []}}});
        assert_eq!(user(&review("ada@example.org")).as_deref(), Some("ada@example.org"));
        assert_eq!(user(&review(NOBODY)), None);
        assert_eq!(user(&review("")), None);
        assert_eq!(user(&json!({"kind": "Status"})), None);
    }

    #[test]
    fn the_shell_knows_who_became_root() {
        let shell = |names: &'static [(&str, &str)]| {
            of_shell(|asked| names.iter().find(|(name, _)| *name == asked).map(|(_, value)| (*value).to_owned()))
        };
        assert_eq!(shell(&[("USER", "root"), ("SUDO_USER", "ada")]).as_deref(), Some("ada"));
        assert_eq!(shell(&[("SUDO_USER", ""), ("LOGNAME", "bob")]).as_deref(), Some("bob"));
        assert_eq!(shell(&[]), None);
    }
}
