//! The table of scenarios.

pub mod crashes;
pub mod faults;
pub mod spared;
pub mod story;

use crate::stage::Scenario;

/// Every scenario, in the order of telling.
#[must_use]
pub fn table() -> &'static [Scenario] {
    &[
        story::STORY,
        crashes::CONTROLLER,
        crashes::DRIVER,
        crashes::KUBELET,
        faults::PUBLISH,
        faults::NEIGHBOURS,
        faults::NVML,
        faults::GARBAGE,
        spared::SAME_NAME,
        spared::FINISHED,
    ]
}
