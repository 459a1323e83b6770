//! The run folder: where each file of a cluster is, and the names that are derived from the folder's own.

use std::fs::{self, DirBuilder, File, TryLockError};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

use super::mounts;

/// A unix socket's path has 107 bytes at most, and containerd's shims add a slash, a folder of one letter, a slash and 64 digits to ours.
const LONGEST: usize = 107 - "/s/".len() - 64;

/// The folder of whoever names none.
pub(super) fn default_folder() -> PathBuf {
    std::env::temp_dir().join("dtk")
}

/// A run folder.
#[derive(Clone, Debug)]
pub(super) struct RunDir {
    root: PathBuf,
    tag: String,
}

impl RunDir {
    /// # Errors
    /// When the path cannot be the one of a run folder.
    pub(super) fn new(path: &Path) -> Result<Self> {
        let path = std::path::absolute(path).with_context(|| format!("make --run {} absolute", path.display()))?;
        // Links on the way would hide mounts below it: the kernel tells those by their real path.
        let root = match (path.parent().map(Path::canonicalize), path.file_name()) {
            (Some(Ok(parent)), Some(name)) => parent.join(name),
            (Some(Err(error)), _) => bail!("--run {}: its parent folder cannot be used: {error}", path.display()),
            _ => bail!("--run {} names no folder that can be made and removed", path.display()),
        };
        let text = root.to_str().unwrap_or_default();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte);
        ensure!(
            !text.is_empty() && text.bytes().all(plain),
            "--run {}: use letters, digits, dots, dashes and underscores only",
            root.display()
        );
        ensure!(
            text.len() <= LONGEST,
            "--run {} has {} bytes; {LONGEST} are the most, because the path of a unix socket in it may have 107: choose a shorter one, like /tmp/dtk2",
            root.display(),
            text.len()
        );
        let tag = Sha256::digest(text).iter().take(4).map(|byte| format!("{byte:02x}")).collect();
        Ok(Self { root, tag })
    }

    /// Makes the folder, for us alone, and locks it against another run. Gives the lock, which lasts until it is dropped.
    ///
    /// # Errors
    /// When it cannot be made, is not ours, holds something else, or another run works on it.
    pub(super) fn claim(&self) -> Result<File> {
        match DirBuilder::new().mode(0o700).create(&self.root) {
            Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
            made => made.with_context(|| format!("create run folder {}", self.root.display()))?,
        }
        let lock = self.lock()?;
        ensure!(
            self.is_marked() || is_empty(&self.root)?,
            "{} is not empty and not a run folder: name another one with --run",
            self.root.display()
        );
        File::create(self.mark()).with_context(|| format!("create {}", self.mark().display()))?;
        Ok(lock)
    }

    /// Locks a folder that is there.
    ///
    /// # Errors
    /// When it is not ours, or another run works on it.
    pub(super) fn lock(&self) -> Result<File> {
        let found = fs::symlink_metadata(&self.root).with_context(|| format!("look at {}", self.root.display()))?;
        ensure!(
            found.is_dir() && found.uid() == rustix::process::geteuid().as_raw(),
            "{} is not a folder of this user: name another one with --run",
            self.root.display()
        );
        let lock = File::open(&self.root).with_context(|| format!("open {}", self.root.display()))?;
        match lock.try_lock() {
            Ok(()) => Ok(lock),
            Err(TryLockError::WouldBlock) => {
                bail!("another `cargo xtask kube` works on {} just now", self.root.display())
            }
            Err(TryLockError::Error(error)) => Err(error).with_context(|| format!("lock {}", self.root.display())),
        }
    }

    /// Removes the folder with all that is in it.
    ///
    /// # Errors
    /// When it cannot be removed, or something is mounted in it: what is mounted is not ours to delete.
    pub(super) fn remove(&self) -> Result<()> {
        let mounted = mounts::below(&self.root)?;
        ensure!(mounted.is_empty(), "{} is not removed: {} is mounted", self.root.display(), mounted[0].display());
        fs::remove_dir_all(&self.root).with_context(|| format!("remove {}", self.root.display()))
    }

    /// Whether a `kube up` made this folder.
    pub(super) fn is_marked(&self) -> bool {
        self.mark().exists()
    }

    fn mark(&self) -> PathBuf {
        self.path(".kube-run")
    }

    /// The folder itself.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Something in it.
    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Something in it, as text: the folder's path has only plain letters.
    pub(super) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// The log of a component.
    pub(super) fn log(&self, component: &str) -> PathBuf {
        self.root.join("logs").join(format!("{component}.log"))
    }

    /// Where containerd listens.
    pub(super) fn containerd_socket(&self) -> PathBuf {
        self.path("containerd/containerd.sock")
    }

    /// Eight digits that stand for the folder where its path is too long.
    pub(super) fn tag(&self) -> &str {
        &self.tag
    }

    /// The cgroup above all its pods, and the name of its pod network.
    pub(super) fn name(&self) -> String {
        format!("dtk-{}", self.tag)
    }
}

fn is_empty(folder: &Path) -> Result<bool> {
    let mut entries = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    Ok(entries.next().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_too_long_for_sockets_is_refused_with_the_reason() {
        let limit = format!("/tmp/{}", "x".repeat(LONGEST - 5));
        assert!(RunDir::new(Path::new(&limit)).is_ok());
        let told = RunDir::new(Path::new(&format!("{limit}y"))).unwrap_err().to_string();
        assert!(told.contains("has 41 bytes; 40 are the most") && told.contains("unix socket"), "{told}");
    }

    #[test]
    fn letters_that_would_need_quotes_are_refused() {
        for path in ["/tmp/a b", "/tmp/a\"b", "/tmp/ä", "/", "/tmp/.."] {
            assert!(RunDir::new(Path::new(path)).is_err(), "{path}");
        }
    }

    #[test]
    fn names_come_from_the_path_alone() {
        let [one, same, other] =
            ["/tmp/a", "/tmp/../tmp/a", "/tmp/b"].map(|path| RunDir::new(Path::new(path)).unwrap());
        assert_eq!(one.name(), same.name());
        assert_ne!(one.name(), other.name());
        assert_eq!(one.log("etcd"), Path::new("/tmp/a/logs/etcd.log"));
        // An address label of Linux has 15 bytes.
        assert!(format!("lo:{}", one.tag()).len() <= 15);
    }

    #[test]
    fn a_folder_with_something_else_in_it_is_not_claimed() {
        let parent = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let run = RunDir::new(&parent.path().join("r")).unwrap();
        fs::create_dir(run.root()).unwrap();
        fs::write(run.path("letter"), "dear").unwrap();
        assert!(run.claim().unwrap_err().to_string().contains("not empty and not a run folder"));
        fs::remove_file(run.path("letter")).unwrap();
        let lock = run.claim().unwrap();
        assert!(run.is_marked());
        assert!(run.claim().unwrap_err().to_string().contains("another `cargo xtask kube`"));
        drop(lock);
        run.claim().unwrap();
    }
}
