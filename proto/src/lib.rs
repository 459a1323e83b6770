//! Kubelet's gRPC contracts for DRA drivers, as kubelet 1.34 to 1.37 speaks them, with clients and servers.
//!
//! The texts in `proto/` are our own and describe the same wire format as Kubernetes' `k8s.io/kubelet/pkg/apis`. `cargo xtask gen` turns them into
//! `src/generated/`, which is committed.
//!
//! | module | who serves | on which socket |
//! |---|---|---|
//! | [`registration::v1`] | the driver | `plugins_registry/<driver>-reg.sock` |
//! | [`dra::v1`], [`dra::v1beta1`], [`health::v1`], [`health::v1alpha1`] | the driver | the endpoint that it registered |
//! | [`podresources::v1`] | kubelet | `pod-resources/kubelet.sock` |
//!
//! [`authority`] makes a tonic server understand kubelet's registration dial.

pub mod authority;
pub mod dra;
pub mod health;
mod hpack;
pub mod podresources;
pub mod registration;
