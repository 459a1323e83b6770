//! `cargo xtask kubectl`: the real kubectl, for tests against the sim. Prints the program's path and nothing else.

use std::io::{self, Write};

use anyhow::Result;

use crate::go_tool::{GoTool, Surroundings, ensure_built};

pub(crate) fn run() -> Result<()> {
    let module = crate::repository_root().join("tests/real/v1.37");
    let tool = GoTool { module: &module, package: "k8s.io/kubernetes/cmd/kubectl" };
    let program = ensure_built(&tool, &Surroundings::from_environment()?)?;
    writeln!(io::stdout(), "{}", program.display())?;
    Ok(())
}
