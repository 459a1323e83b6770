//! The calls themselves: from C functions to plain values. All `unsafe` of the agent is in this folder.
//!
//! A function is taken from the loaded library by its field, never by the binding's method of the same name: that one panics
//! when the symbol is absent. Every call is entered in the thread's [`Pulse`], so that the watchdog sees a hanging one.
#![expect(unsafe_code, reason = "NVML is a C library; each call says why its arguments are valid")]

mod events;
mod health;
mod identity;
mod session;

use std::ffi::{CStr, c_char, c_uint};

use nvml_wrapper_sys::bindings::nvmlDevice_t;
use tokio::time::Instant;

use super::pulse::Pulse;
use super::{CallError, Code};

pub(super) use events::EventSet;
pub(super) use health::FieldId;
pub(super) use session::Session;

/// A GPU or partition as the library names it. Valid as long as the session is open; it never leaves its thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Device(nvmlDevice_t);

/// The calls of one thread of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Calls<'a> {
    session: &'a Session,
    pulse: &'a Pulse,
}

impl<'a> Calls<'a> {
    pub(super) fn new(session: &'a Session, pulse: &'a Pulse) -> Self {
        Self { session, pulse }
    }

    /// Makes a call, with the pulse entered before and left after it.
    fn make(&self, function: &'static str, call: impl FnOnce() -> c_uint) -> Result<(), CallError> {
        self.pulse.enter(function, Instant::now());
        let code = call();
        self.pulse.leave(Instant::now());
        if code == 0 { Ok(()) } else { Err(CallError::new(function, Code(code))) }
    }
}

/// Calls a function of the library, if it has it.
///
/// The arguments must be what the C function expects: each use is an `unsafe` call in all but name, and says why it is valid.
macro_rules! call {
    ($calls:expr, $function:ident($($argument:expr),* $(,)?)) => {{
        let calls: &$crate::nvml::raw::Calls<'_> = $calls;
        match calls.session.library().$function.as_ref() {
            Ok(function) => calls.make(stringify!($function), || unsafe { function($($argument),*) }),
            Err(_) => Err($crate::nvml::CallError::new(stringify!($function), $crate::nvml::Code::FUNCTION_NOT_FOUND)),
        }
    }};
}
use call;

/// Calls a getter that writes one number.
macro_rules! number {
    ($calls:expr, $function:ident($($argument:expr),*)) => {{
        let mut value = 0;
        // SAFETY: the other arguments are numbers or a device of this session, and `value` is room for the answer.
        $crate::nvml::raw::call!($calls, $function($($argument,)* &raw mut value)).map(|()| value)
    }};
}
use number;

/// Calls a getter that fills a text buffer of the given size.
macro_rules! text {
    ($calls:expr, $size:expr, $function:ident($($argument:expr),*)) => {{
        let mut buffer = [0 as std::ffi::c_char; $size];
        // SAFETY: the buffer has the length that is given with it.
        $crate::nvml::raw::call!($calls, $function($($argument,)* buffer.as_mut_ptr(), $size))
            .and_then(|()| $crate::nvml::raw::read_text(stringify!($function), &buffer))
    }};
}
use text;

/// The text in a buffer that a call has filled.
fn read_text(function: &'static str, buffer: &[c_char]) -> Result<String, CallError> {
    // SAFETY: c_char has the size and alignment of u8, and every bit pattern is valid.
    let bytes = unsafe { std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), buffer.len()) };
    let text = CStr::from_bytes_until_nul(bytes).ok().and_then(|text| text.to_str().ok());
    text.map(str::to_owned).ok_or(CallError::new(function, Code::UNKNOWN))
}

/// The version word of NVML's versioned structs.
const fn version_of<T>(number: u32) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "structs of NVML are small")]
    let size = size_of::<T>() as u32;
    size | number << 24
}

/// What NVML gives for "no instance" and "not told".
fn instance(id: u32) -> Option<u32> {
    (id != u32::MAX).then_some(id)
}
