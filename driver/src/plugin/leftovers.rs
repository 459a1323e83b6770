//! Sockets of agents that died before they could remove them. Each process has names of its own, so nobody else would.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use tokio::net::UnixStream;

use super::Paths;

/// Removes the sockets of this driver that no process serves. The registration goes first: as long as the service's file is there, the pair is found.
pub async fn remove(paths: &Paths, kubelet_root: &Path, driver: &str) {
    for instance in instances(paths) {
        let old = Paths::new(kubelet_root, driver, instance.as_deref());
        // One that is served belongs to an agent that is about to end.
        if old == *paths || !is_dead(&old.service).await {
            continue;
        }
        if is_dead(&old.registration).await {
            remove_file(&old.registration);
        }
        remove_file(&old.service);
    }
}

/// Whose service sockets lie in the driver's folder.
fn instances(paths: &Paths) -> Vec<Option<String>> {
    let folder = paths.service.parent().unwrap_or(Path::new("."));
    let names = fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| PathBuf::from(entry.file_name()));
    names.filter_map(|name| Paths::instance(&name)).collect()
}

async fn is_dead(path: &Path) -> bool {
    let is_socket = fs::symlink_metadata(path).is_ok_and(|metadata| metadata.file_type().is_socket());
    is_socket && UnixStream::connect(path).await.is_err_and(|error| error.kind() == ErrorKind::ConnectionRefused)
}

fn remove_file(path: &Path) {
    match fs::remove_file(path) {
        Ok(()) => tracing::info!(path = %path.display(), "removed the socket of an agent that died"),
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => tracing::warn!(path = %path.display(), %error, "cannot remove the socket of an agent that died"),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::net::UnixListener;
    use std::path::Path;

    use super::{Paths, remove};

    const DRIVER: &str = "gpu.devicetaint.dev";

    /// Both sockets of an instance, served for as long as they are held.
    fn sockets(root: &Path, driver: &str, instance: Option<&str>) -> (Paths, [UnixListener; 2]) {
        let paths = Paths::new(root, driver, instance);
        let bind = |path: &Path| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            UnixListener::bind(path).unwrap()
        };
        let served = [bind(&paths.registration), bind(&paths.service)];
        (paths, served)
    }

    #[tokio::test]
    async fn only_sockets_of_this_driver_that_nobody_serves_are_removed() {
        let root = tempfile::tempdir().unwrap();
        let alive = sockets(root.path(), DRIVER, Some("alive"));
        let (other, _) = sockets(root.path(), "other.example.org", Some("dead"));
        let (dead, _) = sockets(root.path(), DRIVER, Some("dead"));
        let (nameless, _) = sockets(root.path(), DRIVER, None);
        let (ours, _) = sockets(root.path(), DRIVER, Some("ours"));
        let file = ours.service.with_file_name("dra-note.sock");
        fs::write(&file, "no socket").unwrap();
        remove(&ours, root.path(), DRIVER).await;
        for paths in [&dead, &nameless] {
            assert!(!paths.registration.exists() && !paths.service.exists(), "{paths:?}");
        }
        for paths in [&alive.0, &other, &ours] {
            assert!(paths.registration.exists() && paths.service.exists(), "{paths:?}");
        }
        assert!(file.exists());
    }
}
