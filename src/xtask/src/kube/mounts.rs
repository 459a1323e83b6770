//! The kernel's list of mounts.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// Where something is mounted, and what kind of file system it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Mount {
    pub(super) place: PathBuf,
    pub(super) kind: String,
}

/// All mounts, oldest first.
///
/// # Errors
/// When the list cannot be read.
pub(super) fn all() -> Result<Vec<Mount>> {
    let text = fs::read_to_string("/proc/self/mounts").context("read /proc/self/mounts")?;
    Ok(parse(&text))
}

/// Those below a folder, newest first: the order to unmount them in.
///
/// # Errors
/// When the list cannot be read.
pub(super) fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut places: Vec<_> = all()?.into_iter().map(|mount| mount.place).collect();
    places.retain(|place| place.starts_with(folder) && place != folder);
    places.reverse();
    Ok(places)
}

/// Odd letters of a path are written as octal numbers there; no path of ours has any.
fn parse(text: &str) -> Vec<Mount> {
    let mount = |line: &str| {
        let mut words = line.split(' ').skip(1);
        Some(Mount { place: words.next()?.into(), kind: words.next()?.to_owned() })
    };
    text.lines().filter_map(mount).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mount_has_a_place_and_a_kind() {
        let told =
            parse("overlay /tmp/a/rootfs overlay rw,relatime 0 0\ncgroup /sys/fs/cgroup/pids cgroup rw,pids 0 0\n");
        assert_eq!(told[0], Mount { place: "/tmp/a/rootfs".into(), kind: "overlay".to_owned() });
        assert_eq!(told[1].kind, "cgroup");
    }
}
