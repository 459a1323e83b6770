//! Who uses which device of which node: objects in, the set of touched pods out.
//!
//! [`Fleet::apply`] takes one [`Change`] of a watched object and answers with the pods whose verdict it may alter; what it costs
//! depends on what it touches, not on the size of the fleet. The order in which objects arrive, and how often, makes no
//! difference. Each subject has an index of its own: nodes, pools, rules, and the links between claims and pods.

mod link;
mod lookup;
mod pool;
mod rules;

#[cfg(test)]
mod arbitrary;
#[cfg(test)]
mod oracle;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};

pub use link::{Link, NotHolding, Via};
pub(crate) use lookup::PoolView;
pub use lookup::{Listed, RuleOn, Standing};
pub use pool::{PoolProblem, PoolState};

use crate::object::{Claim, DeviceId, Key, Node, Pod, Rule, Selector, Slice};
use pool::Pool;

/// The pods whose verdict a change may alter, in order.
pub type Touched = BTreeSet<Key>;

/// One object as it is now, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A node as it is now.
    Node(Node),
    /// The node of this name is gone.
    NodeGone(String),
    /// A ResourceSlice as it is now.
    Slice(Slice),
    /// The ResourceSlice of this name is gone.
    SliceGone(String),
    /// A DeviceTaintRule as it is now.
    Rule(Rule),
    /// The DeviceTaintRule of this name is gone.
    RuleGone(String),
    /// A DeviceMark as it is now: read as the rule that it stands for.
    Mark(Rule),
    /// The DeviceMark of this name is gone.
    MarkGone(String),
    /// A ResourceClaim as it is now.
    Claim(Claim),
    /// The claim is gone.
    ClaimGone(Key),
    /// A pod as it is now.
    Pod(Pod),
    /// The pod is gone.
    PodGone(Key),
}

/// Where a rule, or what is read as one, stands.
#[derive(Clone, Copy, Debug)]
enum Book {
    Rules,
    Marks,
}

/// Everything that verdicts depend on, as it is now.
#[derive(Debug, Default)]
pub struct Fleet {
    nodes: HashMap<String, Node>,
    pods: HashMap<Key, Pod>,
    claims: HashMap<Key, Claim>,
    rules: rules::Rules,
    /// Marks of which the driver makes taints in its slices: they taint nothing by themselves, and say who wished a taint and why.
    marks: rules::Rules,
    /// Pools by driver and name. Hashed, not ordered: a verdict looks here for each device, and names of pools begin alike.
    pools: HashMap<String, HashMap<String, Pool>>,
    /// Driver and pool of each slice object.
    homes: HashMap<String, (String, String)>,
    /// The pods that are bound to each node.
    by_node: HashMap<String, BTreeSet<Key>>,
    /// The pods that refer to each claim.
    by_claim: HashMap<Key, BTreeSet<Key>>,
}

impl Fleet {
    /// Takes a change, and answers with the pods whose verdict it may alter. A pod that came, changed or went is among them.
    pub fn apply(&mut self, change: Change) -> Touched {
        match change {
            Change::Node(node) => self.set_node(node),
            Change::NodeGone(name) => self.remove_node(&name),
            Change::Slice(slice) => self.set_slice(slice),
            Change::SliceGone(name) => self.remove_slice(&name),
            Change::Rule(rule) => self.set_rule(Book::Rules, rule),
            Change::RuleGone(name) => self.remove_rule(Book::Rules, &name),
            Change::Mark(mark) => self.set_rule(Book::Marks, mark),
            Change::MarkGone(name) => self.remove_rule(Book::Marks, &name),
            Change::Claim(claim) => self.set_claim(claim),
            Change::ClaimGone(key) => self.remove_claim(&key),
            Change::Pod(pod) => self.set_pod(pod),
            Change::PodGone(key) => self.remove_pod(&key),
        }
    }

    fn set_node(&mut self, node: Node) -> Touched {
        let old = self.nodes.get(&node.name);
        let same = old.is_some_and(|old| {
            old.uid == node.uid && old.taints == node.taints && old.taints_changed == node.taints_changed
        });
        let touched = if same { Touched::new() } else { self.bound_to(&node.name) };
        self.nodes.insert(node.name.clone(), node);
        touched
    }

    fn remove_node(&mut self, name: &str) -> Touched {
        self.nodes.remove(name).map_or_else(Touched::new, |_| self.bound_to(name))
    }

    fn bound_to(&self, node: &str) -> Touched {
        self.by_node.get(node).cloned().unwrap_or_default()
    }

    fn set_slice(&mut self, slice: Slice) -> Touched {
        let home = (slice.driver.clone(), slice.pool.clone());
        let mut touched = Touched::new();
        if self.homes.get(&slice.name).is_some_and(|old| *old != home) {
            touched = self.remove_slice(&slice.name);
        }
        self.homes.insert(slice.name.clone(), home.clone());
        let devices = self.pool_mut(&home.0, &home.1).set(slice);
        self.touch_devices(&home.0, &home.1, &devices, &mut touched);
        touched
    }

    fn remove_slice(&mut self, name: &str) -> Touched {
        let mut touched = Touched::new();
        let Some((driver, pool)) = self.homes.remove(name) else { return touched };
        let devices = self.pool_mut(&driver, &pool).remove(name);
        self.touch_devices(&driver, &pool, &devices, &mut touched);
        self.drop_empty_pool(&driver, &pool);
        touched
    }

    fn set_rule(&mut self, book: Book, rule: Rule) -> Touched {
        let rules = self.book(book);
        if rules.get(&rule.name) == Some(&rule) {
            return Touched::new();
        }
        let new = rule.selector.clone();
        let old = rules.set(rule).and_then(|rule| rule.selector);
        let mut touched = Touched::new();
        self.touch_selected(old.as_ref(), &mut touched);
        if old != new {
            self.touch_selected(new.as_ref(), &mut touched);
        }
        touched
    }

    fn remove_rule(&mut self, book: Book, name: &str) -> Touched {
        let mut touched = Touched::new();
        let old = self.book(book).remove(name).and_then(|rule| rule.selector);
        self.touch_selected(old.as_ref(), &mut touched);
        touched
    }

    fn book(&mut self, book: Book) -> &mut rules::Rules {
        match book {
            Book::Rules => &mut self.rules,
            Book::Marks => &mut self.marks,
        }
    }

    fn set_claim(&mut self, claim: Claim) -> Touched {
        if self.claims.get(&claim.key) == Some(&claim) {
            return Touched::new();
        }
        for result in claim.results.iter().flatten() {
            self.pool_mut(&result.id.driver, &result.id.pool).add_user(&result.id.device, &claim.key);
        }
        let (key, kept) = (claim.key.clone(), claim.results.clone());
        let old = self.claims.insert(key.clone(), claim);
        let kept: Vec<DeviceId> = kept.into_iter().flatten().map(|result| result.id).collect();
        self.release(&key, old.as_ref(), &kept);
        self.referring(&key).cloned().collect()
    }

    fn remove_claim(&mut self, key: &Key) -> Touched {
        let Some(old) = self.claims.remove(key) else { return Touched::new() };
        self.release(key, Some(&old), &[]);
        self.referring(key).cloned().collect()
    }

    /// Takes a claim off the devices that it had and has no more.
    fn release(&mut self, key: &Key, old: Option<&Claim>, kept: &[DeviceId]) {
        let results = old.into_iter().flat_map(|claim| claim.results.iter().flatten());
        for id in results.map(|result| &result.id).filter(|id| !kept.contains(id)) {
            self.pool_mut(&id.driver, &id.pool).remove_user(&id.device, key);
            self.drop_empty_pool(&id.driver, &id.pool);
        }
    }

    fn set_pod(&mut self, pod: Pod) -> Touched {
        if self.pods.get(&pod.key) == Some(&pod) {
            return Touched::new();
        }
        let touched = Touched::from([pod.key.clone()]);
        self.remove_pod(&pod.key);
        if let Some(node) = &pod.node {
            self.by_node.entry(node.clone()).or_default().insert(pod.key.clone());
        }
        for claim in referred(&pod) {
            self.by_claim.entry(claim).or_default().insert(pod.key.clone());
        }
        self.pods.insert(pod.key.clone(), pod);
        touched
    }

    fn remove_pod(&mut self, key: &Key) -> Touched {
        let Some(old) = self.pods.remove(key) else { return Touched::new() };
        if let Some(node) = &old.node {
            remove_from(&mut self.by_node, node, key);
        }
        for claim in referred(&old) {
            remove_from(&mut self.by_claim, &claim, key);
        }
        Touched::from([key.clone()])
    }

    fn pool_mut(&mut self, driver: &str, pool: &str) -> &mut Pool {
        self.pools.entry(driver.to_owned()).or_default().entry(pool.to_owned()).or_default()
    }

    /// A pool without slices and users is forgotten, with the hardware that its names meant: else a fleet whose nodes come and
    /// go would grow for ever. A rule that names hardware is held until a slice says what is there.
    fn drop_empty_pool(&mut self, driver: &str, pool: &str) {
        let Some(pools) = self.pools.get_mut(driver) else { return };
        if pools.get(pool).is_some_and(Pool::is_empty) {
            pools.remove(pool);
        }
        if pools.is_empty() {
            self.pools.remove(driver);
        }
    }

    fn touch_devices(&self, driver: &str, pool: &str, devices: &[String], touched: &mut Touched) {
        let Some(pool) = self.pool_of(driver, pool) else { return };
        for claim in devices.iter().flat_map(|device| pool.users(device)) {
            touched.extend(self.referring(claim).cloned());
        }
    }

    /// The pods of every used device that a selector selects.
    fn touch_selected(&self, selector: Option<&Selector>, touched: &mut Touched) {
        let Some(selector) = selector else { return };
        let drivers = selected(&selector.driver, &self.pools, |name| self.pools.get_key_value(name));
        for pools in drivers.into_iter().map(|(_, pools)| pools) {
            let pools = selected(&selector.pool, pools, |name| pools.get_key_value(name));
            for pool in pools.into_iter().map(|(_, pool)| pool) {
                let devices = pool.used().filter(|device| selector.device.as_ref().is_none_or(|want| want == *device));
                for claim in devices.flat_map(|device| pool.users(device)) {
                    touched.extend(self.referring(claim).cloned());
                }
            }
        }
    }
}

/// The entry of a wanted name, or all entries where any will do.
fn selected<'a, V: 'a>(
    want: &Option<String>,
    all: impl IntoIterator<Item = (&'a String, &'a V)>,
    one: impl Fn(&str) -> Option<(&'a String, &'a V)>,
) -> Vec<(&'a String, &'a V)> {
    match want {
        Some(name) => one(name).into_iter().collect(),
        None => all.into_iter().collect(),
    }
}

/// The claims that a pod refers to.
fn referred(pod: &Pod) -> impl Iterator<Item = Key> {
    let names = pod.claims.iter().filter_map(|reference| reference.claim.as_ref());
    names.map(|name| Key::new(pod.key.namespace.clone(), name.clone()))
}

fn remove_from<K: std::hash::Hash + Eq>(index: &mut HashMap<K, BTreeSet<Key>>, at: &K, key: &Key) {
    let Some(keys) = index.get_mut(at) else { return };
    keys.remove(key);
    if keys.is_empty() {
        index.remove(at);
    }
}
