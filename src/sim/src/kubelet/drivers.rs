//! The drivers that are registered, and what becomes of their slices when one goes away.
//!
//! A driver may have two instances during an update. Calls go to the newest one that is connected. When none is connected any
//! more, the driver's slices of this node are deleted after a grace; an instance that connects cancels that.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::resource::v1::ResourceSlice;
use kube::api::{DeleteParams, ListParams};
use kube::{Api, Client};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tonic::transport::Channel;

use super::connection::connect;
use super::health::{Reports, listen};
use super::registration::{DraVersion, Driver, RegistrationError};
use crate::actor::{Backoff, call};

/// How long to wait between attempts to connect to a driver that went away.
const RECONNECT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));

/// Why a driver cannot be called.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DriverError {
    #[error("DRA driver {0} is not registered")]
    NotRegistered(String),
    #[error("DRA driver {0} is registered, but its service does not answer: check the driver's pod")]
    NotConnected(String),
}

/// See the module.
pub(super) struct Drivers {
    client: Client,
    node: String,
    grace: Duration,
    state: Mutex<State>,
    reports: Arc<Reports>,
    changed: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    next_id: u64,
    /// The kubelet ends: nothing is begun any more.
    closed: bool,
    instances: BTreeMap<u64, Instance>,
    /// Drivers whose slices are about to be deleted, or were deleted since an instance was connected.
    wipes: BTreeMap<String, CancellationToken>,
}

struct Instance {
    driver: Driver,
    channel: Option<Channel>,
    stop: CancellationToken,
}

/// A driver's place among the registered ones; it leaves when this is dropped.
pub(super) struct Registration {
    drivers: Arc<Drivers>,
    id: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.drivers.remove(self.id);
    }
}

impl Drivers {
    pub(super) fn new(client: Client, node: String, grace: Duration, reports: Arc<Reports>) -> Arc<Self> {
        Arc::new(Self { client, node, grace, state: Mutex::default(), reports, changed: watch::Sender::new(0) })
    }

    /// Moves when a driver connects or goes: a pod that waits for one tries again.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Takes a driver in, and keeps a connection to it from now on. An endpoint that a connected instance has is refused.
    pub(super) fn add(self: &Arc<Self>, driver: Driver) -> Result<Registration, RegistrationError> {
        let mut state = self.state.lock();
        let taken = state.instances.values().any(|instance| {
            instance.driver.name == driver.name
                && instance.driver.endpoint == driver.endpoint
                && instance.channel.is_some()
        });
        if taken {
            return Err(RegistrationError::SameEndpoint { name: driver.name, endpoint: driver.endpoint });
        }
        let id = state.next_id;
        state.next_id += 1;
        let stop = CancellationToken::new();
        state.instances.insert(id, Instance { driver: driver.clone(), channel: None, stop: stop.clone() });
        drop(state);
        let drivers = Arc::clone(self);
        tokio::spawn(async move { stop.run_until_cancelled(drivers.keep_connected(id, driver)).await });
        Ok(Registration { drivers: Arc::clone(self), id })
    }

    fn remove(self: &Arc<Self>, id: u64) {
        let removed = self.state.lock().instances.remove(&id);
        if let Some(instance) = removed {
            tracing::info!(driver = instance.driver.name, "deregistered");
            instance.stop.cancel();
            self.refresh(&instance.driver.name);
            self.changed.send_modify(|count| *count += 1);
        }
    }

    /// Stops everything that runs for drivers, and leaves their slices alone: the kubelet ends, not the drivers.
    pub(super) fn shut_down(&self) {
        let mut state = self.state.lock();
        state.closed = true;
        state.instances.values().for_each(|instance| instance.stop.cancel());
        state.wipes.values().for_each(CancellationToken::cancel);
    }

    /// The connection for calls of a driver: that of the newest connected instance.
    pub(super) fn get(&self, driver: &str) -> Result<(Channel, DraVersion), DriverError> {
        let state = self.state.lock();
        let mut instances = state.instances.values().rev().filter(|instance| instance.driver.name == driver).peekable();
        if instances.peek().is_none() {
            return Err(DriverError::NotRegistered(driver.to_owned()));
        }
        let connected = instances.find_map(|instance| Some((instance.channel.clone()?, instance.driver.dra)));
        connected.ok_or_else(|| DriverError::NotConnected(driver.to_owned()))
    }

    async fn keep_connected(self: Arc<Self>, id: u64, driver: Driver) {
        let mut waits = Backoff::new(RECONNECT.0, RECONNECT.1);
        loop {
            match connect(&driver.endpoint).await {
                Ok(connected) => {
                    waits.reset();
                    self.set_channel(id, &driver.name, Some(connected.channel.clone()));
                    let lost = async { drop(connected.lost.await) };
                    match driver.health {
                        None => lost.await,
                        Some(version) => tokio::select! {
                            () = lost => {}
                            () = listen(connected.channel, driver.clone(), version, &self.reports) => {}
                        },
                    }
                    tracing::info!(driver = driver.name, "connection lost");
                    self.reports.clear(&driver.name);
                    self.set_channel(id, &driver.name, None);
                }
                Err(error) => tracing::debug!(driver = driver.name, %error, "not connected"),
            }
            self.refresh(&driver.name);
            tokio::time::sleep(waits.wait()).await;
        }
    }

    fn set_channel(self: &Arc<Self>, id: u64, driver: &str, channel: Option<Channel>) {
        if let Some(instance) = self.state.lock().instances.get_mut(&id) {
            instance.channel = channel;
        }
        self.refresh(driver);
        self.changed.send_modify(|count| *count += 1);
    }

    /// Begins or cancels the grace of a driver's slices.
    fn refresh(self: &Arc<Self>, driver: &str) {
        let mut state = self.state.lock();
        let connected =
            state.instances.values().any(|instance| instance.driver.name == driver && instance.channel.is_some());
        if connected {
            if let Some(wipe) = state.wipes.remove(driver) {
                wipe.cancel();
            }
        } else if !state.closed && !state.wipes.contains_key(driver) {
            let cancel = CancellationToken::new();
            state.wipes.insert(driver.to_owned(), cancel.clone());
            let (drivers, driver) = (Arc::clone(self), driver.to_owned());
            tokio::spawn(async move { cancel.run_until_cancelled(drivers.wipe_after_grace(driver)).await });
        }
    }

    /// What is wiped once stays so until an instance connects: the entry is kept.
    async fn wipe_after_grace(self: Arc<Self>, driver: String) {
        tokio::time::sleep(self.grace).await;
        tracing::info!(driver, "no instance came back: its slices are deleted");
        wipe(&self.client, &self.node, Some(&driver)).await;
    }
}

/// Deletes the slices of this node: of one driver, or of all of them at the start of the kubelet. Tries until it went well.
pub(super) async fn wipe(client: &Client, node: &str, driver: Option<&str>) {
    let mut fields = format!("spec.nodeName={node}");
    if let Some(driver) = driver {
        fields = format!("{fields},spec.driver={driver}");
    }
    let slices: Api<ResourceSlice> = Api::all(client.clone());
    let mut waits = Backoff::of_calls();
    loop {
        let selected = ListParams::default().fields(&fields);
        match call(slices.delete_collection(&DeleteParams::default(), &selected)).await {
            Ok(_) => return,
            Err(error) => tracing::debug!(%error, fields, "slices not deleted yet"),
        }
        tokio::time::sleep(waits.wait()).await;
    }
}
