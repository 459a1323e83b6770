//! The `sim` program as a person meets it: flags that make no sense, a server that is away, a reader that is gone.
#![expect(clippy::unwrap_used, reason = "helpers of tests may fail the test")]

use std::io::{BufRead as _, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A program that ends with the test.
struct Running(Child);

impl Running {
    fn start(command: &mut Command) -> Self {
        Self(command.stdin(Stdio::null()).spawn().unwrap())
    }

    /// Asks it to end, and says with which code it did.
    fn end(mut self) -> Option<i32> {
        let id = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        self.0.wait().unwrap().code()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // One that has ended already cannot be killed, and has been waited for.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

fn sim(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sim"));
    command.args(arguments).env_remove("RUST_LOG");
    command
}

fn lines(stream: impl Read) -> impl Iterator<Item = String> {
    BufReader::new(stream).lines().map(Result::unwrap)
}

fn kubeconfig(folder: &Path, server: &str) -> PathBuf {
    let text = format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: sim\ncontexts: [{{name: sim, context: {{cluster: sim, user: me}}}}]\n\
         clusters: [{{name: sim, cluster: {{server: '{server}'}}}}]\nusers: [{{name: me, user: {{}}}}]\n"
    );
    let path = folder.join("kubeconfig");
    std::fs::write(&path, text).unwrap();
    path
}

#[test]
fn names_that_make_no_sense_are_refused_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    for (nodes, part) in [(["--node", "N_1"].as_slice(), "'N_1'"), (&["--node", "n1", "--node", "n1"], "twice")] {
        let output = sim(&["up", "--root", root]).args(nodes).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains(part) && said.contains("--node"), "{said}");
    }
}

/// That the server answers is told only when it does: what was told before was all while it was away.
#[test]
fn an_outage_is_told_once_with_the_address() {
    let folder = tempfile::tempdir().unwrap();
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = format!("http://127.0.0.1:{port}");
    let kubeconfig = kubeconfig(folder.path(), &server);
    for part in ["scheduler", "claims", "kubelet"] {
        let mut command = sim(&[part, "--kubeconfig", kubeconfig.to_str().unwrap()]);
        if part == "kubelet" {
            command.args(["--node", "n1", "--root"]).arg(folder.path().join("kubelet"));
        }
        let mut client = Running::start(command.stderr(Stdio::piped()));
        let usual = |line: &String| !line.contains(" INFO ") || line.contains("the API server");
        let mut said = lines(client.0.stderr.take().unwrap()).filter(usual);
        for outage in ["before the start", "later"] {
            let away = said.next().unwrap();
            assert!(away.contains(&server) && away.contains("cannot be reached"), "{part}, {outage}: {away}");
            let running = serve(&folder.path().join("server"), port);
            let back = said.next().unwrap();
            assert!(back.contains(&server) && back.contains("answers"), "{part}, {outage}: {back}");
            assert_eq!(running.end(), Some(0), "{part}, {outage}");
        }
        assert_eq!(client.end(), Some(0), "{part}");
    }
}

fn serve(root: &Path, port: u16) -> Running {
    let listen = format!("127.0.0.1:{port}");
    let mut command = sim(&["server", "--root", root.to_str().unwrap(), "--listen", &listen]);
    Running::start(command.stdout(Stdio::null()).stderr(Stdio::null()))
}

#[test]
fn a_log_that_nobody_reads_ends_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let mut command = sim(&["up", "--node", "n1", "--root", folder.path().to_str().unwrap()]);
    let mut cluster = Running::start(command.stdout(Stdio::piped()).stderr(writer));
    drop(command);
    let ready = lines(cluster.0.stdout.take().unwrap()).next().unwrap_or_default();
    assert!(ready.starts_with("ready kubeconfig="), "{ready:?}");
    assert_eq!(cluster.end(), Some(0));
}
