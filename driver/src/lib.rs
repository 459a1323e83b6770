//! The node agent `gpu-driver`: finds GPUs through NVML, publishes them, prepares claims, taints the ones that are unwell.
//!
//! ```text
//!  nvml ──► inventory ──► health ──► slices ──► API server          flow 1: a fault becomes a taint, and goes on evidence
//!              │            └──────► plugin (health streams)
//!              └────► claims ◄────── plugin ◄── kubelet             flow 3: a claim is prepared, and unprepared
//!  owner: who else offers these cards; a contested one is neither published nor prepared anew
//! ```
//!
//! [`agent`] holds the tasks and the channels between them; each room tells in its header what flows through it.

pub mod agent;
pub mod cdi;
pub mod claims;
pub mod config;
pub mod health;
pub mod http;
pub mod http_checks;
pub mod inventory;
pub mod marks;
pub mod metrics;
pub mod notices;
pub mod nvml;
pub mod owner;
pub mod plugin;
pub mod policy;
pub mod slices;
pub mod state;
#[cfg(test)]
mod testing;
