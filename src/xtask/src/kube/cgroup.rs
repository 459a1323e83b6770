//! The cgroup above all pods of a cluster, in every hierarchy that is mounted (one, or many as in cgroup v1).

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use rustix::process::Pid;

use super::layout::RunDir;
use super::{mounts, wait};

/// Makes it; kubelet wants it to be there.
///
/// # Errors
/// When a hierarchy refuses it.
pub(super) fn make(run: &RunDir) -> Result<()> {
    for hierarchy in hierarchies()? {
        let folder = hierarchy.join(run.name());
        fs::create_dir_all(&folder).with_context(|| format!("create cgroup {}", folder.display()))?;
        hand_down_controllers(&hierarchy)?;
        // In cgroup v1 a new cpuset has no processor and no memory, and nothing can be put into it.
        for file in ["cpuset.cpus", "cpuset.mems"] {
            let (from, to) = (hierarchy.join(file), folder.join(file));
            if from.exists() && to.exists() {
                let text = fs::read(&from).with_context(|| format!("read {}", from.display()))?;
                fs::write(&to, text).with_context(|| format!("write {}", to.display()))?;
            }
        }
    }
    Ok(())
}

/// In cgroup v2 a group has the controllers that the one above it hands down, and kubelet asks for them. Elsewhere there are none to hand down.
fn hand_down_controllers(hierarchy: &Path) -> Result<()> {
    let controllers = fs::read_to_string(hierarchy.join("cgroup.controllers")).unwrap_or_default();
    for controller in controllers.split_whitespace() {
        let file = hierarchy.join("cgroup.subtree_control");
        let wrong = || format!("hand down {controller} with {}", file.display());
        fs::write(&file, format!("+{controller}")).with_context(wrong)?;
    }
    Ok(())
}

/// The processes in it, at any depth.
///
/// # Errors
/// When a hierarchy cannot be read.
pub(super) fn processes(run: &RunDir) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for folder in folders(run)? {
        // A cgroup can go, and a threaded one refuses to tell.
        let Ok(text) = fs::read_to_string(folder.join("cgroup.procs")) else { continue };
        found.extend(text.lines().filter_map(|line| Pid::from_raw(line.parse().ok()?)));
    }
    found.sort_by_key(|pid| pid.as_raw_nonzero());
    found.dedup();
    Ok(found)
}

/// Whether a process is in it still.
pub(super) fn holds(run: &RunDir, pid: Pid) -> bool {
    let path = format!("/proc/{}/cgroup", pid.as_raw_nonzero());
    fs::read_to_string(path).is_ok_and(|text| text.contains(&format!(":/{}/", run.name())))
}

/// Removes it. The kernel takes a moment after the last process has ended.
///
/// # Errors
/// When it is still in use after some seconds.
pub(super) fn remove(run: &RunDir) -> Result<()> {
    let mut refused = None;
    let gone = wait::until(Duration::from_secs(10), || {
        refused =
            folders(run)?.into_iter().rev().find_map(|folder| remove_one(&folder).err().map(|error| (folder, error)));
        Ok(refused.is_none().then_some(()))
    })?;
    match (gone, refused) {
        (None, Some((folder, error))) => Err(error).with_context(|| format!("remove cgroup {}", folder.display())),
        _ => Ok(()),
    }
}

fn remove_one(folder: &Path) -> io::Result<()> {
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

/// The cgroup and all below it, in every hierarchy; a folder before what it holds.
fn folders(run: &RunDir) -> Result<Vec<PathBuf>> {
    let mut found: Vec<_> =
        hierarchies()?.iter().map(|hierarchy| hierarchy.join(run.name())).filter(|folder| folder.exists()).collect();
    let mut next = 0;
    while let Some(folder) = found.get(next) {
        // A folder that is gone by now holds nothing.
        let below = fs::read_dir(folder).into_iter().flatten().flatten();
        let below: Vec<_> = below.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).collect();
        found.extend(below.iter().map(fs::DirEntry::path));
        next += 1;
    }
    Ok(found)
}

fn hierarchies() -> Result<Vec<PathBuf>> {
    let mounts = mounts::all()?.into_iter().filter(|mount| mount.kind.starts_with("cgroup"));
    Ok(mounts.map(|mount| mount.place).collect())
}
