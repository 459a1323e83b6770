//! Ports of a cluster's own, and the pod network that goes with them.

use std::net::{Ipv4Addr, TcpListener};
use std::ops::Range;

use anyhow::{Context, Result};
use uuid::Uuid;

/// Below the ports that Linux gives to outgoing connections, so that none of those takes one between our look and the component's.
const RANGE: Range<u16> = 20_000..32_000;

/// The ports of a cluster, all on loopback but kubelet's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ports {
    pub(super) api: u16,
    pub(super) etcd: u16,
    pub(super) etcd_peer: u16,
    pub(super) controllers: u16,
    pub(super) scheduler: u16,
    pub(super) kubelet: u16,
    pub(super) kubelet_health: u16,
}

impl Ports {
    /// Ports that are free now; `api` is taken as given.
    ///
    /// # Errors
    /// When the given port is in use, or none is free.
    pub(super) fn choose(api: Option<u16>) -> Result<Self> {
        // Held until all are chosen, so that none is chosen twice.
        let mut held = Vec::new();
        let api = match api {
            Some(port) => {
                held.push(bind(port).with_context(|| format!("--port {port} is in use or not allowed"))?);
                port
            }
            None => free(&mut held)?,
        };
        let mut next = || free(&mut held);
        Ok(Self {
            api,
            etcd: next()?,
            etcd_peer: next()?,
            controllers: next()?,
            scheduler: next()?,
            kubelet: next()?,
            kubelet_health: next()?,
        })
    }

    /// The pods' network. No two clusters of a machine have the same API server's port, so none has the same network.
    pub(super) fn pods(&self) -> Network {
        let [high, low] = self.api.to_be_bytes();
        Network { prefix: [10, high, low] }
    }
}

/// A network of 256 addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Network {
    prefix: [u8; 3],
}

impl Network {
    /// `10.1.2.0/24`
    pub(super) fn cidr(self) -> String {
        format!("{}/24", self.address(0))
    }

    /// The node's own address; .1 is the gateway that each pod sees.
    pub(super) fn node(self) -> Ipv4Addr {
        self.address(2)
    }

    /// The first address for a pod.
    pub(super) fn first_pod(self) -> Ipv4Addr {
        self.address(10)
    }

    fn address(self, last: u8) -> Ipv4Addr {
        let [a, b, c] = self.prefix;
        Ipv4Addr::new(a, b, c, last)
    }
}

fn bind(port: u16) -> std::io::Result<TcpListener> {
    // On all addresses: a port that somebody uses on any of them is not free.
    TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))
}

/// A port that nobody listens on. The search begins anywhere, so that clusters started at once rarely meet.
fn free(held: &mut Vec<TcpListener>) -> Result<u16> {
    let start = u16::try_from(Uuid::new_v4().as_u128() % u128::try_from(RANGE.len())?)?;
    let ports = (RANGE.start + start..RANGE.end).chain(RANGE.start..RANGE.start + start);
    let (port, listener) = ports
        .filter_map(|port| Some((port, bind(port).ok()?)))
        .next()
        .with_context(|| format!("no port from {} to {} is free", RANGE.start, RANGE.end))?;
    held.push(listener);
    Ok(port)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn all_ports_differ() {
        let ports = Ports::choose(None).unwrap();
        let all = [ports.api, ports.etcd, ports.etcd_peer, ports.controllers, ports.scheduler, ports.kubelet];
        let distinct: BTreeSet<_> = all.into_iter().chain([ports.kubelet_health]).collect();
        assert_eq!(distinct.len(), 7);
        assert!(distinct.iter().all(|port| RANGE.contains(port)));
    }

    #[test]
    fn a_port_in_use_is_named() {
        let mut held = Vec::new();
        let port = free(&mut held).unwrap();
        let told = Ports::choose(Some(port)).unwrap_err().to_string();
        assert!(told.contains(&format!("--port {port} is in use")), "{told}");
        held.clear();
        assert_eq!(Ports::choose(Some(port)).unwrap().api, port);
    }

    #[test]
    fn the_pod_network_follows_the_api_port() {
        let ports = Ports { api: 0x5203, ..Ports::choose(None).unwrap() };
        let pods = ports.pods();
        assert_eq!((pods.cidr().as_str(), pods.node().to_string().as_str()), ("10.82.3.0/24", "10.82.3.2"));
    }
}
