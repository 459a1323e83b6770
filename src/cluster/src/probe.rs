//! What cannot be read from discovery: whether the API server keeps the taints of a ResourceSlice, which a gate decides.

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use taints::Effect;

use crate::call::{CallError, within};
use crate::connect::CALL_TIMEOUT;

/// Whether taints with this effect are kept. Asked by a write that is not carried out (`dryRun=All`), of a slice that could do no harm either: the server
/// answers what it would have stored. One that does not know the effect refuses the whole slice, and keeps none.
///
/// # Errors
/// When the call fails, as for who may not write slices.
pub async fn stores_slice_taints(client: &Client, effect: &Effect) -> Result<bool, CallError> {
    let request = Request::post("/apis/resource.k8s.io/v1/resourceslices?dryRun=All")
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(slice(effect).to_string().into_bytes())
        .map_err(|error| CallError::Answer(error.to_string()))?;
    match within(CALL_TIMEOUT, client.request::<Value>(request)).await {
        Ok(stored) => Ok(stored.pointer("/spec/devices/0/taints/0").is_some()),
        Err(error) if error.code() == Some(422) => Ok(false),
        Err(error) => Err(error),
    }
}

fn slice(effect: &Effect) -> Value {
    let device = json!({"name": "probe", "taints": [{"key": "devicetaint.dev/probe", "effect": effect.to_string()}]});
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
            answer(201, &slice(&Effect::NoSchedule))
        });
        assert!(stores_slice_taints(&keeps, &Effect::NoSchedule).await.unwrap());
        let drops = fake_client(|_, _| answer(201, &json!({"spec": {"devices": [{"name": "probe"}]}})));
        assert!(!stores_slice_taints(&drops, &Effect::NoSchedule).await.unwrap());
        let refuses = fake_client(|_, _| answer(403, &json!({})));
        assert_eq!(stores_slice_taints(&refuses, &Effect::NoSchedule).await.unwrap_err().code(), Some(403));
        let old = fake_client(|_, _| answer(422, &json!({})));
        assert!(!stores_slice_taints(&old, &Effect::None).await.unwrap(), "a version that does not know the effect");
    }
}
