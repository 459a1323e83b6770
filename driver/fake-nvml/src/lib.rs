#![doc = include_str!("../README.md")]

pub mod abi;
pub mod calls;
mod clock;
pub mod code;
pub mod control;
mod engine;
mod install;
mod machine;
mod place;
mod reload;
mod watch;

pub use install::{BUILT_AS, LOADED_AS, Machine, built_library};
pub use place::{CONTROL_BESIDE, CONTROL_VARIABLE};
