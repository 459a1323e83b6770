//! The sim's API server: an HTTP server on a loopback address over objects in memory, which real clients take for a
//! Kubernetes of version 1.37.
//!
//! A request flows `http` (connection, negotiation) -> `faults` (what a test wants to go wrong) -> `request` (what is
//! asked) -> `api` (one transaction under one lock: `schema`, `admit`, `validate`, `apply`, `store`) -> `http::render`.
//! A write wakes the `watch` tasks of its kind at once. Nothing survives the process.

mod admit;
mod api;
mod apply;
mod discovery;
mod error;
mod faults;
mod http;
mod kinds;
mod openapi;
mod patch;
pub mod proxy;
mod request;
mod schema;
mod selector;
mod store;
mod table;
mod tls;
mod validate;
mod value;
mod watch;
mod world;

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub use error::ApiError;
pub use faults::{Answer, Fault, Faults, Listed, Match};
pub use kinds::Rules;
pub use tls::TlsError;
pub(crate) use validate::dns_subdomain;

use self::http::Service;
use api::Cluster;

/// How to start a server.
#[derive(Debug, Clone)]
pub struct Options {
    /// Folder for the kubeconfig; made if it is missing.
    pub root: PathBuf,
    /// Address to listen on, a loopback one; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Serve TLS with a certificate of an authority made for this run.
    pub tls: bool,
    /// The version in which DeviceTaintRules are served.
    pub rules: Rules,
    /// Whether the taints of devices in slices are stored, as from 1.36 on, or left out.
    pub device_taints: bool,
    /// Writes of each kind that are kept for watches; a watch that begins before them gets 410.
    pub history: usize,
}

impl Options {
    /// Plain HTTP on a free port of 127.0.0.1, everything else as a 1.37 cluster has it.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self {
            root: root.into(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            tls: false,
            rules: Rules::V1,
            device_taints: true,
            history: 4096,
        }
    }
}

/// Why a server did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is reachable from outside; this server checks nobody's rights.
    #[error("{0} is not a loopback address: this server lets everybody do everything, so it listens on loopback only")]
    NotLoopback(SocketAddr),
    /// The address is taken, or not of this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
    /// The kubeconfig could not be written.
    #[error("cannot write {}: {source}", path.display())]
    Kubeconfig {
        /// The file or its folder.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// TLS could not be set up.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// The server, as a thing to start.
#[derive(Debug)]
pub struct Server;

/// A running server; dropping it stops it.
#[derive(Debug)]
pub struct Running {
    /// Where clients find it, as `http://127.0.0.1:PORT`.
    pub url: String,
    /// The address that it listens on.
    pub address: SocketAddr,
    /// The kubeconfig that it wrote.
    pub kubeconfig: PathBuf,
    /// The fault layer, for tests in the same process.
    pub faults: Arc<Faults>,
    cluster: Arc<Cluster>,
    cancel: CancellationToken,
    task: JoinHandle<()>,
}

impl Server {
    /// Starts a server; when this returns, it answers.
    pub async fn start(options: Options) -> Result<Running, StartError> {
        if !options.listen.ip().is_loopback() {
            return Err(StartError::NotLoopback(options.listen));
        }
        let failed = |source| StartError::Listen { address: options.listen, source };
        let listener = TcpListener::bind(options.listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let tls = options.tls.then(tls::make).transpose()?;
        let url = format!("{}://{address}", if tls.is_some() { "https" } else { "http" });
        let kubeconfig = options.root.join("kubeconfig");
        let authority = tls.as_ref().map(|tls| tls.authority.as_str());
        write_kubeconfig(&kubeconfig, &url, authority)
            .map_err(|source| StartError::Kubeconfig { path: kubeconfig.clone(), source })?;

        let cluster = Arc::new(Cluster::new(options.rules, options.history, Box::new(world::Machine)));
        cluster.read(|state| state.device_taints = options.device_taints);
        let faults = Arc::new(Faults::default());
        let cancel = CancellationToken::new();
        let service = Arc::new(Service { cluster: cluster.clone(), faults: faults.clone(), cancel: cancel.clone() });
        let task = tokio::spawn(accept(listener, tls.map(|tls| tls.acceptor), service));
        Ok(Running { url, address, kubeconfig, faults, cluster, cancel, task })
    }
}

impl Running {
    /// Sets a fault, as `POST /sim/faults` does. Gives the number by which [`Faults::remove`] takes it away.
    pub fn fault(&self, fault: Fault) -> u64 {
        self.faults.add(fault, self.cluster.revision())
    }

    /// Forgets the history, so that every watch from an older version gets 410.
    pub fn compact(&self) {
        self.cluster.read(|state| state.store.compact());
    }

    /// Stops the server and closes its connections.
    pub async fn stop(mut self) {
        self.cancel.cancel();
        if let Err(error) = (&mut self.task).await {
            tracing::error!(%error, "the server's task failed");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.cancel.cancel();
    }
}

async fn accept(listener: TcpListener, tls: Option<tokio_rustls::TlsAcceptor>, service: Arc<Service>) {
    let cancel = service.cancel.clone();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = cancel.cancelled() => return,
        };
        match accepted {
            Ok((stream, _)) => {
                tokio::spawn(connection(stream, tls.clone(), service.clone()));
            }
            // Out of file descriptors, most likely: others may close soon.
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
    }
}

async fn connection(stream: TcpStream, tls: Option<tokio_rustls::TlsAcceptor>, service: Arc<Service>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(%error, "no TCP_NODELAY");
    }
    match tls {
        None => http::serve(service, stream).await,
        Some(tls) => match tls.accept(stream).await {
            Ok(stream) => http::serve(service, stream).await,
            Err(error) => tracing::debug!(%error, "a TLS handshake failed"),
        },
    }
}

/// Writes a kubeconfig with one cluster, one user whose token nobody checks, and one context.
fn write_kubeconfig(path: &Path, url: &str, authority: Option<&str>) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let authority = match authority {
        Some(pem) => format!("\n    certificate-authority-data: {}", base64(pem.as_bytes())),
        None => String::new(),
    };
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: sim\nclusters:\n- name: sim\n  cluster:\n    server: {url}{authority}\n\
         contexts:\n- name: sim\n  context:\n    cluster: sim\n    user: sim\nusers:\n- name: sim\n  user:\n    token: sim\n"
    );
    // A reader never sees half a file.
    let partial = path.with_extension("partial");
    std::fs::write(&partial, text)?;
    std::fs::rename(&partial, path)
}

fn base64(bytes: &[u8]) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let group = chunk.iter().fold(0_u32, |sum, byte| (sum << 8) | u32::from(*byte)) << (8 * (3 - chunk.len()));
        for index in 0..4 {
            let six = usize::try_from((group >> (18 - 6 * index)) & 63).unwrap_or(0);
            out.push(if index <= chunk.len() { char::from(LETTERS[six]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests;
