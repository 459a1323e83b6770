//! The DRA service, v1 and v1beta1, on one implementation.

use std::collections::BTreeMap;

use kubelet_api::dra::{v1, v1beta1};
use tonic::{Request, Response, Status};

use crate::claims::{ClaimError, ClaimRef, Claims, Prepared, PreparedDevice};

/// Answers kubelet's calls to prepare and unprepare. Every claim that was asked for has an entry in the answer, and fails alone.
#[derive(Clone)]
pub struct DraService {
    claims: Claims,
}

impl DraService {
    /// A service over these claims.
    #[must_use]
    pub fn new(claims: Claims) -> Self {
        Self { claims }
    }

    async fn prepare(&self, request: v1::NodePrepareResourcesRequest) -> v1::NodePrepareResourcesResponse {
        let answers = self.claims.prepare(asked(request.claims)).await;
        v1::NodePrepareResourcesResponse {
            claims: answers.into_iter().map(|(uid, answer)| (uid, prepared(answer))).collect(),
        }
    }

    async fn unprepare(&self, request: v1::NodeUnprepareResourcesRequest) -> v1::NodeUnprepareResourcesResponse {
        let answers: BTreeMap<String, Result<(), ClaimError>> = self.claims.unprepare(asked(request.claims)).await;
        let error = |answer: Result<(), ClaimError>| answer.err().map(|error| error.to_string()).unwrap_or_default();
        v1::NodeUnprepareResourcesResponse {
            claims: answers
                .into_iter()
                .map(|(uid, answer)| (uid, v1::NodeUnprepareResourceResponse { error: error(answer) }))
                .collect(),
        }
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
        Ok(Response::new(self.prepare(request.into_inner()).await))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1::NodeUnprepareResourcesResponse>, Status> {
        Ok(Response::new(self.unprepare(request.into_inner()).await))
    }
}

#[tonic::async_trait]
impl v1beta1::dra_plugin_server::DraPlugin for DraService {
    async fn node_prepare_resources(
        &self,
        request: Request<v1beta1::NodePrepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodePrepareResourcesResponse>, Status> {
        Ok(Response::new(self.prepare(request.into_inner().into()).await.into()))
    }

    async fn node_unprepare_resources(
        &self,
        request: Request<v1beta1::NodeUnprepareResourcesRequest>,
    ) -> Result<Response<v1beta1::NodeUnprepareResourcesResponse>, Status> {
        Ok(Response::new(self.unprepare(request.into_inner().into()).await.into()))
    }
}
