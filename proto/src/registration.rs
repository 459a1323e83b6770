//! How a driver introduces itself to kubelet.

/// The `type` that a DRA driver gives in [`v1::PluginInfo`]; kubelet's plugin manager picks its handler by it.
pub const PLUGIN_TYPE: &str = "DRAPlugin";

/// Package `pluginregistration`: the only version there is.
pub mod v1 {
    #![expect(clippy::too_many_lines, reason = "generated code")]
    include!("generated/registration_v1.rs");
}
