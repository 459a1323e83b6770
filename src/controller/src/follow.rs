//! The following task: it asks what the server is, and then keeps a watch on every kind that is served.

use std::time::Duration;

use cluster::Kind;
use cluster::server::{DiscoverError, RuleVersion, Server};
use cluster::watch::{self as watching, Notice};
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::health::Health;

/// The first and the longest wait before the server is asked again.
const WAIT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// How often a server that serves no rules is asked again: its gate may be turned on, or it is being upgraded.
const RULES_AGAIN: Duration = Duration::from_secs(60);

/// What following needs.
#[derive(Clone)]
pub struct Following {
    /// The API server.
    pub client: Client,
    /// What to tell those who ask.
    pub health: Health,
    /// To who decides.
    pub notices: mpsc::Sender<Notice>,
    /// Where others find the version of rules.
    pub rules: watch::Sender<Option<RuleVersion>>,
}

impl Following {
    /// Follows until told to stop. Watches never end by themselves; if one does, so does this task.
    pub async fn run(self, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = self.follow() => {}
        }
    }

    async fn follow(&self) {
        let server = self.discover().await;
        let mut watches = JoinSet::new();
        for kind in Kind::ALL.into_iter().filter(|kind| *kind != Kind::Rule) {
            self.watch(kind, &server, &mut watches);
        }
        let server = tokio::select! {
            server = self.wait_for_rules(server) => server,
            _ = watches.join_next() => return,
        };
        self.watch(Kind::Rule, &server, &mut watches);
        // The first watch that ends, for whatever reason, is one too many: without it we would be blind.
        watches.join_next().await;
    }

    fn watch(&self, kind: Kind, server: &Server, watches: &mut JoinSet<()>) {
        if let Some(resource) = server.resource(kind) {
            watches.spawn(watching::run(kind, self.client.clone(), resource, self.notices.clone()));
        }
    }

    async fn discover(&self) -> Server {
        let mut wait = WAIT.0;
        loop {
            match self.ask().await {
                Ok(server) => return server,
                Err(error) => tracing::warn!(%error, "the API server did not say what it is; it is asked again"),
            }
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(WAIT.1);
        }
    }

    async fn ask(&self) -> Result<Server, DiscoverError> {
        let asked = Server::discover(&self.client).await;
        self.health.server(asked.as_ref().map(|server| server.version.clone()).map_err(ToString::to_string));
        asked
    }

    /// Returns once rules are served. Until then it says that they are not, so that evictions for other reasons go on.
    async fn wait_for_rules(&self, mut server: Server) -> Server {
        while server.rules.is_none() {
            tracing::info!(
                server = server.version,
                "DeviceTaintRules are not served; only the taints of slices and nodes count"
            );
            if self.notices.send(Notice::NotServed(Kind::Rule)).await.is_err() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(RULES_AGAIN).await;
            if let Ok(now) = Server::discover(&self.client).await {
                server = now;
            }
        }
        self.rules.send_replace(server.rules);
        tracing::info!(server = server.version, rules = server.rules.map(RuleVersion::as_str), "following the cluster");
        server
    }
}
