//! The plugin manager: makes the registered drivers those whose sockets are in the registry.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::{CancellationToken, DropGuard};

use super::drivers::{Drivers, Registration};
use super::registration::register;
use super::registry::{Registry, SocketId, difference};
use crate::actor::Backoff;

/// Waits between attempts to register a driver. Kubelet's own grow to two minutes, too long for a small cluster.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// Watches the registry until it is dropped.
pub(super) async fn manage(registry: Registry, drivers: Arc<Drivers>) {
    let mut known: BTreeMap<PathBuf, SocketId> = BTreeMap::new();
    let mut running: BTreeMap<PathBuf, DropGuard> = BTreeMap::new();
    loop {
        let there = registry.sockets();
        let news = difference(&known, &there);
        for path in &news.gone {
            running.remove(path);
        }
        for (path, _) in news.new {
            let stop = CancellationToken::new();
            tokio::spawn(keep_registered(path.clone(), Arc::clone(&drivers), stop.clone()));
            running.insert(path, stop.drop_guard());
        }
        known = there;
        if let Err(error) = registry.changed().await {
            tracing::error!(%error, "the plugin registry cannot be watched any more");
            return;
        }
    }
}

/// Registers a driver, and takes it out again when its socket is gone.
async fn keep_registered(socket: PathBuf, drivers: Arc<Drivers>, stop: CancellationToken) {
    let registration = stop.run_until_cancelled(register_until_done(&socket, &drivers)).await;
    stop.cancelled().await;
    drop(registration);
}

async fn register_until_done(socket: &Path, drivers: &Arc<Drivers>) -> Registration {
    let mut waits = Backoff::new(RETRY.0, RETRY.1);
    loop {
        match register(socket, |driver| drivers.add(driver)).await {
            Ok(registration) => {
                tracing::info!(socket = %socket.display(), "driver registered");
                return registration;
            }
            Err(error) => tracing::warn!(socket = %socket.display(), %error, "not registered; it is tried again"),
        }
        tokio::time::sleep(waits.wait()).await;
    }
}
