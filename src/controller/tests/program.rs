//! The program from outside: its stdout line, what it serves, its exit codes, and its end.

#![expect(clippy::unwrap_used, reason = "helpers of tests: a panic is how they fail")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_device-taint-controller");

/// A kubeconfig of a server that is not there.
fn kubeconfig(directory: &Path) -> String {
    let path = directory.join("kubeconfig");
    let text = "{apiVersion: v1, kind: Config, current-context: t, clusters: [{name: t, cluster: {server: 'http://127.0.0.1:9'}}], \
                users: [{name: t, user: {}}], contexts: [{name: t, context: {cluster: t, user: t}}]}";
    std::fs::write(&path, text).unwrap();
    path.display().to_string()
}

fn ended(arguments: &[&str]) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = Command::new(PROGRAM).args(arguments).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: t\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// A program that does not outlive its test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// The end of a pipe that nobody reads.
fn closed() -> Stdio {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    Stdio::from(writer)
}

/// Starts the program and returns it with the address that it prints.
fn start(arguments: &[&str], stderr: Stdio) -> (Running, String) {
    let mut child = Command::new(PROGRAM).args(arguments).stdout(Stdio::piped()).stderr(stderr).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap().to_owned();
    (Running(child), address)
}

#[test]
fn a_server_that_is_away_is_no_reason_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(directory.path());
    let (mut running, address) = start(&["--kubeconfig", &kubeconfig, "--listen", "127.0.0.1:0"], Stdio::null());
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    let ready = get(&address, "/readyz");
    assert!(ready.starts_with("HTTP/1.1 503") && ready.contains("pods: waiting for the first list"), "{ready}");
    assert!(get(&address, "/metrics").contains("device_taint_synced{kind=\"pods\"} 0"));
    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_log_that_nobody_reads_is_no_reason_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(directory.path());
    let (mut running, address) = start(&["--kubeconfig", &kubeconfig, "--listen", "127.0.0.1:0"], closed());
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
}

#[test]
fn a_stdout_that_nobody_reads_is_no_reason_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(directory.path());
    let arguments = ["--kubeconfig", &kubeconfig, "--listen", "127.0.0.1:0"];
    let child = Command::new(PROGRAM).args(arguments).stdout(closed()).stderr(Stdio::piped()).spawn().unwrap();
    let mut running = Running(child);
    // Held until the end, so that the log stays open.
    let mut lines = BufReader::new(running.0.stderr.take().unwrap()).lines().map(Result::unwrap);
    let line = lines.find(|line| line.contains("stdout is closed")).unwrap();
    let address = line.split("address=").nth(1).unwrap().split_whitespace().next().unwrap();
    assert!(get(address, "/healthz").starts_with("HTTP/1.1 200"));
    kill_process(Pid::from_child(&running.0), Signal::TERM).unwrap();
    assert_eq!(running.0.wait().unwrap().code(), Some(0));
}

#[test]
fn what_the_command_line_gets_wrong_ends_with_2_and_names_it() {
    let (code, text) = ended(&["--device-mode", "sometimes"]);
    assert!(code == Some(2) && text.contains("enforce"), "{code:?} {text}");
    let (code, text) = ended(&["--kubeconfig", "/nonexistent/file"]);
    assert!(code == Some(2) && text.contains("/nonexistent/file"), "{code:?} {text}");
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(directory.path());
    let (code, text) = ended(&["--kubeconfig", &kubeconfig, "--state-dir", &format!("{kubeconfig}/sub")]);
    assert!(code == Some(2) && text.contains("--state-dir"), "{code:?} {text}");
}

#[test]
fn a_kubeconfig_of_the_environment_that_is_not_there_is_named() {
    let mut command = Command::new(PROGRAM);
    command.env_remove("KUBERNETES_SERVICE_HOST").env("KUBECONFIG", "/missing");
    let Output { status, stderr, .. } = command.output().unwrap();
    let text = String::from_utf8(stderr).unwrap();
    assert!(status.code() == Some(2) && text.contains("/missing that $KUBECONFIG names does not exist"), "{text}");
}

#[test]
fn an_address_that_is_taken_ends_with_1() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let directory = tempfile::tempdir().unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let (code, text) = ended(&["--kubeconfig", &kubeconfig(directory.path()), "--listen", &address]);
    assert!(code == Some(1) && text.contains("--listen"), "{code:?} {text}");
}
