//! Takes figures and prints one JSON object a line. `cargo xtask measure` runs it in release.
//!
//! Exit codes: 0 all figures were taken (whether they meet their targets or not); 1 one could not be taken; 2 a flag does not parse.

use std::io::Write as _;
use std::process::ExitCode;

use anyhow::Result;
use clap::Parser;
use scenarios::measure;

/// Figures of the programs, taken on the small cluster.
#[derive(Debug, Parser)]
struct Arguments {
    /// Only this group: agent, claims or controller
    group: Option<String>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            writeln!(std::io::stderr(), "error: {error:?}").ok();
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(measure::run(arguments.group.as_deref(), |figure| {
        writeln!(std::io::stdout(), "{}", serde_json::to_string(figure)?)?;
        Ok(())
    }))
}
