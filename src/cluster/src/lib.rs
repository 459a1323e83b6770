//! The edge to Kubernetes: everything that knows how the API server is reached and how its objects look.
//!
//! What flows through: [`connect()`] makes a client, [`server`] asks what is served, [`watch`] follows objects, [`wire`] reads them
//! into [`taints::object`], and a bounded channel carries each [`Change`](taints::fleet::Change) to who decides. Back go
//! [`evict`] and [`event`] for what was decided, and [`mark`] for what people wish. Rules live in `taints`; nothing here decides.

pub mod call;
#[cfg(feature = "cel")]
pub mod cel;
pub mod connect;
pub mod event;
pub mod evict;
pub mod kind;
pub mod mark;
pub mod probe;
mod relist;
pub mod server;
pub mod watch;
pub mod wire;
pub mod yaml;

#[cfg(test)]
mod testing;

pub use call::CallError;
pub use connect::{ConnectError, ConnectOptions, connect};
pub use kind::Kind;
pub use server::{RuleVersion, Server};
