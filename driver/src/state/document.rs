//! One document of the state directory: `{"kind": .., "version": .., "data": ..}`, replaced as a whole.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the documents that this program writes, and the newest that it reads.
const VERSION: u32 = 1;
/// Prefix of files that are being written. What a crash left of them is swept at the next start.
const HALF_WRITTEN: &str = ".half-written-";
/// Broken documents kept for people; beyond it the last one is overwritten.
const KEPT: u32 = 10;

/// Number of kinds.
pub(super) const FILES: usize = 5;

/// What a document can hold.
pub(super) trait Document: Default + Serialize + DeserializeOwned {}
impl<T: Default + Serialize + DeserializeOwned> Document for T {}

/// Which document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Inventory,
    Findings,
    Stamps,
    Marks,
    Others,
}

impl Kind {
    pub(super) fn index(self) -> usize {
        match self {
            Self::Inventory => 0,
            Self::Findings => 1,
            Self::Stamps => 2,
            Self::Marks => 3,
            Self::Others => 4,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Inventory => "inventory",
            Self::Findings => "findings",
            Self::Stamps => "stamps",
            Self::Marks => "marks",
            Self::Others => "others",
        }
    }

    fn path(self, dir: &Path) -> PathBuf {
        dir.join(format!("{}.json", self.name()))
    }
}

/// Why the state directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// The system refused.
    #[error("cannot {action} {}: {error}; check space and rights of --state-dir", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On which file or directory.
        path: PathBuf,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// A newer program wrote it.
    #[error(
        "{} is of version {found}, this program knows {VERSION}; run the newer program, or move the file away to begin without it",
        path.display()
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A value has no JSON form. It cannot happen for what is remembered here, and is told rather than assumed.
    #[error("cannot write {}: {error}", path.display())]
    Encode {
        /// The file.
        path: PathBuf,
        /// What the encoder said.
        #[source]
        error: serde_json::Error,
    },
}

impl StateError {
    pub(super) fn io(action: &'static str, path: &Path, error: io::Error) -> Self {
        Self::Io { action, path: path.to_owned(), error }
    }
}

/// A document that could not be read and was renamed, so that the agent can start and a person can look at it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} cannot be read and was renamed to {}: {why}; findings and identities in it are lost until the cards show them again",
    path.display(), aside.display())]
pub struct SetAside {
    /// The document.
    pub path: PathBuf,
    /// Its new name.
    pub aside: PathBuf,
    /// What is wrong with it.
    pub why: String,
}

/// What reading a document gave.
pub(super) enum Read<T> {
    Absent,
    Found { value: T, bytes: Vec<u8> },
    Unreadable(SetAside),
}

#[derive(Serialize)]
struct Out<'a, T> {
    kind: &'static str,
    version: u32,
    data: &'a T,
}

/// What every version has: enough to see whether the rest can be understood.
#[derive(Deserialize)]
struct Head {
    kind: String,
    version: u32,
}

#[derive(Deserialize)]
struct Body<T> {
    data: T,
}

/// Reads a document.
pub(super) fn read<T: Document>(dir: &Path, kind: Kind) -> Result<Read<T>, StateError> {
    let path = kind.path(dir);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Read::Absent),
        Err(error) => return Err(StateError::io("read", &path, error)),
    };
    match decode(&path, kind, &bytes)? {
        Ok(value) => Ok(Read::Found { value, bytes }),
        Err(why) => set_aside(&path, why).map(Read::Unreadable),
    }
}

fn decode<T: Document>(path: &Path, kind: Kind, bytes: &[u8]) -> Result<Result<T, String>, StateError> {
    let head: Head = match serde_json::from_slice(bytes) {
        Ok(head) => head,
        Err(error) => return Ok(Err(error.to_string())),
    };
    if head.kind != kind.name() {
        return Ok(Err(format!("it is of kind `{}`, expected `{}`", head.kind, kind.name())));
    }
    if head.version > VERSION {
        return Err(StateError::Newer { path: path.to_owned(), found: head.version });
    }
    let body = serde_json::from_slice::<Body<T>>(bytes);
    Ok(body.map(|body| body.data).map_err(|error| error.to_string()))
}

fn set_aside(path: &Path, why: String) -> Result<SetAside, StateError> {
    let name = |number: u32| path.with_extension(format!("json.unreadable-{number}"));
    let free = (1..KEPT).map(name).find(|candidate| !candidate.exists());
    let aside = free.unwrap_or_else(|| name(KEPT));
    fs::rename(path, &aside).map_err(|error| StateError::io("set aside", path, error))?;
    Ok(SetAside { path: path.to_owned(), aside, why })
}

/// The bytes of a document.
pub(super) fn encode<T: Document>(dir: &Path, kind: Kind, data: &T) -> Result<Vec<u8>, StateError> {
    let document = Out { kind: kind.name(), version: VERSION, data };
    let mut bytes =
        serde_json::to_vec_pretty(&document).map_err(|error| StateError::Encode { path: kind.path(dir), error })?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// Replaces a document, so that after a crash the old or the new one is there, whole.
pub(super) fn replace(dir: &Path, kind: Kind, bytes: &[u8]) -> Result<(), StateError> {
    let path = kind.path(dir);
    let fail = |error| StateError::io("write", &path, error);
    let mut file = tempfile::Builder::new().prefix(HALF_WRITTEN).tempfile_in(dir).map_err(fail)?;
    file.write_all(bytes).and_then(|()| file.as_file().sync_all()).map_err(fail)?;
    file.persist(&path).map_err(|error| fail(error.error))?;
    // The rename is durable only once the directory is.
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(fail)
}

/// Removes what a crash left half written.
pub(super) fn sweep(dir: &Path) -> Result<(), StateError> {
    let fail = |error| StateError::io("read", dir, error);
    for entry in fs::read_dir(dir).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        if entry.file_name().to_string_lossy().starts_with(HALF_WRITTEN) {
            fs::remove_file(entry.path()).map_err(|error| StateError::io("remove", &entry.path(), error))?;
        }
    }
    Ok(())
}
