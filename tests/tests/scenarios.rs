//! Every row of the table, as one test each, on the small cluster of this repository.

use std::process::ExitCode;

use libtest_mimic::{Arguments, Failed, Trial};
use scenarios::lab::Site;
use scenarios::stage::Scenario;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let trials = scenarios::table().iter().map(|scenario| Trial::test(scenario.name, || run(scenario))).collect();
    libtest_mimic::run(&arguments, trials).exit_code()
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
