//! `go build` of several programs at once, with its progress in few lines: go's own stderr -> counted and filtered -> our stderr.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::{GoModule, Program};

/// A line for so many compiled packages: a cold build of Kubernetes has some 1500.
const STEP: usize = 100;

/// Builds into a folder beside the programs and renames: a program under its final name is whole.
pub(super) fn build(module: &GoModule<'_>, programs: &[Program], go: &Path, folder: &Path) -> Result<()> {
    let partial = folder.join("partial");
    if partial.exists() {
        // What a killed build left.
        fs::remove_dir_all(&partial).with_context(|| format!("remove {}", partial.display()))?;
    }
    fs::create_dir(&partial).with_context(|| format!("create {}", partial.display()))?;
    compile(module, programs, go, &partial)?;
    for program in programs {
        let (built, wanted) = (partial.join(program.built_name()), folder.join(program.name));
        fs::rename(&built, &wanted).with_context(|| format!("move the built program to {}", wanted.display()))?;
    }
    fs::remove_dir(&partial).with_context(|| format!("remove {}", partial.display()))
}

fn compile(module: &GoModule<'_>, programs: &[Program], go: &Path, into: &Path) -> Result<()> {
    let names: Vec<_> = programs.iter().map(|program| program.name).collect();
    let title = format!("{} {}", module.title(), module.version()?);
    tell(&format!("building {title}: {}", names.join(", ")));
    let mut command = command(module, programs, go, into)?;
    let mut child = match command.spawn() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "`{}` is not on PATH, and {title} is built from its Go module: install Go 1.26 or newer (https://go.dev/dl)",
            go.display()
        ),
        started => started.with_context(|| format!("start {}", go.display()))?,
    };
    if let Some(stderr) = child.stderr.take() {
        follow(stderr, &title).context("read what go says")?;
    }
    let status = child.wait().context("wait for go")?;
    let packages: Vec<_> = programs.iter().map(|program| program.package).collect();
    ensure!(status.success(), "go build {} in {} failed: {status}", packages.join(" "), module.folder.display());
    Ok(())
}

fn command(module: &GoModule<'_>, programs: &[Program], go: &Path, into: &Path) -> Result<Command> {
    let mut command = Command::new(go);
    command
        .args(["build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly", "-tags", module.tags, "-ldflags"])
        .arg(module.stamp.link_flags(&module.version()?)?)
        .arg("-o")
        // With a slash at its end go takes it for a folder, even for one program.
        .arg(into.join(""))
        .args(programs.iter().map(|program| program.package))
        .current_dir(&module.folder)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        // Our stdout carries the answer and nothing else.
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    Ok(command)
}

/// Passes on what is not progress, and counts what is.
fn follow(stderr: impl Read, title: &str) -> io::Result<()> {
    let (mut compiled, mut fetched) = (0_usize, 0_usize);
    for line in BufReader::new(stderr).lines() {
        let line = line?;
        let (count, doing) = match progress(&line) {
            Some(Progress::Compiled) => (&mut compiled, "packages compiled"),
            Some(Progress::Fetched) => (&mut fetched, "modules fetched"),
            None => {
                tell(&line);
                continue;
            }
        };
        *count += 1;
        if count.is_multiple_of(STEP) {
            tell(&format!("  {title}: {count} {doing}"));
        }
    }
    Ok(())
}

/// What a line of `go build -v` counts for; any other line is for the reader.
#[derive(Debug, PartialEq, Eq)]
enum Progress {
    Compiled,
    Fetched,
}

fn progress(line: &str) -> Option<Progress> {
    if line.starts_with("go: downloading ") {
        return Some(Progress::Fetched);
    }
    // A package is one word; an error has a place, a message, or a # in front.
    let is_package = !line.is_empty() && !line.contains([' ', '\t', '#', ':']);
    is_package.then_some(Progress::Compiled)
}

/// Where stderr is closed there is nobody to tell.
fn tell(line: &str) {
    writeln!(io::stderr(), "{line}").ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packages_and_downloads_are_counted_and_errors_are_passed_on() {
        assert_eq!(progress("k8s.io/kubernetes/cmd/kubelet"), Some(Progress::Compiled));
        assert_eq!(progress("unsafe"), Some(Progress::Compiled));
        assert_eq!(progress("go: downloading k8s.io/api v0.37.2"), Some(Progress::Fetched));
        for told in ["# k8s.io/kubernetes", "./a.go:3:1: syntax error", "no required module", ""] {
            assert_eq!(progress(told), None, "{told}");
        }
    }
}
