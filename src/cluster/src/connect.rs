//! From a kubeconfig, or from inside a cluster, to a client whose every call ends.
//!
//! kube's client retries 429, 503 and 504 up to fifteen times by itself, which can hold a caller for minutes. That is turned
//! off here: who calls decides whether and when to try again.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderValue;
use http::header::USER_AGENT;
use kube::client::ClientBuilder;
use kube::config::{Config, InClusterError, KubeConfigOptions, Kubeconfig, KubeconfigError, LoadDataError};
use kube::{Client, Error as KubeError};
use tower::BoxError;
use tower::util::MapErrLayer;

use crate::call::chain;
use crate::yaml;

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
    #[error("cannot use the kubeconfig {path}: {}; check the file, or name another with --kubeconfig", problem(source))]
    File {
        /// The file.
        path: String,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// The kubeconfig of the environment cannot be used.
    #[error("cannot use the kubeconfig of {origin}: {}; name a file with --kubeconfig", problem(source))]
    Environment {
        /// Where it was looked for.
        origin: String,
        /// What is wrong with it.
        source: KubeconfigError,
    },
    /// No kubeconfig anywhere, and no service account.
    #[error(
        "no cluster to talk to: {origin} does not exist, and {}; name a kubeconfig with --kubeconfig",
        no_pod(source)
    )]
    Nowhere {
        /// Where a kubeconfig was looked for.
        origin: String,
        /// Why there is no service account.
        source: InClusterError,
    },
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
    let (mut config, origin) = configuration(options).await?;
    let agent =
        HeaderValue::from_str(&options.user_agent).map_err(|_| ConnectError::UserAgent(options.user_agent.clone()))?;
    config.headers.push((USER_AGENT, agent));
    config.default_retry = false;
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    config.read_timeout = Some(READ_TIMEOUT);
    // Without this a pooled connection that idled would spend its read time before the next answer.
    config.reset_reader_on_write = true;
    let server = config.cluster_url.to_string();
    let builder =
        ClientBuilder::try_from(config).map_err(|source| ConnectError::Client { server: server.clone(), source })?;
    let address: Arc<str> = format!("{} ({origin})", server.trim_end_matches('/')).into();
    let told = move |source| Unreachable { address: address.clone(), source };
    Ok(builder.with_layer(&MapErrLayer::new(told)).build())
}

/// A call that did not come through, with the address that it went to and where that stands.
#[derive(Debug, thiserror::Error)]
#[error("{address}: {}", unreached(&**source))]
pub(crate) struct Unreachable {
    address: Arc<str>,
    source: BoxError,
}

fn unreached(error: &(dyn std::error::Error + 'static)) -> String {
    let text = chain(error);
    match text.strip_prefix("client error (Connect): ") {
        Some(cause) => format!("{cause}; check that the API server runs there and can be reached"),
        None => text,
    }
}

/// The configuration, and in words where it comes from.
async fn configuration(options: &ConnectOptions) -> Result<(Config, String), ConnectError> {
    let choice = KubeConfigOptions { context: options.context.clone(), ..KubeConfigOptions::default() };
    if let Some(path) = &options.kubeconfig {
        let wrong = |source| ConnectError::File { path: path.display().to_string(), source };
        let file = Kubeconfig::read_from(path).map_err(wrong)?;
        let config = Config::from_custom_kubeconfig(file, &choice).await.map_err(wrong)?;
        return Ok((config, format!("from the kubeconfig {}", path.display())));
    }
    let named = std::env::var_os("KUBECONFIG").filter(|value| !value.is_empty());
    let origin = named.map_or("~/.kube/config".to_owned(), |value| format!("$KUBECONFIG, {}", value.to_string_lossy()));
    match Config::from_kubeconfig(&choice).await {
        Ok(config) => Ok((config, format!("from {origin}"))),
        Err(error) if is_absent(&error) => match Config::incluster() {
            Ok(config) => Ok((config, "from the service account of this pod".to_owned())),
            Err(source) => Err(ConnectError::Nowhere { origin: absent(&error, origin), source }),
        },
        Err(source) => Err(ConnectError::Environment { origin, source }),
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

/// Which file is not there: `$KUBECONFIG` may name several.
fn absent(error: &KubeconfigError, origin: String) -> String {
    match error {
        KubeconfigError::ReadConfig(_, path) if origin.starts_with('$') => {
            format!("the kubeconfig {} that $KUBECONFIG names", path.display())
        }
        KubeconfigError::ReadConfig(_, path) => format!("$KUBECONFIG is not set, {}", path.display()),
        _ => origin,
    }
}

fn no_pod(error: &InClusterError) -> String {
    match error {
        InClusterError::ReadEnvironmentVariable(_) => "this is no pod (KUBERNETES_SERVICE_HOST is not set)".to_owned(),
        other => format!("the service account of this pod cannot be used: {other}"),
    }
}

/// The error in one line, without what who tells it says already.
fn problem(error: &KubeconfigError) -> String {
    match error {
        KubeconfigError::ReadConfig(error, _) => error.to_string(),
        KubeconfigError::CurrentContextNotSet => "it has no current-context".to_owned(),
        KubeconfigError::Parse(error) => {
            let place = error.location().map(|place| (place.line(), place.column()));
            let line = place.map_or_else(String::new, |(line, _)| format!("line {line}: "));
            format!("{line}{}", yaml::complaint(&error.to_string(), place))
        }
        KubeconfigError::LoadCertificateAuthority(source) => format!("certificate authority: {}", unloaded(source)),
        KubeconfigError::LoadClientCertificate(source) => format!("client certificate: {}", unloaded(source)),
        KubeconfigError::LoadClientKey(source) => format!("client key: {}", unloaded(source)),
        other => other.to_string(),
    }
}

fn unloaded(error: &LoadDataError) -> String {
    match error {
        LoadDataError::ReadFile(error, path) => format!("cannot read {}: {error}", path.display()),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::Server;

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
        let wanted = "cannot use the kubeconfig /nonexistent/kubeconfig: No such file or directory (os error 2); check the file, \
                      or name another with --kubeconfig";
        assert_eq!(error, wanted);
    }

    #[tokio::test]
    async fn a_file_that_is_no_kubeconfig_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "[not, a, kubeconfig").unwrap();
        let error = connect(&options(file.path().to_owned(), "x/1")).await.err().unwrap();
        assert!(matches!(error, ConnectError::File { .. }), "{error}");
        let text = error.to_string();
        assert!(text.contains("line 1: ") && !text.contains('\n') && text.ends_with("--kubeconfig"), "{text}");
    }

    #[tokio::test]
    async fn what_a_kubeconfig_names_and_is_not_there_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let text = GOOD
            .replace("server: 'http://127.0.0.1:1'", "server: 'https://127.0.0.1:1', certificate-authority: /no/ca");
        std::fs::write(file.path(), text).unwrap();
        let error = connect(&options(file.path().to_owned(), "x/1")).await.err().unwrap().to_string();
        assert!(error.contains("certificate authority: cannot read /no/ca: No such file"), "{error}");
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_named_with_the_file_that_says_so() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), GOOD).unwrap();
        let client = connect(&options(file.path().to_owned(), "x/1")).await.unwrap();
        let error = Server::discover(&client).await.unwrap_err().to_string();
        let place = format!("no connection to http://127.0.0.1:1 (from the kubeconfig {}): ", file.path().display());
        assert!(error.contains(&place) && error.contains("refused") && error.ends_with("can be reached"), "{error}");
        assert!(!error.contains("ServiceError") && !error.contains("client error"), "{error}");
    }

    #[test]
    fn where_a_kubeconfig_was_looked_for_is_told() {
        let missing = |path: &str| KubeconfigError::ReadConfig(std::io::ErrorKind::NotFound.into(), path.into());
        let named = absent(&missing("/missing"), "$KUBECONFIG, /there:/missing".to_owned());
        let usual = absent(&missing("/home/me/.kube/config"), "~/.kube/config".to_owned());
        assert_eq!(named, "the kubeconfig /missing that $KUBECONFIG names");
        assert_eq!(usual, "$KUBECONFIG is not set, /home/me/.kube/config");
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
