//! The plugin registry: a folder in which drivers put their registration sockets.
//!
//! Kubelet's rules: folders are walked, names that begin with a dot are passed over, and so is what is no socket. A socket that
//! appears is registered, one that goes is deregistered; one that is bound anew under its old name counts as both.

use std::collections::BTreeMap;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use tokio::io::unix::AsyncFd;

/// Tells a socket from another one that took its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SocketId {
    inode: u64,
    changed: (i64, i64),
}

/// Watches the folder with inotify, and says what sockets there are.
pub(super) struct Registry {
    root: PathBuf,
    inotify: AsyncFd<OwnedFd>,
}

impl Registry {
    /// Watches a folder that exists.
    #[expect(deprecated, reason = "an OwnedFd keeps what the unsafe constructor asks for: it stays open and the same")]
    pub(super) fn watch(root: &Path) -> io::Result<Self> {
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let registry = Self { root: root.to_owned(), inotify: AsyncFd::new(fd)? };
        registry.add(root)?;
        Ok(registry)
    }

    fn add(&self, folder: &Path) -> io::Result<()> {
        let changes = WatchFlags::CREATE
            | WatchFlags::DELETE
            | WatchFlags::MOVED_FROM
            | WatchFlags::MOVED_TO
            | WatchFlags::ATTRIB
            | WatchFlags::ONLYDIR;
        inotify::add_watch(self.inotify.get_ref(), folder, changes)?;
        Ok(())
    }

    /// Waits until something changed since the last call, and takes the news: what changed is found by [`Self::sockets`].
    pub(super) async fn changed(&self) -> io::Result<()> {
        let mut guard = self.inotify.readable().await?;
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = inotify::Reader::new(self.inotify.get_ref(), &mut buffer);
        loop {
            match reader.next() {
                Ok(_) => {}
                Err(rustix::io::Errno::WOULDBLOCK) => break,
                Err(error) => return Err(error.into()),
            }
        }
        guard.clear_ready();
        Ok(())
    }

    /// The sockets that are there now. Folders that appeared are watched from here on, before they are read.
    pub(super) fn sockets(&self) -> BTreeMap<PathBuf, SocketId> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.root.clone()];
        while let Some(folder) = folders.pop() {
            if let Err(error) = self.read(&folder, &mut folders, &mut found) {
                tracing::debug!(folder = %folder.display(), %error, "a folder of the plugin registry cannot be read");
            }
        }
        found
    }

    fn read(
        &self,
        folder: &Path,
        folders: &mut Vec<PathBuf>,
        found: &mut BTreeMap<PathBuf, SocketId>,
    ) -> io::Result<()> {
        self.add(folder)?;
        for entry in std::fs::read_dir(folder)? {
            let entry = entry?;
            if entry.file_name().as_encoded_bytes().starts_with(b".") {
                continue;
            }
            // Gone between the two calls: its removal is the next news.
            let Ok(metadata) = entry.metadata() else { continue };
            if metadata.is_dir() {
                folders.push(entry.path());
            } else if metadata.file_type().is_socket() {
                let changed = (metadata.mtime(), metadata.mtime_nsec());
                found.insert(entry.path(), SocketId { inode: metadata.ino(), changed });
            }
        }
        Ok(())
    }
}

/// What to do so that the registered sockets become the sockets that are there.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Difference {
    /// To deregister, first.
    pub(super) gone: Vec<PathBuf>,
    /// To register.
    pub(super) new: Vec<(PathBuf, SocketId)>,
}

/// Compares what was registered with what is there.
pub(super) fn difference(known: &BTreeMap<PathBuf, SocketId>, there: &BTreeMap<PathBuf, SocketId>) -> Difference {
    let gone = known.iter().filter(|(path, id)| there.get(*path) != Some(*id)).map(|(path, _)| path.clone());
    let new = there.iter().filter(|(path, id)| known.get(*path) != Some(*id)).map(|(path, id)| (path.clone(), *id));
    Difference { gone: gone.collect(), new: new.collect() }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    use super::*;

    async fn wait_for(registry: &Registry, names: &[&str]) -> BTreeMap<PathBuf, SocketId> {
        let wanted: Vec<PathBuf> = names.iter().map(|name| registry.root.join(name)).collect();
        let changes = async {
            loop {
                let sockets = registry.sockets();
                if sockets.keys().eq(wanted.iter()) {
                    return sockets;
                }
                registry.changed().await.unwrap();
            }
        };
        tokio::time::timeout(Duration::from_secs(5), changes).await.expect("the registry did not show the change")
    }

    #[tokio::test]
    async fn sockets_are_seen_to_come_go_and_be_bound_anew() {
        let folder = tempfile::tempdir().unwrap();
        let registry = Registry::watch(folder.path()).unwrap();
        assert!(registry.sockets().is_empty());
        let bind = |name: &str| UnixListener::bind(folder.path().join(name)).unwrap();
        let first = bind("a-reg.sock");
        bind(".hidden.sock");
        std::fs::write(folder.path().join("no-socket"), "").unwrap();
        let before = wait_for(&registry, &["a-reg.sock"]).await;

        std::fs::create_dir(folder.path().join("sub")).unwrap();
        bind("sub/b-reg.sock");
        let both = wait_for(&registry, &["a-reg.sock", "sub/b-reg.sock"]).await;
        assert_eq!(difference(&before, &both).new.len(), 1);

        drop(first);
        std::fs::remove_file(folder.path().join("a-reg.sock")).unwrap();
        wait_for(&registry, &["sub/b-reg.sock"]).await;
        bind("c.sock");
        std::fs::rename(folder.path().join("c.sock"), folder.path().join("a-reg.sock")).unwrap();
        let anew = wait_for(&registry, &["a-reg.sock", "sub/b-reg.sock"]).await;
        let path = folder.path().join("a-reg.sock");
        let news = difference(&both, &anew);
        assert_eq!(news.gone, std::slice::from_ref(&path), "deregistered first");
        assert_eq!(news.new, [(path.clone(), anew[&path])], "then registered");
    }

    #[test]
    fn nothing_changed_is_no_work() {
        let known = BTreeMap::from([(PathBuf::from("/a"), SocketId { inode: 1, changed: (2, 3) })]);
        assert_eq!(difference(&known, &known.clone()), Difference::default());
    }
}
