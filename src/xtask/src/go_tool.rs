//! Programs of a real Kubernetes, built from a Go module of tools that is committed under `tests/real/<version>`.
//!
//! go.mod + go.sum -> hash -> cache folder -> `go build` under a file lock -> the program's path. What is in the cache is never built again; a cache that
//! is not there only costs time.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail, ensure};
use sha2::{Digest, Sha256};

/// Kubernetes' own programs read their version from these packages; without it they call themselves v0.0.0, and clients that look at it go wrong.
/// The second one is the one that goes into the user agent.
const VERSION_PACKAGES: [&str; 2] = ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"];

/// One program of a tools module.
pub(crate) struct GoTool<'a> {
    /// Folder of the tools module (go.mod, go.sum).
    pub(crate) module: &'a Path,
    /// Go package of the program; its last part is the program's name.
    pub(crate) package: &'a str,
}

/// Where things come from and go to; all of it differs in tests.
pub(crate) struct Surroundings {
    /// The Go command.
    pub(crate) go: PathBuf,
    /// Our folder in the user's cache.
    pub(crate) cache: PathBuf,
}

impl Surroundings {
    pub(crate) fn from_environment() -> Result<Self> {
        let cache = cache_folder(std::env::var_os("XDG_CACHE_HOME"), std::env::var_os("HOME"))?;
        Ok(Self { go: PathBuf::from("go"), cache })
    }
}

/// The path of the program; builds it first where the cache has it not. Waits while another run builds it.
pub(crate) fn ensure_built(tool: &GoTool<'_>, at: &Surroundings) -> Result<PathBuf> {
    let folder = at.cache.join("tools").join(module_key(tool.module)?);
    let name = tool.package.rsplit('/').next().unwrap_or(tool.package);
    let program = folder.join(name);
    if program.exists() {
        return Ok(program);
    }
    fs::create_dir_all(&folder).with_context(|| format!("create cache folder {}", folder.display()))?;
    let lock_path = folder.join(format!("{name}.lock"));
    let lock = File::create(&lock_path).with_context(|| format!("create {}", lock_path.display()))?;
    // Held until the file is dropped, and released by the system if this run is killed.
    lock.lock().with_context(|| format!("lock {}", lock_path.display()))?;
    if !program.exists() {
        build(tool, at, &program)?;
    }
    Ok(program)
}

/// Builds under another name in the same folder and renames: a program under its final name is whole.
fn build(tool: &GoTool<'_>, at: &Surroundings, program: &Path) -> Result<()> {
    let partial = program.with_extension("partial");
    let status = Command::new(&at.go)
        .args(["build", "-v", "-trimpath", "-buildvcs=false", "-mod=readonly", "-ldflags"])
        .arg(link_flags(&kubernetes_version(tool.module)?)?)
        .arg("-o")
        .arg(&partial)
        .arg(tool.package)
        .current_dir(tool.module)
        .env("CGO_ENABLED", "0")
        .env("GOWORK", "off")
        .stdin(Stdio::null())
        // Our stdout carries the path and nothing else.
        .stdout(Stdio::null())
        .status();
    let status = match status {
        Err(error) if error.kind() == io::ErrorKind::NotFound => bail!(
            "`{}` is not on PATH, and {} is built from its Go module: install Go 1.26 or newer (https://go.dev/dl)",
            at.go.display(),
            tool.package
        ),
        started => started.with_context(|| format!("start {}", at.go.display()))?,
    };
    ensure!(status.success(), "go build {} in {} failed: {status}", tool.package, tool.module.display());
    fs::rename(&partial, program).with_context(|| format!("move the built program to {}", program.display()))
}

/// Names the cache folder of a tools module: its version, for people, and the hash of what go would build from.
fn module_key(module: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    for file in ["go.mod", "go.sum"] {
        let text = read(&module.join(file))?;
        // The length in front keeps the end of one file from being read as the start of the next.
        hash.update(text.len().to_le_bytes());
        hash.update(text);
    }
    let digest: String = hash.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{}-{digest}", kubernetes_version(module)?))
}

/// The version of Kubernetes that the tools module requires: `v1.37.2`.
fn kubernetes_version(module: &Path) -> Result<String> {
    let path = module.join("go.mod");
    let text = read(&path)?;
    let required = text.lines().find_map(|line| {
        let mut words = line.split_whitespace().skip_while(|&word| word == "require");
        (words.next() == Some("k8s.io/kubernetes")).then(|| words.next())?
    });
    let version = required.with_context(|| format!("{} requires no version of k8s.io/kubernetes", path.display()))?;
    Ok(version.to_owned())
}

fn link_flags(version: &str) -> Result<String> {
    let mut numbers = version.trim_start_matches('v').split('.');
    let (Some(major), Some(minor)) = (numbers.next(), numbers.next()) else {
        bail!("`{version}` is not a version like v1.37.2");
    };
    let set = |package| {
        format!(" -X {package}.gitVersion={version} -X {package}.gitMajor={major} -X {package}.gitMinor={minor}")
    };
    Ok(format!("-s -w{}", VERSION_PACKAGES.map(set).concat()))
}

/// Our folder below the user's cache, as the XDG base directory specification has it: a relative `XDG_CACHE_HOME` is ignored.
fn cache_folder(xdg_cache_home: Option<OsString>, home: Option<OsString>) -> Result<PathBuf> {
    let absolute = |value: Option<OsString>| value.map(PathBuf::from).filter(|path| path.is_absolute());
    let base = absolute(xdg_cache_home).or_else(|| absolute(home).map(|home| home.join(".cache")));
    let base = base.context("neither XDG_CACHE_HOME nor HOME names an absolute folder: set XDG_CACHE_HOME")?;
    Ok(base.join("device-taint-manager"))
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("read {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PACKAGE: &str = "k8s.io/kubernetes/cmd/kubectl";

    /// A tools module, with a shell as the go command: `sh build ...` runs the script `build` of the module's folder. (To run a file that was just
    /// written can fail with "text file busy" while another test forks.)
    struct Bench {
        folder: tempfile::TempDir,
        at: Surroundings,
    }

    impl Bench {
        fn new(script: &str) -> Self {
            let folder = tempfile::tempdir().unwrap();
            let at = Surroundings { go: PathBuf::from("sh"), cache: folder.path().join("cache") };
            fs::write(folder.path().join("build"), script).unwrap();
            let bench = Self { folder, at };
            bench.write_mod("module m\n\nrequire k8s.io/kubernetes v1.37.2\n");
            fs::write(bench.folder.path().join("go.sum"), "").unwrap();
            bench
        }

        fn write_mod(&self, text: &str) {
            fs::write(self.folder.path().join("go.mod"), text).unwrap();
        }

        fn ensure_built(&self) -> Result<PathBuf> {
            ensure_built(&GoTool { module: self.folder.path(), package: PACKAGE }, &self.at)
        }
    }

    /// `-o FILE` are the last two arguments before the package.
    const WRITES_PROGRAM: &str =
        r#"echo run >> runs; while [ "$1" != -o ]; do all="$all $1"; shift; done; echo "$all" > "$2""#;

    #[test]
    fn builds_once_and_stamps_the_version() {
        let bench = Bench::new(WRITES_PROGRAM);
        let program = bench.ensure_built().unwrap();
        assert_eq!(bench.ensure_built().unwrap(), program);
        assert_eq!(fs::read_to_string(bench.folder.path().join("runs")).unwrap(), "run\n");
        let arguments = fs::read_to_string(&program).unwrap();
        assert!(arguments.contains("-X k8s.io/component-base/version.gitVersion=v1.37.2"), "{arguments}");
        assert!(arguments.contains("version.gitMajor=1 ") && arguments.contains("version.gitMinor=37"), "{arguments}");
    }

    #[test]
    fn another_go_mod_is_another_program() {
        let bench = Bench::new(WRITES_PROGRAM);
        let first = bench.ensure_built().unwrap();
        bench.write_mod("module m\n\nrequire (\n\tk8s.io/kubernetes v1.36.3\n)\n");
        let second = bench.ensure_built().unwrap();
        assert_ne!(first, second);
        assert!(second.to_string_lossy().contains("/v1.36.3-"), "{}", second.display());
    }

    #[test]
    fn a_failed_build_leaves_no_program_and_the_next_run_tries_again() {
        let bench = Bench::new("echo run >> runs; exit 3");
        for _ in 0..2 {
            let told = bench.ensure_built().unwrap_err().to_string();
            assert!(told.contains(PACKAGE) && told.contains("exit status: 3"), "{told}");
        }
        assert_eq!(fs::read_to_string(bench.folder.path().join("runs")).unwrap(), "run\nrun\n");
    }

    #[test]
    fn two_runs_at_once_build_once() {
        let bench = Bench::new(WRITES_PROGRAM);
        std::thread::scope(|scope| {
            for run in [scope.spawn(|| bench.ensure_built()), scope.spawn(|| bench.ensure_built())] {
                assert!(run.join().unwrap().unwrap().exists());
            }
        });
        assert_eq!(fs::read_to_string(bench.folder.path().join("runs")).unwrap(), "run\n");
    }

    #[test]
    fn a_missing_go_is_said_with_what_to_install() {
        let mut bench = Bench::new("");
        bench.at.go = bench.folder.path().join("no-go");
        let told = bench.ensure_built().unwrap_err().to_string();
        assert!(told.contains("is not on PATH") && told.contains("install Go 1.26"), "{told}");
    }

    #[test]
    fn a_go_mod_without_kubernetes_is_an_error() {
        let bench = Bench::new("");
        bench.write_mod("module m\n");
        assert!(bench.ensure_built().unwrap_err().to_string().contains("requires no version of k8s.io/kubernetes"));
    }

    #[test]
    fn the_cache_follows_xdg() {
        let folder =
            |xdg: Option<&str>, home: Option<&str>| cache_folder(xdg.map(Into::into), home.map(Into::into)).ok();
        assert_eq!(folder(Some("/c"), Some("/h")), Some("/c/device-taint-manager".into()));
        assert_eq!(folder(Some("relative"), Some("/h")), Some("/h/.cache/device-taint-manager".into()));
        assert_eq!(folder(None, Some("/h")), Some("/h/.cache/device-taint-manager".into()));
        assert_eq!(folder(None, None), None);
    }
}
