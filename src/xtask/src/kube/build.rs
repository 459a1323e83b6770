//! `cargo xtask kube build`: programs and packages, once; nothing when all is there.

use std::io::{self, Write};

use anyhow::Result;

use super::programs::Programs;
use super::version::Version;
use super::{debian, say};
use crate::go_tool::Surroundings;

/// Prints a line for each program on stdout: its name and its path.
pub(super) fn run(version: Version) -> Result<()> {
    let programs = ensure(version)?;
    for path in programs.paths() {
        let name = path.file_name().unwrap_or_default();
        writeln!(io::stdout(), "{} {}", name.display(), path.display())?;
    }
    Ok(())
}

/// The programs of a version; builds and installs what is not there.
pub(super) fn ensure(version: Version) -> Result<Programs> {
    let at = Surroundings::from_environment()?;
    // Packages first: they are a matter of seconds, and whoever lacks the rights hears it before the long build.
    debian::ensure_installed()?;
    if !Programs::missing(version, &at)?.is_empty() {
        say("building what is not in the cache; a first build of Kubernetes takes about 15 minutes on two cores");
    }
    Programs::build(version, &at)
}
