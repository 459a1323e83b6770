//! The case runner: cases as data in, what our rules say of each, and the difference where it is not what is expected.
//!
//! A file is an array of independent cases. Each is read by the runner of its kind, which makes our own objects of what is
//! `given`, asks the `taints` crate, and answers in the words of the case. `decided` replaces `expect` where it is there. A key
//! that the expectation lacks is not checked; a kind that nobody runs counts as skipped, never as passed.

mod alloc;
mod compare;
mod device_evict;
mod given;
mod load;
mod matching;
mod node_evict;
mod validate;
mod world;

use std::io::{self, Write};
use std::path::PathBuf;

use serde_json::Value;

pub use load::{Case, LoadError};

/// How many cases passed, failed and were skipped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// As expected.
    pub passed: usize,
    /// Not as expected.
    pub failed: usize,
    /// Of a kind, or about a thing, that is not built.
    pub skipped: usize,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped)
    }
}

/// Why a run ended before its end.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// A file is not a file of cases.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The report could not be written.
    #[error("cannot write the report: {0}")]
    Report(#[from] io::Error),
}

/// What a runner makes of a case.
enum Answer {
    /// What our rules say, in the words of the expectation.
    Got(Value),
    /// Nobody runs this.
    NotBuilt,
}

/// Runs every case of every file and writes each failing one, then the tally.
///
/// # Errors
///
/// The first file that cannot be read as cases, or a report that cannot be written.
pub fn run_files(files: &[PathBuf], report: &mut dyn Write) -> Result<Tally, RunError> {
    let mut tally = Tally::default();
    for file in files {
        let loaded = load::read(file)?;
        for case in &loaded.cases {
            let answer = answer(case).map_err(|error| loaded.bad_case(case, &error))?;
            judge(case, answer, &mut tally, report)?;
        }
    }
    writeln!(report, "{tally}")?;
    Ok(tally)
}

fn answer(case: &Case) -> Result<Answer, serde_json::Error> {
    match case.kind.as_str() {
        "node-match" => matching::node(case),
        "device-match" => matching::device(case),
        "alloc" => alloc::run(case),
        "validate" => validate::run(case),
        "node-evict" => node_evict::run(case),
        "device-evict" => device_evict::run(case),
        _ => Ok(Answer::NotBuilt),
    }
}

fn judge(case: &Case, answer: Answer, tally: &mut Tally, report: &mut dyn Write) -> io::Result<()> {
    let Answer::Got(got) = answer else {
        tally.skipped += 1;
        return Ok(());
    };
    let expected = case.expected();
    if compare::agrees(&compare::normal(expected), &compare::normal(&got)) {
        tally.passed += 1;
        return Ok(());
    }
    tally.failed += 1;
    writeln!(report, "FAILED {} ({}): {}", case.id, case.kind, case.title)?;
    writeln!(report, "  given:    {}", case.given)?;
    writeln!(report, "  expected: {expected}")?;
    writeln!(report, "  got:      {got}")
}
