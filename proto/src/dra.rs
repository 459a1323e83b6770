//! What kubelet asks of a driver: prepare claims, unprepare claims.
//!
//! The messages of v1beta1 are those of v1 without the share id, so a driver does its work in terms of [`v1`] and serves [`v1beta1`] through the
//! `From` conversions here.

/// Names [`v1::dra_plugin_server::DraPlugin`] in `supported_versions`. Kubelet takes the first entry of the list that it knows: put this one first.
pub const V1_SERVICE: &str = "v1.DRAPlugin";

/// Names [`v1beta1::dra_plugin_server::DraPlugin`] in `supported_versions`, for kubelet 1.32 and 1.33.
pub const V1BETA1_SERVICE: &str = "v1beta1.DRAPlugin";

/// Package `k8s.io.kubelet.pkg.apis.dra.v1`.
pub mod v1 {
    #![expect(clippy::too_many_lines, reason = "generated code")]
    include!("generated/dra_v1.rs");
}

/// Package `k8s.io.kubelet.pkg.apis.dra.v1beta1`.
pub mod v1beta1 {
    #![expect(clippy::too_many_lines, reason = "generated code")]
    include!("generated/dra_v1beta1.rs");
}

impl From<v1beta1::Claim> for v1::Claim {
    fn from(claim: v1beta1::Claim) -> Self {
        Self { namespace: claim.namespace, uid: claim.uid, name: claim.name }
    }
}

impl From<v1beta1::NodePrepareResourcesRequest> for v1::NodePrepareResourcesRequest {
    fn from(request: v1beta1::NodePrepareResourcesRequest) -> Self {
        Self { claims: request.claims.into_iter().map(Into::into).collect() }
    }
}

impl From<v1beta1::NodeUnprepareResourcesRequest> for v1::NodeUnprepareResourcesRequest {
    fn from(request: v1beta1::NodeUnprepareResourcesRequest) -> Self {
        Self { claims: request.claims.into_iter().map(Into::into).collect() }
    }
}

/// Drops the share id, which v1beta1 has no field for.
impl From<v1::Device> for v1beta1::Device {
    fn from(device: v1::Device) -> Self {
        Self {
            request_names: device.request_names,
            pool_name: device.pool_name,
            device_name: device.device_name,
            cdi_device_ids: device.cdi_device_ids,
        }
    }
}

impl From<v1::NodePrepareResourceResponse> for v1beta1::NodePrepareResourceResponse {
    fn from(answer: v1::NodePrepareResourceResponse) -> Self {
        Self { devices: answer.devices.into_iter().map(Into::into).collect(), error: answer.error }
    }
}

impl From<v1::NodePrepareResourcesResponse> for v1beta1::NodePrepareResourcesResponse {
    fn from(answers: v1::NodePrepareResourcesResponse) -> Self {
        Self { claims: answers.claims.into_iter().map(|(uid, answer)| (uid, answer.into())).collect() }
    }
}

impl From<v1::NodeUnprepareResourceResponse> for v1beta1::NodeUnprepareResourceResponse {
    fn from(answer: v1::NodeUnprepareResourceResponse) -> Self {
        Self { error: answer.error }
    }
}

impl From<v1::NodeUnprepareResourcesResponse> for v1beta1::NodeUnprepareResourcesResponse {
    fn from(answers: v1::NodeUnprepareResourcesResponse) -> Self {
        Self { claims: answers.claims.into_iter().map(|(uid, answer)| (uid, answer.into())).collect() }
    }
}

#[cfg(test)]
mod tests {
    use prost::Message;

    use super::{v1, v1beta1};

    fn claim() -> v1::Claim {
        v1::Claim { namespace: "team-a".to_owned(), uid: "5f3c".to_owned(), name: "train".to_owned() }
    }

    /// Field numbers are the contract with kubelet; these bytes were worked out by hand from Kubernetes' own api.proto.
    #[test]
    fn a_prepare_request_has_the_bytes_that_kubelet_sends() {
        let request = v1::NodePrepareResourcesRequest { claims: vec![claim()] };
        assert_eq!(request.encode_to_vec(), b"\x0a\x15\x0a\x06team-a\x12\x045f3c\x1a\x05train");
    }

    #[test]
    fn a_v1beta1_request_reads_as_the_v1_request_of_the_same_bytes() {
        let bytes = v1::NodePrepareResourcesRequest { claims: vec![claim()] }.encode_to_vec();
        let beta = v1beta1::NodePrepareResourcesRequest::decode(bytes.as_slice()).unwrap();
        assert_eq!(v1::NodePrepareResourcesRequest::from(beta).claims, [claim()]);
    }

    #[test]
    fn a_v1_answer_becomes_the_v1beta1_answer_of_the_same_bytes_without_share_id() {
        let device = v1::Device {
            request_names: vec!["gpu".to_owned()],
            pool_name: "node-a".to_owned(),
            device_name: "gpu-0000-3b-00-0".to_owned(),
            cdi_device_ids: vec!["devicetaint.dev/gpu=x".to_owned()],
            share_id: Some("6a".to_owned()),
        };
        let answer = |device| v1::NodePrepareResourcesResponse {
            claims: [(
                "5f3c".to_owned(),
                v1::NodePrepareResourceResponse { devices: vec![device], error: "e".to_owned() },
            )]
            .into(),
        };
        let beta = v1beta1::NodePrepareResourcesResponse::from(answer(device.clone()));
        let plain = v1::Device { share_id: None, ..device };
        assert_eq!(beta.encode_to_vec(), answer(plain).encode_to_vec());
    }

    #[test]
    fn an_unprepare_answer_keeps_uid_and_error() {
        let answer = v1::NodeUnprepareResourcesResponse {
            claims: [("5f3c".to_owned(), v1::NodeUnprepareResourceResponse { error: "busy".to_owned() })].into(),
        };
        let bytes = answer.encode_to_vec();
        assert_eq!(v1beta1::NodeUnprepareResourcesResponse::from(answer).encode_to_vec(), bytes);
    }
}
