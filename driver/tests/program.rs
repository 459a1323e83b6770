//! The program from outside: what it does when nobody reads it, how it ends, and what it says when it cannot start.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is how they fail")]
#![expect(clippy::disallowed_methods, reason = "a program of its own runs on the real clock")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_gpu-driver");

/// The program with a node of its own in this directory: no NVML, and an API server that is not there.
fn program(directory: &Path) -> Command {
    let text = "{apiVersion: v1, kind: Config, current-context: t, clusters: [{name: t, cluster: {server: 'http://127.0.0.1:9'}}], \
                users: [{name: t, user: {}}], contexts: [{name: t, context: {cluster: t, user: t}}]}";
    std::fs::write(directory.join("kubeconfig"), text).unwrap();
    let mut command = Command::new(PROGRAM);
    command.args(["--node-name", "node-a", "--listen", "127.0.0.1:0"]);
    for flag in ["kubeconfig", "kubelet-root", "cdi-root", "state-dir", "sysfs-root", "nvml-library"] {
        command.arg(format!("--{flag}")).arg(directory.join(flag));
    }
    command
}

/// The end of a pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Stdio::from(writer)
}

/// A program that does not outlive its test.
struct Running(Child);

impl Running {
    /// Starts the program and returns it with the address that it prints.
    fn start(command: &mut Command) -> (Self, String) {
        let mut child = Self(command.stdout(Stdio::piped()).spawn().unwrap());
        let mut line = String::new();
        BufReader::new(child.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
        (child, address)
    }

    /// Ends it with SIGTERM; the exit code, and how long it took.
    fn end(mut self) -> (Option<i32>, Duration) {
        let asked = Instant::now();
        kill_process(Pid::from_child(&self.0), Signal::TERM).unwrap();
        (self.0.wait().unwrap().code(), asked.elapsed())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_log_that_nobody_reads_is_no_reason_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let (running, address) = Running::start(program(directory.path()).env("RUST_LOG", "debug").stderr(closed()));
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn a_stdout_that_nobody_reads_is_no_reason_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut running = Running(program(directory.path()).stdout(closed()).stderr(Stdio::piped()).spawn().unwrap());
    let log = BufReader::new(running.0.stderr.take().unwrap());
    // The rest of the log is read too, so that the program can write it.
    let mut lines = log.lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("stdout is closed")).unwrap();
    let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    assert_eq!(running.end().0, Some(0));
}

#[test]
fn sockets_that_cannot_be_made_do_not_hold_up_the_end() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("kubelet-root"), "in the way").unwrap();
    let mut child = Running(program(directory.path()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut lines = BufReader::new(child.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("cannot serve kubelet")).unwrap();
    assert!(line.contains("--kubelet-root"), "{line}");
    let (code, took) = child.end();
    assert_eq!(code, Some(0));
    assert!(took < Duration::from_secs(5), "{took:?}");
}

/// The reason stands in the log, in the form that was asked for, and nothing comes after it.
#[test]
fn the_last_line_of_a_start_that_failed_is_the_reason() {
    let directory = tempfile::tempdir().unwrap();
    let ended =
        program(directory.path()).args(["--log-format", "json", "--policy", "/no/such/policy"]).output().unwrap();
    assert_eq!(ended.status.code(), Some(2));
    let log = String::from_utf8(ended.stderr).unwrap();
    let last: serde_json::Value = serde_json::from_str(log.lines().last().unwrap()).unwrap();
    assert_eq!(last["level"], "ERROR");
    assert!(last["fields"]["message"].as_str().unwrap().contains("/no/such/policy"), "{log}");
    assert_eq!(log.matches("/no/such/policy").count(), 1, "{log}");
}

#[test]
fn directories_that_prepare_needs_show_in_readiness() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("cdi-root"), "in the way").unwrap();
    let (running, address) = Running::start(program(directory.path()).stderr(Stdio::null()));
    let asked = Instant::now();
    let ready = loop {
        let ready = get(&address, "/readyz");
        if ready.contains("[-]cdi failed: ") && ready.contains("[+]checkpoints ok") {
            break ready;
        }
        assert!(asked.elapsed() < Duration::from_secs(30), "{ready}");
    };
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("--cdi-root"), "{ready}");
    assert_eq!(running.end().0, Some(0));
}
