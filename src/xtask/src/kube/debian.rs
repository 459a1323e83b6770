//! What a real cluster needs from the distribution: files that must be there, and the Debian package of each.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::say;

/// CNI's plugins, as Debian puts them.
pub(crate) const CNI_PLUGINS: &str = "/usr/lib/cni";
/// The shell of the images, without libraries.
pub(crate) const BUSYBOX: &str = "/bin/busybox";

/// A package, and the places where one of its files proves that it is there.
struct Package {
    name: &'static str,
    proofs: &'static [&'static str],
}

const PACKAGES: [Package; 4] = [
    Package { name: "runc", proofs: &["/usr/sbin/runc", "/usr/bin/runc"] },
    Package { name: "containernetworking-plugins", proofs: &["/usr/lib/cni/ptp"] },
    Package { name: "busybox-static", proofs: &[BUSYBOX] },
    Package { name: "iproute2", proofs: &["/sbin/ip", "/usr/sbin/ip", "/bin/ip"] },
];

/// The packages that are not there.
pub(crate) fn missing() -> Vec<&'static str> {
    missing_below(Path::new("/"))
}

fn missing_below(root: &Path) -> Vec<&'static str> {
    let is_there = |proof: &&str| root.join(proof.trim_start_matches('/')).exists();
    PACKAGES.iter().filter(|package| !package.proofs.iter().any(is_there)).map(|package| package.name).collect()
}

/// Installs what is missing, as root and on Debian; says what is missing elsewhere.
///
/// # Errors
/// When packages are missing that cannot be installed.
pub(crate) fn ensure_installed() -> Result<()> {
    let names = missing();
    if names.is_empty() {
        return Ok(());
    }
    let list = names.join(" ");
    ensure!(rustix::process::geteuid().is_root(), "packages are missing: as root, run `apt-get install {list}`");
    say(&format!("installing {list}"));
    if !apt_get(&["install", "--yes", "--quiet", "--no-install-recommends"], &names)? {
        // A fresh machine has no list of packages, or an old one.
        apt_get(&["update", "--quiet"], &[])?;
        ensure!(
            apt_get(&["install", "--yes", "--quiet", "--no-install-recommends"], &names)?,
            "`apt-get install {list}` failed; what it said stands above"
        );
    }
    let still = missing();
    ensure!(still.is_empty(), "installed, and yet their files are not in their places: {}", still.join(" "));
    Ok(())
}

/// Whether it went well. What it says goes to stderr.
fn apt_get(arguments: &[&str], packages: &[&str]) -> Result<bool> {
    let mut command = Command::new("apt-get");
    command.args(arguments).args(packages).env("DEBIAN_FRONTEND", "noninteractive").stdin(Stdio::null());
    command.stdout(std::io::stderr());
    match command.status() {
        Ok(status) => Ok(status.success()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            bail!("there is no apt-get here: install the equivalents of {} by hand", packages.join(" "))
        }
        Err(error) => Err(error).context("start apt-get"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_package_is_missing_until_one_of_its_files_is_there() {
        let root = tempfile::tempdir().unwrap();
        let all: Vec<_> = PACKAGES.iter().map(|package| package.name).collect();
        assert_eq!(missing_below(root.path()), all);
        std::fs::create_dir_all(root.path().join("usr/bin")).unwrap();
        std::fs::write(root.path().join("usr/bin/runc"), "").unwrap();
        assert_eq!(missing_below(root.path()), all[1..]);
    }
}
