//! `cargo xtask kube matrix`: the table of scenarios on each version of Kubernetes -> docs/compatibility.md.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::interrupt::Interrupt;
use super::test::OwnCluster;
use super::version::Version;
use super::{ScenariosFailed, build, process, say, test};

/// Options of `cargo xtask kube matrix`.
#[derive(clap::Args, Clone, Debug)]
pub(super) struct MatrixArgs {
    /// Keep what each column's run reported in this folder, and run only the columns whose report is not there: half an hour that was interrupted goes on. For
    /// one commit: remove the folder after a change
    #[arg(long, value_name = "DIR")]
    reports: Option<PathBuf>,
}

/// How one scenario went on one version, as the table reports it.
#[derive(Clone, Debug, Deserialize)]
struct Outcome {
    scenario: String,
    outcome: String,
    #[serde(default)]
    reason: String,
}

impl Outcome {
    fn failed(&self) -> bool {
        self.outcome == "failed"
    }
}

/// A column of the table: a version, told or as it comes, and how each scenario went.
struct Column {
    setting: Setting,
    outcomes: Vec<Outcome>,
}

/// How a version is started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Setting {
    version: Version,
    stock: bool,
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.version, if self.stock { " as it comes" } else { "" })
    }
}

impl Setting {
    /// The name of its report.
    fn file(self) -> String {
        format!("{}{}.jsonl", self.version, if self.stock { "-stock" } else { "" })
    }
}

/// Every version with taints and rules on; then as it comes, where that differs in taints or rules.
fn settings() -> Vec<Setting> {
    let told = Version::ALL.map(|version| Setting { version, stock: false });
    let stock = told.iter().filter(|one| !one.version.feature_gates(false).is_empty());
    told.iter().copied().chain(stock.map(|one| Setting { stock: true, ..*one })).collect()
}

/// Runs every column, writes the document, and fails when a scenario did: the document says which.
pub(super) fn run(args: &MatrixArgs) -> Result<()> {
    let program = test::build_table()?;
    for version in Version::ALL {
        build::ensure(version)?;
    }
    // From here on a signal stops the cluster before it ends us.
    let interrupt = Interrupt::listen()?;
    let not_kept = tempfile::tempdir().context("make a folder for the reports")?;
    let reports = args.reports.as_deref().unwrap_or(not_kept.path());
    fs::create_dir_all(reports).with_context(|| format!("make {}", reports.display()))?;
    let mut columns = Vec::new();
    for setting in settings() {
        let report = reports.join(setting.file());
        let outcomes = match report.exists() {
            true => read(&report),
            false => outcomes(&program, setting, &report, &interrupt),
        };
        let outcomes = outcomes.with_context(|| format!("Kubernetes {setting}"))?;
        columns.push(Column { setting, outcomes });
    }
    let path = crate::repository_root().join("docs/compatibility.md");
    fs::write(&path, document(&columns)).with_context(|| format!("write {}", path.display()))?;
    say(&format!("{} is written", path.display()));
    let failed = columns.iter().flat_map(|column| &column.outcomes).filter(|one| one.failed()).count();
    if failed > 0 {
        return Err(ScenariosFailed(format!("{failed} scenarios failed; {} says which", path.display())).into());
    }
    Ok(())
}

/// Starts a cluster, runs the table on it, and stops it; its logs stay where a scenario failed.
fn outcomes(program: &Path, setting: Setting, report: &Path, interrupt: &Interrupt) -> Result<Vec<Outcome>> {
    let Setting { version, stock } = setting;
    // A folder for each column: the logs of one are not the next one's leftovers.
    let purpose = format!("m{}{}", version.module(), if stock { "s" } else { "" });
    // Under another name first, of this run alone: what is kept was read well.
    let scratch = tempfile::Builder::new().suffix(".partial").tempfile_in(report.parent().unwrap_or(Path::new(".")));
    let partial = scratch.context("make a file for the report")?.into_temp_path();
    OwnCluster { version, stock, upstream_evictor: false, purpose: &purpose }.with(
        |outcomes: &Vec<Outcome>| outcomes.iter().any(Outcome::failed),
        |run| {
            interrupt
                .attend(process::mark(&mut test::table_command(program, run), run).arg("--report").arg(&partial))?;
            let outcomes = read(&partial)?;
            fs::rename(&partial, report).with_context(|| format!("keep {}", report.display()))?;
            Ok(outcomes)
        },
    )
}

/// What failed stands in the report.
fn read(report: &Path) -> Result<Vec<Outcome>> {
    let text = fs::read_to_string(report).with_context(|| format!("read {}", report.display()))?;
    ensure!(!text.is_empty(), "{} is empty: the table ended without a report; its words are above", report.display());
    text.lines().map(|line| serde_json::from_str(line).with_context(|| format!("read {}", report.display()))).collect()
}

fn document(columns: &[Column]) -> String {
    let mut text = String::from(
        "# Compatibility\n\n\
         Every scenario of `tests`, on a real Kubernetes of each version: real kubelet and containers on one node, the small cluster's kubelet on the\n\
         others. Written by `cargo xtask kube matrix`; not by hand.\n\n",
    );
    let versions: Vec<String> = columns.iter().map(|column| column.setting.to_string()).collect();
    writeln!(text, "| scenario | {} |\n|---|{}", versions.join(" | "), "---|".repeat(versions.len())).ok();
    let mut reasons: BTreeMap<String, usize> = BTreeMap::new();
    for name in names(columns) {
        let cells: Vec<String> = columns.iter().map(|one| cell(name, &one.outcomes, &mut reasons)).collect();
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
    DRADeviceTaintRules, 1.34 with DRADeviceTaints, 1.34 and 1.35 with ResourceHealthStatus; all four serve resource.k8s.io v1beta1 and v1beta2 in\n\
    addition, and those before 1.37 v1alpha3. `as it comes` is without any of that: 1.36 has taints in slices and no rules, 1.35 and 1.34 have neither.\n\n";

/// The scenarios in the order of the first column.
fn names(columns: &[Column]) -> Vec<&str> {
    columns.first().map(|column| column.outcomes.iter().map(|one| one.scenario.as_str()).collect()).unwrap_or_default()
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
        let column = |version: &str, stock, outcomes| Column {
            setting: Setting { version: version.parse().unwrap(), stock },
            outcomes,
        };
        let text = document(&[column("1.34", true, old), column("1.37", false, new)]);
        assert!(text.contains("| scenario | 1.34.4 as it comes | 1.37.2 |\n|---|---|---|\n"), "{text}");
        assert!(
            text.contains("| story | failed (1) | ok |\n| faults | not run here (2) | not run here (2) |\n"),
            "{text}"
        );
        assert!(text.ends_with("1. the pod stays\n2. no faults\n"), "{text}");
    }
    #[test]
    fn a_version_is_a_second_column_where_it_lacks_something_as_it_comes() {
        let names: Vec<String> = settings().iter().map(Setting::to_string).collect();
        let stock = ["1.34.4 as it comes", "1.35.4 as it comes", "1.36.3 as it comes"];
        assert_eq!(names, [&["1.34.4", "1.35.4", "1.36.3", "1.37.2"][..], &stock[..]].concat());
    }
}
