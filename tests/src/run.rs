//! Runs a scenario and tells a listener about each step.

use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use tokio::time::Instant;

use crate::lab::Site;
use crate::stage::{Notes, Scenario, Stage, Step};

/// How long a scenario may take at most, its programs' build included: a step that hangs must end too.
const LIMIT: Duration = Duration::from_secs(600);

/// What a listener hears.
#[derive(Debug)]
pub enum Heard<'a> {
    /// A step begins: its number from 1, and the step.
    Begins(usize, &'a Step),
    /// A step ended as expected: what it tells, and how long it took.
    Ended(&'a Notes, Duration),
}

/// Runs all steps of a scenario; the first that breaks ends it. The stage is given back for those who want to look around.
///
/// # Errors
/// When the lab does not start, or a step breaks: with the step's title and the difference.
pub async fn scenario(scenario: &Scenario, site: &Site, mut listen: impl FnMut(Heard<'_>)) -> Result<Stage> {
    match tokio::time::timeout(LIMIT, steps(scenario, site, &mut listen)).await {
        Ok(stage) => stage,
        Err(_) => bail!("scenario {} did not end within {LIMIT:?}", scenario.name),
    }
}

async fn steps(scenario: &Scenario, site: &Site, listen: &mut impl FnMut(Heard<'_>)) -> Result<Stage> {
    let mut stage =
        Stage::open((scenario.plan)(), site).await.with_context(|| format!("scenario {}", scenario.name))?;
    for (index, step) in scenario.steps.iter().enumerate() {
        listen(Heard::Begins(index + 1, step));
        let began = Instant::now();
        let done = (step.run)(&mut stage).await;
        let alive = stage.lab.check();
        let notes = done.and_then(|notes| alive.map(|()| notes));
        let notes = notes.with_context(|| format!("scenario {}, step {}: {}", scenario.name, index + 1, step.title));
        match notes {
            Ok(notes) => listen(Heard::Ended(&notes, began.elapsed())),
            Err(error) => {
                let error = anyhow!("{error:#}\n\n{}", stage.lab.logs());
                return Err(match stage.close().await {
                    Ok(()) => error,
                    Err(left) => anyhow!("{error:#}\n\ncleaning up failed too: {left:#}"),
                });
            }
        }
    }
    Ok(stage)
}
