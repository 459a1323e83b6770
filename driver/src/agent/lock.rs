//! Places that one agent at a time has, as locks in the state directory. The system takes a lock away from a process that dies.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// How often a lock that another agent holds is tried again. It is a part of the time that a takeover costs.
const AGAIN: Duration = Duration::from_millis(50);

/// A place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Who stands by, until kubelet has registered it.
    Next,
    /// Who is, or is about to be, registered with kubelet.
    Serving,
    /// Who reads and writes the state directory.
    State,
}

/// A place that is ours for as long as this lives.
#[derive(Debug)]
pub(super) struct Lock {
    _file: File,
}

/// The lock file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot lock {}: {source}; check that --state-dir can be written", path.display())]
pub struct LockError {
    path: PathBuf,
    source: io::Error,
}

impl Place {
    fn file(self, dir: &Path) -> PathBuf {
        dir.join(match self {
            Self::Next => "next.lock",
            Self::Serving => "serving.lock",
            Self::State => "lock",
        })
    }
}

impl Lock {
    /// Waits until no other agent has the place; `waiting` is called at each vain try.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub(super) async fn take(dir: &Path, place: Place, mut waiting: impl FnMut()) -> Result<Self, LockError> {
        loop {
            if let Some(lock) = Self::try_take(dir, place)? {
                return Ok(lock);
            }
            waiting();
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// The place, if no other agent has it.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub(super) fn try_take(dir: &Path, place: Place) -> Result<Option<Self>, LockError> {
        let path = place.file(dir);
        let wrong = |source| LockError { path: path.clone(), source };
        std::fs::create_dir_all(dir).map_err(wrong)?;
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(wrong)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(rustix::io::Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(wrong(error.into())),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::{Lock, Place};

    #[tokio::test]
    async fn a_place_is_one_agents_and_another_place_is_free() {
        let dir = tempfile::tempdir().unwrap();
        let mut waited = 0;
        let first = Lock::take(dir.path(), Place::State, || waited += 1).await.unwrap();
        assert!(Lock::take(dir.path(), Place::State, || waited += 1).now_or_never().is_none());
        assert!(Lock::try_take(dir.path(), Place::Serving).unwrap().is_some());
        drop(first);
        let second = Lock::take(dir.path(), Place::State, || waited += 1);
        assert!(second.now_or_never().is_some_and(|taken| taken.is_ok()));
        assert_eq!(waited, 1);
    }
}
