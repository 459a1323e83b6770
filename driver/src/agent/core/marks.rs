//! What the core knows of the marks of people, and what of it is news.

use std::collections::BTreeMap;

use super::{Core, Outcome};
use crate::health::{Intent, IntentStanding};
use crate::inventory::Device;

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

/// Something to tell of a mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MarkNews {
    /// The words.
    pub text: String,
    /// Whether a person should look after it.
    pub is_problem: bool,
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

    /// What became of marks since this was last asked.
    pub fn mark_news(&mut self) -> Vec<MarkNews> {
        let contested = self.contested();
        let standings = self.health.intent_standings(&self.inventory, &self.marks.intents);
        let mut news = Vec::new();
        let mut now = BTreeMap::new();
        for (intent, mut standing) in self.marks.intents.iter().zip(standings) {
            let is_contested = |device: &Device| contested.contains_key(&device.pci);
            if standing == IntentStanding::Followed && self.inventory.device(&intent.device).is_some_and(is_contested) {
                standing = IntentStanding::NotOffered;
            }
            if self.marks.told.get(&intent.mark) != Some(&standing) {
                let text = format!("mark {}: taint {} of {} is {standing}", intent.mark, intent.taint, intent.device);
                news.push(MarkNews { text, is_problem: standing != IntentStanding::Followed });
            }
            now.insert(intent.mark.clone(), standing);
        }
        let gone = self.marks.told.keys().filter(|mark| !now.contains_key(*mark));
        news.extend(gone.map(|mark| MarkNews { text: format!("mark {mark} is gone"), is_problem: false }));
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
