//! The table of scenarios.

pub mod story;

use crate::stage::Scenario;

/// Every scenario, in the order of telling.
#[must_use]
pub fn table() -> &'static [Scenario] {
    &[story::STORY]
}
