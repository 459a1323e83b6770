//! The DRA service, v1 and v1beta1, on one implementation.

use std::time::Duration;

use kubelet_api::dra::{v1, v1beta1};
use tokio::sync::watch;
use tonic::{Request, Response, Status};

use crate::claims::{ClaimError, ClaimRef, Claims, Prepared, PreparedDevice};

/// How long a call waits for the claims to be read. Kubelet gives a call 45 s, and the claims take some of it.
const READ: Duration = Duration::from_secs(28);

/// Answers kubelet's calls to prepare and unprepare. Every claim that was asked for has an entry in the answer, and fails alone.
#[derive(Clone)]
pub struct DraService {
    claims: watch::Receiver<Option<Claims>>,
}

impl DraService {
    /// A service over these claims. Calls wait until there are some: during a takeover the agent before us still has them for a moment.
    #[must_use]
    pub fn new(claims: watch::Receiver<Option<Claims>>) -> Self {
        Self { claims }
    }

    async fn claims(&self) -> Result<Claims, Status> {
        let mut claims = self.claims.clone();
        let read = tokio::time::timeout(READ, claims.wait_for(Option::is_some)).await;
        let claims = read.ok().and_then(Result::ok).and_then(|claims| claims.clone());
        claims.ok_or_else(|| Status::unavailable("the gpu-driver before this one has not ended yet; it is tried again"))
    }

    async fn prepare(
        &self,
        request: v1::NodePrepareResourcesRequest,
    ) -> Result<v1::NodePrepareResourcesResponse, Status> {
        let answers = self.claims().await?.prepare(asked(request.claims)).await;
        let claims = answers.into_iter().map(|(uid, answer)| (uid, prepared(answer))).collect();
        Ok(v1::NodePrepareResourcesResponse { claims })
    }

    async fn unprepare(
        &self,
        request: v1::NodeUnprepareResourcesRequest,
    ) -> Result<v1::NodeUnprepareResourcesResponse, Status> {
        let answers = self.claims().await?.unprepare(asked(request.claims)).await;
        let claims = answers.into_iter().map(|(uid, answer)| (uid, unprepared(answer))).collect();
        Ok(v1::NodeUnprepareResourcesResponse { claims })
    }
}

fn asked(claims: Vec<v1::Claim>) -> Vec<ClaimRef> {
    claims.into_iter().map(|v1::Claim { namespace, uid, name }| ClaimRef { uid, namespace, name }).collect()
}

fn prepared(answer: Prepared) -> v1::NodePrepareResourceResponse {
    match answer {
        Ok(devices) => {
            v1::NodePrepareResourceResponse { devices: devices.into_iter().map(device).collect(), error: String::new() }
        }
        Err(error) => v1::NodePrepareResourceResponse { devices: Vec::new(), error: error.to_string() },
    }
}

fn unprepared(answer: Result<(), ClaimError>) -> v1::NodeUnprepareResourceResponse {
    v1::NodeUnprepareResourceResponse { error: answer.err().map(|error| error.to_string()).unwrap_or_default() }
}

fn device(prepared: PreparedDevice) -> v1::Device {
    v1::Device {
        request_names: vec![prepared.request],
        pool_name: prepared.pool,
        device_name: prepared.device,
        cdi_device_ids: prepared.cdi_ids,
        share_id: prepared.share_id,
    }
}

#[tonic::async_trait]
impl v1::dra_plugin_server::DraPlugin for DraService {
    async fn node_prepare_resources(
        &self,
        request: Request<v1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1::NodePrepareResourcesResponse>, Status> {
        Ok(Response::new(self.prepare(request.into_inner()).await?))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        Ok(Response::new(self.unprepare(request.into_inner()).await?))
    }
}

#[tonic::async_trait]
impl v1beta1::dra_plugin_server::DraPlugin for DraService {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        Ok(Response::new(self.prepare(request.into_inner().into()).await?.into()))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        Ok(Response::new(self.unprepare(request.into_inner().into()).await?.into()))
    }
}
