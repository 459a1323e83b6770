//! Being told to end (SIGINT, SIGTERM, SIGHUP) while a cluster of ours runs: it is heard between two looks, and handed on to the program that we wait for.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};

use super::{say, wait};

/// How long a program may take to end when it is told to: the scenarios stop their own processes.
const END: Duration = Duration::from_secs(60);

/// Whether this process was told to end. From the first one on, a signal ends nothing by itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// # Errors
    /// When signals cannot be heard.
    pub(super) fn listen() -> Result<Self> {
        let told = Self::default();
        for signal in [signal_hook::consts::SIGINT, signal_hook::consts::SIGTERM, signal_hook::consts::SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&told.0)).context("listen for signals")?;
        }
        Ok(told)
    }

    /// # Errors
    /// When it was told.
    pub(super) fn ensure_not_told(&self) -> Result<()> {
        ensure!(!self.told(), "interrupted; all that was started is stopped");
        Ok(())
    }

    fn told(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    /// Runs a program to its end, in a process group of its own: Ctrl-C at the terminal reaches it through us, and once.
    ///
    /// # Errors
    /// When it cannot be started, or we were told to end: then it has ended too.
    pub(super) fn attend(&self, command: &mut Command) -> Result<ExitStatus> {
        let name = command.get_program().display().to_string();
        let mut child = command.process_group(0).spawn().with_context(|| format!("start {name}"))?;
        let ended = wait::until(Duration::MAX, || match child.try_wait().context("look after a program")? {
            Some(status) => Ok(Some(Some(status))),
            None => Ok(self.told().then_some(None)),
        })?;
        if let Some(status) = ended.flatten() {
            return Ok(status);
        }
        say(&format!("interrupted; ending {name}"));
        end(&mut child).with_context(|| format!("end {name}"))?;
        bail!("interrupted; all that was started is stopped")
    }
}

/// Tells a group to end, and kills it when its leader does not.
fn end(child: &mut Child) -> Result<()> {
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("it has no process number")?;
    kill_process_group(group, Signal::TERM)?;
    if wait::until(END, || Ok(child.try_wait()?))?.is_none() {
        kill_process_group(group, Signal::KILL)?;
        child.wait()?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("/bin/sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn a_program_that_nobody_interrupts_ends_by_itself() {
        let status = Interrupt::default().attend(&mut shell("exit 3")).unwrap();
        assert_eq!(status.code(), Some(3));
    }

    #[test]
    fn who_is_told_to_end_tells_the_program_and_waits_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let (begun, heard) = (folder.path().join("begun"), folder.path().join("heard"));
        let script = format!(
            "trap 'echo yes > {}; exit 0' TERM; : > {}; while :; do sleep 0.1; done",
            heard.display(),
            begun.display()
        );
        let interrupt = Interrupt::default();
        let tell = interrupt.clone();
        let teller = std::thread::spawn(move || {
            let begun = wait::until(Duration::from_secs(30), || Ok(begun.exists().then_some(())));
            tell.0.store(true, Ordering::Relaxed);
            begun.unwrap().expect("the program begins");
        });
        let error = interrupt.attend(&mut shell(&script)).unwrap_err();
        teller.join().unwrap();
        assert_eq!(std::fs::read_to_string(&heard).unwrap(), "yes\n");
        assert!(error.to_string().contains("interrupted") && interrupt.ensure_not_told().is_err(), "{error}");
    }
}
