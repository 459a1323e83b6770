//! The node agent. See the library for how it works inside.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::process::ExitCode;

use clap::Parser;
use gpu_driver::agent::{self, AgentError};
use gpu_driver::config::{Config, LogFormat};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

fn main() -> ExitCode {
    let config = Config::parse();
    log_to_stderr(config.log_format);
    // Two threads serve kubelet and the API server; the disk gets a few of its own. Each costs memory.
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).max_blocking_threads(4).enable_all().build();
    let result = match runtime {
        Ok(runtime) => {
            let result = runtime.block_on(run(config));
            // A call into NVML may hang for ever; the process does not wait for it.
            runtime.shutdown_background();
            result
        }
        Err(error) => {
            tracing::error!("cannot start threads: {error}");
            return ExitCode::FAILURE;
        }
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error}");
            ExitCode::from(error.exit_code())
        }
    }
}

async fn run(config: Config) -> Result<(), AgentError> {
    tracing::info!(version = env!("CARGO_PKG_VERSION"), node = %config.node_name, driver = %config.driver_name, "gpu-driver starts");
    let stop = CancellationToken::new();
    let signals = tokio::spawn(stop_on_signal(stop.clone()));
    let instance = instance();
    let result = tokio::select! {
        result = agent::run(config, &instance, tell_address, stop.clone()) => result,
        () = stopped_long_ago(&stop) => Ok(()),
    };
    signals.abort();
    // Otherwise the reason is the last line.
    if result.is_ok() {
        tracing::info!("gpu-driver ends");
    }
    result
}

/// A name for this process that no other one of the node has had: eight random digits.
fn instance() -> String {
    // The standard library's only source of randomness.
    let random = RandomState::new().build_hasher().finish();
    format!("{:08x}", random & u64::from(u32::MAX))
}

/// For whoever started us with port 0.
fn tell_address(address: SocketAddr) {
    let mut out = std::io::stdout();
    // A closed output is no reason not to work.
    if let Err(error) = writeln!(out, "listening on {address}").and_then(|()| out.flush()) {
        tracing::info!(%error, %address, "stdout is closed; listening");
    }
}

/// SIGTERM and SIGINT end the agent in order.
async fn stop_on_signal(stop: CancellationToken) {
    let (Ok(mut terminate), Ok(mut interrupt)) = (signal(SignalKind::terminate()), signal(SignalKind::interrupt()))
    else {
        tracing::error!("signals cannot be received; end the agent with SIGKILL");
        return;
    };
    tokio::select! {
        _ = terminate.recv() => tracing::info!("SIGTERM: ending"),
        _ = interrupt.recv() => tracing::info!("SIGINT: ending"),
    }
    stop.cancel();
}

/// The order of the end is bounded everywhere; this is for what was overlooked, before kubelet's 30 s are over.
async fn stopped_long_ago(stop: &CancellationToken) {
    stop.cancelled().await;
    tokio::time::sleep(std::time::Duration::from_secs(28)).await;
    tracing::error!("the end takes too long; ending anyway");
}

fn log_to_stderr(format: LogFormat) {
    // The client and its watcher tell every failed call; who made the call tells it better.
    let filter =
        EnvFilter::try_from_default_env().unwrap_or_else(|_| EnvFilter::new("info,kube_client=off,kube_runtime=off"));
    let logs = tracing_subscriber::fmt()
        .with_env_filter(filter)
        // It would tell of a line that cannot be written on the same closed stderr, and panic.
        .log_internal_errors(false)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    match format {
        LogFormat::Text => logs.init(),
        LogFormat::Json => logs.json().init(),
    }
}
