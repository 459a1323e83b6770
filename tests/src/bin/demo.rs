//! `cargo demo`: tells the story on the small cluster of this repository, and checks every step itself.
//!
//! Exit codes: 0 the story held; 1 it broke, with the difference; 2 a flag does not parse.

use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Result;
use clap::Parser;
use scenarios::lab::Site;
use scenarios::programs::Programs;
use scenarios::run::{self, Heard};
use scenarios::stage::{Scenario, Stage};
use serde_json::json;

/// One bad GPU moves exactly the right pods: the story, with no GPU, no Kubernetes and no root.
#[derive(Debug, Parser)]
#[command(name = "cargo demo", version)]
struct Arguments {
    /// Leave the cluster running afterwards, and print how to use it; Ctrl-C ends it.
    #[arg(long)]
    keep: bool,
    /// One JSON object a line, for machines.
    #[arg(long)]
    json: bool,
    /// Tell another scenario of the table than the story.
    #[arg(long, value_name = "NAME", default_value = "story", value_parser = scenario)]
    scenario: &'static Scenario,
}

/// A row of the table by its name.
fn scenario(name: &str) -> Result<&'static Scenario, String> {
    let names = || scenarios::table().iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
    let found = scenarios::table().iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| format!("there are {}", names()))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match tell(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // Nobody is left to tell when stderr is closed.
            writeln!(std::io::stderr(), "the story broke: {error:#}").ok();
            ExitCode::FAILURE
        }
    }
}

fn tell(arguments: &Arguments) -> Result<()> {
    say(arguments, "building the programs", &json!({"event": "building"}))?;
    Programs::build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(story(arguments))
}

async fn story(arguments: &Arguments) -> Result<()> {
    let began = tokio::time::Instant::now();
    let mut broken = Ok(());
    let stage = run::scenario(arguments.scenario, &Site::Small, |heard| {
        if let Err(error) = report(arguments, &heard) {
            broken = Err(error);
        }
    });
    let stage = stage.await?;
    broken?;
    let (steps, seconds) = (arguments.scenario.steps.len(), began.elapsed().as_secs_f64());
    let done = format!("\nThe story held: {steps} steps checked in {seconds:.1} s.");
    say(arguments, &done, &json!({"event": "done", "steps": steps, "seconds": seconds}))?;
    if arguments.keep { keep(arguments, &stage).await } else { Ok(()) }
}

fn report(arguments: &Arguments, heard: &Heard<'_>) -> Result<()> {
    match heard {
        Heard::Begins(number, step) => {
            let line = format!("\n{number}. {}", step.title);
            say(arguments, &line, &json!({"event": "step", "number": number, "title": step.title}))
        }
        Heard::Ended(notes, took) => {
            let lines: Vec<String> = notes.iter().map(|note| format!("   {note}")).collect();
            let text = format!("{}\n   as expected, after {}", lines.join("\n"), seconds(*took));
            let record = json!({"event": "ok", "notes": notes, "seconds": took.as_secs_f64()});
            say(arguments, text.trim_start_matches('\n'), &record)
        }
    }
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

async fn keep(arguments: &Arguments, stage: &Stage) -> Result<()> {
    let kubeconfig = stage.lab.kubeconfig().display().to_string();
    let folder = stage.lab.folder().display().to_string();
    let text = format!(
        "\nThe cluster goes on until Ctrl-C. In another terminal:\n\
         \n  export KUBECONFIG={kubeconfig}\
         \n  target/debug/kubectl-device list\
         \n  kubectl -n story get pods -o wide\
         \n  kubectl get resourceslices\
         \n\nThe GPUs of node n1 are in {folder}/nodes/n1/gpus.json: set \"lost\": true on one, and watch its slice.\n"
    );
    say(arguments, &text, &json!({"event": "keep", "kubeconfig": kubeconfig, "folder": folder}))?;
    tokio::signal::ctrl_c().await?;
    Ok(())
}

fn say(arguments: &Arguments, text: &str, record: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    if arguments.json {
        writeln!(out, "{record}")?;
    } else {
        writeln!(out, "{text}")?;
    }
    out.flush()?;
    Ok(())
}
