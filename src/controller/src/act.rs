//! The acting task: it takes jobs from a bounded queue, works on some of them at once, each with an end, and reports.
//!
//! Right before an eviction the newest pod that is known is compared once more: another UID, a finished or an ending pod is left
//! alone. What is known may still be old; the UID and version that travel as preconditions let the server compare, too.

use std::sync::Arc;
use std::time::Duration;

use cluster::Kind;
use cluster::event::Event;
use cluster::evict::{Outcome, Target, evict};
use cluster::mark::{self, Form, MarkError, Stored};
use cluster::server::RuleVersion;
use futures::StreamExt as _;
use jiff::SignedDuration;
use kube::Client;
use parking_lot::RwLock;
use taints::fleet::Fleet;
use taints::object::Pod;
use taints::plan::{Departure, RetryAfter};
use tokio::sync::{mpsc, watch};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;
use crate::decider::Report;
use crate::expiry::Expired;
use crate::metrics::Metrics;
use crate::say;

/// So many jobs are worked on at once.
const AT_ONCE: usize = 32;

/// How long one eviction may take.
const EVICTION_LIMIT: Duration = Duration::from_secs(10);

/// Something to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Evict a pod.
    Evict(Departure),
    /// Delete a mark whose time has come.
    Expire(Expired),
}

/// What acting needs.
#[derive(Clone)]
pub struct Actor {
    /// The API server.
    pub client: Client,
    /// The newest pods that are known.
    pub fleet: Arc<RwLock<Fleet>>,
    /// The version in which rules are served, once it is known.
    pub rules: watch::Receiver<Option<RuleVersion>>,
    /// The time.
    pub clock: Clock,
    /// What is counted.
    pub metrics: Metrics,
    /// To those who tell.
    pub events: mpsc::Sender<Event>,
    /// To who decides.
    pub reports: mpsc::Sender<Report>,
}

impl Actor {
    /// Works until told to stop. What was begun is finished; what waits is left to the next start.
    pub async fn run(self, jobs: mpsc::Receiver<Job>, stop: CancellationToken) {
        let queue = futures::stream::unfold(jobs, |mut jobs| async move { Some((jobs.recv().await?, jobs)) });
        let actor = &self;
        queue.take_until(stop.cancelled()).for_each_concurrent(AT_ONCE, |job| actor.work(job)).await;
    }

    async fn work(&self, job: Job) {
        let report = match job {
            Job::Evict(departure) => {
                self.metrics.evictions_in_flight.inc();
                let report = self.evict(departure).await;
                self.metrics.evictions_in_flight.dec();
                Some(report)
            }
            Job::Expire(expired) => self.expire(expired).await,
        };
        if let Some(report) = report {
            // Nobody listens any more: the process is ending.
            self.reports.send(report).await.ok();
        }
    }

    async fn evict(&self, departure: Departure) -> Report {
        let newest = self.fleet.read().pod(&departure.pod).map(|pod| compare(pod, &departure));
        match newest {
            Some(Newest::AsJudged) => {}
            Some(Newest::Changed) => return self.not_asked(departure, "changed"),
            Some(Newest::Spared) | None => return self.not_asked(departure, "spared"),
        }
        let target = Target {
            pod: departure.pod.clone(),
            uid: departure.uid.clone(),
            resource_version: departure.resource_version.clone(),
        };
        let outcome = evict(&self.client, &target, EVICTION_LIMIT).await;
        self.metrics.eviction(outcome.label());
        self.settle(departure, outcome)
    }

    /// The picture changed since the pod was judged: the next verdict says what to do.
    fn not_asked(&self, departure: Departure, outcome: &'static str) -> Report {
        self.metrics.eviction(outcome);
        tracing::debug!(pod = %departure.pod, uid = departure.uid, outcome, "not asked to leave: the pod is not as it was judged");
        Report::Failed { pod: departure.pod, uid: departure.uid, retry: RetryAfter::Changed }
    }

    fn settle(&self, departure: Departure, outcome: Outcome) -> Report {
        let pod = &departure.pod;
        let retry = match outcome {
            Outcome::Accepted => return self.accepted(departure),
            // When it is really gone, the watch says so before the next attempt.
            Outcome::Gone => RetryAfter::Error,
            Outcome::Unanswered { message } => {
                tracing::warn!(%pod, message, "nobody answered the eviction; it is tried again");
                RetryAfter::Unanswered
            }
            Outcome::BudgetRefused { retry_after, message } => {
                tracing::info!(%pod, message, "a disruption budget allows no eviction now; it is tried again");
                RetryAfter::Budget(retry_after.and_then(|wait| SignedDuration::try_from(wait).ok()))
            }
            Outcome::Changed { message } => {
                tracing::debug!(%pod, message, "the pod changed since it was judged; it is looked at again");
                RetryAfter::Changed
            }
            Outcome::Denied { message } => {
                tracing::warn!(%pod, message, "the eviction was denied; it is tried again");
                RetryAfter::Error
            }
            Outcome::Retry { after, message } => {
                tracing::warn!(%pod, message, "the eviction failed; it is tried again");
                match after.and_then(|wait| SignedDuration::try_from(wait).ok()) {
                    Some(wait) => RetryAfter::Budget(Some(wait)),
                    None => RetryAfter::Error,
                }
            }
        };
        Report::Failed { pod: departure.pod, uid: departure.uid, retry }
    }

    fn accepted(&self, departure: Departure) -> Report {
        let late = self.clock.now().duration_since(departure.deadline);
        self.metrics.late(late.as_secs_f64());
        let reasons = say::reasons(&departure);
        tracing::info!(pod = %departure.pod, uid = departure.uid, deadline = %departure.deadline, reasons, "evicted");
        self.tell(say::marking(&departure));
        Report::Evicted { pod: departure.pod, uid: departure.uid }
    }

    async fn expire(&self, expired: Expired) -> Option<Report> {
        let Some(form) = self.form(expired.kind) else { return Some(Report::MarkFailed(expired)) };
        match self.delete_mark(form, &expired).await {
            Ok(Some(stored)) => {
                self.metrics.mark_expired("deleted");
                tracing::info!(kind = %form, name = expired.name, "the mark's time has come; it is deleted");
                self.tell(Event::mark_expired(form, &expired.name, &expired.uid, say::farewell(&stored)));
                None
            }
            Ok(None) => {
                self.metrics.mark_expired("not_expired");
                None
            }
            Err(error) => {
                self.metrics.mark_expired("error");
                tracing::warn!(kind = %form, name = expired.name, %error, "a mark whose time has come was not deleted; it is tried again");
                Some(Report::MarkFailed(expired))
            }
        }
    }

    fn form(&self, kind: Kind) -> Option<Form> {
        match kind {
            Kind::Mark => Some(Form::Mark),
            _ => (*self.rules.borrow()).map(Form::Rule),
        }
    }

    /// Deletes the mark if, as it is stored now, it is the same one and its time has really come.
    async fn delete_mark(&self, form: Form, expired: &Expired) -> Result<Option<Stored>, MarkError> {
        let Some(stored) = mark::get(&self.client, form, &expired.name).await? else { return Ok(None) };
        let over = stored.rule.expires_at.is_some_and(|at| at <= self.clock.now());
        if !stored.rule.managed || stored.rule.uid != expired.uid || !over {
            return Ok(None);
        }
        mark::delete(&self.client, &stored).await?;
        Ok(Some(stored))
    }

    fn tell(&self, event: Event) {
        if self.events.try_send(event).is_err() {
            self.metrics.dropped("events");
        }
    }
}

/// How the newest pod of a name compares with the one that was judged.
enum Newest {
    AsJudged,
    Changed,
    Spared,
}

fn compare(pod: &Pod, departure: &Departure) -> Newest {
    if pod.uid != departure.uid || pod.phase.is_finished() || pod.deleted_at.is_some() {
        Newest::Spared
    } else if pod.resource_version == departure.resource_version {
        Newest::AsJudged
    } else {
        Newest::Changed
    }
}

#[cfg(test)]
#[path = "act_tests.rs"]
mod tests;
