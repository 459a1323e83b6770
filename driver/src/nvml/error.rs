//! Why NVML could not be opened. Each message ends with the next step.

use std::path::PathBuf;
use std::time::Duration;

use super::Code;

/// Why NVML could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The library is not there or cannot be loaded.
    #[error(
        "NVML library {} cannot be loaded: {reason}; install the NVIDIA driver on this node, or point --nvml-library at its libnvidia-ml.so.1",
        path.display()
    )]
    NoLibrary {
        /// What was loaded.
        path: PathBuf,
        /// What the dynamic loader said.
        reason: String,
    },
    /// The library lacks functions without which it cannot even be closed again.
    #[error(
        "NVML library {} lacks {}; it is not a complete libnvidia-ml.so.1: point --nvml-library at the one of the driver",
        path.display(), missing.join(", ")
    )]
    Unusable {
        /// What was loaded.
        path: PathBuf,
        /// The C functions that it does not export.
        missing: Vec<&'static str>,
    },
    /// The kernel module is not loaded.
    #[error(
        "the NVIDIA kernel driver is not loaded (NVML code 9); load it (modprobe nvidia) or see the kernel log why it did not load"
    )]
    NotLoaded,
    /// Library and kernel module are of different versions, as after an upgrade in place.
    #[error(
        "the NVML library and the loaded NVIDIA kernel driver are of different versions (NVML code 18); drain the node and reload the driver, or reboot"
    )]
    VersionMismatch,
    /// Another code.
    #[error("nvmlInit answered {code}; see the kernel log of the node and try nvidia-smi there")]
    Failed {
        /// What it answered.
        code: Code,
    },
    /// Initialisation did not return.
    #[error("nvmlInit has not returned for {} s; the kernel driver does not answer: see the kernel log, a reboot may be needed", waited.as_secs())]
    Unanswered {
        /// How long it was waited for.
        waited: Duration,
    },
}
