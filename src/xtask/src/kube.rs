//! `cargo xtask kube`: a real Kubernetes on this machine, built from Go modules, started in a folder of its own, stopped without a trace.
//!
//! ```text
//! build: tests/real/*/go.mod ─► programs in the cache        (programs, build; debian: packages)
//! up:    RUN ─► ports, keys, configuration ─► etcd, API server, controllers, scheduler, containerd, kubelet ─► RUN/cluster.json
//!        (layout, ports, pki, access, flags, node ─► process, wait ─► record)
//! down:  RUN ─► processes, mounts, cgroups, addresses, files: all that bears its name (sweep)
//! ```
//!
//! All that `up` starts or makes bears the run folder's name: an environment variable, a path, a cgroup, an address label. So `down`, and `up` after a
//! crash, find it without any record that could be stale.

mod access;
mod build;
mod cgroup;
mod debian;
mod down;
mod files;
mod flags;
mod further;
mod images;
mod interrupt;
mod kubectl;
mod layout;
mod matrix;
mod mounts;
mod network;
mod node;
mod pki;
mod ports;
mod process;
pub(crate) mod programs;
mod record;
mod sweep;
mod test;
mod up;
pub(crate) mod version;
mod wait;

use std::fmt;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Result;

use version::Version;

/// Options of `cargo xtask kube`.
#[derive(clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(clap::Subcommand)]
enum Task {
    /// Build Kubernetes, etcd, containerd and helm where the cache has them not, and install the Debian packages that they need
    Build {
        /// Version of Kubernetes: 1.34, 1.35, 1.36 or 1.37, with or without the patch
        #[arg(long, default_value_t)]
        version: Version,
    },
    /// Start a cluster with a real node, n1, and print the KUBECONFIG line
    Up(UpArgs),
    /// Stop a cluster, and remove all that it left
    Down(DownArgs),
    /// Run the table of scenarios on a real cluster, started for it and stopped again
    Test(test::TestArgs),
    /// Run the table of scenarios on every version, and write docs/compatibility.md
    Matrix(matrix::MatrixArgs),
}

/// Options of `cargo xtask kube up`.
#[derive(clap::Args, Clone, Debug)]
struct UpArgs {
    /// Version of Kubernetes: 1.34, 1.35, 1.36 or 1.37, with or without the patch
    #[arg(long, default_value_t)]
    version: Version,
    /// The cluster's folder, with a short path; a second cluster needs another one
    #[arg(long, value_name = "DIR", default_value_os_t = layout::default_folder())]
    run: PathBuf,
    /// The API server's port; a free one when absent
    #[arg(long)]
    port: Option<u16>,
    /// How many nodes. n1 has the real kubelet and containers; further ones are kubelets of the small cluster, each with a gpu-driver and stand-in GPUs
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=99))]
    nodes: u8,
    /// Leave kube-controller-manager's own device taint eviction on
    #[arg(long)]
    upstream_evictor: bool,
    /// Start the version as it comes: no feature gate, no API version that is off by default
    #[arg(long)]
    stock: bool,
}

/// Options of `cargo xtask kube down`.
#[derive(clap::Args, Clone, Debug)]
struct DownArgs {
    /// The cluster's folder
    #[arg(long, value_name = "DIR", default_value_os_t = layout::default_folder())]
    run: PathBuf,
    /// Leave DIR/logs
    #[arg(long)]
    keep_logs: bool,
}

pub(crate) fn run(args: &Args) -> Result<()> {
    match &args.task {
        Task::Build { version } => build::run(*version),
        Task::Up(args) => up::run(args),
        Task::Down(args) => down::run(args),
        Task::Test(args) => test::run(args),
        Task::Matrix(args) => matrix::run(args),
    }
}

/// Scenarios ran, and not all passed. Everything else that goes wrong is another thing: no cluster, no build, an interruption.
#[derive(Debug)]
pub(crate) struct ScenariosFailed(String);

impl std::error::Error for ScenariosFailed {}

impl fmt::Display for ScenariosFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Progress, for people. Where stderr is closed there is nobody to tell.
fn say(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}
