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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use kubelet_api::dra::v1beta1::dra_plugin_server::{DraPlugin, DraPluginServer};
    use tokio::net::UnixListener;
    use tokio_stream::wrappers::UnixListenerStream;

    use super::*;
    use crate::kubelet::connection::connect;

    /// A driver of the time before v1: gives one device for a claim, and lets nothing go.
    struct Old;

    #[tonic::async_trait]
    impl DraPlugin for Old {
        async fn node_prepare_resources(
            &self,
            request: Request<v1beta1::NodePrepareResourcesRequest>,
        ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
            let device = |claim: v1beta1::Claim| v1beta1::Device {
                request_names: vec!["gpu".to_owned()],
                pool_name: claim.namespace,
                device_name: claim.name,
                cdi_device_ids: vec!["a/b=c".to_owned()],
            };
            let answer = |claim: v1beta1::Claim| {
                let uid = claim.uid.clone();
                let devices = vec![device(claim)];
                (uid, v1beta1::NodePrepareResourceResponse { devices, error: String::new() })
            };
            let claims = request.into_inner().claims.into_iter().map(answer).collect();
            Ok(Response::new(v1beta1::NodePrepareResourcesResponse { claims }))
        }

        async fn node_unprepare_resources(
            &self,
            request: Request<v1beta1::NodeUnprepareResourcesRequest>,
        ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
            let busy = v1beta1::NodeUnprepareResourceResponse { error: "busy".to_owned() };
            let claims: BTreeMap<_, _> =
                request.into_inner().claims.into_iter().map(|claim| (claim.uid, busy.clone())).collect();
            Ok(Response::new(v1beta1::NodeUnprepareResourcesResponse { claims }))
        }
    }

    #[tokio::test]
    async fn a_v1beta1_driver_is_spoken_to_and_its_end_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("dra.sock");
        let incoming = UnixListenerStream::new(UnixListener::bind(&socket).unwrap());
        let router = tonic::transport::Server::builder().add_service(DraPluginServer::new(Old));
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        tokio::spawn(router.serve_with_incoming_shutdown(incoming, async { drop(stopped.await) }));
        let connected = connect(&socket).await.unwrap();
        let claim = v1::Claim { namespace: "ns".to_owned(), uid: "u".to_owned(), name: "c".to_owned() };
        let answer = prepare(connected.channel.clone(), DraVersion::V1beta1, vec![claim.clone()]).await.unwrap();
        let device = &answer.claims["u"].devices[0];
        assert_eq!((device.pool_name.as_str(), device.device_name.as_str()), ("ns", "c"));
        assert_eq!((&device.cdi_device_ids[..], &device.share_id), (&["a/b=c".to_owned()][..], &None));
        let answer = unprepare(connected.channel.clone(), DraVersion::V1beta1, vec![claim.clone()]).await.unwrap();
        assert_eq!(answer, [("u".to_owned(), "busy".to_owned())]);

        let other = unprepare(connected.channel.clone(), DraVersion::V1, vec![claim]).await.unwrap_err();
        assert_eq!(other.code(), tonic::Code::Unimplemented);
        drop(stop);
        let lost = tokio::time::timeout(Duration::from_secs(10), connected.lost).await;
        assert!(lost.is_ok(), "the connection's end is seen");
    }

    #[tokio::test]
    async fn nobody_listens() {
        let folder = tempfile::tempdir().unwrap();
        assert!(connect(&folder.path().join("none.sock")).await.is_err());
    }
}
