//! What a rule would do if it evicted, before it does: the dry run behind a DeviceTaintRule of effect `None`.

use std::collections::BTreeSet;

use crate::fleet::{Fleet, Link};
use crate::object::{Key, Rule};
use crate::taint::Effect;
use crate::verdict::{self, Settings};

/// What a rule selects and whom it would make leave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preview {
    /// How many devices of newest generations it selects.
    pub published: usize,
    /// How many allocated devices it selects, listed or not: one for each claim's result.
    pub allocated: usize,
    /// The pods that would leave, at once or in time.
    pub leaving: BTreeSet<Key>,
    /// The pods that hold a selected device and would stay: they tolerate the taint for ever, have ended or are ending.
    pub staying: BTreeSet<Key>,
}

impl Preview {
    /// In how many namespaces pods would leave.
    #[must_use]
    pub fn namespaces(&self) -> usize {
        self.leaving.iter().map(|key| &key.namespace).collect::<BTreeSet<_>>().len()
    }
}

/// What a rule would do with effect `NoExecute`, at the state of the fleet. It looks at every pool and claim once.
#[must_use]
pub fn preview(fleet: &Fleet, rule: &Rule, settings: &Settings) -> Preview {
    let mut preview = Preview::default();
    let Some(selector) = &rule.selector else { return preview };
    for (driver, pool, _) in fleet.pools() {
        let devices = fleet.devices(driver, pool);
        preview.published += devices.iter().filter(|listed| selector.matches(&listed.id())).count();
    }
    let judged = crate::Taint { effect: Effect::NoExecute, ..rule.taint.clone() };
    for claim in fleet.claims() {
        let results = claim.results.iter().flatten().filter(|result| selector.matches(&result.id));
        for result in results {
            preview.allocated += 1;
            let stays = verdict::tolerates_for_ever(claim, result, &judged);
            for pod in fleet.holders(&claim.key) {
                let counts =
                    settings.pod_groups || !matches!(Fleet::link(pod, claim), Link::Holds(crate::fleet::Via::Group));
                if !counts {
                    continue;
                }
                let spared = pod.phase.is_finished() || pod.deleted_at.is_some();
                let list = if stays || spared { &mut preview.staying } else { &mut preview.leaving };
                list.insert(pod.key.clone());
            }
        }
    }
    preview.staying.retain(|pod| !preview.leaving.contains(pod));
    preview
}
