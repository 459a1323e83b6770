//! How long an offer counts that is gone. Pure: the moment is an argument.
//!
//! A kubelet that starts deletes every slice of its node and sets a device plugin's resources to zero; the other owner puts them back seconds later,
//! Kubernetes' own helper of drivers half a minute later. A card that came and went with that would be offered twice for a while, so an owner that is
//! gone counts until it has been away for some time. It also keeps two agents that both give way from doing so in turn without end.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

use super::offer::Offer;

/// Offers, and since when each is gone.
#[derive(Clone, Debug)]
pub struct Standing {
    grace: Duration,
    offers: BTreeMap<Offer, Option<Instant>>,
}

impl Standing {
    /// None yet; one that goes counts for `grace`.
    #[must_use]
    pub fn new(grace: Duration) -> Self {
        Self { grace, offers: BTreeMap::new() }
    }

    /// Takes in what is offered `now`.
    pub fn observe(&mut self, there: &BTreeSet<Offer>, now: Instant) {
        for (offer, gone) in &mut self.offers {
            *gone = if there.contains(offer) { None } else { Some(gone.unwrap_or(now)) };
        }
        for offer in there {
            self.offers.entry(offer.clone()).or_insert(None);
        }
    }

    /// What counts `now`.
    pub fn counting(&mut self, now: Instant) -> BTreeSet<Offer> {
        let grace = self.grace;
        self.offers.retain(|_, gone| gone.is_none_or(|since| now.saturating_duration_since(since) < grace));
        self.offers.keys().cloned().collect()
    }

    /// When the next one stops counting, if nothing else happens.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.offers.values().flatten().min().map(|since| *since + self.grace)
    }
}

#[cfg(test)]
mod tests {
    use super::super::offer::{Owner, Which};
    use super::*;

    const GRACE: Duration = Duration::from_secs(60);

    fn offers(names: &[&str]) -> BTreeSet<Offer> {
        let offer = |name: &&str| Offer { owner: Owner::Driver { name: (*name).to_owned() }, which: Which::Any };
        names.iter().map(offer).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn an_offer_counts_at_once_and_until_it_was_away_for_the_grace() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut standing = Standing::new(GRACE);
        standing.observe(&offers(&["a", "b"]), start);
        assert_eq!((standing.counting(start), standing.due()), (offers(&["a", "b"]), None));
        standing.observe(&offers(&["b"]), at(10));
        assert_eq!((standing.counting(at(69)), standing.due()), (offers(&["a", "b"]), Some(at(70))));
        assert_eq!((standing.counting(at(70)), standing.due()), (offers(&["b"]), None));
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_comes_back_in_time_was_never_away() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut standing = Standing::new(GRACE);
        standing.observe(&offers(&["a"]), start);
        standing.observe(&offers(&[]), at(10));
        standing.observe(&offers(&[]), at(30));
        assert_eq!(standing.due(), Some(at(70)), "from the first moment on");
        standing.observe(&offers(&["a"]), at(40));
        assert_eq!((standing.counting(at(500)), standing.due()), (offers(&["a"]), None));
    }
}
