//! The `sim` program: the whole cluster in one process, or one part of it.

use std::collections::HashSet;
use std::io::{IsTerminal, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::error::ErrorKind;
use clap::{Args, CommandFactory, Parser, Subcommand};
use cluster::call::chain;
use sim::server::{Options, Rules, Running, Server, proxy};
use sim::{claims, kubelet, scheduler, up};
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
    /// Run everything: API server, scheduler, claim controller, and a kubelet for each node
    Up(UpFlags),
    /// Run the API server alone
    Server(ServerFlags),
    /// Run the scheduler as a client of any API server
    Scheduler(ClientFlags),
    /// Run the claim controller as a client of any API server
    Claims(ClaimsFlags),
    /// Run a kubelet as a client of any API server
    Kubelet(KubeletFlags),
    /// Run a proxy before any API server that fails on purpose, as POST /sim/faults says
    Proxy(ProxyFlags),
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
    /// Leave the taints of devices out of slices, as 1.34 and 1.35 do by default
    #[arg(long)]
    no_device_taints: bool,
}

#[derive(Debug, Args)]
struct UpFlags {
    #[command(flatten)]
    server: ServerFlags,
    /// Name of a node, as often as there are nodes; its kubelet's root is DIR/nodes/NAME/kubelet
    #[arg(long = "node", value_name = "NAME", value_parser = up::node_name)]
    nodes: Vec<String>,
    /// Look up the CDI ids that drivers answer in DIR/nodes/NAME/cdi, as a container runtime would
    #[arg(long)]
    cdi: bool,
    /// Seconds that a driver may be away before a kubelet deletes its slices
    #[arg(long, value_name = "SECONDS", default_value_t = kubelet::WIPE_GRACE.as_secs())]
    wipe_grace: u64,
    #[command(flatten)]
    orphans: OrphanFlags,
}

#[derive(Debug, Args)]
struct OrphanFlags {
    /// Seconds that a Node may be gone before its pods are deleted
    #[arg(long, value_name = "SECONDS", default_value_t = claims::ORPHAN_GRACE.as_secs())]
    orphan_grace: u64,
}

#[derive(Debug, Args)]
struct ClientFlags {
    /// Kubeconfig of the cluster
    #[arg(long, value_name = "FILE", env = "KUBECONFIG")]
    kubeconfig: PathBuf,
}

#[derive(Debug, Args)]
struct ClaimsFlags {
    #[command(flatten)]
    client: ClientFlags,
    #[command(flatten)]
    orphans: OrphanFlags,
}

#[derive(Debug, Args)]
struct ProxyFlags {
    #[command(flatten)]
    client: ClientFlags,
    /// Folder into which the proxy's own kubeconfig is written
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
}

#[derive(Debug, Args)]
struct KubeletFlags {
    /// Name of the node
    #[arg(long, value_name = "NAME", value_parser = up::node_name)]
    node: String,
    #[command(flatten)]
    client: ClientFlags,
    /// Kubelet's folder: drivers register in `plugins_registry` and serve in `plugins` below it
    #[arg(long, value_name = "DIR")]
    root: PathBuf,
    /// Folder of CDI specs in which to look up the ids that drivers answer
    #[arg(long, value_name = "DIR")]
    cdi_root: Option<PathBuf>,
    /// Seconds that a driver may be away before its slices are deleted
    #[arg(long, value_name = "SECONDS", default_value_t = kubelet::WIPE_GRACE.as_secs())]
    wipe_grace: u64,
}

impl ServerFlags {
    fn options(&self) -> Options {
        let device_taints = !self.no_device_taints;
        Options { listen: self.listen, tls: self.tls, rules: self.rules, device_taints, ..Options::new(&self.root) }
    }
}

impl UpFlags {
    fn cluster(&self) -> up::Cluster {
        up::Cluster {
            server: self.server.options(),
            nodes: self.nodes.clone(),
            cdi: self.cdi,
            wipe_grace: Some(Duration::from_secs(self.wipe_grace)),
            orphan_grace: self.orphans.grace(),
        }
    }

    /// Ends the program when two nodes have one name: their kubelets would fight over folder and Node.
    fn refuse_twins(&self) {
        let mut seen = HashSet::new();
        if let Some(twin) = self.nodes.iter().find(|name| !seen.insert(*name)) {
            let told = format!("--node {twin} is given twice: every node needs a name of its own");
            Cli::command().error(ErrorKind::ValueValidation, told).exit();
        }
    }
}

impl OrphanFlags {
    const fn grace(&self) -> Duration {
        Duration::from_secs(self.orphan_grace)
    }
}

impl KubeletFlags {
    fn config(&self) -> kubelet::Config {
        let mut config = kubelet::Config::new(&self.node, &self.root);
        config.cdi_root.clone_from(&self.cdi_root);
        config.wipe_grace = Duration::from_secs(self.wipe_grace);
        config
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    let cli = Cli::parse();
    if let Command::Up(flags) = &cli.command {
        flags.refuse_twins();
    }
    log();
    match run(cli).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{}", chain(error.as_ref()));
            ExitCode::FAILURE
        }
    }
}

/// Starts the log on stderr. A line that cannot be written, because nobody reads any more, is lost and ends nothing.
fn log() {
    // kube's client and the watches say every attempt that fails; the actors say an outage once, with the address.
    let usual = "info,kube_client=off,cluster::watch=error";
    let filter = tracing_subscriber::EnvFilter::try_from_default_env().unwrap_or_else(|_| usual.into());
    let colours = std::io::stderr().is_terminal();
    let lines = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colours);
    lines.log_internal_errors(false).with_writer(std::io::stderr).init();
}

async fn run(cli: Cli) -> anyhow::Result<()> {
    let cancel = stop_on_signals()?;
    match cli.command {
        Command::Up(flags) => flags.cluster().run(announce, cancel).await?,
        Command::Server(flags) => {
            let running = Server::start(flags.options()).await.context("the API server did not start")?;
            announce(&running)?;
            cancel.cancelled().await;
            running.stop().await;
        }
        Command::Scheduler(flags) => scheduler::run(flags.connect("sim-scheduler").await?, cancel).await,
        Command::Claims(flags) => {
            let client = flags.client.connect("sim-claims").await?;
            claims::run(client, flags.orphans.grace(), cancel).await;
        }
        Command::Proxy(flags) => {
            let client = flags.client.connect("sim-proxy").await?;
            let kubeconfig = flags.root.join("kubeconfig");
            let ready = |address| tell(&kubeconfig, &format!("http://{address}"));
            proxy::run(client, &flags.root, ready, cancel).await.context("the proxy ended")?;
        }
        Command::Kubelet(flags) => {
            let client = flags.client.connect("sim-kubelet").await?;
            kubelet::run(flags.config(), client, cancel).await?;
        }
    }
    Ok(())
}

impl ClientFlags {
    async fn connect(&self, user_agent: &str) -> anyhow::Result<kube::Client> {
        Ok(up::client(&self.kubeconfig, user_agent).await?)
    }
}

/// Tells whoever started us where the cluster is, on one line of standard output. A reader that is gone, as after
/// `sim up 2>&1 | head -2`, is no reason to end.
fn announce(running: &Running) -> anyhow::Result<()> {
    tell(&running.kubeconfig, &running.url).context("cannot write to standard output")
}

fn tell(kubeconfig: &Path, url: &str) -> std::io::Result<()> {
    let line = format!("ready kubeconfig={} server={url}\n", kubeconfig.display());
    let mut out = std::io::stdout().lock();
    match out.write_all(line.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        told => told,
    }
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
