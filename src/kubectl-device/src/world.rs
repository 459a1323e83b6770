//! The cluster as it is at one moment: every object that a device's line needs, read once.

use anyhow::{Context, Result};
use cluster::mark::Mark;
use cluster::wire::{ClaimWire, Malformed, MarkWire, NodeWire, PodWire, RuleWire, SliceWire, Wire, decode};
use cluster::{CallError, Kind, Server, call};
use kube::Client;
use serde_json::Value;
use taints::fleet::{Fleet, Listed};
use taints::object::DeviceId;

/// How many objects one answer of the server holds.
const PAGE: usize = 500;

/// What was read.
pub(crate) struct World {
    /// What the server is and serves.
    pub(crate) server: Server,
    /// Which devices there are, who uses them, and which rules stand on them.
    pub(crate) fleet: Fleet,
    /// What could not be understood, and so is missing here.
    pub(crate) problems: Vec<Malformed>,
    /// The devices that marks of ours name.
    marks: Vec<DeviceId>,
}

impl World {
    fn new(server: Server) -> Self {
        Self { server, fleet: Fleet::default(), problems: Vec::new(), marks: Vec::new() }
    }

    /// A cluster without objects.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        let rules = Some(cluster::RuleVersion::V1);
        let server = Server { version: "v1.37.2".into(), release: (1, 37), rules, marks: true };
        Self::new(server)
    }

    /// Reads the cluster: a few lists, page by page.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let server = Server::discover(client).await?;
        let mut world = Self::new(server);
        world.take::<SliceWire>(client).await?;
        world.take::<RuleWire>(client).await?;
        world.take::<MarkWire>(client).await?;
        world.take::<ClaimWire>(client).await?;
        world.take::<PodWire>(client).await?;
        world.take::<NodeWire>(client).await?;
        let objects = world.fleet.rules().chain(world.fleet.marks());
        world.marks = objects.filter_map(Mark::of_rule).map(|mark| mark.device).collect();
        Ok(world)
    }

    async fn take<W: Wire>(&mut self, client: &Client) -> Result<()> {
        for object in all(client, &self.server, W::KIND).await? {
            match decode::<W>(object) {
                Ok(object) => drop(self.fleet.apply(W::applied(object))),
                Err(problem) => self.problems.push(problem),
            }
        }
        Ok(())
    }

    /// The devices that count: those of the newest generation of each pool.
    pub(crate) fn devices(&self) -> impl Iterator<Item = Listed<'_>> {
        self.fleet.pools().flat_map(|(driver, pool, _)| self.fleet.devices(driver, pool))
    }

    /// Whether a slice has a taint: the server stores them, then.
    pub(crate) fn has_slice_taints(&self) -> bool {
        self.devices().any(|listed| !listed.device.taints.is_empty())
    }

    /// The drivers whose device of this name a mark of ours names, sorted.
    pub(crate) fn marked(&self, pool: &str, device: &str) -> impl Iterator<Item = &str> {
        let named = self.marks.iter().filter(move |mark| mark.pool == pool && mark.device == device);
        let mut drivers: Vec<&str> = named.map(|mark| mark.driver.as_str()).collect();
        drivers.sort_unstable();
        drivers.into_iter()
    }
}

/// All objects of a kind; none where the server does not serve it.
async fn all(client: &Client, server: &Server, kind: Kind) -> Result<Vec<Value>> {
    let Some(resource) = server.resource(kind) else { return Ok(Vec::new()) };
    let prefix = if resource.group.is_empty() { "api" } else { "apis" };
    let base = format!("/{prefix}/{}/{}?limit={PAGE}", resource.api_version, resource.plural);
    let mut objects = Vec::new();
    let mut path = base.clone();
    loop {
        let mut page = get(client, &path).await.with_context(|| format!("cannot list {kind}"))?;
        let items = page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        objects.extend(items);
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(token) if !token.is_empty() => path = format!("{base}&continue={}", escape(token)),
            _ => return Ok(objects),
        }
    }
}

async fn get(client: &Client, path: &str) -> Result<Value, CallError> {
    let request = http::Request::get(path).body(Vec::new()).map_err(|error| CallError::Answer(error.to_string()))?;
    call::within(cluster::connect::CALL_TIMEOUT, client.request::<Value>(request)).await
}

/// Percent-encodes what is not plain in a query.
fn escape(token: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~');
    token.bytes().map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }).collect()
}
