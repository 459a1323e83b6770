//! Calls of a driver's DRA service, in the version that it registered with.

use std::time::Duration;

use kubelet_api::dra::v1::dra_plugin_client::DraPluginClient;
use kubelet_api::dra::v1beta1::dra_plugin_client::DraPluginClient as DraPluginClientBeta;
use kubelet_api::dra::{v1, v1beta1};
use tonic::transport::Channel;
use tonic::{Request, Response, Status};

use super::registration::DraVersion;

/// How long kubelet waits for a driver to prepare or unprepare.
pub(super) const LIMIT: Duration = Duration::from_secs(45);

/// Prepares claims.
pub(super) async fn prepare(
    channel: Channel,
    version: DraVersion,
    claims: Vec<v1::Claim>,
) -> Result<v1::NodePrepareResourcesResponse, Status> {
    match version {
        DraVersion::V1 => {
            let request = limited(v1::NodePrepareResourcesRequest { claims });
            within(DraPluginClient::new(channel).node_prepare_resources(request)).await
        }
        DraVersion::V1beta1 => {
            let claims = claims.into_iter().map(to_beta).collect();
            let request = limited(v1beta1::NodePrepareResourcesRequest { claims });
            let answer = within(DraPluginClientBeta::new(channel).node_prepare_resources(request)).await?;
            let claims = answer.claims.into_iter().map(|(uid, answer)| (uid, prepared(answer))).collect();
            Ok(v1::NodePrepareResourcesResponse { claims })
        }
    }
}

/// Unprepares claims; the answer holds an error text by UID, empty when it went well.
pub(super) async fn unprepare(
    channel: Channel,
    version: DraVersion,
    claims: Vec<v1::Claim>,
) -> Result<Vec<(String, String)>, Status> {
    match version {
        DraVersion::V1 => {
            let request = limited(v1::NodeUnprepareResourcesRequest { claims });
            let answer = within(DraPluginClient::new(channel).node_unprepare_resources(request)).await?;
            Ok(answer.claims.into_iter().map(|(uid, answer)| (uid, answer.error)).collect())
        }
        DraVersion::V1beta1 => {
            let claims = claims.into_iter().map(to_beta).collect();
            let request = limited(v1beta1::NodeUnprepareResourcesRequest { claims });
            let answer = within(DraPluginClientBeta::new(channel).node_unprepare_resources(request)).await?;
            Ok(answer.claims.into_iter().map(|(uid, answer)| (uid, answer.error)).collect())
        }
    }
}

/// A request that tells the driver how long it has.
fn limited<T>(message: T) -> Request<T> {
    let mut request = Request::new(message);
    request.set_timeout(LIMIT);
    request
}

async fn within<T>(call: impl Future<Output = Result<Response<T>, Status>>) -> Result<T, Status> {
    match tokio::time::timeout(LIMIT, call).await {
        Ok(answer) => answer.map(Response::into_inner),
        Err(_) => Err(Status::deadline_exceeded(format!("no answer within {}s", LIMIT.as_secs()))),
    }
}

fn to_beta(claim: v1::Claim) -> v1beta1::Claim {
    v1beta1::Claim { namespace: claim.namespace, uid: claim.uid, name: claim.name }
}

fn prepared(answer: v1beta1::NodePrepareResourceResponse) -> v1::NodePrepareResourceResponse {
    let devices = answer.devices.into_iter().map(|device| v1::Device {
        request_names: device.request_names,
        pool_name: device.pool_name,
        device_name: device.device_name,
        cdi_device_ids: device.cdi_device_ids,
        share_id: None,
    });
    v1::NodePrepareResourceResponse { devices: devices.collect(), error: answer.error }
}
