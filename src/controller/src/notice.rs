//! Who is told of a countdown: the owner of a pod should hear of its end before it comes, and once; and who reads the log hears of every deadline that is
//! only observed, so that it can be compared with what another evictor does.

use std::collections::HashMap;

use jiff::{SignedDuration, Timestamp};
use taints::object::Key;
use taints::plan::{Departure, Mode, Modes};
use taints::verdict::{Reason, Verdict};

/// A notice that is shorter reaches nobody; it would also tell of clocks that differ a little.
const SHORTEST: SignedDuration = SignedDuration::from_secs(2);

/// What is told of a deadline that is only observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Observed {
    /// The pod would leave then.
    Leaves(Departure),
    /// The pod would stay after all.
    Stays {
        /// Which pod.
        pod: Key,
        /// Its UID.
        uid: String,
    },
}

/// The newest deadline of each pod that was told, with the pod's UID.
type Deadlines = HashMap<Key, (String, Timestamp)>;

/// The countdowns that were told.
#[derive(Debug, Default)]
pub(crate) struct Told {
    enforced: Deadlines,
    observed: Deadlines,
}

impl Told {
    /// The departure to come, when it is news: the pod will be evicted, and not at a time that was told already.
    pub(crate) fn news(&mut self, verdict: &Verdict, modes: Modes, now: Timestamp) -> Option<Departure> {
        let coming = news(&mut self.enforced, verdict, modes, Mode::Enforce);
        coming.filter(|coming| coming.deadline.duration_since(now) >= SHORTEST)
    }

    /// What is only observed, when it is news. However short the notice is: another evictor may act by it. A pod that is leaving already is no news, and
    /// neither is one whose countdown is held.
    pub(crate) fn observed(&mut self, verdict: &Verdict, modes: Modes) -> Option<Observed> {
        if verdict.spared.is_some() || !verdict.held.is_empty() {
            return None;
        }
        let counted = self.observed.contains_key(&verdict.pod);
        let coming = news(&mut self.observed, verdict, modes, Mode::Observe).map(Observed::Leaves);
        let over = counted && !self.observed.contains_key(&verdict.pod);
        coming.or_else(|| over.then(|| Observed::Stays { pod: verdict.pod.clone(), uid: verdict.uid.clone() }))
    }

    /// Forgets a pod that is gone.
    pub(crate) fn forget(&mut self, pod: &Key) {
        self.enforced.remove(pod);
        self.observed.remove(pod);
    }
}

fn news(told: &mut Deadlines, verdict: &Verdict, modes: Modes, mode: Mode) -> Option<Departure> {
    let Some(coming) = coming(verdict, modes, mode) else {
        told.remove(&verdict.pod);
        return None;
    };
    let new = (coming.uid.clone(), coming.deadline);
    if told.get(&coming.pod) == Some(&new) {
        return None;
    }
    told.insert(coming.pod.clone(), new);
    Some(coming)
}

/// By the reasons of this mode, and no others: what is only observed makes nobody leave.
fn coming(verdict: &Verdict, modes: Modes, mode: Mode) -> Option<Departure> {
    let of_mode = |reason: &&Reason| modes.of(reason.source()) == mode && reason.deadline.is_some();
    let reasons: Vec<Reason> = verdict.reasons.iter().filter(of_mode).cloned().collect();
    let deadline = reasons.iter().filter_map(|reason| reason.deadline).min()?;
    verdict.spared.is_none().then(|| Departure {
        pod: verdict.pod.clone(),
        uid: verdict.uid.clone(),
        resource_version: verdict.resource_version.clone(),
        deadline,
        reasons,
    })
}
