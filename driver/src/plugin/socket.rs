//! Unix sockets that only root's kubelet may use, under names that kubelet watches.
//!
//! A socket is bound under a hidden temporary name (kubelet's watcher ignores names that begin with a dot), made private, and then
//! renamed: at no moment is it visible and open to others, or visible and not yet served.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why a socket could not be made.
#[derive(Debug, thiserror::Error)]
pub enum SocketError {
    /// The system refused.
    #[error("cannot {verb} {}: {source}; check --kubelet-root and that it is mounted writable", path.display())]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// Something else is there.
    #[error("{} is not a socket; remove it", .0.display())]
    NotASocket(PathBuf),
    /// Another process serves it.
    #[error("another process serves {}; stop the other gpu-driver of this node", .0.display())]
    InUse(PathBuf),
}

/// A listening socket that is visible under its name.
#[derive(Debug)]
pub struct Bound {
    /// Accepts connections; not blocking.
    pub listener: UnixListener,
    /// The file.
    pub file: SocketFile,
}

/// The file of a socket of ours: removed only while it is still ours.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    device: u64,
    inode: u64,
}

/// What is found under a socket's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// Our file.
    Ours,
    /// Nothing.
    Missing,
    /// Another file.
    Foreign,
}

/// Makes a socket of mode 0600 under this path. A file of that name that no process serves is the rest of an earlier life, and replaced.
///
/// # Errors
/// When another process serves the path, when it is no socket, or when the system refuses.
pub fn bind(path: &Path) -> Result<Bound, SocketError> {
    let io_error = |verb, path: &Path, source| SocketError::Io { verb, path: path.to_owned(), source };
    let dir = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(dir).map_err(|source| io_error("create", dir, source))?;
    refuse_foreign(path)?;
    let temporary = dir.join(hidden(path));
    match fs::remove_file(&temporary) {
        Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(io_error("remove", &temporary, source)),
        _ => {}
    }
    let listener = UnixListener::bind(&temporary).map_err(|source| io_error("bind", &temporary, source))?;
    let publish = || -> io::Result<fs::Metadata> {
        fs::set_permissions(&temporary, fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let metadata = fs::symlink_metadata(&temporary)?;
        fs::rename(&temporary, path)?;
        Ok(metadata)
    };
    let metadata = publish().map_err(|source| io_error("publish", path, source))?;
    let file = SocketFile { path: path.to_owned(), device: metadata.dev(), inode: metadata.ino() };
    Ok(Bound { listener, file })
}

/// A name of its own for each socket, since drivers share the directory; not longer than the socket's, since a path holds 107 bytes.
fn hidden(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    format!(".{stem}.new")
}

fn refuse_foreign(path: &Path) -> Result<(), SocketError> {
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(metadata) if !metadata.file_type().is_socket() => Err(SocketError::NotASocket(path.to_owned())),
        Ok(_) if UnixStream::connect(path).is_ok() => Err(SocketError::InUse(path.to_owned())),
        Ok(_) => Ok(()),
    }
}

impl SocketFile {
    /// Where it is.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is under the name now.
    #[must_use]
    pub fn presence(&self) -> Presence {
        match fs::symlink_metadata(&self.path) {
            Ok(now) if (now.dev(), now.ino()) == (self.device, self.inode) => Presence::Ours,
            Ok(_) => Presence::Foreign,
            Err(_) => Presence::Missing,
        }
    }

    /// Removes the file, if it is still ours.
    pub fn remove(&self) {
        if self.presence() == Presence::Ours
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::warn!(path = %self.path.display(), %error, "cannot remove the socket");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    use super::{Presence, SocketError, bind};

    #[test]
    fn a_socket_is_private_and_replaces_a_dead_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("plugins/driver/dra.sock");
        let first = bind(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        assert!(matches!(bind(&path), Err(SocketError::InUse(_))));
        drop(first.listener);
        let second = bind(&path).unwrap();
        assert_eq!((first.file.presence(), second.file.presence()), (Presence::Foreign, Presence::Ours));
        first.file.remove();
        assert!(path.exists(), "another life's socket is left alone");
        second.file.remove();
        assert_eq!(second.file.presence(), Presence::Missing);
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 0);
    }

    #[test]
    fn a_file_that_is_no_socket_is_not_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("dra.sock");
        fs::write(&path, "precious").unwrap();
        assert!(matches!(bind(&path), Err(SocketError::NotASocket(_))));
        assert_eq!(fs::read(&path).unwrap(), b"precious");
    }
}
