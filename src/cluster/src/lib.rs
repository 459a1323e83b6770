//! The edge to Kubernetes: everything that knows how the API server is reached and how its objects look.
//!
//! What flows through: [`connect`] makes a client, [`server`] asks what is served, [`wire`] reads objects into
//! [`taints::object`]. [`mark`] writes what people wish. Rules live in `taints`; nothing here decides.

pub mod call;
#[cfg(feature = "cel")]
pub mod cel;
pub mod connect;
pub mod kind;
pub mod mark;
pub mod server;
pub mod wire;

#[cfg(test)]
mod testing;

pub use call::CallError;
pub use connect::{ConnectError, ConnectOptions, connect};
pub use kind::Kind;
pub use server::{RuleVersion, Server};
