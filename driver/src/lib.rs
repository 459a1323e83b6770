//! The node agent: what flows through each room is told in the header of its module.
pub mod nvml;
pub mod metrics;
pub mod slices;
pub mod cdi;
pub mod claims;
pub mod health;
pub mod inventory;
pub mod policy;
pub mod state;
