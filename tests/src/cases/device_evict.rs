//! `device-evict`: slices, rules, claims and pods at a moment, then a timeline, and who is evicted when.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use taints::fleet::Change;
use taints::object::{Claim, Key, Pod, Rule};
use taints::verdict::Settings;

use super::given::{At, GivenClaim, GivenPod, GivenRule, GivenSlice, NAMESPACE};
use super::world::World;
use super::{Answer, Case};

#[derive(Deserialize)]
struct Given {
    now: At,
    state: State,
    #[serde(default)]
    timeline: Vec<Step>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State {
    #[serde(default)]
    slices: Vec<GivenSlice>,
    #[serde(default)]
    rules: Vec<GivenRule>,
    #[serde(default)]
    claims: Vec<GivenClaim>,
    #[serde(default)]
    pods: Vec<GivenPod>,
    #[serde(default = "on")]
    pod_group_claims: bool,
}

const fn on() -> bool {
    true
}

#[derive(Deserialize)]
struct Step {
    t: At,
    op: String,
    object: Option<Value>,
    name: Option<String>,
    namespace: Option<String>,
}

pub(super) fn run(case: &Case) -> Result<Answer, serde_json::Error> {
    let given = Given::deserialize(&case.given)?;
    let settings = Settings { pod_groups: given.state.pod_group_claims, ..Settings::default() };
    let mut world = World::new(given.now.0, settings);
    let wanted = case.expected().get("ruleStatus").is_some();
    begin(&mut world, given.state);
    world.act();
    let status = wanted.then(|| dry_run(&world));
    for step in given.timeline {
        world.advance(step.t.0);
        if step.op == "controller-restart" {
            world.restart()?;
        } else {
            let Some(change) = change(&world, step)? else { return Ok(Answer::NotBuilt) };
            world.apply(change);
        }
        world.act();
    }
    world.finish();
    Ok(Answer::Got(json!({ "evictions": world.deletions(), "events": world.events(), "ruleStatus": status })))
}

fn begin(world: &mut World, state: State) {
    for (position, slice) in state.slices.into_iter().enumerate() {
        world.apply(Change::Slice(slice.object(position)));
    }
    for rule in state.rules {
        world.apply(Change::Rule(Rule::from(rule)));
    }
    for claim in state.claims {
        world.apply(Change::Claim(Claim::from(claim)));
    }
    for pod in state.pods {
        let pod = pod_now(world, pod);
        world.apply(Change::Pod(pod));
    }
}

fn pod_now(world: &World, given: GivenPod) -> Pod {
    let bound: Option<Timestamp> = given.is_bound().then_some(world.now);
    let pod = given.object(bound, world.now);
    let bound_at = world.bound_at(&pod).or(pod.bound_at);
    Pod { bound_at, ..pod }
}

/// The change of a step; `None` for one that we do not know.
fn change(world: &World, step: Step) -> Result<Option<Change>, serde_json::Error> {
    let object = step.object.unwrap_or(Value::Null);
    let name = step.name.unwrap_or_default();
    let key = |name| Key::new(step.namespace.unwrap_or_else(|| NAMESPACE.to_owned()), name);
    Ok(Some(match step.op.as_str() {
        "slice" => Change::Slice(GivenSlice::deserialize(&object)?.object(0)),
        "slice-gone" => Change::SliceGone(name),
        "rule" => Change::Rule(GivenRule::deserialize(&object)?.into()),
        "rule-gone" => Change::RuleGone(name),
        "claim" => Change::Claim(GivenClaim::deserialize(&object)?.into()),
        "claim-gone" => Change::ClaimGone(key(name)),
        "pod" => Change::Pod(pod_now(world, GivenPod::deserialize(&object)?)),
        "pod-gone" => Change::PodGone(key(name)),
        _ => return Ok(None),
    }))
}

/// What a rule of effect None would do, in the words of the upstream condition.
fn dry_run(world: &World) -> Value {
    let Some(rule) = world.fleet.rules().next() else { return Value::Null };
    let preview = world.preview(rule);
    json!({
        "type": "EvictionInProgress",
        "status": "False",
        "reason": "NoEffect",
        "messageMeans": {
            "publishedDevices": preview.published,
            "allocatedDevices": preview.allocated,
            "podsThatWouldBeEvicted": preview.leaving.len(),
            "namespaces": preview.namespaces(),
        },
    })
}
