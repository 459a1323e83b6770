//! `cargo run -p scenarios --bin cases -- FILE...`: runs cases about taints and tolerations against our rules.
//!
//! Exit code 0: every case that is built passes. 1: some failed. 2: a file cannot be read as cases.

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use scenarios::cases::{RunError, run_files};

/// Runs cases about taints and tolerations against our rules.
#[derive(Parser)]
struct Args {
    /// Files of cases: JSON arrays.
    #[arg(required = true)]
    files: Vec<PathBuf>,
}

fn main() -> io::Result<ExitCode> {
    let args = Args::parse();
    let mut out = io::stdout().lock();
    match run_files(&args.files, &mut out) {
        Ok(tally) if tally.failed == 0 => Ok(ExitCode::SUCCESS),
        Ok(_) => Ok(ExitCode::from(1)),
        Err(RunError::Report(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(ExitCode::SUCCESS),
        Err(error) => {
            out.flush()?;
            writeln!(io::stderr(), "cases: {error}")?;
            Ok(ExitCode::from(2))
        }
    }
}
