//! A small cluster in one process, for the demo and the tests: an API server that real clients believe, and a scheduler, a
//! claim controller and kubelets that are clients of an API server, this one or another. Nothing survives the process.

#![cfg_attr(test, expect(clippy::needless_pass_by_value, reason = "helpers of tests take literals"))]

mod actor;
pub mod claims;
pub mod kubelet;
pub mod scheduler;
pub mod server;
pub mod up;
