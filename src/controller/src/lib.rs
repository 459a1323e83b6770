//! The controller: it evicts exactly the pods that share a tainted device, with the node's taints in the same verdict.
//!
//! Long-lived tasks, and what flows between them. Each queue is bounded; what a full one does not take is counted and tried again.
//!
//! ```text
//! follow ──notices──▶ decide ──jobs──▶ act ──▶ API server
//!  (one watch           │  ▲             │
//!   a kind)             │  └──reports────┤
//!                       ├──────events────┴──▶ tell ──▶ API server
//!                       ├──states──▶ store ──▶ --state-dir
//!                       └──health, metrics──▶ http ◀── people
//! ```
//!
//! `decide` alone owns what is known ([`decider::Decider`]) and never waits; rules live in the crate `taints`, how the API
//! server is reached in `cluster`. All tasks end together: on SIGTERM in peace, and with exit code 1 when one of them dies.

pub mod act;
pub mod args;
pub mod clock;
pub mod decide;
pub mod decider;
pub mod expiry;
pub mod follow;
pub mod health;
pub mod http;
pub mod metrics;
mod notice;
pub mod run;
mod say;
pub mod store;
pub mod strangers;
pub mod tell;

#[cfg(test)]
mod testkit;
