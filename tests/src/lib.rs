//! One table of scenarios, run on the small cluster of this repository and on a real Kubernetes; the demo that tells
//! one of them; the runner for cases.
//!
//! What flows through: [`table`] lists [`stage::Scenario`]s; [`run`] opens a [`stage::Stage`] for one (a [`lab::Lab`] of real
//! processes in a folder of its own, and a [`witness::Witness`] of evictions), takes its steps, and tells a listener.

pub mod cases;
pub mod faults;
pub mod gpus;
pub mod http;
pub mod lab;
pub mod measure;
pub mod needs;
pub mod objects;
pub mod process;
pub mod programs;
pub mod programs_say;
pub mod run;
pub mod scenarios;
pub mod signals;
pub mod stage;
pub mod upstream;
pub mod wait;
pub mod witness;

pub use scenarios::table;
