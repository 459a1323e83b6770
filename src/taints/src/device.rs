//! Which device taints a request tolerates.
