//! The table of scenarios.

pub mod crashes;
pub mod faults;
pub mod foreign;
pub mod inside;
pub mod marks;
pub mod nodes;
pub mod owner;
pub mod spared;
pub mod story;
pub mod taints_off;
pub mod takeover;
pub mod upstream;

use crate::stage::Scenario;

/// Every scenario, in the order of telling.
#[must_use]
pub fn table() -> &'static [Scenario] {
    &[
        story::STORY,
        crashes::CONTROLLER,
        crashes::DRIVER,
        crashes::KUBELET,
        takeover::TAKEOVER,
        nodes::DELETED,
        inside::CONTAINER,
        foreign::FOREIGN,
        marks::MARKS,
        faults::PUBLISH,
        faults::NEIGHBOURS,
        faults::NVML,
        faults::GARBAGE,
        owner::ONE_OWNER,
        taints_off::OFF,
        taints_off::TURNED_ON,
        spared::SAME_NAME,
        spared::FINISHED,
        upstream::UPSTREAM,
    ]
}

/// A row of the table by its name.
///
/// # Errors
/// When there is none: with the names that there are.
pub fn named(name: &str) -> Result<&'static Scenario, String> {
    let names = || table().iter().map(|scenario| scenario.name).collect::<Vec<_>>().join(", ");
    let found = table().iter().find(|scenario| scenario.name == name);
    found.ok_or_else(|| format!("there are {}", names()))
}
