//! Paths that are not about objects: health, version, OpenAPI, and the sim's own controls.

use bytes::Bytes;
use http::{Method, Response};
use serde_json::{Value, json};

use super::{Body, Call, Service, accept, refusal, typed, value};
use crate::server::error::{ApiError, success};
use crate::server::faults::Fault;
use crate::server::kinds::Kinds;
use crate::server::openapi;

impl Service {
    pub(super) fn system(&self, call: &Call) -> Result<Response<Body>, ApiError> {
        if call.method != Method::GET && call.method != Method::HEAD {
            return Err(ApiError::method_not_allowed());
        }
        match call.path.trim_end_matches('/') {
            "/healthz" | "/livez" | "/readyz" => Ok(typed(200, "text/plain; charset=utf-8", Bytes::from_static(b"ok"))),
            "/version" => Ok(value(200, &version())),
            "" => Ok(value(
                200,
                &json!({"paths": ["/api", "/apis", "/healthz", "/openapi/v3", "/version", "/sim/faults"]}),
            )),
            "/openapi/v2" => Ok(swagger(&call.accept)),
            "/openapi/v3" => Ok(value(200, &openapi::index(&self.kinds()))),
            path => match path.strip_prefix("/openapi/v3/") {
                Some(group) => {
                    let document = openapi::document(&self.kinds(), group);
                    Ok(value(200, &document.ok_or_else(ApiError::no_path)?))
                }
                None => Err(ApiError::no_path()),
            },
        }
    }

    /// The served kinds of this moment, to describe them without holding the lock.
    fn kinds(&self) -> Kinds {
        self.cluster.read(|state| state.kinds.clone())
    }

    /// Faults, history and features, set by tests.
    pub(super) fn control(&self, call: &Call) -> Response<Body> {
        self.controlled(call).unwrap_or_else(|error| refusal(&error))
    }

    fn controlled(&self, call: &Call) -> Result<Response<Body>, ApiError> {
        let steps: Vec<&str> = call.path.split('/').filter(|step| !step.is_empty()).skip(1).collect();
        match (call.method.as_str(), steps.as_slice()) {
            ("GET", ["faults"]) => Ok(value(200, &json!(self.faults.list()))),
            ("POST", ["faults"]) => {
                let body = accept::body("", &call.body)?;
                let fault: Fault = serde_json::from_value(body)
                    .map_err(|error| ApiError::bad_request(format!("this is no fault: {error}")))?;
                let id = self.faults.add(fault, self.cluster.revision());
                Ok(value(201, &json!({"id": id})))
            }
            ("DELETE", ["faults"]) => {
                self.faults.clear();
                Ok(value(200, &success(200)))
            }
            ("DELETE", ["faults", id]) => match id.parse().is_ok_and(|id| self.faults.remove(id)) {
                true => Ok(value(200, &success(200))),
                false => Err(ApiError::no_path()),
            },
            ("POST", ["device-taints", switch @ ("on" | "off")]) => {
                self.cluster.read(|state| state.device_taints = *switch == "on");
                Ok(value(200, &success(200)))
            }
            ("POST", ["compact"]) => {
                self.cluster.read(|state| state.store.compact());
                Ok(value(200, &success(200)))
            }
            _ => Err(ApiError::no_path()),
        }
    }
}

/// The older description of the API, without any type in it. A client looks there for what version 3 does not describe, as
/// `kubectl create -f` with a `List`, and goes on when it finds nothing. In protobuf, nothing is no bytes.
fn swagger(accept: &str) -> Response<Body> {
    if accept.contains("protobuf") {
        return typed(200, "application/com.github.proto-openapi.spec.v2.v1.0+protobuf", Bytes::new());
    }
    value(
        200,
        &json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.37.2"}, "paths": {}, "definitions": {}}),
    )
}

/// The version of Kubernetes that this server behaves like.
fn version() -> Value {
    json!({
        "major": "1", "minor": "37", "gitVersion": "v1.37.2", "gitCommit": "", "gitTreeState": "clean",
        "emulationMajor": "1", "emulationMinor": "37", "minCompatibilityMajor": "1", "minCompatibilityMinor": "36",
        "buildDate": "2026-11-01T00:00:00Z", "goVersion": "none", "compiler": "rustc", "platform": "linux/amd64",
    })
}
