//! Checkpoint files: one a claim, so that a broken one harms that claim only.
//!
//! A file is written under a temporary name and renamed over the old one; of a record that was answered to kubelet, file and
//! directory are synced first. After a crash there is the old record or the new one, never half of one.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::record::{Record, VERSION};

/// Why a checkpoint could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The system refused.
    #[error("cannot {verb} {}: {source}; check that --state-dir is writable and not full", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On which file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Written by a newer program. Nothing may be prepared until a program runs that knows what it means.
    #[error(
        "checkpoint {} is of version {found}, and this program knows up to {VERSION}: run the newer gpu-driver, or drain the node and remove the file",
        path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u64,
    },
}

/// The directory of checkpoint files.
#[derive(Clone, Debug)]
pub struct Checkpoints {
    dir: PathBuf,
}

/// What a directory of checkpoints held.
#[derive(Debug, Default)]
pub struct Loaded {
    /// The records that could be read.
    pub records: Vec<Record>,
    /// Files that could not, and where they were put.
    pub quarantined: Vec<PathBuf>,
}

impl Checkpoints {
    /// In this directory, which is made if it is not there.
    ///
    /// # Errors
    /// When it cannot be made.
    pub fn open(dir: &Path) -> Result<Self, CheckpointError> {
        fs::create_dir_all(dir).map_err(|source| io_error("create", dir, source))?;
        Ok(Self { dir: dir.to_owned() })
    }

    /// Reads every record. A file that is no record is renamed to `*.corrupt` and reported: it must not keep the others from
    /// being served.
    ///
    /// # Errors
    /// When the directory cannot be read, or a record is of a version that this program does not know.
    pub fn load(&self) -> Result<Loaded, CheckpointError> {
        let mut loaded = Loaded::default();
        let entries = fs::read_dir(&self.dir).map_err(|source| io_error("list", &self.dir, source))?;
        let mut paths: Vec<PathBuf> = entries.filter_map(Result::ok).map(|entry| entry.path()).collect();
        paths.sort();
        for path in paths {
            let named = |ending: &str| path.extension().is_some_and(|extension| extension == ending);
            if named("tmp") {
                // The rest of a write that a crash cut off.
                fs::remove_file(&path).map_err(|source| io_error("remove", &path, source))?;
            } else if named("json") {
                match read(&path)? {
                    Some(record) => loaded.records.push(record),
                    None => loaded.quarantined.push(quarantine(&path)?),
                }
            }
        }
        Ok(loaded)
    }

    /// Writes a record so that it outlives a crash of the node: file and directory are synced.
    ///
    /// # Errors
    /// When the disk refuses. The old record, if any, still stands then.
    pub fn write(&self, record: &Record) -> Result<(), CheckpointError> {
        self.replace(record, true)
    }

    /// Writes a record so that it outlives a crash of this process only. Enough for an intent: what it guards, the CDI spec, lies in
    /// memory and does not outlive the node either.
    ///
    /// # Errors
    /// When the disk refuses. The old record, if any, still stands then.
    pub fn note(&self, record: &Record) -> Result<(), CheckpointError> {
        self.replace(record, false)
    }

    fn replace(&self, record: &Record, durable: bool) -> Result<(), CheckpointError> {
        let path = self.path(&record.uid);
        let temporary = path.with_extension("tmp");
        let text = serde_json::to_vec_pretty(record).map_err(|error| io_error("write", &path, error.into()))?;
        let write = || -> io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(&text)?;
            if durable {
                file.sync_all()?;
            }
            fs::rename(&temporary, &path)?;
            if durable { self.sync() } else { Ok(()) }
        };
        write().map_err(|source| io_error("write", &path, source))
    }

    /// Whether a record could be written now, by writing something that is no record.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn try_write(&self) -> Result<(), CheckpointError> {
        let path = self.dir.join("write-test.tmp");
        let write = || fs::write(&path, "can this be written?\n").and_then(|()| fs::remove_file(&path));
        write().map_err(|source| io_error("write", &path, source))
    }

    /// Removes a claim's record, durably. One that is not there is fine.
    ///
    /// # Errors
    /// When the disk refuses.
    pub fn remove(&self, uid: &str) -> Result<(), CheckpointError> {
        let path = self.path(uid);
        match fs::remove_file(&path) {
            Ok(()) => self.sync().map_err(|source| io_error("sync", &self.dir, source)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(source) => Err(io_error("remove", &path, source)),
        }
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.dir)?.sync_all()
    }

    fn path(&self, uid: &str) -> PathBuf {
        self.dir.join(format!("{uid}.json"))
    }
}

fn io_error(verb: &'static str, path: &Path, source: io::Error) -> CheckpointError {
    CheckpointError::Io { verb, path: path.to_owned(), source }
}

/// The record in a file; `None` for what is none.
fn read(path: &Path) -> Result<Option<Record>, CheckpointError> {
    let text = fs::read(path).map_err(|source| io_error("read", path, source))?;
    let Ok(value) = serde_json::from_slice::<serde_json::Value>(&text) else { return Ok(None) };
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(found) if found > u64::from(VERSION) => Err(CheckpointError::Version { path: path.to_owned(), found }),
        _ => Ok(serde_json::from_value::<Record>(value).ok().filter(|record| is_named_after(path, &record.uid))),
    }
}

fn is_named_after(path: &Path, uid: &str) -> bool {
    path.file_stem().is_some_and(|stem| stem == uid)
}

fn quarantine(path: &Path) -> Result<PathBuf, CheckpointError> {
    let aside = path.with_extension("json.corrupt");
    fs::rename(path, &aside).map_err(|source| io_error("set aside", path, source))?;
    Ok(aside)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::record::{Record, State, VERSION};
    use super::{CheckpointError, Checkpoints};

    fn record(uid: &str) -> Record {
        Record {
            version: VERSION,
            uid: uid.to_owned(),
            namespace: "ns".to_owned(),
            name: "claim".to_owned(),
            boot_id: "boot".to_owned(),
            state: State::Started,
            devices: Vec::new(),
            extra: serde_json::Map::new(),
        }
    }

    #[test]
    fn a_written_record_is_read_back_and_a_removed_one_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(&dir.path().join("claims")).unwrap();
        checkpoints.write(&record("a")).unwrap();
        checkpoints.write(&Record { state: State::Completed, ..record("a") }).unwrap();
        checkpoints.write(&record("b")).unwrap();
        let states: Vec<_> = checkpoints.load().unwrap().records.iter().map(|r| (r.uid.clone(), r.state)).collect();
        assert_eq!(states, [("a".to_owned(), State::Completed), ("b".to_owned(), State::Started)]);
        checkpoints.remove("a").unwrap();
        checkpoints.remove("a").unwrap();
        assert_eq!(checkpoints.load().unwrap().records.len(), 1);
    }

    #[test]
    fn a_broken_file_is_set_aside_and_the_others_are_served() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(dir.path()).unwrap();
        checkpoints.write(&record("good")).unwrap();
        fs::write(dir.path().join("half.json"), "{\"version\": 1, \"uid\":").unwrap();
        fs::write(dir.path().join("other.json"), serde_json::to_vec(&record("misnamed")).unwrap()).unwrap();
        fs::write(dir.path().join("cut.tmp"), "{").unwrap();
        let loaded = checkpoints.load().unwrap();
        assert_eq!((loaded.records.len(), loaded.quarantined.len()), (1, 2));
        assert!(dir.path().join("half.json.corrupt").exists() && !dir.path().join("cut.tmp").exists());
        assert_eq!(checkpoints.load().unwrap().quarantined.len(), 0, "not again at the next start");
    }

    #[test]
    fn a_newer_version_is_refused_with_the_way_out() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(dir.path()).unwrap();
        checkpoints.write(&Record { version: VERSION + 1, ..record("a") }).unwrap();
        let error = checkpoints.load().unwrap_err();
        assert!(matches!(error, CheckpointError::Version { found: 2, .. }), "{error}");
        assert!(dir.path().join("a.json").exists());
    }

    #[test]
    fn a_directory_that_cannot_be_written_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::open(&dir.path().join("claims")).unwrap();
        fs::remove_dir(dir.path().join("claims")).unwrap();
        let text = checkpoints.write(&record("a")).unwrap_err().to_string();
        assert!(text.contains("a.json") && text.contains("--state-dir"), "{text}");
    }
}
