//! Handing over from one agent of a node to the next without a moment in which kubelet has nobody to call.
//!
//! ```text
//!  the old one                              the new one
//!  serving, state ─ works                   next ─ stands by: alive, ready, and does nothing
//!  told to end, and somebody holds `next`:
//!  lets go of serving ────────────────────► serving ─ makes its sockets; calls that come are held
//!  answers the calls that come              registered with kubelet, which calls the newest one: lets go of next
//!  ends its sockets, calls and tasks ◄─────
//!  lets go of state ──────────────────────► state ─ reads what is remembered, answers the calls that were held
//! ```
//!
//! Kubelet looks at a pod again only after a minute or more when it could not prepare the pod's claims. Each process has socket names of its own, so that two
//! can be registered at once. An agent that dies lets go of everything, and one that nobody follows ends at once.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::lock::{Lock, LockError, Place};
use crate::plugin::Registration;

/// How long to wait until kubelet has registered the next agent: it looks for new sockets once a second.
const HAND_OVER: Duration = Duration::from_secs(8);
/// Kubelet connects right after it has registered, and prefers who is connected.
const CONNECT: Duration = Duration::from_secs(1);

/// The place of the agent that kubelet calls.
#[derive(Debug)]
pub(super) struct Post {
    dir: PathBuf,
    next: Option<Lock>,
    serving: Lock,
}

/// What kubelet has done about us.
pub(super) struct Seen {
    /// What it said.
    pub(super) registration: watch::Receiver<Registration>,
    /// Whether it has connected to the service.
    pub(super) reached: watch::Receiver<bool>,
}

impl Post {
    /// Waits until no other agent is in the way; `waiting` is called again and again meanwhile, with the place that is waited for.
    ///
    /// # Errors
    /// When the locks cannot be used.
    pub(super) async fn take(dir: &Path, mut waiting: impl FnMut(Place)) -> Result<Self, LockError> {
        let next = Lock::take(dir, Place::Next, || waiting(Place::Next)).await?;
        let serving = Lock::take(dir, Place::Serving, || waiting(Place::Serving)).await?;
        Ok(Self { dir: dir.to_owned(), next: Some(next), serving })
    }

    /// Lets another agent stand by once kubelet calls us. After `stop`, gives way to it and then cancels `retire`.
    pub(super) async fn keep(mut self, mut seen: Seen, stop: CancellationToken, retire: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            () = seen.settled() => {
                self.next = None;
                stop.cancelled().await;
            }
        }
        self.leave().await;
        retire.cancel();
    }

    async fn leave(self) {
        let Self { dir, next, serving } = self;
        drop(next);
        match Lock::try_take(&dir, Place::Next) {
            // Nobody stands by.
            Ok(Some(_)) => return,
            Ok(None) => {}
            Err(error) => return tracing::warn!(%error, "cannot tell whether another gpu-driver stands by; ending"),
        }
        tracing::info!("another gpu-driver stands by; kubelet can call this one until it calls that one");
        drop(serving);
        match tokio::time::timeout(HAND_OVER, Lock::take(&dir, Place::Next, || ())).await {
            Ok(Ok(_)) => tracing::info!("handed over"),
            Ok(Err(error)) => tracing::warn!(%error, "cannot tell whether kubelet calls the other gpu-driver; ending"),
            Err(_) => tracing::warn!("kubelet has not registered the other gpu-driver within {HAND_OVER:?}; ending"),
        }
    }
}

impl Seen {
    /// Waits until kubelet calls us rather than another instance of the driver.
    async fn settled(&mut self) {
        let registered = self.registration.wait_for(|state| *state == Registration::Registered);
        if registered.await.is_err() {
            // Nobody will say it any more: the plugin has ended.
            return std::future::pending().await;
        }
        // One that does not connect calls nobody.
        tokio::time::timeout(CONNECT, self.reached.wait_for(|reached| *reached)).await.map(drop).ok();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::*;

    struct Agent {
        registration: watch::Sender<Registration>,
        stop: CancellationToken,
        retire: CancellationToken,
        task: tokio::task::JoinHandle<()>,
    }

    fn begin(post: Post) -> Agent {
        let (registration, reached) = (watch::Sender::new(Registration::Waiting), watch::Sender::new(true));
        let seen = Seen { registration: registration.subscribe(), reached: reached.subscribe() };
        let (stop, retire) = (CancellationToken::new(), CancellationToken::new());
        let task = tokio::spawn(post.keep(seen, stop.clone(), retire.clone()));
        Agent { registration, stop, retire, task }
    }

    #[tokio::test(start_paused = true)]
    async fn the_old_one_stays_until_the_new_one_is_registered() {
        let dir = tempfile::tempdir().unwrap();
        let old = begin(Post::take(dir.path(), |_| ()).await.unwrap());
        let mut new = Box::pin(Post::take(dir.path(), |_| ()));
        assert!(new.as_mut().now_or_never().is_none(), "the old one is not registered yet");
        old.registration.send_replace(Registration::Registered);
        assert!(tokio::time::timeout(Duration::from_secs(60), new.as_mut()).await.is_err(), "it serves");
        old.stop.cancel();
        let new = begin(new.await.unwrap());
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert!(!old.retire.is_cancelled(), "kubelet still calls the old one");
        new.registration.send_replace(Registration::Registered);
        tokio::time::timeout(Duration::from_secs(2), old.retire.cancelled()).await.unwrap();
        old.task.await.unwrap();
        assert!(!new.retire.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn who_is_followed_by_nobody_ends_at_once_and_who_is_not_registered_is_waited_for_in_vain() {
        let dir = tempfile::tempdir().unwrap();
        let alone = begin(Post::take(dir.path(), |_| ()).await.unwrap());
        alone.registration.send_replace(Registration::Registered);
        alone.stop.cancel();
        tokio::time::timeout(Duration::from_millis(10), alone.retire.cancelled()).await.unwrap();

        let old = begin(Post::take(dir.path(), |_| ()).await.unwrap());
        old.registration.send_replace(Registration::Registered);
        let new = tokio::spawn({
            let dir = dir.path().to_owned();
            async move { Post::take(&dir, |_| ()).await.unwrap() }
        });
        tokio::time::sleep(Duration::from_secs(1)).await;
        old.stop.cancel();
        let _unregistered = new.await.unwrap();
        assert!(tokio::time::timeout(HAND_OVER / 2, old.retire.cancelled()).await.is_err());
        tokio::time::timeout(HAND_OVER, old.retire.cancelled()).await.unwrap();
    }
}
