//! Figures of the programs, taken on the small cluster: one JSON object a line. Run in release (`cargo xtask measure`).
//!
//! A figure is compared with a baseline of the same run where there is one, since machines are noisy: the ratio counts.

mod agent;
mod claims;
mod controller;
mod population;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use serde::Serialize;

use crate::process::Process;

/// One measured figure.
#[derive(Clone, Debug, Serialize)]
pub struct Figure {
    /// Its name; it does not change.
    pub name: &'static str,
    /// The value.
    pub value: f64,
    /// Its unit.
    pub unit: &'static str,
    /// The same thing done in the plainest way, in the same run and unit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub baseline: Option<f64>,
    /// Value over baseline.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ratio: Option<f64>,
    /// The most that it should be, by docs/measurements.md.
    pub target: f64,
}

impl Figure {
    fn new(name: &'static str, value: f64, unit: &'static str, target: f64) -> Self {
        Self { name, value: rounded(value), unit, baseline: None, ratio: None, target }
    }

    fn against(mut self, baseline: f64) -> Self {
        self.ratio = (baseline > 0.0).then(|| rounded(self.value / baseline));
        self.baseline = Some(rounded(baseline));
        self
    }
}

/// The groups, each with what it measures.
pub const GROUPS: &[&str] = &["agent", "claims", "controller"];

/// Takes the figures of one group, or of all, and tells each as it comes.
///
/// # Errors
/// When there is no such group, or a figure could not be taken.
pub async fn run(group: Option<&str>, mut tell: impl FnMut(&Figure) -> Result<()>) -> Result<()> {
    let wanted: Vec<&str> = GROUPS.iter().copied().filter(|name| group.is_none_or(|group| group == *name)).collect();
    ensure!(!wanted.is_empty(), "no group {}; there are {}", group.unwrap_or_default(), GROUPS.join(", "));
    for name in wanted {
        let figures = match name {
            "agent" => agent::figures().await,
            "claims" => claims::figures().await,
            _ => controller::figures().await,
        };
        for figure in figures.with_context(|| format!("group {name}"))? {
            tell(&figure)?;
        }
    }
    Ok(())
}

/// The resident memory of a process, in MiB.
fn resident(process: &Process) -> Result<f64> {
    let id = process.id().context("the process has ended")?;
    let path = format!("/proc/{id}/status");
    let status = std::fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().context("VmRSS is no number")?;
    Ok(kib / 1024.0)
}

/// The size of a file, in MB.
fn megabytes(file: &Path) -> Result<f64> {
    let bytes = std::fs::metadata(file).with_context(|| format!("cannot look at {}", file.display()))?.len();
    #[expect(clippy::cast_precision_loss, reason = "a file size for people")]
    Ok(bytes as f64 / 1e6)
}

/// The value that a share of all values is not above; the values are in seconds, the answer in milliseconds.
fn percentile(seconds: &mut [f64], share: f64) -> Result<f64> {
    seconds.sort_by(f64::total_cmp);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a rank")]
    let rank = (seconds.len() as f64 * share).ceil() as usize;
    match seconds.get(rank.max(1) - 1) {
        Some(value) => Ok(value * 1e3),
        None => bail!("no values"),
    }
}

fn rounded(value: f64) -> f64 {
    (value * 1e3).round() / 1e3
}

/// Targets by name, as docs/measurements.md lists them.
#[must_use]
pub fn targets() -> BTreeMap<&'static str, f64> {
    [
        ("driver_rss_mib", 12.0),
        ("driver_binary_mb", 15.0),
        ("driver_start_to_slice_s", 0.3),
        ("event_to_taint_p50_ms", 10.0),
        ("event_to_taint_p99_ms", 10.0),
        ("prepare_p50_ms", 5.0),
        ("evict_300_s", 1.0),
        ("controller_rss_1000_pods_mib", 20.0),
    ]
    .into()
}

/// A figure with the target that its name has.
fn figure(name: &'static str, value: f64, unit: &'static str) -> Figure {
    Figure::new(name, value, unit, targets().get(name).copied().unwrap_or(f64::INFINITY))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let mut values = [0.003, 0.001, 0.002, 0.004];
        assert!((percentile(&mut values, 0.5).unwrap() - 2.0).abs() < 1e-9);
        assert!((percentile(&mut values, 0.99).unwrap() - 4.0).abs() < 1e-9);
        assert!(percentile(&mut [], 0.5).is_err());
    }

    #[test]
    fn a_ratio_needs_a_baseline() {
        let plain = Figure::new("x", 2.0, "s", 3.0);
        assert_eq!(serde_json::to_string(&plain).unwrap(), r#"{"name":"x","value":2.0,"unit":"s","target":3.0}"#);
        assert_eq!(plain.against(4.0).ratio, Some(0.5));
    }
}
