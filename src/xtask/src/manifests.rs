//! `cargo xtask manifests`: deploy/manifests.yaml, the chart rendered with its default values, for those who install without helm; and
//! deploy/tests/rendered, the chart with each file of deploy/tests/values, for those who read what a change of the chart does.
//!
//! The helm is that of the real cluster's tools, built once: another version would write the same objects with other blank lines. `--check` only compares.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use crate::go_tool::Surroundings;
use crate::kube::programs;

/// Options of `cargo xtask manifests`.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// Change nothing; fail when a rendered file is not what the chart gives
    #[arg(long)]
    check: bool,
    /// A helm to use in place of the one of the cache, which is built when it is not there
    #[arg(long, env = "HELM", value_name = "FILE")]
    helm: Option<PathBuf>,
}

/// Values other than the defaults, a file each, and what the chart makes of them: so that a change of the chart shows in both.
const VALUES: &str = "tests/values";
const RENDERED: &str = "tests/rendered";
/// Release and namespace of the rendered manifests.
const NAME: &str = "device-taint-manager";
/// The Kubernetes that they are rendered for: nothing in the chart depends on it, but helm's own default changes with helm.
const KUBE_VERSION: &str = "1.37.2";

/// helm makes no namespace. Agents are privileged, which a cluster may refuse elsewhere.
const HEAD: &str = "\
# The chart deploy/chart with its default values, rendered by `cargo xtask manifests`. Do not edit.
---
apiVersion: v1
kind: Namespace
metadata:
  name: device-taint-manager
  labels:
    pod-security.kubernetes.io/enforce: privileged
";

pub(crate) fn run(args: &Args) -> Result<()> {
    let deploy = crate::repository_root().join("deploy");
    let helm = match &args.helm {
        Some(helm) => helm.clone(),
        None => programs::helm().ensure_built(&Surroundings::from_environment()?)?.join("helm"),
    };
    let render = |values: Option<&Path>| render(&helm, &deploy.join("chart"), values);
    write_or_compare(&deploy.join("manifests.yaml"), &format!("{HEAD}{}", render(None)?), args.check)?;
    for values in files(&deploy.join(VALUES))? {
        let file = deploy.join(RENDERED).join(values.file_name().unwrap_or_default());
        write_or_compare(&file, &render(Some(&values))?, args.check)?;
    }
    Ok(())
}

fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let listed = fs::read_dir(folder).with_context(|| format!("read {}", folder.display()))?;
    let mut files = listed.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    files.sort();
    Ok(files)
}

fn write_or_compare(file: &Path, wanted: &str, check: bool) -> Result<()> {
    if !check {
        fs::write(file, wanted).with_context(|| format!("write {}", file.display()))?;
        return Ok(writeln!(io::stdout(), "{}", file.display())?);
    }
    let there = fs::read_to_string(file).with_context(|| format!("read {}", file.display()))?;
    match first_difference(&there, wanted) {
        None => Ok(()),
        Some(line) => bail!("{} differs from the chart in line {line}; run `cargo xtask manifests`", file.display()),
    }
}

fn render(helm: &Path, chart: &Path, values: Option<&Path>) -> Result<String> {
    let mut command = Command::new(helm);
    command.args(["template", NAME]).arg(chart);
    command.args(["--namespace", NAME, "--kube-version", KUBE_VERSION, "--skip-tests"]);
    match values {
        Some(values) => command.arg("--values").arg(values),
        // Custom kinds do not depend on values: once is enough.
        None => command.arg("--include-crds"),
    };
    let started = command.stdin(Stdio::null()).output();
    let output = match started {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            bail!("there is no {}: name a helm 3 or 4 with --helm or $HELM", helm.display())
        }
        started => started.with_context(|| format!("start {}", helm.display()))?,
    };
    ensure!(output.status.success(), "helm template failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    String::from_utf8(output.stdout).context("helm template gave no UTF-8")
}

/// The first line that differs, counted from 1.
fn first_difference(one: &str, other: &str) -> Option<usize> {
    if one == other {
        return None;
    }
    let same = one.lines().zip(other.lines()).take_while(|(one, other)| one == other).count();
    Some(same + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_has_its_line() {
        assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
        assert_eq!(first_difference("a\nb\n", "a\nc\n"), Some(2));
        assert_eq!(first_difference("a\nb\n", "a\nb\nc\n"), Some(3));
    }

    #[test]
    fn a_missing_helm_is_said_with_the_way_out() {
        let error = render(Path::new("/no/such/helm"), Path::new("chart"), None).unwrap_err().to_string();
        assert!(error.contains("/no/such/helm") && error.contains("--helm"), "{error}");
    }
}
