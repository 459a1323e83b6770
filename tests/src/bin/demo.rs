//! `cargo demo`: tells the story on the small cluster of this repository, and checks every step itself.
//!
//! Exit codes: 0 the story held; 1 it broke, with the difference; 2 a flag does not parse.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Result, bail};
use clap::Parser;
use scenarios::lab::{Node, Site};
use scenarios::programs::Programs;
use scenarios::run::{self, Heard};
use scenarios::signals;
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
    #[arg(long, value_name = "NAME", default_value = "story", value_parser = scenarios::scenarios::named)]
    scenario: &'static Scenario,
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
    let programs = Programs::build()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(story(arguments, &programs))
}

async fn story(arguments: &Arguments, programs: &Programs) -> Result<()> {
    let began = tokio::time::Instant::now();
    let mut broken = Ok(());
    let stage = run::scenario(arguments.scenario, &Site::Small, |heard| {
        if let Err(error) = report(arguments, &heard) {
            broken = Err(error);
        }
    });
    // The lab is dropped when a signal comes, and its programs end.
    let stage = tokio::select! {
        stage = stage => stage?,
        signal = signals::asked_to_end() => bail!("it was ended by {}", signal?.name()),
    };
    broken?;
    let (steps, seconds) = (arguments.scenario.steps.len(), began.elapsed().as_secs_f64());
    let done = format!("\nThe story held: {steps} steps checked in {seconds:.1} s.");
    say(arguments, &done, &json!({"event": "done", "steps": steps, "seconds": seconds}))?;
    if arguments.keep { keep(arguments, programs, &stage).await } else { Ok(()) }
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

async fn keep(arguments: &Arguments, programs: &Programs, stage: &Stage) -> Result<()> {
    let record = json!({
        "event": "keep",
        "kubeconfig": stage.lab.kubeconfig(),
        "folder": stage.lab.folder(),
        "plugin": programs.kubectl_device(),
        "controller": stage.lab.controller_address()?,
        "nodes": nodes(stage)?,
    });
    say(arguments, &kept(programs, stage)?, &record)?;
    // SIGTERM too: a demo that it ends at once would leave its programs behind.
    signals::asked_to_end().await.map(drop)
}

/// Of each node: the file of its GPUs, and where its agent answers.
fn nodes(stage: &Stage) -> Result<Vec<serde_json::Value>> {
    let nodes = stage.lab.nodes.values();
    let node = |node: &Node| {
        let (gpus, agent) = (node.folder().join("gpus.json"), node.driver_address()?);
        Ok(json!({"name": node.name, "gpus": gpus, "agent": agent}))
    };
    nodes.map(node).collect()
}

/// How to look around, in words. Every path is a whole one: the reader is in another terminal, perhaps in another folder.
fn kept(programs: &Programs, stage: &Stage) -> Result<String> {
    let (plugin, folder) = (programs.kubectl_device(), stage.lab.folder().display());
    let path = plugin.parent().unwrap_or(&plugin).display();
    let plugin = plugin.display();
    let (mut files, mut agents) = (String::new(), String::new());
    for node in stage.lab.nodes.values() {
        writeln!(files, "  {}: {}", node.name, node.folder().join("gpus.json").display())?;
        writeln!(agents, "  agent of {}: http://{}/metrics", node.name, node.driver_address()?)?;
    }
    let (kubeconfig, controller) = (stage.lab.kubeconfig().display(), stage.lab.controller_address()?);
    Ok(format!(
        "\nThe cluster goes on until Ctrl-C. In another terminal:\n\
         \n  export KUBECONFIG={kubeconfig}\
         \n  export PATH={path}:$PATH\
         \n  kubectl device list\
         \n  kubectl -n story get pods -o wide\
         \n  kubectl get resourceslices\
         \n\nWithout kubectl, {plugin} list does as well.\n\
         \nThe GPUs of each node; add \"lost\": true to one, save, and list again:\n{files}\
         \nMetrics; /healthz and /readyz are there too:\n{agents}  controller:  http://{controller}/metrics\n\
         \nLogs: {folder}/*.log and {folder}/nodes/*/*.log\n\
         \nA program that you kill is not started again. An agent that you start by hand takes the flags that\
         \n`ps -eo args | grep gpu-driver` shows, and FAKE_NVML_CONTROL=(its node's gpus.json) in its environment.\n"
    ))
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
