//! The program: command line, log, signals.

use std::io::IsTerminal as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser as _;
use device_taint_controller::args::{Args, LogFormat};
use device_taint_controller::clock::Clock;
use device_taint_controller::run::run;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

/// One thread: all there is to do is waiting for a network, and each thread of an allocator costs memory.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let args = Args::parse();
    log(args.log_format);
    let stop = CancellationToken::new();
    if let Err(error) = stop_on_signals(stop.clone()) {
        tracing::error!(error = format!("{error:#}"), "cannot listen to signals");
        return ExitCode::FAILURE;
    }
    match run(&args, Clock::system(), &mut std::io::stdout(), stop).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            if error.is_usage() { ExitCode::from(2) } else { ExitCode::FAILURE }
        }
    }
}

fn log(format: LogFormat) {
    // The client and its watcher log each refused call on their own; who made the call does that better.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=off,kube_runtime=off"));
    let colours = std::io::stderr().is_terminal();
    let log = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would tell of a line that cannot be written on the same closed stderr, and panic.
        .log_internal_errors(false)
        .with_ansi(colours)
        .with_writer(std::io::stderr);
    match format {
        LogFormat::Text => log.init(),
        LogFormat::Json => log.json().init(),
    }
}

fn stop_on_signals(stop: CancellationToken) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate()).context("SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("SIGINT")?;
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        tracing::info!("told to stop");
        stop.cancel();
    });
    Ok(())
}
