//! Why NVML could not be opened. Each message ends with the next step.

use std::path::PathBuf;
use std::time::Duration;

use super::Code;

/// Why NVML could not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// The library is not there or cannot be loaded.
    #[error(
        "NVML library {} cannot be loaded: {reason}{}; install the NVIDIA driver on this node, or point --nvml-library at its libnvidia-ml.so.1",
        path.display(), nor_others(*others)
    )]
    NoLibrary {
        /// What was loaded.
        path: PathBuf,
        /// What the dynamic loader said.
        reason: String,
        /// How many other candidates could not be loaded either.
        others: usize,
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

impl OpenError {
    /// Whether it is about the file that was tried, so that another file may do better.
    pub(super) fn is_of_file(&self) -> bool {
        matches!(self, Self::NoLibrary { .. } | Self::Unusable { .. } | Self::VersionMismatch)
    }

    /// Which of several files tells a person most: one that is there and wrong says more than one that is not there.
    pub(super) fn weight(&self) -> u8 {
        match self {
            Self::NoLibrary { path, .. } if !path.exists() => 0,
            Self::NoLibrary { .. } => 1,
            Self::Unusable { .. } => 2,
            _ => 3,
        }
    }
}

fn nor_others(others: usize) -> String {
    match others {
        0 => String::new(),
        1 => ", nor the other one that was named".to_owned(),
        many => format!(", nor any of the {many} others that were named"),
    }
}
