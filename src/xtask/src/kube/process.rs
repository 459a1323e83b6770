//! Components as processes: started in a group of their own with a log and a mark, found again by the mark, ended by it.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};

use super::flags::Component;
use super::layout::RunDir;

/// The variable that marks every process of a cluster. containerd hands it on to its shims; containers do not get it.
const MARK: &str = "DEVICETAINT_KUBE_RUN";

/// So many lines of a log go into a message.
const TAIL: usize = 12;

/// How long a killed process may take to end.
const END: Duration = Duration::from_secs(10);

/// A component that runs.
pub(super) struct Running {
    pub(super) component: Component,
    child: Child,
}

/// Its environment: nothing of ours but what is named here.
pub(super) fn environment(run: &RunDir, programs: &Path) -> BTreeMap<String, String> {
    // containerd looks for its shim and for runc on PATH, kubelet for mount.
    let path = format!("{}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", programs.display());
    let home = run.root().display().to_string();
    BTreeMap::from([("PATH".to_owned(), path), ("HOME".to_owned(), home.clone()), (MARK.to_owned(), home)])
}

/// Marks a program that is none of the cluster's: it, and all that it starts, ends with the cluster at the latest.
pub(super) fn mark<'a>(command: &'a mut Command, run: &RunDir) -> &'a mut Command {
    command.env(MARK, run.root())
}

/// Starts it with its output in its log.
///
/// # Errors
/// When the program cannot be started or the log cannot be written.
pub(super) fn start(run: &RunDir, component: Component, environment: &BTreeMap<String, String>) -> Result<Running> {
    let path = run.log(&component.name);
    let log = OpenOptions::new().create(true).append(true).open(&path);
    let log = log.with_context(|| format!("write {}", path.display()))?;
    let copy = log.try_clone().with_context(|| format!("write {}", path.display()))?;
    let mut command = Command::new(&component.program);
    command.args(&component.arguments).env_clear().envs(environment).current_dir(run.root());
    // A group of its own: Ctrl-C at the terminal is not meant for it.
    command.stdin(Stdio::null()).stdout(log).stderr(copy).process_group(0);
    let child = command.spawn().with_context(|| format!("start {}", component.program.display()))?;
    Ok(Running { component, child })
}

impl Running {
    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// # Errors
    /// When it has ended: with its log's last lines.
    pub(super) fn ensure_alive(&mut self, run: &RunDir) -> Result<()> {
        let name = &self.component.name;
        if let Some(status) = self.child.try_wait().with_context(|| format!("look after {name}"))? {
            bail!("{name} ended with {status}; {}", log_end(run, name));
        }
        Ok(())
    }
}

/// Where a component's log is, and its last lines.
pub(super) fn log_end(run: &RunDir, component: &str) -> String {
    let path = run.log(component);
    let text = fs::read(&path).unwrap_or_default();
    format!("the log {} ends with:\n{}", path.display(), last_lines(&String::from_utf8_lossy(&text)))
}

fn last_lines(text: &str) -> String {
    let lines: Vec<_> = text.lines().filter(|line| !line.trim().is_empty()).collect();
    if lines.is_empty() {
        return "  (it is empty)".to_owned();
    }
    lines[lines.len().saturating_sub(TAIL)..].iter().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// The processes that bear a cluster's mark.
///
/// # Errors
/// When the list of processes cannot be read.
pub(super) fn marked(run: &RunDir) -> Result<Vec<Pid>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("read /proc")? {
        let name = entry.context("read /proc")?.file_name();
        let pid = name.to_str().and_then(|name| name.parse().ok()).and_then(Pid::from_raw);
        found.extend(pid.filter(|&pid| is_marked(run, pid)));
    }
    Ok(found)
}

/// Whether a process bears the mark. One that has ended bears none.
pub(super) fn is_marked(run: &RunDir, pid: Pid) -> bool {
    let mark = format!("{MARK}={}", run.root().display());
    let environment = fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero())).unwrap_or_default();
    environment.split(|&byte| byte == 0).any(|variable| variable == mark.as_bytes())
}

/// Kills processes and waits until they have ended. `still_ours` is asked once more when the kernel can no longer give the number to another process.
///
/// # Errors
/// When one does not end.
pub(super) fn kill(pids: &[Pid], still_ours: impl Fn(Pid) -> bool) -> Result<()> {
    let mut killed = Vec::new();
    for &pid in pids {
        // One that is gone needs no signal.
        let Ok(handle) = rustix::process::pidfd_open(pid, PidfdFlags::empty()) else { continue };
        if still_ours(pid) && rustix::process::pidfd_send_signal(&handle, Signal::KILL).is_ok() {
            killed.push((pid, handle));
        }
    }
    killed.iter().try_for_each(|(pid, handle)| wait_for_end(*pid, handle))
}

fn wait_for_end(pid: Pid, handle: &OwnedFd) -> Result<()> {
    let limit = Timespec::try_from(END).context("time to wait")?;
    let mut watched = [PollFd::from_borrowed_fd(handle.as_fd(), PollFlags::IN)];
    match rustix::event::poll(&mut watched, Some(&limit)) {
        Ok(0) => bail!("process {} does not end, {} s after it was killed", pid.as_raw_nonzero(), END.as_secs()),
        // A signal to us: the caller looks again anyway.
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error).with_context(|| format!("wait for the end of process {}", pid.as_raw_nonzero())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run() -> (tempfile::TempDir, RunDir) {
        let parent = tempfile::Builder::new().prefix("k").tempdir_in("/tmp").unwrap();
        let run = RunDir::new(&parent.path().join("r")).unwrap();
        fs::create_dir_all(run.path("logs")).unwrap();
        (parent, run)
    }

    fn shell(script: &str) -> Component {
        Component {
            name: "shell".to_owned(),
            program: "/bin/sh".into(),
            arguments: vec!["-c".to_owned(), script.to_owned()],
        }
    }

    fn started(run: &RunDir, script: &str) -> Running {
        start(run, shell(script), &environment(run, Path::new("/nowhere"))).unwrap()
    }

    #[test]
    fn a_process_and_its_children_are_found_by_the_mark_and_killed() {
        let ((_parent, run), (_other_parent, other)) = (run(), run());
        let mut ours = started(&run, "sleep 600 & wait");
        let mut theirs = started(&other, "exec sleep 600");
        let found = crate::kube::wait::until(Duration::from_secs(30), || {
            Ok(Some(marked(&run)?).filter(|found| found.len() == 2))
        });
        let found = found.unwrap().expect("the shell and its child");
        kill(&found, |pid| is_marked(&run, pid)).unwrap();
        assert_eq!(marked(&run).unwrap(), []);
        assert!(ours.ensure_alive(&run).unwrap_err().to_string().contains("ended with signal: 9"));
        theirs.ensure_alive(&other).unwrap();
        kill(&marked(&other).unwrap(), |_| true).unwrap();
        theirs.child.wait().unwrap();
    }

    #[test]
    fn a_process_that_ended_is_told_with_its_status_and_its_last_words() {
        let (_parent, run) = run();
        let mut shell = started(&run, "i=0; while [ $i -lt 30 ]; do i=$((i+1)); echo line $i; done; exit 7");
        shell.child.wait().unwrap();
        let told = shell.ensure_alive(&run).unwrap_err().to_string();
        assert!(told.starts_with("shell ended with exit status: 7; the log "), "{told}");
        assert!(told.ends_with("  line 29\n  line 30") && !told.contains("line 18\n"), "{told}");
    }
}
