//! Where the control file is.
#![expect(unsafe_code, reason = "dladdr tells which file this library was loaded from")]

use std::ffi::{CStr, OsStr};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// Names the control file.
pub const CONTROL_VARIABLE: &str = "FAKE_NVML_CONTROL";
/// The control file beside the library, which wins over the variable: so one process can hold several machines.
pub const CONTROL_BESIDE: &str = "fake-nvml.json";

/// The control file, or what to do about there being none.
pub(crate) fn control_file() -> Result<PathBuf, String> {
    let beside = library_file().and_then(|file| Some(file.parent()?.join(CONTROL_BESIDE)));
    if let Some(beside) = beside.filter(|file| file.exists()) {
        return Ok(beside);
    }
    std::env::var_os(CONTROL_VARIABLE)
        .map(PathBuf::from)
        .ok_or_else(|| format!("set {CONTROL_VARIABLE} to a control file, or put {CONTROL_BESIDE} beside the library"))
}

/// The file that this code was loaded from.
fn library_file() -> Option<PathBuf> {
    let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
    let here = library_file as fn() -> Option<PathBuf>;
    // SAFETY: `info` is room for the answer, and any address may be asked for.
    if unsafe { libc::dladdr(here as *const libc::c_void, info.as_mut_ptr()) } == 0 {
        return None;
    }
    // SAFETY: all zeros is a valid `Dl_info`, and dladdr has filled it.
    let name = unsafe { info.assume_init() }.dli_fname;
    if name.is_null() {
        return None;
    }
    // SAFETY: a non-null name is a NUL-terminated text that lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(name) };
    Some(Path::new(OsStr::from_bytes(name.to_bytes())).to_owned())
}
