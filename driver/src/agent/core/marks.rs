//! What the core knows of the marks of people, and what of it is news.

use std::collections::BTreeMap;

use super::{Core, News, Outcome};
use crate::health::{Intent, IntentStanding};
use crate::slices::Pool;

/// The marks of people for devices of this node.
#[derive(Debug, Default)]
pub(super) struct MarksKnown {
    /// As they were read, or remembered.
    pub(super) intents: Vec<Intent>,
    /// Whether they were read since the start, or given up on for now.
    settled: bool,
    /// How each mark stood when it was last told.
    told: BTreeMap<String, IntentStanding>,
}

impl Core {
    /// Takes over the marks that were remembered: they stand until the API server says otherwise.
    #[must_use]
    pub fn remembering_marks(mut self, intents: Vec<Intent>) -> Self {
        self.marks.intents = intents;
        self
    }

    /// Whether the marks are settled: before, nothing is published, for a slice without a taint that a person asked for would let
    /// work onto a device that is being drained.
    #[must_use]
    pub fn knows_marks(&self) -> bool {
        self.marks.settled
    }

    /// Takes in the marks as they are now.
    pub fn follow_marks(&mut self, intents: &[Intent]) -> Outcome {
        let persist = self.marks.intents != intents;
        let first = !std::mem::replace(&mut self.marks.settled, true);
        if persist {
            self.marks.intents = intents.to_vec();
        }
        Outcome { changed: first || persist, persist, told: Vec::new() }
    }

    /// Goes on with the marks that were remembered: they cannot be read in time, and faults have to be published too.
    pub fn go_on_without_marks(&mut self) -> Outcome {
        self.marks.settled = true;
        Outcome { changed: true, ..Outcome::default() }
    }

    /// What became of marks since this was last asked, by the pool that is to be published.
    pub fn mark_news(&mut self, pool: &Pool) -> Vec<News> {
        let standings = self.health.intent_standings(&self.inventory, &self.marks.intents);
        let mut news = Vec::new();
        let mut now = BTreeMap::new();
        for (intent, standing) in self.marks.intents.iter().zip(standings) {
            let standing = if standing == IntentStanding::Followed { shown(intent, pool) } else { standing };
            if self.marks.told.get(&intent.mark) != Some(&standing) {
                let text = format!("mark {}: taint {} of {} is {standing}", intent.mark, intent.taint, intent.device);
                news.push(News { text, is_problem: standing != IntentStanding::Followed });
            }
            now.insert(intent.mark.clone(), standing);
        }
        let gone = self.marks.told.keys().filter(|mark| !now.contains_key(*mark));
        news.extend(gone.map(|mark| News { text: format!("mark {mark} is gone"), is_problem: false }));
        self.marks.told = now;
        news
    }

    /// How many marks there are, by how they stand, as [`Core::mark_news`] found them.
    #[must_use]
    pub fn marks_by_standing(&self) -> BTreeMap<&'static str, i64> {
        let mut counts = BTreeMap::new();
        for standing in self.marks.told.values() {
            *counts.entry(standing.name()).or_insert(0) += 1;
        }
        counts
    }
}

/// How an intent stands that is for a device of this node, by the pool.
fn shown(intent: &Intent, pool: &Pool) -> IntentStanding {
    match pool.cards.iter().flat_map(|card| &card.devices).find(|device| device.name == intent.device) {
        // Nothing else keeps a known device out of the pool.
        None => IntentStanding::NotOffered,
        Some(device) if device.taints.iter().any(|taint| taint.same_as(&intent.taint)) => IntentStanding::Followed,
        Some(_) => IntentStanding::LeftOut,
    }
}
