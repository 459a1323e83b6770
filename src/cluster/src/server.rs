//! What the server is and serves: its version, in which version DeviceTaintRules are to be had, and whether DeviceMarks are.
//!
//! Asked once at the start. ResourceSlices and ResourceClaims are read in `resource.k8s.io/v1` (Kubernetes 1.34 and later);
//! DeviceTaintRules exist as v1alpha3 (1.33), v1beta2 (1.36) and v1 (1.37), each behind a gate that may be off.

use std::fmt;

use http::Request;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::Client;
use kube::core::ApiResource;
use serde::Deserialize;

use crate::call::{CallError, within};
use crate::connect::CALL_TIMEOUT;
use crate::kind::Kind;
use crate::mark;

/// A version in which DeviceTaintRules are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RuleVersion {
    /// `resource.k8s.io/v1alpha3`.
    V1alpha3,
    /// `resource.k8s.io/v1beta2`.
    V1beta2,
    /// `resource.k8s.io/v1`.
    V1,
}

impl RuleVersion {
    /// Best first.
    const BEST_FIRST: [Self; 3] = [Self::V1, Self::V1beta2, Self::V1alpha3];

    /// The version as the API writes it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V1 => "v1",
            Self::V1beta2 => "v1beta2",
            Self::V1alpha3 => "v1alpha3",
        }
    }

    /// How to reach DeviceTaintRules in this version.
    #[must_use]
    pub fn resource(self) -> ApiResource {
        Kind::Rule.resource(self.as_str())
    }
}

impl fmt::Display for RuleVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What a server is and serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Server {
    /// Its version as it says it, such as `v1.37.0`.
    pub version: String,
    /// Major and minor version; zero where the server says nothing that can be read.
    pub release: (u32, u32),
    /// The best version in which it serves DeviceTaintRules; absent when it serves none.
    pub rules: Option<RuleVersion>,
    /// Whether it serves DeviceMarks, our own kind.
    pub marks: bool,
}

/// Why a server cannot be worked with, or did not say what it is.
#[derive(Debug, thiserror::Error)]
pub enum DiscoverError {
    /// A question stayed without an answer.
    #[error("cannot ask the API server for {path}: {source}")]
    Call {
        /// What was asked.
        path: String,
        /// What came back.
        source: CallError,
    },
    /// No DRA, or too old.
    #[error(
        "the API server ({version}) does not serve {kind} in resource.k8s.io/v1: Kubernetes 1.34 or later is needed, with DynamicResourceAllocation on"
    )]
    NoDra {
        /// The server's version.
        version: String,
        /// What is missing.
        kind: Kind,
    },
}

/// The part of `/version` that we read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", default)]
#[derive(Default)]
struct VersionInfo {
    git_version: String,
    major: String,
    minor: String,
}

impl Server {
    /// Asks the server. A few small calls, each with its own timeout.
    ///
    /// # Errors
    /// When a call fails, or when DRA is not served as we need it.
    pub async fn discover(client: &Client) -> Result<Self, DiscoverError> {
        let info: VersionInfo = get(client, "/version").await?;
        let served = resources(client, "v1").await?.unwrap_or_default();
        for kind in [Kind::Slice, Kind::Claim] {
            if !served.iter().any(|name| name == kind.plural()) {
                return Err(DiscoverError::NoDra { version: info.git_version, kind });
            }
        }
        let rules = rule_version(client, &served).await?;
        let marks = serves_marks(client).await?;
        Ok(Self { version: info.git_version, release: (number(&info.major), number(&info.minor)), rules, marks })
    }

    /// How to reach a kind on this server; absent where it is not served.
    #[must_use]
    pub fn resource(&self, kind: Kind) -> Option<ApiResource> {
        match kind {
            Kind::Rule => self.rules.map(RuleVersion::resource),
            Kind::Mark => self.marks.then(mark::resource),
            other => Some(other.resource("v1")),
        }
    }
}

async fn rule_version(client: &Client, v1: &[String]) -> Result<Option<RuleVersion>, DiscoverError> {
    for version in RuleVersion::BEST_FIRST {
        let has_rules = |names: &[String]| names.iter().any(|name| name == Kind::Rule.plural());
        let served = match version {
            RuleVersion::V1 => has_rules(v1),
            _ => resources(client, version.as_str()).await?.is_some_and(|names| has_rules(&names)),
        };
        if served {
            return Ok(Some(version));
        }
    }
    Ok(None)
}

async fn serves_marks(client: &Client) -> Result<bool, DiscoverError> {
    let served = names(client, &format!("/apis/{}", mark::resource().api_version)).await?;
    Ok(served.is_some_and(|names| names.iter().any(|name| name == Kind::Mark.plural())))
}

/// The plurals that resource.k8s.io serves in a version; absent when it does not serve the version at all.
async fn resources(client: &Client, version: &str) -> Result<Option<Vec<String>>, DiscoverError> {
    names(client, &format!("/apis/resource.k8s.io/{version}")).await
}

async fn names(client: &Client, path: &str) -> Result<Option<Vec<String>>, DiscoverError> {
    match get::<APIResourceList>(client, path).await {
        Ok(list) => Ok(Some(list.resources.into_iter().map(|resource| resource.name).collect())),
        Err(DiscoverError::Call { source, .. }) if source.is_not_found() => Ok(None),
        Err(error) => Err(error),
    }
}

async fn get<T: serde::de::DeserializeOwned>(client: &Client, path: &str) -> Result<T, DiscoverError> {
    let fail = |source| DiscoverError::Call { path: path.to_owned(), source };
    let request = Request::get(path).body(Vec::new()).map_err(|error| fail(CallError::Answer(error.to_string())))?;
    within(CALL_TIMEOUT, client.request(request)).await.map_err(fail)
}

/// Some clouds write the minor version as `34+`.
fn number(text: &str) -> u32 {
    let digits = text.split(|c: char| !c.is_ascii_digit()).next().unwrap_or_default();
    digits.parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answer, fake_client};
    use serde_json::{Value, json};

    fn group(names: &[&str]) -> Value {
        let resources: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "singularName": "", "namespaced": false, "kind": "X", "verbs": []}))
            .collect();
        json!({"kind": "APIResourceList", "groupVersion": "resource.k8s.io/x", "resources": resources})
    }

    async fn discover(v1: Value, beta: Option<Value>, alpha: Option<Value>) -> Result<Server, DiscoverError> {
        discover_with(v1, beta, alpha, false).await
    }

    async fn discover_with(
        v1: Value,
        beta: Option<Value>,
        alpha: Option<Value>,
        marks: bool,
    ) -> Result<Server, DiscoverError> {
        let client = fake_client(move |request, _| match request.uri().path() {
            "/version" => answer(200, &json!({"gitVersion": "v1.36.2", "major": "1", "minor": "36+"})),
            "/apis/resource.k8s.io/v1" => answer(200, &v1),
            "/apis/resource.k8s.io/v1beta2" => {
                beta.as_ref().map_or_else(|| answer(404, &json!({})), |v| answer(200, v))
            }
            "/apis/resource.k8s.io/v1alpha3" => {
                alpha.as_ref().map_or_else(|| answer(404, &json!({})), |v| answer(200, v))
            }
            "/apis/devicetaint.dev/v1alpha1" if marks => answer(200, &group(&["devicemarks"])),
            "/apis/devicetaint.dev/v1alpha1" => answer(404, &json!({})),
            other => panic!("unexpected question {other}"),
        });
        Server::discover(&client).await
    }

    #[tokio::test]
    async fn the_best_version_of_rules_wins() {
        let dra = ["resourceslices", "resourceclaims"];
        let with_rules = ["resourceslices", "resourceclaims", "devicetaintrules"];
        let v1 = discover(group(&with_rules), Some(group(&["devicetaintrules"])), None).await.unwrap();
        assert_eq!(v1.rules, Some(RuleVersion::V1));
        assert_eq!((v1.version.as_str(), v1.release), ("v1.36.2", (1, 36)));
        let beta = discover(group(&dra), Some(group(&["devicetaintrules"])), Some(group(&["devicetaintrules"]))).await;
        assert_eq!(beta.unwrap().rules, Some(RuleVersion::V1beta2));
        let alpha = discover(group(&dra), Some(group(&[])), Some(group(&["devicetaintrules"]))).await.unwrap();
        assert_eq!(alpha.rules, Some(RuleVersion::V1alpha3));
        assert_eq!(alpha.resource(Kind::Rule).unwrap().api_version, "resource.k8s.io/v1alpha3");
        let none = discover(group(&dra), None, None).await.unwrap();
        assert_eq!((none.rules, none.resource(Kind::Rule)), (None, None));
    }

    #[tokio::test]
    async fn our_own_kind_is_found_where_it_is_installed() {
        let dra = || group(&["resourceslices", "resourceclaims"]);
        let with = discover_with(dra(), None, None, true).await.unwrap();
        assert_eq!(with.resource(Kind::Mark).unwrap().api_version, "devicetaint.dev/v1alpha1");
        let without = discover_with(dra(), None, None, false).await.unwrap();
        assert_eq!((without.marks, without.resource(Kind::Mark)), (false, None));
    }

    #[tokio::test]
    async fn a_server_without_dra_is_told_what_is_missing() {
        let error = discover(group(&["resourceclaims"]), None, None).await.unwrap_err().to_string();
        assert!(error.contains("resourceslices") && error.contains("1.34"), "{error}");
    }

    #[test]
    fn versions_of_clouds_are_read() {
        assert_eq!((number("34+"), number("34"), number(""), number("x")), (34, 34, 0, 0));
    }
}
