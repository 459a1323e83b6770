//! How a program learns its version when it is built: linker flags that set variables.

use anyhow::{Result, bail};

/// Kubernetes' own programs read their version from these packages; without it they call themselves v0.0.0, and clients that look at it go wrong.
/// The second one is the one that goes into the user agent.
const KUBERNETES: [&str; 2] = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];

/// How the programs of a module learn their version.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Stamp {
    /// It stands in their source.
    Built,
    /// One variable holds it.
    Variable(&'static str),
    /// Kubernetes has it in parts.
    Kubernetes,
}

impl Stamp {
    /// The linker's flags for a version like `v1.37.2`.
    pub(super) fn link_flags(self, version: &str) -> Result<String> {
        let set = match self {
            Self::Built => String::new(),
            Self::Variable(variable) => format!(" -X {variable}={version}"),
            Self::Kubernetes => kubernetes(version)?,
        };
        Ok(format!("-s -w{set}"))
    }
}

fn kubernetes(version: &str) -> Result<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("`{version}` is not a version like v1.37.2");
    };
    let set = |package| {
        format!(" -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
    };
    Ok(KUBERNETES.map(set).concat())
}
