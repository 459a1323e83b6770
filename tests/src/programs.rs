//! The programs under test, built once.
//!
//! Plain `cargo test` builds neither the stand-in library nor the other crates' programs, so whoever needs them calls
//! [`Programs::build`]: one `cargo build --workspace` per process, in the profile of the caller, under cargo's own lock.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use anyhow::{Context, Result, bail, ensure};

/// Variables that cargo sets for a program that it runs.
const OF_THIS_PROGRAM: [&str; 5] = ["CARGO_PKG_", "CARGO_MANIFEST_", "CARGO_BIN_", "CARGO_CRATE_", "OUT_DIR"];

/// The programs that a cluster runs, in a release built once more in the profile that they ship in.
const SHIPPED: [&str; 3] = ["gpu-driver", "device-taint-controller", "kubectl-device"];

/// Where the built programs lie.
#[derive(Clone, Debug)]
pub struct Programs {
    folder: PathBuf,
    shipped: PathBuf,
}

impl Programs {
    /// Builds the workspace once and says where the programs are.
    ///
    /// # Errors
    /// When cargo cannot be run or the build fails; cargo's own words are on stderr.
    pub fn build() -> Result<Self> {
        static BUILT: OnceLock<std::result::Result<Programs, String>> = OnceLock::new();
        let built = BUILT.get_or_init(|| build_all().map_err(|error| format!("{error:#}")));
        match built {
            Ok(programs) => Ok(programs.clone()),
            Err(error) => bail!("{error}"),
        }
    }

    /// Those that lie beside this very program, as they are.
    ///
    /// # Errors
    /// When this program cannot tell where it lies.
    pub fn beside() -> Result<Self> {
        let folder = profile_folder()?;
        Ok(Self { shipped: folder.clone(), folder })
    }

    /// The node agent.
    #[must_use]
    pub fn gpu_driver(&self) -> PathBuf {
        self.shipped.join("gpu-driver")
    }

    /// The controller.
    #[must_use]
    pub fn controller(&self) -> PathBuf {
        self.shipped.join("device-taint-controller")
    }

    /// The kubectl plugin.
    #[must_use]
    pub fn kubectl_device(&self) -> PathBuf {
        self.shipped.join("kubectl-device")
    }

    /// The small cluster.
    #[must_use]
    pub fn sim(&self) -> PathBuf {
        self.folder.join("sim")
    }

    /// The case runner.
    #[must_use]
    pub fn cases(&self) -> PathBuf {
        self.folder.join("cases")
    }

    /// Puts the stand-in library into `folder` under the name that a driver would find: a link, or a copy where `folder` is all that the driver sees.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn put_nvml(&self, folder: &Path, copy: bool) -> Result<()> {
        let (library, here) = (self.folder.join("libnvidia_ml.so"), folder.join("libnvidia-ml.so.1"));
        let put =
            if copy { std::fs::copy(library, &here).map(drop) } else { std::os::unix::fs::symlink(library, &here) };
        put.with_context(|| format!("cannot put the stand-in library at {}", here.display()))
    }
}

/// The folder that cargo put this very program under: `target/debug`, or `target/release`.
fn profile_folder() -> Result<PathBuf> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    let parent = program.parent().context("this program lies in no folder")?;
    let inner = parent.file_name().is_some_and(|name| name == "deps" || name == "examples");
    Ok(if inner { parent.parent().unwrap_or(parent) } else { parent }.to_path_buf())
}

fn build_all() -> Result<Programs> {
    let folder = profile_folder()?;
    let target = folder.parent().context("the profile's folder lies in no target folder")?;
    if folder.file_name().is_none_or(|name| name != "release") {
        build(target, &["--workspace"])?;
        return Ok(Programs { shipped: folder.clone(), folder });
    }
    build(target, &["--workspace", "--release"])?;
    let packages = SHIPPED.iter().flat_map(|package| ["--package", package]);
    build(target, &["--profile", "dist"].into_iter().chain(packages).collect::<Vec<_>>())?;
    Ok(Programs { shipped: target.join("dist"), folder })
}

fn build(target: &Path, flags: &[&str]) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(&cargo);
    command.arg("build").args(flags).arg("--target-dir").arg(target);
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."));
    // What cargo told this program of itself is not for another cargo: build scripts that look at it would run again.
    let of_this_program = |name: &str| OF_THIS_PROGRAM.iter().any(|prefix| name.starts_with(prefix));
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(of_this_program)) {
        command.env_remove(name);
    }
    let status = command.status().with_context(|| format!("cannot run {} to build the programs", cargo.display()))?;
    ensure!(status.success(), "`cargo build {}` failed ({status}); see its output above", flags.join(" "));
    Ok(())
}
