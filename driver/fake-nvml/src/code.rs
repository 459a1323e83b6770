//! NVML's return codes.

use std::ffi::{CStr, c_uint};

/// A return code that is not success.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code(pub c_uint);

pub(crate) const SUCCESS: c_uint = 0;
pub(crate) const UNINITIALIZED: Code = Code(1);
pub(crate) const INVALID_ARGUMENT: Code = Code(2);
pub(crate) const NOT_SUPPORTED: Code = Code(3);
pub(crate) const NOT_FOUND: Code = Code(6);
pub(crate) const INSUFFICIENT_SIZE: Code = Code(7);
pub(crate) const TIMEOUT: Code = Code(10);
pub(crate) const CORRUPTED_INFOROM: Code = Code(14);
pub(crate) const GPU_IS_LOST: Code = Code(15);
pub(crate) const RESET_REQUIRED: Code = Code(16);
pub(crate) const ARGUMENT_VERSION_MISMATCH: Code = Code(25);
pub(crate) const UNKNOWN: Code = Code(999);

/// What `nvmlErrorString` says.
pub(crate) fn text(code: c_uint) -> &'static CStr {
    match code {
        0 => c"Success",
        1 => c"Uninitialized",
        2 => c"Invalid Argument",
        3 => c"Not Supported",
        4 => c"Insufficient Permissions",
        6 => c"Not Found",
        7 => c"Insufficient Size",
        8 => c"Insufficient External Power",
        9 => c"Driver Not Loaded",
        10 => c"Timeout",
        13 => c"Function Not Found",
        14 => c"Corrupted infoROM",
        15 => c"GPU is lost",
        16 => c"GPU requires reset",
        18 => c"Driver/library version mismatch",
        25 => c"Argument version mismatch",
        _ => c"Unknown Error",
    }
}

/// The return value of a call.
pub(crate) fn returned(result: Result<(), Code>) -> c_uint {
    match result {
        Ok(()) => SUCCESS,
        Err(code) => code.0,
    }
}
