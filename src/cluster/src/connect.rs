//! From a kubeconfig, or from inside a cluster, to a client whose every call ends.
//!
//! kube's client retries 429, 503 and 504 up to fifteen times by itself, which can hold a caller for minutes. That is turned
//! off here: who calls decides whether and when to try again.

use std::path::PathBuf;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::config::{Config, KubeConfigOptions, Kubeconfig, KubeconfigError};
use kube::{Client, Error as KubeError};

/// How long a new connection may take.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long one call may take, where nothing else is said.
pub const CALL_TIMEOUT: Duration = Duration::from_secs(15);

/// How long the server holds a watch open before it is asked again.
pub const WATCH_SECONDS: u32 = 120;

/// How long a connection may stay without a byte. Longer than a watch lives, so that only a dead peer is noticed by it.
const READ_TIMEOUT: Duration = Duration::from_secs(WATCH_SECONDS as u64 + 15);

/// Which server to talk to, and under which name.
#[derive(Clone, Debug, Default)]
pub struct ConnectOptions {
    /// A kubeconfig file. Without one: `$KUBECONFIG`, then `~/.kube/config`, then the service account of the pod that we run in.
    pub kubeconfig: Option<PathBuf>,
    /// A context of the kubeconfig; its current one when absent.
    pub context: Option<String>,
    /// The user agent, such as `gpu-driver/0.1.0`.
    pub user_agent: String,
}

/// Why there is no client. Nothing was sent to a server yet.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The kubeconfig that was named cannot be used.
    #[error("cannot use the kubeconfig {path}: {source}; check the file, or name another with --kubeconfig")]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// The kubeconfig of the environment cannot be used.
    #[error("cannot use the kubeconfig of $KUBECONFIG or ~/.kube/config: {0}; name a file with --kubeconfig")]
    Environment(#[source] KubeconfigError),
    /// No kubeconfig anywhere, and no service account.
    #[error(
        "no cluster to talk to: no kubeconfig in $KUBECONFIG or ~/.kube/config, and not inside a pod ({0}); name one with --kubeconfig"
    )]
    Nowhere(#[source] kube::config::InClusterError),
    /// The user agent is no header value.
    #[error("the user agent {0:?} holds characters that HTTP does not allow")]
    UserAgent(String),
    /// Certificates or credentials do not fit together.
    #[error("cannot make a client for {server}: {source}; check certificates and credentials of the kubeconfig")]
    Client {
        /// The server's address.
        server: String,
        /// What did not fit.
        source: KubeError,
    },
}

/// Makes the client. Reads files, but talks to no server: whether one answers shows with the first call.
///
/// # Errors
/// When no configuration is found, or the one found cannot be used.
pub async fn connect(options: &ConnectOptions) -> Result<Client, ConnectError> {
    let mut config = configuration(options).await?;
    let agent =
        HeaderValue::from_str(&options.user_agent).map_err(|_| ConnectError::UserAgent(options.user_agent.clone()))?;
    config.headers.push((USER_AGENT, agent));
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    // Without this a pooled connection that idled would spend its read time before the next answer.
    config.reset_reader_on_write = true;
    let server = config.cluster_url.to_string();
    Client::try_from(config).map_err(|source| ConnectError::Client { server, source })
}

async fn configuration(options: &ConnectOptions) -> Result<Config, ConnectError> {
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &options.kubeconfig {
        let wrong = |source| ConnectError::File { path: path.display().to_string(), source };
        let file = Kubeconfig::read_from(path).map_err(wrong)?;
        return Config::from_custom_kubeconfig(file, &choice).await.map_err(wrong);
    }
    match Config::from_kubeconfig(&choice).await {
        Ok(config) => Ok(config),
        Err(error) if is_absent(&error) => Config::incluster().map_err(ConnectError::Nowhere),
        Err(error) => Err(ConnectError::Environment(error)),
    }
}

/// No kubeconfig at all is not a mistake: a pod has none.
fn is_absent(error: &KubeconfigError) -> bool {
    match error {
        KubeconfigError::FindPath => true,
        KubeconfigError::ReadConfig(error, _) => error.kind() == std::io::ErrorKind::NotFound,
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(kubeconfig: PathBuf, user_agent: &str) -> ConnectOptions {
        ConnectOptions { kubeconfig: Some(kubeconfig), context: None, user_agent: user_agent.to_owned() }
    }

    const GOOD: &str = r"
apiVersion: v1
kind: Config
current-context: sim
contexts: [{name: sim, context: {cluster: sim, user: me}}]
clusters: [{name: sim, cluster: {server: 'http://127.0.0.1:1'}}]
users: [{name: me, user: {}}]
";

    #[tokio::test]
    async fn a_missing_file_is_named_with_the_way_out() {
        let error = connect(&options("/nonexistent/kubeconfig".into(), "x/1")).await.err().unwrap().to_string();
        assert!(error.contains("/nonexistent/kubeconfig") && error.contains("--kubeconfig"), "{error}");
    }

    #[tokio::test]
    async fn a_file_that_is_no_kubeconfig_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[not, a, kubeconfig").unwrap();
        let error = connect(&options(file.path().to_owned(), "x/1")).await.err().unwrap();
        assert!(matches!(error, ConnectError::File { .. }), "{error}");
    }

    #[tokio::test]
    async fn a_good_file_makes_a_client_without_a_server() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), GOOD).unwrap();
        assert!(connect(&options(file.path().to_owned(), "gpu-driver/0.1.0")).await.is_ok());
        let error = connect(&options(file.path().to_owned(), "line\nbreak")).await.err().unwrap();
        assert!(matches!(error, ConnectError::UserAgent(_)), "{error}");
    }

    #[tokio::test]
    async fn an_unknown_context_is_a_mistake_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), GOOD).unwrap();
        let asked = ConnectOptions { context: Some("other".to_owned()), ..options(file.path().to_owned(), "x/1") };
        assert!(matches!(connect(&asked).await.err().unwrap(), ConnectError::File { .. }));
    }
}
