//! Programs of a real Kubernetes, built from Go modules of tools that are committed under `tests/real`.
//!
//! go.mod + go.sum -> hash -> cache folder -> `go build` under a file lock -> the folder that holds the programs. What is in the cache is never built
//! again; a cache that is not there only costs time.

mod compile;
mod stamp;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};

pub(crate) use stamp::Stamp;

/// A tools module, and what is wanted of it.
pub(crate) struct GoModule<'a> {
    /// Folder of the tools module (go.mod, go.sum).
    pub(crate) folder: PathBuf,
    /// The module that the programs come from, as go.mod requires it.
    pub(crate) source: &'a str,
    /// How the programs learn their version.
    pub(crate) stamp: Stamp,
    /// Build tags, with commas between them.
    pub(crate) tags: &'a str,
    /// The programs.
    pub(crate) programs: &'a [Program],
}

/// One program of a tools module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Program {
    /// Its Go package.
    pub(crate) package: &'static str,
    /// What it is called in the cache.
    pub(crate) name: &'static str,
}

impl Program {
    /// What `go build` calls it: the last part of the package that is not a major version.
    fn built_name(&self) -> &'static str {
        let is_major = |part: &str| part.strip_prefix('v').is_some_and(|digits| digits.parse::<u32>().is_ok());
        self.package.rsplit('/').find(|part| !is_major(part)).unwrap_or(self.package)
    }
}

/// Where things come from and go to; all of it differs in tests.
pub(crate) struct Surroundings {
    /// The Go command.
    pub(crate) go: PathBuf,
    /// Our folder in the user's cache.
    pub(crate) cache: PathBuf,
}

impl Surroundings {
    pub(crate) fn from_environment() -> Result<Self> {
        let cache = cache_folder(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?;
        Ok(Self { go: PathBuf::from("go"), cache })
    }
}

impl GoModule<'_> {
    /// The folder of its programs in the cache, whether they are there or not.
    ///
    /// # Errors
    /// When go.mod or go.sum cannot be read.
    pub(crate) fn folder_in(&self, at: &Surroundings) -> Result<PathBuf> {
        Ok(at.cache.join("tools").join(self.key()?))
    }

    /// The programs that the cache has not.
    ///
    /// # Errors
    /// When go.mod or go.sum cannot be read.
    pub(crate) fn missing(&self, at: &Surroundings) -> Result<Vec<Program>> {
        let folder = self.folder_in(at)?;
        Ok(self.programs.iter().filter(|program| !folder.join(program.name).exists()).copied().collect())
    }

    /// The folder that holds the programs; builds those first that the cache has not. Waits while another run builds.
    ///
    /// # Errors
    /// When go is not there, or the build fails.
    pub(crate) fn ensure_built(&self, at: &Surroundings) -> Result<PathBuf> {
        let folder = self.folder_in(at)?;
        if self.missing(at)?.is_empty() {
            return Ok(folder);
        }
        fs::create_dir_all(&folder).with_context(|| format!("create cache folder {}", folder.display()))?;
        let lock_path = folder.join("lock");
        let lock = File::create(&lock_path).with_context(|| format!("create {}", lock_path.display()))?;
        // Held until the file is dropped, and released by the system if this run is killed.
        lock.lock().with_context(|| format!("lock {}", lock_path.display()))?;
        let missing = self.missing(at)?;
        if !missing.is_empty() {
            compile::build(self, &missing, &at.go, &folder)?;
        }
        Ok(folder)
    }

    /// Names the cache folder: what the programs are, for people, and the hash of what go would build from.
    fn key(&self) -> Result<String> {
        let mut hash = Sha256::new();
        for file in ["go.mod", "go.sum"] {
            let text = read(&self.folder.join(file))?;
            // The length in front keeps the end of one file from being read as the start of the next.
            hash.update(text.len().to_le_bytes());
            hash.update(text);
        }
        // Without tags the same module gives other programs.
        hash.update(self.tags);
        let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(format!("{}-{}-{digest}", self.title(), self.version()?))
    }

    /// What people call the source: `kubernetes`, `etcd`.
    pub(crate) fn title(&self) -> &str {
        self.source.split('/').nth(1).unwrap_or(self.source)
    }

    /// The version of the source that go.mod requires: `v1.37.2`.
    ///
    /// # Errors
    /// When go.mod cannot be read or requires none.
    pub(crate) fn version(&self) -> Result<String> {
        let path = self.folder.join("go.mod");
        let text = read(&path)?;
        let required = text.lines().find_map(|line| {
            let mut words = line.split_whitespace().skip_while(|&word| word == "require");
            (words.next() == Some(self.source)).then(|| words.next())?
        });
        let version = required.with_context(|| format!("{} requires no version of {}", path.display(), self.source))?;
        Ok(version.to_owned())
    }
}

/// Our folder below the user's cache, as the XDG base directory specification has it: a relative `XDG_CACHE_HOME` is ignored.
fn cache_folder(xdg_cache_home: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(xdg_cache_home).or_else(|| absolute(home).map(|home| home.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME names an absolute folder: set XDG_CACHE_HOME")?;
    Ok(base.join("device-taint-manager"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}
