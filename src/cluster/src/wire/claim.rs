//! resource.k8s.io/v1 `ResourceClaim`: what is allocated, with which tolerations, and for whom it is reserved.

use std::collections::BTreeMap;

use serde::Deserialize;
use taints::Toleration;
use taints::fleet::Change;
use taints::object::{Allocated, Claim, Consumer, DeviceId, Key};

use super::Wire;
use super::meta::{Meta, nullable};
use crate::kind::Kind;

/// The part of a ResourceClaim that we read.
#[derive(Debug, Deserialize)]
pub struct ClaimWire {
    metadata: Meta,
    #[serde(default, deserialize_with = "nullable")]
    spec: Spec,
    #[serde(default, deserialize_with = "nullable")]
    status: Status,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "nullable")]
    devices: Devices,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Devices {
    #[serde(deserialize_with = "nullable")]
    requests: Vec<Request>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Request {
    name: String,
    exactly: Option<Wanted>,
    #[serde(deserialize_with = "nullable")]
    first_available: Vec<Wanted>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Wanted {
    #[serde(deserialize_with = "nullable")]
    name: String,
    #[serde(deserialize_with = "nullable")]
    tolerations: Vec<Toleration>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Status {
    allocation: Option<Allocation>,
    #[serde(deserialize_with = "nullable")]
    reserved_for: Vec<Reserved>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Allocation {
    #[serde(deserialize_with = "nullable")]
    devices: Results,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Results {
    #[serde(deserialize_with = "nullable")]
    results: Vec<AllocationResult>,
}

/// `tolerations` stays an option: an older scheduler recorded none at all, which is not an empty list.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AllocationResult {
    request: String,
    driver: String,
    pool: String,
    device: String,
    tolerations: Option<Vec<Toleration>>,
    admin_access: Option<bool>,
    #[serde(rename = "shareID")]
    share_id: Option<String>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Reserved {
    #[serde(default, deserialize_with = "nullable")]
    api_group: String,
    resource: String,
    name: String,
    uid: String,
}

impl Wire for ClaimWire {
    const KIND: Kind = Kind::Claim;
    type Object = Claim;

    fn into_object(self) -> Result<Claim, String> {
        let Self { metadata, spec, status } = self;
        let results = status.allocation.map(|allocation| allocation.devices.results);
        Ok(Claim {
            controller: metadata.controller(),
            key: Key::new(metadata.namespace, metadata.name),
            uid: metadata.uid,
            requests: requests(spec.devices.requests),
            results: results.map(|results| results.into_iter().map(allocated).collect()),
            reserved_for: status.reserved_for.into_iter().map(consumer).collect(),
        })
    }

    fn applied(object: Claim) -> Change {
        Change::Claim(object)
    }

    fn gone(key: Key) -> Change {
        Change::ClaimGone(key)
    }
}

/// Tolerations by the name that an allocation result uses: `request`, or `request/subrequest`.
fn requests(requests: Vec<Request>) -> BTreeMap<String, Vec<Toleration>> {
    let mut by_name = BTreeMap::new();
    for request in requests {
        for sub in request.first_available {
            by_name.insert(format!("{}/{}", request.name, sub.name), sub.tolerations);
        }
        if let Some(exactly) = request.exactly {
            by_name.insert(request.name, exactly.tolerations);
        }
    }
    by_name
}

fn allocated(result: AllocationResult) -> Allocated {
    Allocated {
        id: DeviceId { driver: result.driver, pool: result.pool, device: result.device },
        request: result.request,
        tolerations: result.tolerations,
        admin_access: result.admin_access.unwrap_or(false),
        share_id: result.share_id,
    }
}

fn consumer(reserved: Reserved) -> Consumer {
    Consumer { api_group: reserved.api_group, resource: reserved.resource, name: reserved.name, uid: reserved.uid }
}
