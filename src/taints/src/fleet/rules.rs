//! The rules, found by what they select: a device's rules cost a few look-ups, however many rules there are.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::object::{Rule, Selector};

/// Stands for a selector field that is left out. Names are never empty, so a device never has it.
const ANY: &str = "";

/// Rule names by the device of their selectors.
pub(super) type Devices = HashMap<String, BTreeSet<String>>;
/// The same by driver and pool.
type Index = HashMap<String, HashMap<String, Devices>>;

#[derive(Debug, Default)]
pub(super) struct Rules {
    by_name: BTreeMap<String, Rule>,
    index: Index,
}

impl Rules {
    /// Takes a rule as it is now; answers with what it was.
    pub(super) fn set(&mut self, rule: Rule) -> Option<Rule> {
        let old = self.remove(&rule.name);
        if let Some([driver, pool, device]) = path(&rule) {
            let pools = self.index.entry(driver.to_owned()).or_default();
            let devices = pools.entry(pool.to_owned()).or_default();
            devices.entry(device.to_owned()).or_default().insert(rule.name.clone());
        }
        self.by_name.insert(rule.name.clone(), rule);
        old
    }

    /// Removes a rule; answers with what it was.
    pub(super) fn remove(&mut self, name: &str) -> Option<Rule> {
        let rule = self.by_name.remove(name)?;
        if let Some(path) = path(&rule) {
            self.unindex(path, name);
        }
        Some(rule)
    }

    fn unindex(&mut self, [driver, pool, device]: [&str; 3], name: &str) {
        let Some(pools) = self.index.get_mut(driver) else { return };
        let Some(devices) = pools.get_mut(pool) else { return };
        let Some(names) = devices.get_mut(device) else { return };
        names.remove(name);
        if names.is_empty() {
            devices.remove(device);
        }
        if devices.is_empty() {
            pools.remove(pool);
        }
        if pools.is_empty() {
            self.index.remove(driver);
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&Rule> {
        self.by_name.get(name)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Rule> {
        self.by_name.values()
    }

    /// What can select devices of a pool: nothing, for most pools.
    pub(super) fn of_pool(&self, driver: &str, pool: &str) -> Vec<&Devices> {
        let drivers = [ANY, driver].into_iter().filter_map(|driver| self.index.get(driver));
        drivers.flat_map(|pools| [ANY, pool].into_iter().filter_map(|pool| pools.get(pool))).collect()
    }

    /// The rules among those of a pool that select a device by name, in the order of their names.
    pub(super) fn matching(&self, of_pool: &[&Devices], device: &str) -> Vec<&Rule> {
        let names = of_pool.iter().flat_map(|devices| [ANY, device].into_iter().filter_map(|name| devices.get(name)));
        let mut rules: Vec<&Rule> = names.flatten().filter_map(|name| self.by_name.get(name)).collect();
        rules.sort_by(|a, b| a.name.cmp(&b.name));
        rules
    }
}

/// Where a rule stands in the index; `None` where it selects nothing, as without a selector or by an empty name.
fn path(rule: &Rule) -> Option<[&str; 3]> {
    let Selector { driver, pool, device } = rule.selector.as_ref()?;
    let fields = [driver, pool, device];
    if fields.iter().any(|field| field.as_deref() == Some(ANY)) {
        return None;
    }
    Some(fields.map(|field| field.as_deref().unwrap_or(ANY)))
}
