//! The cluster as it is at one moment: every object that a device's line needs, read once.

use anyhow::{Context, Result};
use cluster::wire::{ClaimWire, NodeWire, PodWire, RuleWire, SliceWire, Wire, decode};
use cluster::{CallError, RuleVersion, Server, call};
use kube::Client;
use serde_json::Value;
use taints::fleet::{Change, Fleet};
use taints::object::Slice;

/// How many objects one answer of the server holds.
const PAGE: usize = 500;

/// What was read.
pub(crate) struct World {
    /// What the server is and serves.
    pub(crate) server: Server,
    /// All slices, for attributes and names.
    pub(crate) slices: Vec<Slice>,
    /// Who uses which device, and which rules stand on it.
    pub(crate) fleet: Fleet,
    /// Driver, pool and device that marks of ours name.
    marks: Vec<(String, String, String)>,
}

impl World {
    /// A cluster without objects.
    #[cfg(test)]
    pub(crate) fn empty() -> Self {
        let server = Server { version: "v1.37.2".into(), release: (1, 37), rules: Some(RuleVersion::V1) };
        Self { server, slices: Vec::new(), fleet: Fleet::default(), marks: Vec::new() }
    }

    /// Reads the cluster: a few lists, page by page.
    pub(crate) async fn read(client: &Client) -> Result<Self> {
        let server = Server::discover(client).await?;
        let mut world = Self { server, slices: Vec::new(), fleet: Fleet::default(), marks: Vec::new() };
        for object in all::<SliceWire>(client, &world.server).await? {
            world.slices.push(object.clone());
            world.fleet.apply(Change::Slice(object));
        }
        for object in all::<RuleWire>(client, &world.server).await? {
            let selector = object.selector.clone().unwrap_or_default();
            if let (true, Some(driver), Some(pool), Some(device)) =
                (object.managed, selector.driver, selector.pool, selector.device)
            {
                world.marks.push((driver, pool, device));
            }
            world.fleet.apply(Change::Rule(object));
        }
        for object in all::<ClaimWire>(client, &world.server).await? {
            world.fleet.apply(Change::Claim(object));
        }
        for object in all::<PodWire>(client, &world.server).await? {
            world.fleet.apply(Change::Pod(object));
        }
        for object in all::<NodeWire>(client, &world.server).await? {
            world.fleet.apply(Change::Node(object));
        }
        Ok(world)
    }

    /// The version to write marks in.
    pub(crate) fn rules_version(&self) -> Result<RuleVersion> {
        let version = &self.server.version;
        self.server.rules.with_context(|| {
            format!("this API server ({version}) serves no DeviceTaintRule: turn the gate DRADeviceTaintRules on, and its version in --runtime-config")
        })
    }

    /// The drivers whose device of this name a mark of ours names, sorted.
    pub(crate) fn marked(&self, pool: &str, device: &str) -> impl Iterator<Item = &str> {
        let named = self.marks.iter().filter(move |mark| mark.1 == pool && mark.2 == device);
        let mut drivers: Vec<&str> = named.map(|mark| mark.0.as_str()).collect();
        drivers.sort_unstable();
        drivers.into_iter()
    }
}

/// All objects of a kind; none where the server does not serve it. One that cannot be understood is an error here: a list that
/// leaves something out would be believed.
async fn all<W: Wire>(client: &Client, server: &Server) -> Result<Vec<W::Object>> {
    let Some(resource) = server.resource(W::KIND) else { return Ok(Vec::new()) };
    let prefix = if resource.group.is_empty() { "api" } else { "apis" };
    let base = format!("/{prefix}/{}/{}?limit={PAGE}", resource.api_version, resource.plural);
    let mut objects = Vec::new();
    let mut path = base.clone();
    loop {
        let mut page = get(client, &path).await.with_context(|| format!("cannot list {}", W::KIND))?;
        let items = page.get_mut("items").and_then(Value::as_array_mut).map(std::mem::take).unwrap_or_default();
        for item in items {
            objects.push(decode::<W>(item)?);
        }
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
