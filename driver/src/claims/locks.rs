//! One lock a claim: prepare and unprepare of the same claim may overlap or overtake each other (kubelet gives up after 45 s and calls
//! again while the first call still runs), and are done one after the other here. Other claims are not held up.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

/// Locks by claim UID, made when needed and gone when nobody holds them.
#[derive(Debug, Default)]
pub struct Locks(Mutex<BTreeMap<String, Weak<AsyncMutex<()>>>>);

impl Locks {
    /// Waits until nobody else works on this claim. Waiters are served in order.
    pub async fn lock(&self, uid: &str) -> OwnedMutexGuard<()> {
        let lock = self.of(uid);
        lock.lock_owned().await
    }

    fn of(&self, uid: &str) -> Arc<AsyncMutex<()>> {
        let mut locks = self.0.lock();
        if let Some(lock) = locks.get(uid).and_then(Weak::upgrade) {
            return lock;
        }
        locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::new(AsyncMutex::new(()));
        locks.insert(uid.to_owned(), Arc::downgrade(&lock));
        lock
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::Locks;

    #[tokio::test]
    async fn one_claim_waits_for_itself_and_not_for_another() {
        let locks = Arc::new(Locks::default());
        let first = locks.lock("a").await;
        assert!(locks.lock("b").now_or_never().is_some());
        let second = Box::pin(locks.lock("a"));
        let mut second = second;
        assert!(second.as_mut().now_or_never().is_none());
        drop(first);
        drop(second.await);
        drop(locks.lock("c").await);
        assert_eq!(locks.0.lock().len(), 1, "locks that nobody holds are not kept");
    }
}
