//! The `sim` program: the whole cluster in one process, or one part of it.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use sim::server::{Options, Rules, Running, Server};
use tokio_util::sync::CancellationToken;

/// A small Kubernetes cluster in one process, for demos and tests. It keeps everything in memory: nothing survives the end of
/// the process. It checks nobody's rights and listens on loopback addresses only.
#[derive(Debug, Parser)]
#[command(name = "sim", version)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the API server alone
    Server(ServerFlags),
}

#[derive(Debug, Args)]
struct ServerFlags {
    /// Folder of the cluster; the kubeconfig is written into it
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Loopback address to listen on; port 0 lets the system choose
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0")]
    listen: SocketAddr,
    /// Serve TLS, with a certificate authority made for this run
    #[arg(long)]
    tls: bool,
    /// Version in which DeviceTaintRules are served: v1, v1beta2, v1alpha3 or none
    #[arg(long, value_name = "VERSION", default_value = "v1")]
    rules: Rules,
}

impl ServerFlags {
    async fn start(&self) -> anyhow::Result<Running> {
        let mut options = Options::new(&self.root);
        options.listen = self.listen;
        options.tls = self.tls;
        options.rules = self.rules;
        Server::start(options).await.context("the API server did not start")
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| "info".into());
    tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).init();
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let cancel = stop_on_signals()?;
    match cli.command {
        Command::Server(flags) => {
            let running = flags.start().await?;
            announce(&running)?;
            cancel.cancelled().await;
            running.stop().await;
        }
    }
    Ok(())
}

/// Tells whoever started us where the cluster is, on one line of standard output.
fn announce(running: &Running) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "ready kubeconfig={} server={}", running.kubeconfig.display(), running.url)?;
    out.flush().context("standard output is closed")
}

/// A token that SIGTERM or SIGINT cancels.
fn stop_on_signals() -> anyhow::Result<CancellationToken> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for SIGTERM")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for SIGINT")?;
    let cancel = CancellationToken::new();
    let token = cancel.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        token.cancel();
    });
    Ok(cancel)
}
