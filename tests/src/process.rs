//! A child process of a scenario: its log in a file, its first line of stdout awaited, ended when it is dropped.

use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdout, Command};

/// How long a program may take until it says that it is ready.
const READY_WITHIN: Duration = Duration::from_secs(20);
/// How long a program may take to end after SIGTERM.
const STOP_WITHIN: Duration = Duration::from_secs(15);
/// How many lines of a log stand in an error.
const LOG_TAIL: usize = 25;

/// A running program.
#[derive(Debug)]
pub struct Process {
    name: String,
    child: Child,
    log: PathBuf,
    stdout: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Process {
    /// Starts `program` with its stderr appended to `folder/<name>.log`.
    ///
    /// # Errors
    /// When the log cannot be opened or the program cannot be started.
    pub fn start(name: &str, program: &Path, folder: &Path, build: impl FnOnce(&mut Command)) -> Result<Self> {
        let log = folder.join(format!("{name}.log"));
        let file = File::options().create(true).append(true).open(&log);
        let file = file.with_context(|| format!("cannot open the log {}", log.display()))?;
        let mut command = std::process::Command::new(program);
        // A group of its own: a Ctrl-C in the terminal is for the one who started us, who then stops us in order.
        command.process_group(0);
        let mut command = Command::from(command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::from(file)).kill_on_drop(true);
        build(&mut command);
        let mut child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let stdout = child.stdout.take().ok_or_else(|| anyhow!("{name} has no stdout"))?;
        Ok(Self { name: name.to_owned(), child, log, stdout: BufReader::new(stdout).lines() })
    }

    /// Waits for a line of stdout that begins with `prefix` and gives the rest of it.
    ///
    /// # Errors
    /// When the program ends, or says nothing in time; the end of its log is part of the error.
    pub async fn line(&mut self, prefix: &str) -> Result<String> {
        let wait = async {
            while let Some(line) = self.stdout.next_line().await? {
                if let Some(rest) = line.strip_prefix(prefix) {
                    return Ok(rest.trim().to_owned());
                }
            }
            bail!("it ended its output without a line `{prefix}...`")
        };
        let found = tokio::time::timeout(READY_WITHIN, wait).await;
        let found = found.unwrap_or_else(|_| Err(anyhow!("no line `{prefix}...` within {READY_WITHIN:?}")));
        found.with_context(|| self.log_tail())
    }

    /// The process id, until it has ended.
    #[must_use]
    pub fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Ends it as a crash would (SIGKILL) and waits until it is gone.
    ///
    /// # Errors
    /// When the operating system refuses.
    pub async fn kill(&mut self) -> Result<()> {
        self.child.kill().await.with_context(|| format!("cannot kill {}", self.name))
    }

    /// Asks it to end (SIGTERM) and waits until it has.
    ///
    /// # Errors
    /// When it does not end in time, or ends with another exit code than 0.
    pub async fn stop(&mut self) -> Result<()> {
        self.signal(Signal::TERM)?;
        let ended = tokio::time::timeout(STOP_WITHIN, self.child.wait()).await;
        let status = ended.map_err(|_| anyhow!("{} did not end within {STOP_WITHIN:?} of SIGTERM", self.name))??;
        if !status.success() {
            bail!("{} ended with {status} after SIGTERM\n{}", self.name, self.log_tail());
        }
        Ok(())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// When the process has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = self.child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        let pid = pid.ok_or_else(|| anyhow!("{} has ended already\n{}", self.name, self.log_tail()))?;
        kill_process(pid, signal).with_context(|| format!("cannot signal {}", self.name))
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// When it has ended: with its exit status and the end of its log.
    pub fn check(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            None => Ok(()),
            Some(status) => bail!("{} ended on its own with {status}\n{}", self.name, self.log_tail()),
        }
    }

    /// Waits until it ends by itself and gives its exit code.
    ///
    /// # Errors
    /// When it does not end in time, or was ended by a signal.
    pub async fn exit_code(&mut self) -> Result<i32> {
        let ended = tokio::time::timeout(STOP_WITHIN, self.child.wait()).await;
        let status = ended.map_err(|_| anyhow!("{} still runs after {STOP_WITHIN:?}", self.name))??;
        status.code().ok_or_else(|| anyhow!("{} was ended by a signal", self.name))
    }

    /// All that it logged.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub fn log(&self) -> Result<String> {
        fs::read_to_string(&self.log).with_context(|| format!("cannot read {}", self.log.display()))
    }

    /// The end of its log, for an error.
    #[must_use]
    pub fn log_tail(&self) -> String {
        tail(&self.name, &self.log)
    }
}

/// The end of a log, for an error.
pub(crate) fn tail(name: &str, log: &Path) -> String {
    let text = fs::read_to_string(log).unwrap_or_else(|error| error.to_string());
    let lines: Vec<&str> = text.lines().collect();
    let tail = lines[lines.len().saturating_sub(LOG_TAIL)..].join("\n  ");
    format!("{name}, the end of its log {}:\n  {tail}", log.display())
}
