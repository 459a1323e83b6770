//! `alloc`: which devices a claim's requests get.

use serde::Deserialize;
use serde_json::{Value, json};
use taints::Toleration;
use taints::alloc::{Alternative, Amount, Request, allocate};
use taints::fleet::{Change, Fleet};
use taints::object::{DeviceId, Key, Rule};

use super::given::{self, GivenRule, GivenSlice};
use super::{Answer, Case};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    slices: Vec<GivenSlice>,
    requests: Vec<GivenRequest>,
    #[serde(default)]
    rules: Vec<GivenRule>,
    #[serde(default)]
    already_allocated: Vec<String>,
    #[serde(default = "on")]
    device_taints_enabled: bool,
}

const fn on() -> bool {
    true
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GivenRequest {
    name: String,
    mode: Option<String>,
    count: Option<usize>,
    #[serde(default)]
    tolerations: Vec<Toleration>,
    #[serde(default)]
    admin_access: bool,
    #[serde(default)]
    first_available: Vec<GivenRequest>,
}

impl GivenRequest {
    fn alternative(&self, name: Option<String>) -> Option<Alternative> {
        let amount = match self.mode.as_deref() {
            None | Some("ExactCount") => Amount::Exact(self.count.unwrap_or(1)),
            Some("All") => Amount::All,
            Some(_) => return None,
        };
        Some(Alternative { name, amount, tolerations: self.tolerations.clone(), admin_access: self.admin_access })
    }

    /// `None` for a mode that is not built.
    fn request(&self) -> Option<Request> {
        let alternatives: Option<Vec<Alternative>> = if self.first_available.is_empty() {
            self.alternative(None).map(|only| vec![only])
        } else {
            self.first_available.iter().map(|sub| sub.alternative(Some(sub.name.clone()))).collect()
        };
        Some(Request { name: self.name.clone(), alternatives: alternatives? })
    }
}

pub(super) fn run(case: &Case) -> Result<Answer, serde_json::Error> {
    let given = Given::deserialize(&case.given)?;
    let Some(requests) = given.requests.iter().map(GivenRequest::request).collect::<Option<Vec<_>>>() else {
        return Ok(Answer::NotBuilt);
    };
    let fleet = fleet(given.slices, given.rules);
    let mut candidates = fleet.candidates(None);
    if !given.device_taints_enabled {
        candidates.iter_mut().for_each(|candidate| candidate.taints.clear());
    }
    let taken = |id: &DeviceId| given.already_allocated.contains(&id.device).then(Key::default);
    let outcome = allocate(&requests, &[], &candidates, &mut |_, _| Ok(true), &taken);
    let allocated = outcome.picks.ok().map(|picks| {
        let picks = picks.into_iter().map(|pick| {
            json!({ "request": pick.request, "device": pick.device.device, "tolerations": spelled(&pick.tolerations, case) })
        });
        picks.collect::<Vec<Value>>()
    });
    Ok(Answer::Got(json!({ "allocated": allocated })))
}

fn fleet(mut slices: Vec<GivenSlice>, rules: Vec<GivenRule>) -> Fleet {
    given::complete(&mut slices);
    let mut fleet = Fleet::default();
    for (position, slice) in slices.into_iter().enumerate() {
        fleet.apply(Change::Slice(slice.object(position)));
    }
    for rule in rules {
        fleet.apply(Change::Rule(Rule::from(rule)));
    }
    fleet
}

/// A toleration is compared whole: in the words of the case where the case has the same one, else in our own.
fn spelled(tolerations: &[Toleration], case: &Case) -> Vec<Value> {
    let expected = case.expected().get("allocated").and_then(Value::as_array);
    let written = || expected.into_iter().flatten().filter_map(|pick| pick.get("tolerations")?.as_array()).flatten();
    let spell = |toleration: &Toleration| {
        let same = written().find(|value| Toleration::deserialize(*value).is_ok_and(|read| read == *toleration));
        same.cloned().unwrap_or_else(|| json!(toleration))
    };
    tolerations.iter().map(spell).collect()
}
