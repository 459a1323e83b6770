//! What one NVML call gave: a value, "this card has no such thing", or an error code. Never a silent default.

use std::fmt;
use std::time::Duration;

/// A return code of NVML (`nvmlReturn_t`), kept as the number so that a code newer than this program is still told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Code(pub u32);

impl Code {
    /// The library was not initialised, or was shut down.
    pub const UNINITIALIZED: Self = Self(1);
    /// An argument, or a handle, is not valid.
    pub const INVALID_ARGUMENT: Self = Self(2);
    /// The card does not have this.
    pub const NOT_SUPPORTED: Self = Self(3);
    /// The caller may not do this.
    pub const NO_PERMISSION: Self = Self(4);
    /// No such object.
    pub const NOT_FOUND: Self = Self(6);
    /// The given buffer is too small.
    pub const INSUFFICIENT_SIZE: Self = Self(7);
    /// The kernel module is not loaded.
    pub const DRIVER_NOT_LOADED: Self = Self(9);
    /// Nothing happened in the given time.
    pub const TIMEOUT: Self = Self(10);
    /// The library does not have this function.
    pub const FUNCTION_NOT_FOUND: Self = Self(13);
    /// The card fell off the bus or is otherwise out of reach.
    pub const GPU_IS_LOST: Self = Self(15);
    /// The card must be reset before it can be used.
    pub const RESET_REQUIRED: Self = Self(16);
    /// Library and kernel module are of different versions.
    pub const LIB_RM_VERSION_MISMATCH: Self = Self(18);
    /// A struct version that this library does not know.
    pub const ARGUMENT_VERSION_MISMATCH: Self = Self(25);
    /// An error that the library has no word for.
    pub const UNKNOWN: Self = Self(999);

    /// NVML's own name of the code, without its prefix.
    #[must_use]
    pub fn name(self) -> Option<&'static str> {
        let name = match self.0 {
            0 => "SUCCESS",
            1 => "UNINITIALIZED",
            2 => "INVALID_ARGUMENT",
            3 => "NOT_SUPPORTED",
            4 => "NO_PERMISSION",
            5 => "ALREADY_INITIALIZED",
            6 => "NOT_FOUND",
            7 => "INSUFFICIENT_SIZE",
            8 => "INSUFFICIENT_POWER",
            9 => "DRIVER_NOT_LOADED",
            10 => "TIMEOUT",
            11 => "IRQ_ISSUE",
            12 => "LIBRARY_NOT_FOUND",
            13 => "FUNCTION_NOT_FOUND",
            14 => "CORRUPTED_INFOROM",
            15 => "GPU_IS_LOST",
            16 => "RESET_REQUIRED",
            17 => "OPERATING_SYSTEM",
            18 => "LIB_RM_VERSION_MISMATCH",
            19 => "IN_USE",
            20 => "MEMORY",
            21 => "NO_DATA",
            25 => "ARGUMENT_VERSION_MISMATCH",
            26 => "DEPRECATED",
            27 => "NOT_READY",
            28 => "GPU_NOT_FOUND",
            29 => "INVALID_STATE",
            30 => "RESET_TYPE_NOT_SUPPORTED",
            999 => "UNKNOWN",
            _ => return None,
        };
        Some(name)
    }

    /// Whether the code says that the card or the library lacks the thing, rather than that reading it went wrong.
    #[must_use]
    pub fn means_not_supported(self) -> bool {
        matches!(self, Self::NOT_SUPPORTED | Self::FUNCTION_NOT_FOUND | Self::ARGUMENT_VERSION_MISMATCH)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => write!(f, "{name} ({})", self.0),
            None => write!(f, "code {}", self.0),
        }
    }
}

/// One value that a card may or may not have. "Unknown" (`Failed`) is neither good nor bad, and says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reading<T> {
    /// The card answered.
    Value(T),
    /// The card, or this version of the library, has no such value.
    NotSupported,
    /// It could not be read now.
    Failed(Code),
}

impl<T> Reading<T> {
    /// The value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            Self::NotSupported | Self::Failed(_) => None,
        }
    }

    /// The same reading of another type.
    pub fn map<U>(self, change: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::Value(value) => Reading::Value(change(value)),
            Self::NotSupported => Reading::NotSupported,
            Self::Failed(code) => Reading::Failed(code),
        }
    }

    /// A value, "not supported" or "failed", from what a call returned. A missing symbol is "not supported".
    pub fn from_call(result: Result<T, CallError>) -> Self {
        match result {
            Ok(value) => Self::Value(value),
            Err(error) if error.code.means_not_supported() => Self::NotSupported,
            Err(error) => Self::Failed(error.code),
        }
    }
}

impl<T: Copy> Reading<T> {
    /// The value itself, if there is one.
    #[must_use]
    pub fn get(&self) -> Option<T> {
        self.value().copied()
    }
}

/// An NVML call that did not give what was asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{function} answered {code}{}", hint(*code))]
pub struct CallError {
    /// The C function.
    pub function: &'static str,
    /// What it returned; [`Code::FUNCTION_NOT_FOUND`] also for a symbol that the library does not export,
    /// [`Code::TIMEOUT`] also for a call that did not return within the deadline.
    pub code: Code,
    /// How long it was waited for, if it did not return at all.
    pub unanswered_for: Option<Duration>,
}

impl CallError {
    /// A call that returned `code`.
    #[must_use]
    pub fn new(function: &'static str, code: Code) -> Self {
        Self { function, code, unanswered_for: None }
    }

    /// A call that had not returned after `waited`.
    #[must_use]
    pub fn unanswered(function: &'static str, waited: Duration) -> Self {
        Self { function, code: Code::TIMEOUT, unanswered_for: Some(waited) }
    }
}

fn hint(code: Code) -> &'static str {
    match code {
        Code::GPU_IS_LOST => ": the card is out of reach; see the kernel log for Xid 79, then reset it or reboot",
        Code::RESET_REQUIRED => ": reset the card (nvidia-smi --gpu-reset) once nothing uses it",
        Code::NO_PERMISSION => ": run the agent privileged, with /dev/nvidia* mounted",
        Code::TIMEOUT => ": the kernel module does not answer; see the kernel log, a reboot may be needed",
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::{CallError, Code, Reading};

    #[test]
    fn what_a_library_lacks_is_not_supported_and_what_breaks_is_failed() {
        let with = |code| Reading::<u32>::from_call(Err(CallError::new("f", code)));
        assert_eq!(with(Code::NOT_SUPPORTED), Reading::NotSupported);
        assert_eq!(with(Code::FUNCTION_NOT_FOUND), Reading::NotSupported);
        assert_eq!(with(Code::UNKNOWN), Reading::Failed(Code::UNKNOWN));
        assert_eq!(Reading::from_call(Ok(7)), Reading::Value(7));
    }

    #[test]
    fn a_code_without_a_name_is_told_by_its_number() {
        assert_eq!(Code(77).to_string(), "code 77");
        assert_eq!(Code::GPU_IS_LOST.to_string(), "GPU_IS_LOST (15)");
    }
}
