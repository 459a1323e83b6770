//! What cannot be read from discovery: whether the API server keeps the taints of a ResourceSlice, which a gate decides.

use http::Request;
use kube::Client;
use serde_json::{Value, json};

use crate::call::{CallError, within};
use crate::connect::CALL_TIMEOUT;

/// Asks by a write that is not carried out (`dryRun=All`), of a slice that could do no harm either: the server answers what it would
/// have stored. Who may not write slices gets an error.
///
/// # Errors
/// When the call fails.
pub async fn stores_slice_taints(client: &Client) -> Result<bool, CallError> {
    let request = Request::post("/apis/resource.k8s.io/v1/resourceslices?dryRun=All")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(slice().to_string().into_bytes())
        .map_err(|error| CallError::Answer(error.to_string()))?;
    let stored = within(CALL_TIMEOUT, client.request::<Value>(request)).await?;
    Ok(stored.pointer("/spec/devices/0/taints/0").is_some())
}

fn slice() -> Value {
    let device = json!({"name": "probe", "taints": [{"key": "devicetaint.dev/probe", "effect": "NoSchedule"}]});
    json!({
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"generateName": "devicetaint-probe-"},
        "spec": {
            "driver": "probe.devicetaint.dev",
            "allNodes": true,
            "pool": {"name": "probe", "generation": 1, "resourceSliceCount": 1},
            "devices": [device],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{answer, fake_client};

    #[tokio::test]
    async fn what_comes_back_decides() {
        let keeps = fake_client(|request, _| {
            assert_eq!(request.uri().query(), Some("dryRun=All"));
            answer(201, &slice())
        });
        assert!(stores_slice_taints(&keeps).await.unwrap());
        let drops = fake_client(|_, _| answer(201, &json!({"spec": {"devices": [{"name": "probe"}]}})));
        assert!(!stores_slice_taints(&drops).await.unwrap());
        let refuses = fake_client(|_, _| answer(403, &json!({})));
        assert_eq!(stores_slice_taints(&refuses).await.unwrap_err().code(), Some(403));
    }
}
