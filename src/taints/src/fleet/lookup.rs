//! Questions to the fleet: objects by name, devices of a pool, rules that match a device, who has it.

use std::collections::BTreeMap;

use super::{Fleet, PoolState, pool::Pool, rules::Devices};
use crate::alloc::Candidate;
use crate::object::{Claim, Device, DeviceId, Identity, Key, Node, Pod, Rule, Slice};
use crate::taint::Taint;
use crate::verdict::Origin;

/// A device of a pool's newest generation.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// The slice that lists it.
    pub slice: &'a Slice,
    /// The device.
    pub device: &'a Device,
}

impl Listed<'_> {
    /// The device's full name.
    #[must_use]
    pub fn id(&self) -> DeviceId {
        DeviceId { driver: self.slice.driver.clone(), pool: self.slice.pool.clone(), device: self.device.name.clone() }
    }
}

/// A rule that selects a device by name.
#[derive(Clone, Copy, Debug)]
pub struct RuleOn<'a> {
    /// The rule.
    pub rule: &'a Rule,
    /// Whether it is acted on.
    pub standing: Standing,
}

/// Whether a rule that selects a device by name is acted on: a rule may say which hardware it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// It is.
    Applies,
    /// It is not: the name means another card now.
    TargetChanged,
    /// It is held: which card the name means is not known.
    Unknown,
}

/// One pool and the rules that can select its devices.
pub(crate) struct PoolView<'a> {
    fleet: &'a Fleet,
    pool: Option<&'a Pool>,
    rules: Vec<&'a Devices>,
}

impl<'a> PoolView<'a> {
    /// [`Fleet::device`], for a device of this pool.
    pub(crate) fn device(&self, id: &DeviceId) -> Option<Listed<'a>> {
        let (slice, device) = self.pool?.device(&id.device)?;
        Some(Listed { slice, device })
    }

    /// [`Fleet::rules_on`], for a device of this pool.
    pub(crate) fn rules_on(&self, id: &DeviceId) -> Vec<RuleOn<'a>> {
        let rules = self.fleet.rules.matching(&self.rules, &id.device).into_iter();
        rules.map(|rule| RuleOn { rule, standing: self.standing(rule, id) }).collect()
    }

    /// The mark of which the driver made this taint of its slice, for a device of this pool. A driver that does not follow marks has its taints from
    /// nobody, whatever marks say the same.
    pub(crate) fn mark_of(&self, id: &DeviceId, taint: &Taint) -> Option<&'a Rule> {
        self.device(id).filter(|listed| listed.slice.follows_marks)?;
        let (fleet, same) = (self.fleet, |mark: &Taint| mark.same_as(taint) && mark.value == taint.value);
        let marks = fleet.marks.matching(&fleet.marks.of_pool(&id.driver, &id.pool), &id.device);
        marks.into_iter().find(|mark| same(&mark.taint) && self.standing(mark, id) == Standing::Applies)
    }

    fn standing(&self, rule: &Rule, id: &DeviceId) -> Standing {
        if !rule.identity.is_known() {
            return Standing::Applies;
        }
        let (listed, identity) = match self.device(id) {
            Some(listed) => (true, Some(&listed.device.identity)),
            None => (false, self.pool.and_then(|pool| pool.last_identity(&id.device))),
        };
        match identity.and_then(|identity| rule.identity.same_as(identity)) {
            Some(true) => Standing::Applies,
            Some(false) if listed => Standing::TargetChanged,
            _ => Standing::Unknown,
        }
    }
}

impl Fleet {
    /// A node by name.
    #[must_use]
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.get(name)
    }

    /// A pod.
    #[must_use]
    pub fn pod(&self, key: &Key) -> Option<&Pod> {
        self.pods.get(key)
    }

    /// A claim.
    #[must_use]
    pub fn claim(&self, key: &Key) -> Option<&Claim> {
        self.claims.get(key)
    }

    /// A rule by name.
    #[must_use]
    pub fn rule(&self, name: &str) -> Option<&Rule> {
        self.rules.get(name)
    }

    /// A slice by the object's name, whether it counts or not.
    #[must_use]
    pub fn slice(&self, name: &str) -> Option<&Slice> {
        let (driver, pool) = self.homes.get(name)?;
        self.pool_of(driver, pool)?.slice(name)
    }

    /// All nodes, in no order.
    pub fn nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values()
    }

    /// All pods, in no order.
    pub fn pods(&self) -> impl Iterator<Item = &Pod> {
        self.pods.values()
    }

    /// All claims, in no order.
    pub fn claims(&self) -> impl Iterator<Item = &Claim> {
        self.claims.values()
    }

    /// All rules, by name.
    pub fn rules(&self) -> impl Iterator<Item = &Rule> {
        self.rules.iter()
    }

    /// All slice objects, whether they count or not.
    pub fn slices(&self) -> impl Iterator<Item = &Slice> {
        self.all_pools().flat_map(|(_, _, pool)| pool.slices())
    }

    /// The pods that are bound to a node, in the order of their names.
    pub fn pods_on(&self, node: &str) -> impl Iterator<Item = &Pod> {
        self.by_node.get(node).into_iter().flatten().filter_map(|key| self.pods.get(key))
    }

    /// All pools: driver, pool and state, in the order of their names.
    pub fn pools(&self) -> impl Iterator<Item = (&str, &str, PoolState)> {
        let pools: BTreeMap<(&str, &str), &Pool> =
            self.all_pools().map(|(driver, name, pool)| ((driver, name), pool)).collect();
        pools.into_iter().map(|((driver, name), pool)| (driver, name, pool.state()))
    }

    /// The state of one pool.
    #[must_use]
    pub fn pool(&self, driver: &str, pool: &str) -> Option<PoolState> {
        self.pool_of(driver, pool).map(Pool::state)
    }

    /// The devices of a pool's newest generation, in the order of slices and of devices in them.
    #[must_use]
    pub fn devices(&self, driver: &str, pool: &str) -> Vec<Listed<'_>> {
        let slices = self.pool_of(driver, pool).into_iter().flat_map(Pool::current);
        slices.flat_map(|slice| slice.devices.iter().map(move |device| Listed { slice, device })).collect()
    }

    /// One device, where a slice of the pool's newest generation lists it.
    #[must_use]
    pub fn device(&self, id: &DeviceId) -> Option<Listed<'_>> {
        self.view(id).device(id)
    }

    /// The hardware that a device's name means, or meant when it was last listed with an identity.
    #[must_use]
    pub fn last_identity(&self, id: &DeviceId) -> Option<&Identity> {
        self.pool_of(&id.driver, &id.pool)?.last_identity(&id.device)
    }

    /// The rules that select a device by name, listed or not, in the order of their names.
    #[must_use]
    pub fn rules_on(&self, id: &DeviceId) -> Vec<RuleOn<'_>> {
        self.view(id).rules_on(id)
    }

    /// All marks, by name.
    pub fn marks(&self) -> impl Iterator<Item = &Rule> {
        self.marks.iter()
    }

    /// The marks that select a device by name, in the order of their names. They taint it only where its driver publishes them.
    #[must_use]
    pub fn marks_on(&self, id: &DeviceId) -> Vec<RuleOn<'_>> {
        let view = self.view(id);
        let marks = self.marks.matching(&self.marks.of_pool(&id.driver, &id.pool), &id.device).into_iter();
        marks.map(|rule| RuleOn { rule, standing: view.standing(rule, id) }).collect()
    }

    /// The mark of which the driver of a device made this taint of its slice.
    #[must_use]
    pub fn mark_of(&self, id: &DeviceId, taint: &Taint) -> Option<&Rule> {
        self.view(id).mark_of(id, taint)
    }

    /// Whether a rule that selects a device by name, known to the fleet or not, is acted on there.
    #[must_use]
    pub fn standing(&self, rule: &Rule, id: &DeviceId) -> Standing {
        self.view(id).standing(rule, id)
    }

    /// The pool of a device, looked up once for many devices.
    pub(crate) fn view(&self, id: &DeviceId) -> PoolView<'_> {
        PoolView {
            fleet: self,
            pool: self.pool_of(&id.driver, &id.pool),
            rules: self.rules.of_pool(&id.driver, &id.pool),
        }
    }

    /// The claims that have a device allocated, in the order of their names.
    pub fn users(&self, id: &DeviceId) -> impl Iterator<Item = &Claim> {
        let pool = self.pool_of(&id.driver, &id.pool);
        let keys = pool.into_iter().flat_map(|pool| pool.users(&id.device));
        keys.filter_map(|key| self.claims.get(key))
    }

    /// The claim that has a device for work of its own, not for administration.
    #[must_use]
    pub fn taken_by(&self, id: &DeviceId) -> Option<&Claim> {
        self.users(id).find(|claim| {
            let results = claim.results.iter().flatten();
            results.into_iter().any(|result| result.id == *id && !result.admin_access)
        })
    }

    /// Every device of every pool's newest generation as a candidate for an allocation, in the order of driver, pool, slice and
    /// device. With a node given, devices that it cannot use are marked so.
    #[must_use]
    pub fn candidates(&self, node: Option<&str>) -> Vec<Candidate<'_>> {
        let mut candidates = Vec::new();
        let pools: BTreeMap<(&str, &str), &Pool> =
            self.all_pools().map(|(driver, name, pool)| ((driver, name), pool)).collect();
        for pool in pools.into_values() {
            let problem = pool.state().problem;
            for slice in pool.current() {
                let reachable = slice.all_nodes || node.is_none() || slice.node_name.as_deref() == node;
                candidates.extend(slice.devices.iter().map(|device| {
                    let id = Listed { slice, device }.id();
                    let taints = self.taints_on(slice, device, &id);
                    Candidate { id, device, taints, problem: problem.clone(), reachable }
                }));
            }
        }
        candidates
    }

    /// The taints that the scheduler sees on a device: the slice's, then those of every rule that selects its name. Which card a
    /// rule was made for is unknown to the scheduler.
    fn taints_on<'a>(&'a self, slice: &Slice, device: &'a Device, id: &DeviceId) -> Vec<(&'a crate::Taint, Origin)> {
        let own = device.taints.iter().map(|taint| (taint, Origin::Slice { name: slice.name.clone() }));
        let rules = self.view(id).rules_on(id).into_iter().map(|on| (&on.rule.taint, Origin::rule(on.rule)));
        own.chain(rules).collect()
    }

    pub(super) fn pool_of(&self, driver: &str, pool: &str) -> Option<&Pool> {
        self.pools.get(driver)?.get(pool)
    }

    fn all_pools(&self) -> impl Iterator<Item = (&str, &str, &Pool)> {
        self.pools
            .iter()
            .flat_map(|(driver, pools)| pools.iter().map(move |(name, pool)| (driver.as_str(), name.as_str(), pool)))
    }

    pub(super) fn referring(&self, claim: &Key) -> impl Iterator<Item = &Key> {
        self.by_claim.get(claim).into_iter().flatten()
    }
}
