//! One agent a state directory: two would write each other's checkpoints and sockets.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::{FlockOperation, flock};

/// How often a lock that another agent holds is tried again: it may be ending.
const AGAIN: Duration = Duration::from_secs(1);

/// The lock of a state directory, for as long as it lives.
#[derive(Debug)]
pub(super) struct StateLock {
    _file: File,
}

/// The lock file cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot lock {}: {source}; check that --state-dir can be written", path.display())]
pub struct LockError {
    path: PathBuf,
    source: io::Error,
}

impl StateLock {
    /// Waits until no other agent holds the directory; `waiting` is called each second of it.
    ///
    /// # Errors
    /// When the lock file cannot be made.
    pub(super) async fn take(dir: &Path, mut waiting: impl FnMut()) -> Result<Self, LockError> {
        let path = dir.join("lock");
        let wrong = |source| LockError { path: path.clone(), source };
        std::fs::create_dir_all(dir).map_err(wrong)?;
        let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(wrong)?;
        let mut told = false;
        loop {
            match flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Self { _file: file }),
                Err(rustix::io::Errno::WOULDBLOCK) => {}
                Err(error) => return Err(wrong(error.into())),
            }
            if !std::mem::replace(&mut told, true) {
                tracing::warn!(path = %path.display(), "another gpu-driver uses this state directory; waiting until it ends");
            }
            waiting();
            tokio::time::sleep(AGAIN).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt;

    use super::StateLock;

    #[tokio::test]
    async fn a_second_agent_waits_for_the_first() {
        let dir = tempfile::tempdir().unwrap();
        let mut waited = 0;
        let first = StateLock::take(dir.path(), || waited += 1).await.unwrap();
        assert!(StateLock::take(dir.path(), || waited += 1).now_or_never().is_none());
        drop(first);
        assert!(StateLock::take(dir.path(), || waited += 1).now_or_never().is_some_and(|taken| taken.is_ok()));
        assert_eq!(waited, 1);
    }
}
