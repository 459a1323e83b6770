//! DeviceTaintRules in the version that the server serves: v1 from 1.37 on, v1beta2 in 1.36, v1alpha3 before; and DeviceMarks.

use anyhow::{Context, Result};
use kube::api::{Api, DynamicObject, ListParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Client, Error};

const VERSIONS: [&str; 3] = ["v1", "v1beta2", "v1alpha3"];

/// The API of DeviceMarks, which take the place of rules where there are none.
pub(crate) fn marks(client: &Client) -> Api<DynamicObject> {
    let kind = GroupVersionKind::gvk("devicetaint.dev", "v1alpha1", "DeviceMark");
    Api::all_with(client.clone(), &ApiResource::from_gvk(&kind))
}

/// The API of rules; `None` where the server serves none.
///
/// # Errors
/// When the server does not answer.
pub(crate) async fn rules(client: &Client) -> Result<Option<Api<DynamicObject>>> {
    for version in VERSIONS {
        let kind = GroupVersionKind::gvk("resource.k8s.io", version, "DeviceTaintRule");
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ApiResource::from_gvk(&kind));
        match api.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => return Ok(Some(api)),
            Err(Error::Api(status)) if status.code == 404 => {}
            Err(error) => return Err(error).context("cannot list DeviceTaintRules"),
        }
    }
    Ok(None)
}
