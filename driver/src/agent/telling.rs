//! Tells people what they should act on: what changed on cards and marks (log), cards that have another owner (log, metric, readiness, one event on the Node), and an API server that stores
//! no device taints (the event; the publisher has told the rest).

use std::collections::{BTreeMap, BTreeSet};

use tokio::sync::watch;

use super::core::News;
use crate::http_checks::Level;
use crate::metrics::OwnerMetrics;
use crate::notices::Notices;
use crate::owner::{Contested, Owner, announced, told};
use crate::slices::publisher::TAINTS_OFF;

/// The event's reason.
const REASON: &str = "GPUHasAnotherOwner";

/// An API server that stores no device taints, told once.
pub(super) struct TaintsOff {
    pub(super) notices: Notices,
    pub(super) told: bool,
}

impl TaintsOff {
    /// Takes in whether it does not store them now.
    pub(super) fn share(&mut self, off: bool) {
        if off && !self.told {
            self.notices.tell("DeviceTaintsOff", TAINTS_OFF);
        }
        self.told = off;
    }
}

/// What was told of other owners, and where to tell.
pub(super) struct Contests {
    pub(super) level: watch::Sender<Level>,
    pub(super) metrics: OwnerMetrics,
    pub(super) notices: Notices,
    pub(super) told: Option<String>,
    /// The owners that have their event.
    pub(super) announced: BTreeSet<Owner>,
}

impl Contests {
    /// Takes in which of the node's `all` cards are contested now, and why that cannot be told in full.
    pub(super) fn share(&mut self, contested: &Contested, all: usize, unreadable: Option<String>) {
        let mut by_kind = BTreeMap::new();
        for owner in contested.values() {
            *by_kind.entry(owner.kind()).or_insert(0) += 1;
        }
        self.metrics.contested.replace(by_kind.into_iter().map(|(kind, count)| (vec![("by", kind)], count)));
        let text = told(contested, all);
        self.say(text.as_deref());
        self.announce(contested);
        let unreadable = unreadable.map(|why| format!("cannot tell whether somebody else offers the same GPUs: {why}"));
        let parts: Vec<String> = text.into_iter().chain(unreadable).collect();
        let level = if parts.is_empty() { Level::Good } else { Level::Degraded(parts.join(". ")) };
        self.level.send_if_modified(|held| std::mem::replace(held, level.clone()) != level);
    }

    fn say(&mut self, text: Option<&str>) {
        if self.told.as_deref() == text {
            return;
        }
        match text {
            Some(text) => tracing::warn!("{text}"),
            None => tracing::info!("no GPU has another owner any more: all are offered again"),
        }
        self.told = text.map(ToOwned::to_owned);
    }

    /// One event for each owner, however its cards come and go. One that went and comes again is told again, in the same words.
    fn announce(&mut self, contested: &Contested) {
        let owners: BTreeSet<Owner> = contested.values().cloned().collect();
        for owner in owners.difference(&self.announced) {
            self.notices.tell(REASON, &announced(owner));
        }
        self.announced = owners;
    }
}

/// Writes news to the log. What keeps work away from a card is a warning: that is what a person searches for first.
pub(super) fn tell(news: &[News]) {
    for news in news {
        if news.is_problem {
            tracing::warn!("{}", news.text);
        } else {
            tracing::info!("{}", news.text);
        }
    }
}
