//! Who is told of a countdown: the owner of a pod should hear of its end before it comes, and once.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use taints::object::Key;
use taints::plan::{Departure, Mode, Modes};
use taints::verdict::{Reason, Verdict};

/// A notice that is shorter reaches nobody; it would also tell of clocks that differ a little.
const SHORTEST: SignedDuration = SignedDuration::from_secs(2);

/// The countdowns that were told.
#[derive(Debug, Default)]
pub(crate) struct Told(HashMap<Key, (String, Timestamp)>);

impl Told {
    /// The departure to come, when it is news: the pod will be evicted, and not at a time that was told already.
    pub(crate) fn news(&mut self, verdict: &Verdict, modes: Modes, now: Timestamp) -> Option<Departure> {
        let Some(coming) = coming(verdict, modes) else {
            self.forget(&verdict.pod);
            return None;
        };
        let told = (coming.uid.clone(), coming.deadline);
        if coming.deadline.duration_since(now) < SHORTEST || self.0.get(&coming.pod) == Some(&told) {
            return None;
        }
        self.0.insert(coming.pod.clone(), told);
        Some(coming)
    }

    /// Forgets a pod that is gone.
    pub(crate) fn forget(&mut self, pod: &Key) {
        self.0.remove(pod);
    }
}

/// By the reasons that are enforced, and no others: what is only observed makes nobody leave.
fn coming(verdict: &Verdict, modes: Modes) -> Option<Departure> {
    let enforced = |reason: &&Reason| modes.of(reason.source()) == Mode::Enforce && reason.deadline.is_some();
    let reasons: Vec<Reason> = verdict.reasons.iter().filter(enforced).cloned().collect();
    let deadline = reasons.iter().filter_map(|reason| reason.deadline).min()?;
    verdict.spared.is_none().then(|| Departure {
        pod: verdict.pod.clone(),
        uid: verdict.uid.clone(),
        resource_version: verdict.resource_version.clone(),
        deadline,
        reasons,
    })
}
