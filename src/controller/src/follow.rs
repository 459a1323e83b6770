//! The following task: it asks what the server is, and then keeps a watch on every kind that is served.

use std::time::Duration;

use cluster::Kind;
use cluster::mark;
use cluster::server::{DiscoverError, RuleVersion, Server};
use cluster::watch::{self as watching, Notice};
use kube::Client;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::health::Health;

/// The first and the longest wait before the server is asked again.
const WAIT: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(10));

/// How often the server is asked again whether, and in which version, it serves rules: it may have been upgraded.
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
    /// Follows until told to stop.
    ///
    /// # Errors
    /// When it cannot go on as it began: a watch ended, which none does by itself, or rules are served in another version.
    pub async fn run(self, stop: CancellationToken) -> Result<(), String> {
        tokio::select! {
            () = stop.cancelled() => Ok(()),
            problem = self.follow() => Err(problem),
        }
    }

    async fn follow(&self) -> String {
        let server = self.discover().await;
        let mut watches = JoinSet::new();
        for kind in Kind::ALL.into_iter().filter(|kind| !matches!(kind, Kind::Rule | Kind::Mark)) {
            self.watch(kind, &server, &mut watches);
        }
        // Our own kind may be installed later: its watch looks for it.
        watches.spawn(watching::run(Kind::Mark, self.client.clone(), mark::resource(), self.notices.clone()));
        let server = tokio::select! {
            server = self.wait_for_rules(server) => server,
            ended = watches.join_next() => return blind(ended),
        };
        self.watch(Kind::Rule, &server, &mut watches);
        tokio::select! {
            ended = watches.join_next() => blind(ended),
            now = self.wait_for_another(server.rules) => now,
        }
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

    /// Returns when rules are no longer served as they were. Beginning anew is simpler, and surer, than changing horses.
    async fn wait_for_another(&self, rules: Option<RuleVersion>) -> String {
        loop {
            tokio::time::sleep(RULES_AGAIN).await;
            match Server::discover(&self.client).await {
                Ok(now) if now.rules != rules => return changed(rules, now.rules),
                Ok(_) => {}
                Err(error) => tracing::debug!(%error, "the API server did not say what it serves"),
            }
        }
    }
}

fn changed(before: Option<RuleVersion>, now: Option<RuleVersion>) -> String {
    let name = |version: Option<RuleVersion>| version.map_or("no version", RuleVersion::as_str);
    format!("DeviceTaintRules are served in {} now, and were in {}; a new start is needed", name(now), name(before))
}

/// Without one of the watches we would be blind.
fn blind(ended: Option<Result<(), JoinError>>) -> String {
    match ended {
        Some(Err(error)) => format!("a watch ended: {error}"),
        Some(Ok(())) | None => "a watch ended".to_owned(),
    }
}
