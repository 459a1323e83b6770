//! Cleans up after claims for which kubelet never sent unprepare (its data was lost, or a call came out of order).

use std::collections::BTreeSet;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::service::{ClaimRef, Claims};

/// Time between two looks.
pub const INTERVAL: Duration = Duration::from_secs(600);

/// Looks at every checkpoint each [`INTERVAL`]. A claim is unprepared when two looks in a row found that the API server has none of
/// its UID: after a forced deletion the old container may still run for a while, and kubelet will send unprepare then.
/// A claim that exists without an allocation is left alone for the same reason.
pub async fn run(claims: Claims, stop: CancellationToken) {
    let mut gone_before = BTreeSet::new();
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
        gone_before = sweep(&claims, &gone_before).await;
    }
}

/// One look. Returns the claims that are gone now and were not before.
async fn sweep(claims: &Claims, gone_before: &BTreeSet<ClaimRef>) -> BTreeSet<ClaimRef> {
    let mut gone = BTreeSet::new();
    for claim in claims.known() {
        match claims.is_gone(&claim).await {
            Ok(true) if gone_before.contains(&claim) => {
                tracing::warn!(%claim, "the claim is gone and kubelet never unprepared it; doing so now");
                claims.unprepare(vec![claim]).await;
            }
            Ok(true) => {
                gone.insert(claim);
            }
            Ok(false) => {}
            Err(error) => tracing::debug!(%claim, %error, "cannot tell whether the claim still exists"),
        }
    }
    gone
}
