//! core/v1 `Node`: its taints, and when they were last changed.

use serde::Deserialize;
use taints::Taint;
use taints::fleet::Change;
use taints::object::{Key, Node};

use super::Wire;
use super::meta::{Meta, nullable};
use crate::kind::Kind;

/// The part of a Node that we read.
#[derive(Debug, Deserialize)]
pub struct NodeWire {
    metadata: Meta,
    #[serde(default, deserialize_with = "nullable")]
    spec: Spec,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Spec {
    #[serde(deserialize_with = "nullable")]
    taints: Vec<Taint>,
}

impl Wire for NodeWire {
    const KIND: Kind = Kind::Node;
    type Object = Node;

    fn into_object(self) -> Result<Node, String> {
        let taints_changed = self.metadata.taints_changed();
        Ok(Node {
            name: self.metadata.name,
            uid: self.metadata.uid,
            labels: self.metadata.labels,
            taints: self.spec.taints,
            taints_changed,
        })
    }

    fn applied(object: Node) -> Change {
        Change::Node(object)
    }

    fn gone(key: Key) -> Change {
        Change::NodeGone(key.name)
    }
}
