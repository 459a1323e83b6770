//! Makes a folder that stands for a node's hardware: GPUs for the stand-in library, their part of sysfs and /dev, a boot id. `cargo xtask kube up --nodes`
//! makes its further nodes of it.
//!
//! Exit codes: 0 it is there; 1 it could not be made; 2 a flag does not parse.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use scenarios::gpus::Gpus;
use scenarios::programs::Programs;

/// A node's hardware, for the agent's flags --sysfs-root, --dev-root, --boot-id-file and --nvml-library.
#[derive(Debug, Parser)]
struct Arguments {
    /// The node's name, from which the GPUs get their UUIDs
    #[arg(long)]
    node: String,
    /// How many GPUs it has
    #[arg(long, default_value_t = 8)]
    gpus: usize,
    /// The folder, which must not be there
    folder: PathBuf,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            writeln!(std::io::stderr(), "error: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    let folder = &arguments.folder;
    std::fs::create_dir(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let gpus = Gpus::install(folder, &arguments.node, arguments.gpus, false)?;
    // There the library finds it without a variable.
    let beside = folder.join(nvidia_ml::CONTROL_BESIDE);
    std::fs::rename(gpus.file(), &beside).with_context(|| format!("cannot make {}", beside.display()))?;
    let boot_id = folder.join("boot_id");
    std::fs::write(&boot_id, format!("boot-1-of-{}\n", arguments.node))
        .with_context(|| format!("cannot write {}", boot_id.display()))?;
    Programs::beside()?.put_nvml(folder, true)
}
