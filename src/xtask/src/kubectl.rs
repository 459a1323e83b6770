//! `cargo xtask kubectl`: the real kubectl, for tests against the sim. Prints the program's path and nothing else.

use std::io::{self, Write};

use anyhow::Result;

use crate::go_tool::Surroundings;
use crate::kube::programs;
use crate::kube::version::Version;

pub(crate) fn run() -> Result<()> {
    // Nothing but kubectl: whoever runs the tests without root does not wait for the rest of Kubernetes.
    let module = programs::kubernetes(Version::default(), &[programs::KUBECTL]);
    let folder = module.ensure_built(&Surroundings::from_environment()?)?;
    writeln!(io::stdout(), "{}", folder.join(programs::KUBECTL.name).display())?;
    Ok(())
}
