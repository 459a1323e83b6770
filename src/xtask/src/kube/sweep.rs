//! Removes all that a cluster left on the machine, however it ended: processes, mounts, interfaces, cgroups, addresses, files.
//!
//! Nothing here reads what `up` noted. Everything is found by the run folder's path or by the name that comes from it.

use std::fs;
use std::io;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::mount::UnmountFlags;
use serde_json::Value;

use super::layout::RunDir;
use super::{cgroup, mounts, network, process, wait};

/// Where CNI's library remembers what it set up.
const CNI_RESULTS: &str = "/var/lib/cni/results";
/// Where kubelet links every container's log, wherever its own folder is.
const LOG_LINKS: &str = "/var/log/containers";

/// Where kubelet listens for device plugins.
const DEVICE_PLUGINS: &str = "/var/lib/kubelet/device-plugins/kubelet.sock";

/// What is left of the run folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    Nothing,
    Logs,
}

/// # Errors
/// When something cannot be removed.
pub(super) fn sweep(run: &RunDir, keep: Keep) -> Result<()> {
    end_processes(run)?;
    unmount(run)?;
    remove_interfaces(run)?;
    cgroup::remove(run)?;
    network::remove_node_address(run)?;
    remove_log_links(run)?;
    remove_device_plugin_socket()?;
    empty(run, keep)
}

/// Components and shims bear the mark, containers are in the cgroup. Both are looked for until none is found: a process that was about to start another
/// one may have done so.
fn end_processes(run: &RunDir) -> Result<()> {
    let ended = wait::until(Duration::from_secs(30), || {
        let (marked, contained) = (process::marked(run)?, cgroup::processes(run)?);
        process::kill(&marked, |pid| process::is_marked(run, pid))?;
        process::kill(&contained, |pid| cgroup::holds(run, pid))?;
        Ok((marked.is_empty() && contained.is_empty()).then_some(()))
    })?;
    ended.with_context(|| format!("processes of {} come up again and again", run.root().display()))
}

fn unmount(run: &RunDir) -> Result<()> {
    // A mount can hide another one below it: what the first round leaves, the next finds.
    for _ in 0..5 {
        let places = mounts::below(run.root())?;
        if places.is_empty() {
            return Ok(());
        }
        for place in places {
            match rustix::mount::unmount(&place, UnmountFlags::DETACH) {
                // It went with the one above it.
                Ok(()) | Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOENT) => {}
                Err(error) => return Err(error).with_context(|| format!("unmount {}", place.display())),
            }
        }
    }
    bail!("still mounted below {}: {:?}", run.root().display(), mounts::below(run.root())?)
}

/// The host's ends of the pods' interfaces. The kernel removes them too, some time after the last process of a pod has ended.
fn remove_interfaces(run: &RunDir) -> Result<()> {
    let prefix = format!("{}-", run.name());
    for path in entries(Path::new(CNI_RESULTS))? {
        if !path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix)) {
            continue;
        }
        let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
        for name in host_interfaces(&text) {
            network::remove_interface(&name)?;
        }
        fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// The interfaces of a CNI result that are not in a pod. A result that was cut short names none.
fn host_interfaces(result: &[u8]) -> Vec<String> {
    let value: Value = serde_json::from_slice(result).unwrap_or_default();
    let interfaces = value["result"]["interfaces"].as_array().cloned().unwrap_or_default();
    let on_host = interfaces.iter().filter(|interface| interface["sandbox"].as_str().unwrap_or_default().is_empty());
    on_host.filter_map(|interface| interface["name"].as_str().map(str::to_owned)).collect()
}

/// kubelet listens for device plugins at one place of the machine, whatever its own folder is. Where nobody listens any more, the socket goes.
fn remove_device_plugin_socket() -> Result<()> {
    let refused =
        UnixStream::connect(DEVICE_PLUGINS).is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused);
    if refused {
        fs::remove_file(DEVICE_PLUGINS).with_context(|| format!("remove {DEVICE_PLUGINS}"))?;
    }
    Ok(())
}

fn remove_log_links(run: &RunDir) -> Result<()> {
    for path in entries(Path::new(LOG_LINKS))? {
        if fs::read_link(&path).is_ok_and(|target| target.starts_with(run.root())) {
            fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn empty(run: &RunDir, keep: Keep) -> Result<()> {
    for path in entries(run.root())? {
        // The mark of a run folder goes last, with the folder.
        if path.ends_with(".kube-run") || keep == Keep::Logs && path.ends_with("logs") {
            continue;
        }
        let is_folder = fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        let removed = if is_folder { fs::remove_dir_all(&path) } else { fs::remove_file(&path) };
        removed.with_context(|| format!("remove {}", path.display()))?;
    }
    Ok(())
}

/// What is in a folder; nothing where there is none.
fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let wrong = || format!("read {}", folder.display());
    match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        read => read.with_context(wrong)?.map(|entry| Ok(entry.with_context(wrong)?.path())).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_end_of_a_pods_interfaces_is_found() {
        let result = br#"{"kind":"cniCacheV1","result":{"interfaces":[
            {"name":"veth12","mac":"x"},{"name":"eth0","sandbox":"/run/netns/a"}]}}"#;
        assert_eq!(host_interfaces(result), ["veth12"]);
        assert!(host_interfaces(b"{\"resu").is_empty());
    }

    #[test]
    fn the_folder_is_emptied_but_for_its_mark_and_the_logs_that_are_wanted() {
        let parent = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let run = RunDir::new(&parent.path().join("r")).unwrap();
        let _lock = run.claim().unwrap();
        fs::create_dir_all(run.path("logs")).unwrap();
        fs::create_dir_all(run.path("etcd/member")).unwrap();
        fs::write(run.path("kubeconfig"), "").unwrap();
        empty(&run, Keep::Logs).unwrap();
        assert!(run.path("logs").exists() && !run.path("etcd").exists() && !run.path("kubeconfig").exists());
        empty(&run, Keep::Nothing).unwrap();
        assert!(run.is_marked() && !run.path("logs").exists());
    }
}
