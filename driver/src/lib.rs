//! The node agent: what flows through each room is told in the header of its module.
pub mod nvml;
