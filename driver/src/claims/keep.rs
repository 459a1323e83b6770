//! Keeps there what prepared claims need on disk, and knows before a pod waits whether the next one could be prepared.
//!
//! ```text
//!  tick ────────────────────► specs that are gone ─► written anew
//!  tick, refused write ─────► a trial of both directories ─► readiness
//! ```

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use super::error::ClaimError;
use super::service::{ClaimRef, Claims};
use crate::http_checks::Level;

/// While all is well, the disk is tried at each fourth look: each trial makes and removes a file.
const LOOKS_BETWEEN_TRIALS: u32 = 4;

/// What a prepare writes to, for readiness.
pub struct Disk {
    /// The directory of CDI specs.
    pub cdi: watch::Sender<Level>,
    /// The directory of checkpoints.
    pub checkpoints: watch::Sender<Level>,
}

impl Disk {
    fn is_good(&self) -> bool {
        *self.cdi.borrow() == Level::Good && *self.checkpoints.borrow() == Level::Good
    }

    async fn try_again(&self, claims: &Claims) {
        let trial = claims.try_disk().await;
        tell(&self.cdi, trial.cdi);
        tell(&self.checkpoints, trial.checkpoints);
    }
}

/// Looks at every `interval`, and at once after a write that the disk refused.
pub async fn run(claims: Claims, disk: Disk, interval: Duration, stop: CancellationToken) {
    let mut look = tokio::time::interval(interval);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut looks, mut told) = (0, BTreeSet::new());
    loop {
        let ticked = tokio::select! {
            () = stop.cancelled() => return,
            _ = look.tick() => true,
            () = claims.disk_refused() => false,
        };
        let due = !ticked || looks % LOOKS_BETWEEN_TRIALS == 0 || !disk.is_good();
        looks = looks.wrapping_add(u32::from(ticked));
        let work = async {
            if due {
                disk.try_again(&claims).await;
            }
            told = tell_failed(claims.restore_specs().await, &told);
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = work => {}
        }
    }
}

/// Readiness follows each trial; the log hears of news only.
fn tell(channel: &watch::Sender<Level>, trial: Result<(), String>) {
    let level = match trial {
        Ok(()) => Level::Good,
        Err(why) => Level::Failed(format!("{why}; until then no claim can be prepared")),
    };
    let was = channel.send_replace(level.clone());
    match (&was, &level) {
        (Level::Failed(before), Level::Failed(why)) if before != why => tracing::error!("{why}"),
        (Level::Good | Level::Degraded(_), Level::Failed(why)) => tracing::error!("{why}"),
        _ => {}
    }
}

/// A claim whose spec cannot be written is told once. Returns all that fail now.
fn tell_failed(failed: Vec<(ClaimRef, ClaimError)>, told: &BTreeSet<ClaimRef>) -> BTreeSet<ClaimRef> {
    for (claim, error) in &failed {
        if !told.contains(claim) {
            tracing::warn!(%claim, %error, "the claim's CDI spec is gone and cannot be written anew yet");
        }
    }
    failed.into_iter().map(|(claim, _)| claim).collect()
}
