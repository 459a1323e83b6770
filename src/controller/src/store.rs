//! First observations of taints on disk, so that a restart moves no countdown.
//!
//! One file, `first-seen.json`, with a version. It is replaced as a whole: written beside, synced, renamed. A file that cannot be
//! read is put aside and not overwritten: it is the only witness.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use taints::verdict::FirstSeen;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::metrics::Metrics;

const NAME: &str = "first-seen.json";

/// The form of the file; another one is not guessed at.
const VERSION: u32 = 1;

/// How long after a failed write the next is tried.
const AGAIN: Duration = Duration::from_secs(5);

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Stored<T> {
    version: u32,
    first_seen: T,
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what} {path}: {source}; give a directory that we may write with --state-dir")]
pub struct StoreError {
    what: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Reads what was stored; nothing stored yet is an empty beginning. A file that cannot be understood is put aside with a message.
///
/// # Errors
/// When the directory cannot be made or read.
pub fn load(directory: &Path) -> Result<FirstSeen, StoreError> {
    let path = directory.join(NAME);
    let wrong = |what, source| StoreError { what, path: path.clone(), source };
    fs::create_dir_all(directory).map_err(|source| wrong("make the directory of", source))?;
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(FirstSeen::default()),
        Err(error) => return Err(wrong("read", error)),
    };
    match parse(&bytes) {
        Ok(seen) => Ok(seen),
        Err(problem) => {
            let aside = directory.join(format!("{NAME}.unreadable"));
            fs::rename(&path, &aside).map_err(|source| wrong("put aside", source))?;
            tracing::error!(path = %path.display(), kept = %aside.display(), problem,
                "first observations cannot be read; node countdowns without a time begin anew");
            Ok(FirstSeen::default())
        }
    }
}

fn parse(bytes: &[u8]) -> Result<FirstSeen, String> {
    let stored: Stored<serde_json::Value> = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if stored.version != VERSION {
        return Err(format!("version {} is not {VERSION}", stored.version));
    }
    serde_json::from_value(stored.first_seen).map_err(|error| error.to_string())
}

/// Replaces what is stored, all or nothing.
///
/// # Errors
/// When the directory cannot be written.
pub fn save(directory: &Path, seen: &FirstSeen) -> Result<(), StoreError> {
    let path = directory.join(NAME);
    write(directory, &path, seen).map_err(|source| StoreError { what: "write", path, source })
}

fn write(directory: &Path, path: &Path, seen: &FirstSeen) -> io::Result<()> {
    let bytes = serde_json::to_vec(&Stored { version: VERSION, first_seen: seen })?;
    let mut file = tempfile::NamedTempFile::new_in(directory)?;
    file.write_all(&bytes)?;
    file.as_file().sync_all()?;
    file.persist(path)?;
    // The new name is in the directory, which has to reach the disk too.
    File::open(directory)?.sync_all()
}

/// Stores each new state until told to stop, and the last one then. Between two writes only the newest state counts.
pub async fn run(
    directory: PathBuf,
    mut states: watch::Receiver<FirstSeen>,
    metrics: Metrics,
    stop: CancellationToken,
) {
    let mut unsaved = false;
    loop {
        let stopping = tokio::select! {
            () = stop.cancelled() => true,
            changed = states.changed() => changed.is_err(),
            () = tokio::time::sleep(AGAIN), if unsaved => false,
        };
        // Whoever made the states may be gone already: then it is not known whether there is a newer one.
        unsaved |= !stopping || states.has_changed().unwrap_or(true);
        if unsaved {
            let newest = states.borrow_and_update().clone();
            unsaved = !store(&directory, newest, &metrics).await;
        }
        if stopping {
            return;
        }
    }
}

async fn store(directory: &Path, seen: FirstSeen, metrics: &Metrics) -> bool {
    let directory = directory.to_owned();
    let saved = tokio::task::spawn_blocking(move || save(&directory, &seen)).await;
    let problem = match saved {
        Ok(Ok(())) => return true,
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    metrics.state_errors.inc();
    tracing::error!(problem, "first observations were not stored; it is tried again");
    false
}

#[cfg(test)]
mod tests {
    use super::*;
    use taints::object::Node;
    use taints::{Effect, Taint};

    fn seen() -> FirstSeen {
        let taint = Taint { key: "k".into(), value: String::new(), effect: Effect::NoExecute, time_added: None };
        let node = Node { name: "n".into(), uid: "u".into(), taints: vec![taint], ..Node::default() };
        let mut seen = FirstSeen::default();
        seen.observe(&node, "2026-11-01T10:00:00Z".parse().unwrap());
        seen
    }

    /// What survives the way to the disk: compared as text, since "watched" is not stored.
    fn text(seen: &FirstSeen) -> String {
        serde_json::to_string(seen).unwrap()
    }

    #[test]
    fn what_was_stored_is_read_again() {
        let directory = tempfile::tempdir().unwrap();
        let inner = directory.path().join("made/on/demand");
        assert_eq!(load(&inner).unwrap(), FirstSeen::default());
        save(&inner, &seen()).unwrap();
        assert_eq!(text(&load(&inner).unwrap()), text(&seen()));
        assert_eq!(fs::read_dir(&inner).unwrap().count(), 1);
    }

    #[test]
    fn a_file_that_cannot_be_read_is_put_aside() {
        for bad in ["{", "{\"version\":2,\"firstSeen\":{}}", "{\"version\":1,\"firstSeen\":7}"] {
            let directory = tempfile::tempdir().unwrap();
            fs::write(directory.path().join(NAME), bad).unwrap();
            assert_eq!(load(directory.path()).unwrap(), FirstSeen::default());
            assert_eq!(fs::read_to_string(directory.path().join("first-seen.json.unreadable")).unwrap(), bad);
        }
    }

    #[test]
    fn a_directory_that_is_a_file_is_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let error = load(&file.path().join("sub")).unwrap_err().to_string();
        assert!(error.contains("--state-dir"), "{error}");
    }

    #[tokio::test]
    async fn the_last_state_is_stored_before_the_end() {
        let directory = tempfile::tempdir().unwrap();
        let (sender, receiver) = watch::channel(FirstSeen::default());
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(directory.path().to_owned(), receiver, Metrics::default(), stop.clone()));
        sender.send(seen()).unwrap();
        stop.cancel();
        task.await.unwrap();
        assert_eq!(text(&load(directory.path()).unwrap()), text(&seen()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_failed_write_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("later");
        let (sender, receiver) = watch::channel(FirstSeen::default());
        let stop = CancellationToken::new();
        let metrics = Metrics::default();
        let task = tokio::spawn(run(target.clone(), receiver, metrics.clone(), stop.clone()));
        sender.send(seen()).unwrap();
        while metrics.state_errors.get() == 0 {
            tokio::task::yield_now().await;
        }
        fs::create_dir(&target).unwrap();
        while !target.join(NAME).exists() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        stop.cancel();
        task.await.unwrap();
    }
}
