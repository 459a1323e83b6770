//! `cargo xtask kube matrix`: the table of scenarios on each version of Kubernetes -> docs/compatibility.md.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::layout::RunDir;
use super::version::Version;
use super::{DownArgs, UpArgs, down, say, test, up};

/// How one scenario went on one version, as the table reports it.
#[derive(Clone, Debug, Deserialize)]
struct Outcome {
    scenario: String,
    outcome: String,
    #[serde(default)]
    reason: String,
}

/// The columns of the table: a version, and how each scenario went.
type Column = (Version, Vec<Outcome>);

/// Runs every version, writes the document, and fails when a scenario did: the document says which.
pub(super) fn run() -> Result<()> {
    let program = test::build_table()?;
    let mut columns = Vec::new();
    for version in Version::ALL {
        columns.push((version, outcomes(&program, version).with_context(|| format!("Kubernetes {version}"))?));
    }
    let path = crate::repository_root().join("docs/compatibility.md");
    fs::write(&path, document(&columns)).with_context(|| format!("write {}", path.display()))?;
    say(&format!("{} is written", path.display()));
    let failed = columns.iter().flat_map(|(_, outcomes)| outcomes).filter(|one| one.outcome == "failed").count();
    ensure!(failed == 0, "{failed} scenarios failed; {} says which", path.display());
    Ok(())
}

/// Starts a cluster of the version, runs the table on it, and stops it.
fn outcomes(program: &Path, version: Version) -> Result<Vec<Outcome>> {
    let folder = PathBuf::from(format!("/tmp/dtk-matrix-{}", std::process::id()));
    let run = RunDir::new(&folder)?;
    up::run(&UpArgs { version, run: folder.clone(), port: None, upstream_evictor: false, stock: false })?;
    let report = tempfile::NamedTempFile::new().context("make a file for the report")?;
    let tested = reported(program, &run, report.path());
    let stopped = down::run(&DownArgs { run: folder, keep_logs: false });
    let outcomes = tested?;
    stopped?;
    Ok(outcomes)
}

/// The exit code does not matter: what failed stands in the report.
fn reported(program: &Path, run: &RunDir, report: &Path) -> Result<Vec<Outcome>> {
    test::table_command(program, run).arg("--report").arg(report).status().context("cannot run the scenarios")?;
    let text = fs::read_to_string(report).context("read the report")?;
    ensure!(!text.is_empty(), "the table ended without a report; its words are above");
    text.lines().map(|line| serde_json::from_str(line).context("read the report")).collect()
}

fn document(columns: &[Column]) -> String {
    let mut text = String::from(
        "# Compatibility\n\n\
         Every scenario of `tests`, on a real Kubernetes of each version: real kubelet and containers on one node, the small cluster's kubelet on the\n\
         others. Written by `cargo xtask kube matrix`; not by hand.\n\n",
    );
    let versions: Vec<String> = columns.iter().map(|(version, _)| version.to_string()).collect();
    writeln!(text, "| scenario | {} |\n|---|{}", versions.join(" | "), "---|".repeat(versions.len())).ok();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for name in names(columns) {
        let cells: Vec<String> = columns.iter().map(|(_, outcomes)| cell(name, outcomes, &mut reasons)).collect();
        writeln!(text, "| {name} | {} |", cells.join(" | ")).ok();
    }
    text.push_str(GATES);
    let mut numbered: Vec<(&String, &usize)> = reasons.iter().collect();
    numbered.sort_by_key(|(_, number)| **number);
    for (reason, number) in numbered {
        writeln!(text, "{number}. {reason}").ok();
    }
    text
}

/// What the versions were told.
const GATES: &str = "\nDevice taints and rules are on from 1.37 as it comes. 1.36 was started with DRADeviceTaintRules, 1.35 with DRADeviceTaints and\n\
    DRADeviceTaintRules, 1.34 with DRADeviceTaints, and all three serve resource.k8s.io v1alpha3 and v1beta2 in addition (docs/real-cluster.md).\n\n";

/// The scenarios in the order of the first version.
fn names(columns: &[Column]) -> Vec<&str> {
    columns.first().map(|(_, outcomes)| outcomes.iter().map(|one| one.scenario.as_str()).collect()).unwrap_or_default()
}

fn cell(name: &str, outcomes: &[Outcome], reasons: &mut BTreeMap<String, usize>) -> String {
    let Some(one) = outcomes.iter().find(|one| one.scenario == name) else { return "-".to_owned() };
    if one.reason.is_empty() {
        return one.outcome.clone();
    }
    let next = reasons.len() + 1;
    let number = reasons.entry(one.reason.clone()).or_insert(next);
    format!("{} ({number})", one.outcome)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(scenario: &str, outcome: &str, reason: &str) -> Outcome {
        Outcome { scenario: scenario.to_owned(), outcome: outcome.to_owned(), reason: reason.to_owned() }
    }

    #[test]
    fn each_scenario_is_a_row_and_each_reason_is_told_once() {
        let old = vec![outcome("story", "failed", "the pod stays"), outcome("faults", "not run here", "no faults")];
        let new = vec![outcome("story", "ok", ""), outcome("faults", "not run here", "no faults")];
        let text = document(&[("1.34".parse().unwrap(), old), ("1.37".parse().unwrap(), new)]);
        assert!(text.contains("| scenario | 1.34.4 | 1.37.2 |\n|---|---|---|\n"), "{text}");
        assert!(
            text.contains("| story | failed (1) | ok |\n| faults | not run here (2) | not run here (2) |\n"),
            "{text}"
        );
        assert!(text.ends_with("1. the pod stays\n2. no faults\n"), "{text}");
    }
}
