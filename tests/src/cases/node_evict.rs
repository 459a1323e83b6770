//! `node-evict`: a timeline of nodes, taints and pods, and who is deleted when.

use std::collections::HashMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use taints::Taint;
use taints::fleet::Change;
use taints::object::{Key, Node};
use taints::verdict::Settings;

use super::given::{self, At, GivenPod, GivenTaint, NAMESPACE};
use super::world::World;
use super::{Answer, Case};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Given {
    timeline: Vec<Step>,
    #[serde(default)]
    comparison_operators_enabled: bool,
}

#[derive(Deserialize)]
struct Step {
    t: At,
    op: String,
    #[serde(flatten)]
    rest: Value,
}

#[derive(Deserialize)]
struct GivenNode {
    name: String,
    #[serde(default)]
    taints: Vec<GivenTaint>,
}

#[derive(Deserialize)]
struct Named {
    name: String,
    namespace: Option<String>,
}

pub(super) fn run(case: &Case) -> Result<Answer, serde_json::Error> {
    let given = Given::deserialize(&case.given)?;
    let start = given.timeline.first().map_or(Timestamp::UNIX_EPOCH, |step| step.t.0);
    let settings = Settings { comparison_operators: given.comparison_operators_enabled, ..Settings::default() };
    let mut story = Story { world: World::new(start, settings), nodes: HashMap::new(), made: 0 };
    let mut steps = given.timeline.into_iter().peekable();
    while let Some(step) = steps.next() {
        story.world.advance(step.t.0);
        if !story.take(&step)? {
            return Ok(Answer::NotBuilt);
        }
        // What happens at one moment is one change of the world.
        if steps.peek().is_none_or(|next| next.t != step.t) {
            story.world.act();
        }
    }
    story.world.finish();
    Ok(Answer::Got(json!({ "deletions": story.world.deletions(), "events": story.world.events() })))
}

struct Story {
    world: World,
    nodes: HashMap<String, Node>,
    /// How many node objects were made: a node that returns is another object.
    made: usize,
}

impl Story {
    /// Takes a step; answers whether it is one that we know.
    fn take(&mut self, step: &Step) -> Result<bool, serde_json::Error> {
        let now = self.world.now;
        match step.op.as_str() {
            "node" => {
                let given = GivenNode::deserialize(&step.rest)?;
                let node = self.node(given.name, given::taints(given.taints));
                self.world.apply(Change::Node(node));
            }
            "node-gone" => {
                let name = Named::deserialize(&step.rest)?.name;
                self.nodes.remove(&name);
                self.world.apply(Change::NodeGone(name));
            }
            "pod" => {
                let given = GivenPod::deserialize(&step.rest)?;
                let bound = given.is_bound();
                let pod = given.object(bound.then_some(now), now);
                let bound_at = self.world.bound_at(&pod).or(pod.bound_at);
                self.world.apply(Change::Pod(taints::object::Pod { bound_at, ..pod }));
            }
            "pod-gone" => {
                let Named { name, namespace } = Named::deserialize(&step.rest)?;
                let namespace = namespace.unwrap_or_else(|| NAMESPACE.to_owned());
                self.world.apply(Change::PodGone(Key::new(namespace, name)));
            }
            "controller-restart" => self.world.restart()?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The node with these taints; the API server notes when they were changed.
    fn node(&mut self, name: String, taints: Vec<Taint>) -> Node {
        let now = self.world.now;
        let made = &mut self.made;
        let node = self.nodes.entry(name.clone()).or_insert_with(|| {
            *made += 1;
            Node { uid: format!("uid-{name}-{made}"), name, ..Node::default() }
        });
        if node.taints != taints {
            node.taints = taints;
            node.taints_changed = Some(now);
        }
        node.clone()
    }
}
