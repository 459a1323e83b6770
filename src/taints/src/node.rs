//! Which node taints a pod tolerates.
