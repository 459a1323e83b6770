//! `cargo xtask ...`: what a person who works on the project repeats. One module per subcommand.

mod gen_proto;
mod go_tool;
mod image;
mod kube;
mod kubectl;
mod manifests;
mod measure;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};

use anyhow::{Context, Result, ensure};
use clap::{Parser, Subcommand};
use serde_json::Value;

#[derive(Parser)]
#[command(name = "cargo xtask", about = "What a person who works on the project repeats")]
struct Args {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Write the Rust code of kubelet's gRPC contracts anew from proto/proto
    Gen(gen_proto::Args),
    /// Make the images of both programs as OCI tars, without a container engine
    Image(image::Args),
    /// Render the chart to deploy/manifests.yaml with helm
    Manifests(manifests::Args),
    /// Build, start and stop a real Kubernetes on this machine
    Kube(kube::Args),
    /// Build the real kubectl 1.37 from its Go module, once, and print its path
    Kubectl,
    /// Take figures of the programs in release, one JSON object a line
    Measure {
        /// Only this group: agent, claims or controller
        group: Option<String>,
    },
}

fn main() -> ExitCode {
    let task = Args::parse().task;
    let of_cluster = matches!(task, Task::Kube(_));
    match run(task) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The chain in one line and no backtrace: the reader wants to know what to do. Where stderr is closed there is nobody to tell.
            writeln!(io::stderr(), "error: {error:#}").ok();
            // As docs/real-cluster.md says: 1 where scenarios failed, 2 where the cluster did not come up.
            if of_cluster && !error.is::<kube::ScenariosFailed>() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn run(task: Task) -> Result<()> {
    match task {
        Task::Gen(args) => gen_proto::run(&args),
        Task::Image(args) => image::run(&args),
        Task::Manifests(args) => manifests::run(&args),
        Task::Kube(args) => kube::run(&args),
        Task::Kubectl => kubectl::run(),
        Task::Measure { group } => measure::run(group.as_deref()),
    }
}

/// The folder of the workspace. An xtask is always run from its own checkout, so the place where it was compiled is the place to work in.
fn repository_root() -> &'static Path {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here)
}

/// Builds with these arguments of `cargo build` and gives the programs that came of it, as cargo tells them.
///
/// # Errors
/// When cargo fails: its words are on stderr.
fn build(arguments: &[&str]) -> Result<Vec<PathBuf>> {
    let mut command = cargo(&["build", "--locked", "--message-format=json-render-diagnostics"]);
    let output = command.args(arguments).stdin(Stdio::null()).stderr(Stdio::inherit()).output();
    let output = output.context("start cargo build")?;
    ensure!(output.status.success(), "`cargo build {}` failed: {}", arguments.join(" "), output.status);
    Ok(executables(&String::from_utf8_lossy(&output.stdout)))
}

/// The programs among cargo's messages.
fn executables(messages: &str) -> Vec<PathBuf> {
    let parse = |line: &str| serde_json::from_str::<Value>(line).ok();
    let of = |message: Value| message.get("executable")?.as_str().map(PathBuf::from);
    messages.lines().filter_map(parse).filter_map(of).collect()
}

/// Variables that cargo sets for a program that it runs.
const OF_THIS_PROGRAM: [&str; 5] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "OUT_DIR"];

/// A call of cargo in the workspace, by the cargo that runs us.
fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments).current_dir(repository_root());
    // What cargo told us of ourselves is not for another cargo: build scripts that look at it would run again, and half of the crates after them.
    let of_this_program = |name: &str| OF_THIS_PROGRAM.iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_this_program)) {
        command.env_remove(name);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_among_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","executable":null}"#,
            "\nnot json\n",
            r#"{"reason":"compiler-artifact","executable":"/t/release/gpu-driver"}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        assert_eq!(executables(messages), [PathBuf::from("/t/release/gpu-driver")]);
    }
}
