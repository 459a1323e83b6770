//! Every row of the table, as one test each, on the small cluster of this repository.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use scenarios::lab::Site;
use scenarios::needs::{Offer, unmet};
use scenarios::stage::Scenario;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = scenarios::table().iter().map(trial).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// One that the small cluster cannot run is shown with the reason, and counted as ignored.
fn trial(scenario: &'static Scenario) -> Trial {
    let trial = Trial::test(scenario.name, move || run(scenario));
    match unmet(scenario.needs, &Offer::SMALL) {
        None => trial,
        Some(reason) => trial.with_kind(reason).with_ignored_flag(true),
    }
}

fn run(scenario: &'static Scenario) -> Result<(), Failed> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        scenarios::run::scenario(scenario, &Site::Small, |_| {})
            .await
            .map(drop)
            .map_err(|error| Failed::from(format!("{error:#}")))
    })
}
