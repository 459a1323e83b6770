//! Which files an image needs to run a program: the dynamic loader, and the libraries that the program and NVML load.
//!
//! They come from the machine that builds, since the program was linked against its glibc; they keep their paths, since its loader looks there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// A file of a layer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct File {
    /// Path without the leading slash.
    pub(super) path: String,
    pub(super) bytes: Vec<u8>,
    pub(super) mode: u32,
}

impl File {
    /// A file that everybody may run.
    pub(super) fn program(path: &str, bytes: Vec<u8>) -> Self {
        Self { path: path.to_owned(), bytes, mode: 0o755 }
    }
}

/// Parts of glibc that libnvidia-ml.so.1 names, although its code has long been in libc itself. Our program does not name them.
const NEEDED_BY_NVML: [&str; 4] = ["libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"];

/// The files that the loader would open for a program, and those beside libc that NVML needs; sorted by path.
pub(super) fn libraries(program: &Path) -> Result<Vec<File>> {
    let output = Command::new("ldd").arg(program).output().context("start ldd, which comes with glibc (libc-bin)")?;
    ensure!(output.status.success(), "ldd {} failed: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    let mut paths = loaded(&String::from_utf8_lossy(&output.stdout))
        .with_context(|| format!("what {} loads", program.display()))?;
    let libc = paths.iter().find(|path| path.ends_with("libc.so.6"));
    let folder =
        libc.and_then(|path| path.parent()).with_context(|| format!("{} loads no glibc", program.display()))?;
    let beside: Vec<_> = NEEDED_BY_NVML.iter().map(|name| folder.join(name)).collect();
    paths.extend(beside);
    paths.sort();
    paths.dedup();
    paths.iter().map(|path| read(path)).collect()
}

fn read(path: &Path) -> Result<File> {
    let bytes = fs::read(path).with_context(|| format!("read {}", path.display()))?;
    let text = path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))?;
    Ok(File::program(text.trim_start_matches('/'), bytes))
}

/// The paths in what ldd tells: `libc.so.6 => /lib/libc.so.6 (0x7f)`, or `/lib64/ld-linux-x86-64.so.2 (0x7f)` for the loader.
fn loaded(told: &str) -> Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for line in told.lines().map(str::trim) {
        if line.ends_with("not found") {
            bail!("a library is missing on this machine: {line}");
        }
        let place = line.split_once(" => ").map_or(line, |(_, place)| place);
        let path = place.split(" (").next().unwrap_or(place);
        // What is without a path is no file: the kernel gives it (linux-vdso.so.1).
        if path.starts_with('/') {
            paths.push(PathBuf::from(path));
        }
    }
    Ok(paths)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ldd_tells_is_read() {
        let told = "\tlinux-vdso.so.1 (0x00007ffc)\n\tlibgcc_s.so.1 => /lib/x86_64-linux-gnu/libgcc_s.so.1 (0x00007f01)\n\
                    \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f02)\n\t/lib64/ld-linux-x86-64.so.2 (0x00007f03)\n";
        let wanted =
            ["/lib/x86_64-linux-gnu/libgcc_s.so.1", "/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"];
        assert_eq!(loaded(told).unwrap(), wanted.map(PathBuf::from));
        let error = loaded("\tlibfoo.so.1 => not found\n").unwrap_err().to_string();
        assert!(error.contains("libfoo.so.1"), "{error}");
    }

    #[test]
    fn this_program_needs_a_loader_libc_and_what_nvml_names() {
        let files = libraries(&std::env::current_exe().unwrap()).unwrap();
        let names: Vec<_> = files.iter().filter_map(|file| file.path.rsplit('/').next()).collect();
        for name in ["libc.so.6", "libgcc_s.so.1"].iter().chain(&NEEDED_BY_NVML) {
            assert!(names.contains(name), "{name} in {names:?}");
        }
        assert!(names.iter().any(|name| name.starts_with("ld-linux")), "{names:?}");
        assert!(files.is_sorted_by_key(|file| &file.path));
    }
}
