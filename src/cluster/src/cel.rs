//! Device selectors: the CEL expressions of DeviceClasses and of requests (resource/v1 `CELDeviceSelector`).
//!
//! What flows through: an expression is compiled once into a [`Selector`], which is then asked device by device. A device does not
//! match, matches, or cannot be judged: an evaluation error is kept apart from "no", because Kubernetes' scheduler stops the whole
//! allocation on one (an attribute that is not there, a value of another type) while a "no" only skips the device.
//!
//! There is no type check and no cost limit before the evaluation: what kube-apiserver refuses when a claim is created may show up
//! here as an evaluation error.

use cel::common::types::CelBool;
use cel::{Context, Program, Value};
use taints::object::Device;

mod depth;
mod library;
pub mod quantity;
mod values;

#[cfg(test)]
mod tests;

pub use values::FieldError;

/// The longest expression that is compiled, in bytes: the limit of resource/v1.
pub const MAX_EXPRESSION_LEN: usize = 10 * 1024;
/// How deep an expression may nest: brackets and operators in a row, each a level. Ordinary selectors stay below ten.
pub const MAX_DEPTH: usize = 32;
/// The stack of the parser, in bytes: virtual memory that is touched only as far as it is used.
const PARSER_STACK: usize = 64 * 1024 * 1024;

/// Why a selector gives no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CelError {
    /// The expression is longer than [`MAX_EXPRESSION_LEN`].
    #[error("the expression has {0} bytes, {MAX_EXPRESSION_LEN} are allowed: split it into several selectors")]
    TooLong(usize),
    /// Brackets and operators in a row nest deeper than [`MAX_DEPTH`].
    #[error("the expression nests deeper than {MAX_DEPTH} levels: split it into several selectors")]
    TooDeep,
    /// The expression does not parse.
    #[error("the expression {expression:?} does not compile: {problem}")]
    Compile {
        /// The expression.
        expression: String,
        /// What the parser says, with the place.
        problem: String,
    },
    /// The device cannot be shown to an expression, for example because a version attribute is no semantic version.
    #[error("device {device}: {source}")]
    Device {
        /// The device's name.
        device: String,
        /// Which field.
        source: FieldError,
    },
    /// The evaluation failed, for example because an attribute is not there.
    #[error("the expression {expression:?} fails on device {device}: {problem}")]
    Evaluate {
        /// The expression.
        expression: String,
        /// The device's name.
        device: String,
        /// What the evaluation says.
        problem: String,
    },
    /// The expression evaluates to something else than true or false.
    #[error("the expression {expression:?} gives {got} for device {device}, but a selector must give true or false")]
    NotBool {
        /// The expression.
        expression: String,
        /// The device's name.
        device: String,
        /// The type that it gave.
        got: String,
    },
    /// The functions for selectors could not be declared: a fault of this program.
    #[error("the functions for selectors clash: {0}")]
    Library(String),
}

/// A compiled selector.
#[derive(Debug)]
pub struct Selector {
    expression: String,
    program: Program,
}

impl Selector {
    /// Compiles an expression.
    ///
    /// # Errors
    ///
    /// [`CelError::TooLong`], [`CelError::TooDeep`], [`CelError::Compile`].
    pub fn compile(expression: &str) -> Result<Self, CelError> {
        if expression.len() > MAX_EXPRESSION_LEN {
            return Err(CelError::TooLong(expression.len()));
        }
        if depth::depth(expression) > MAX_DEPTH {
            return Err(CelError::TooDeep);
        }
        let env = library::environment().map_err(|error| CelError::Library(error.to_string()))?;
        let program = on_large_stack(|| env.compile(expression))?.map_err(|error| CelError::Compile {
            expression: expression.to_owned(),
            problem: one_line(&error.to_string()),
        })?;
        Ok(Self { expression: expression.to_owned(), program })
    }

    /// The expression as it was written.
    #[must_use]
    pub fn expression(&self) -> &str {
        &self.expression
    }

    /// Whether a device of a driver matches.
    ///
    /// # Errors
    ///
    /// [`CelError::Device`], [`CelError::Evaluate`], [`CelError::NotBool`]: the device cannot be judged, which is not a "no".
    pub fn matches(&self, device: &Device, driver: &str) -> Result<bool, CelError> {
        let env = library::environment().map_err(|error| CelError::Library(error.to_string()))?;
        let value = values::device(device, driver)
            .map_err(|source| CelError::Device { device: device.name.clone(), source })?;
        let mut context = Context::with_env(env);
        context.add_variable_as_val("device", value);
        let value = Value::resolve_val(self.program.expression(), &context).map_err(|error| CelError::Evaluate {
            expression: self.expression.clone(),
            device: device.name.clone(),
            problem: one_line(&error.to_string()),
        })?;
        let answer = value.downcast_ref::<CelBool>().map(|answer| *answer.inner());
        answer.ok_or_else(|| CelError::NotBool {
            expression: self.expression.clone(),
            device: device.name.clone(),
            got: value.get_type().name().to_owned(),
        })
    }
}

/// Runs on a thread with a stack of its own: the parser takes up to 200 KiB a level in a build without optimisation.
fn on_large_stack<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, CelError> {
    let failed = || CelError::Library("the thread that compiles expressions could not run".to_owned());
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("cel".to_owned()).stack_size(PARSER_STACK);
        thread.spawn_scoped(scope, work).map_err(|_| failed())?.join().map_err(|_| failed())
    })
}

/// Errors go into events and conditions: one line.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
