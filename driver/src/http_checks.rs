//! What `/readyz` and `/healthz` follow from, one line a part of the agent.

use std::fmt;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use crate::marks::Marks;
use crate::plugin::Registration;
use crate::slices::Published;
use crate::slices::publisher::TAINTS_OFF;

/// How long something may stay unpublished before the agent is not ready: a write takes milliseconds.
const PUBLISH_GRACE: Duration = Duration::from_secs(1);
/// The agent's main task says once a second that it is alive.
const LIVE: Duration = Duration::from_secs(30);

/// The state of one part.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Level {
    /// All is well.
    Good,
    /// The agent does its work; a person should know of this.
    Degraded(String),
    /// The agent cannot do its work.
    Failed(String),
}

/// One line of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// Which part.
    pub part: &'static str,
    /// How it is.
    pub level: Level,
}

impl Check {
    /// Whether the answer can be "passed" in spite of it.
    #[must_use]
    pub fn passes(&self) -> bool {
        !matches!(self.level, Level::Failed(_))
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.level {
            Level::Good => write!(f, "[+]{} ok", self.part),
            Level::Degraded(why) => write!(f, "[!]{} degraded: {why}", self.part),
            Level::Failed(why) => write!(f, "[-]{} failed: {why}", self.part),
        }
    }
}

/// What the parts of the agent say of themselves.
#[derive(Clone)]
pub struct Readiness {
    /// Where another agent serves the node: how it is with this one, which does nothing until that one ends.
    pub standby: watch::Receiver<Option<Level>>,
    /// Kubelet on our registration.
    pub registration: watch::Receiver<Registration>,
    /// The publisher.
    pub published: watch::Receiver<Published>,
    /// NVML: good, or why not. It never makes the agent unready: without it the agent still serves what it knows.
    pub nvml: watch::Receiver<Level>,
    /// Whether somebody else offers the same cards.
    pub owner: watch::Receiver<Level>,
    /// Marks of people: the agent works on with those that it knows.
    pub marks: watch::Receiver<Marks>,
    /// The state directory.
    pub state: watch::Receiver<Level>,
    /// Whether CDI specs of claims can be written.
    pub cdi: watch::Receiver<Level>,
    /// Whether checkpoints of claims can be written.
    pub checkpoints: watch::Receiver<Level>,
    /// When the main task last said that it is alive.
    pub heartbeat: watch::Receiver<Instant>,
}

impl Readiness {
    /// All parts.
    #[must_use]
    pub fn checks(&self, now: Instant) -> Vec<Check> {
        let check = |part, level| Check { part, level };
        if let Some(level) = &*self.standby.borrow() {
            return vec![check("standby", level.clone())];
        }
        vec![
            check("registration", registration(&self.registration.borrow())),
            check("slices", slices(&self.published.borrow(), now)),
            check("nvml", self.nvml.borrow().clone()),
            check("owner", self.owner.borrow().clone()),
            check("marks", self.marks.borrow().level.clone()),
            check("state", self.state.borrow().clone()),
            check("cdi", self.cdi.borrow().clone()),
            check("checkpoints", self.checkpoints.borrow().clone()),
        ]
    }

    /// Whether the main task still runs. Nothing outside of the process can make this fail.
    #[must_use]
    pub fn alive(&self, now: Instant) -> Check {
        let silent = now.saturating_duration_since(*self.heartbeat.borrow());
        let level = if silent > LIVE {
            Level::Failed(format!("the main task has not run for {} s", silent.as_secs()))
        } else {
            Level::Good
        };
        Check { part: "agent", level }
    }
}

fn registration(state: &Registration) -> Level {
    match state {
        Registration::Registered => Level::Good,
        Registration::Waiting => Level::Failed(
            "kubelet has not registered the driver yet; where that lasts, --kubelet-root is not kubelet's root"
                .to_owned(),
        ),
        Registration::Refused(why) => Level::Failed(format!("kubelet refused the driver: {why}")),
    }
}

fn slices(published: &Published, now: Instant) -> Level {
    if !published.ever {
        let why = published.error.as_deref().unwrap_or("the devices of this node are not known yet");
        return Level::Failed(format!("nothing was published yet: {why}"));
    }
    if let Some(error) = &published.error {
        return Level::Failed(format!("a change is not published: {error}"));
    }
    if published.unpublished_since.is_some_and(|since| now.saturating_duration_since(since) > PUBLISH_GRACE) {
        return Level::Failed("a change is not published yet".to_owned());
    }
    if published.taints_off {
        return Level::Degraded(format!("{} wanted taints are not stored: {TAINTS_OFF}", published.dropped_taints));
    }
    match published.problems.first() {
        Some(problem) => Level::Degraded(format!("{} left out, first: {problem}", published.problems.len())),
        None => Level::Good,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::Instant;

    use super::{Level, registration, slices};
    use crate::plugin::Registration;
    use crate::slices::Published;

    #[tokio::test(start_paused = true)]
    async fn unpublished_state_makes_the_agent_unready_after_a_moment() {
        let now = Instant::now();
        let failed = |published: &Published, now| matches!(slices(published, now), Level::Failed(_));
        let mut published = Published::default();
        assert!(failed(&published, now), "nothing published");
        published.ever = true;
        assert_eq!(slices(&published, now), Level::Good);
        published.unpublished_since = Some(now);
        assert!(!failed(&published, now + Duration::from_millis(500)));
        assert!(failed(&published, now + Duration::from_secs(2)));
        published.error = Some("the server answered 500".to_owned());
        assert!(failed(&published, now), "a failed try counts at once");
    }

    #[test]
    fn a_server_without_taints_is_told_and_does_not_stop_work() {
        let published = Published { ever: true, taints_off: true, dropped_taints: 2, ..Published::default() };
        assert!(
            matches!(slices(&published, Instant::now()), Level::Degraded(text) if text.contains("DRADeviceTaints"))
        );
    }

    #[test]
    fn only_kubelets_yes_is_ready() {
        assert_eq!(registration(&Registration::Registered), Level::Good);
        let Level::Failed(waiting) = registration(&Registration::Waiting) else { panic!() };
        assert!(waiting.contains("--kubelet-root"), "{waiting}");
        assert!(
            matches!(registration(&Registration::Refused("no".to_owned())), Level::Failed(text) if text.contains("no"))
        );
    }
}
