//! The server as its clients see it: over HTTP, through kube's client and through requests made by hand.

mod custom;
mod deletes;
mod devices;
mod evictions;
mod faults;
mod lists;
mod watches;
mod writes;

use std::time::Duration;

use ::http::{Request, Response};
use http_body_util::BodyExt;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::value::text;
use super::{Options, Running, Server, StartError, base64};

/// Longer than anything here takes, also on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

const JSON: &str = "application/json";
const MERGE: &str = "application/merge-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const APPLY: &str = "application/apply-patch+yaml";

/// A server and a client of it.
struct Sim {
    running: Running,
    client: Client,
    _folder: TempDir,
}

/// The lines of a watch.
struct Lines {
    body: Body,
    rest: Vec<u8>,
}

impl Sim {
    async fn start() -> Self {
        Self::with(|_| {}).await
    }

    async fn with(change: impl FnOnce(&mut Options)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut options = Options::new(folder.path());
        change(&mut options);
        let running = Server::start(options).await.unwrap();
        let file = Kubeconfig::read_from(&running.kubeconfig).unwrap();
        let mut config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.unwrap();
        config.default_retry = false;
        Self { client: Client::try_from(config).unwrap(), running, _folder: folder }
    }

    async fn raw(&self, method: &str, path: &str, content_type: &str, body: Vec<u8>) -> kube::Result<Response<Body>> {
        let request = Request::builder().method(method).uri(path).header("content-type", content_type);
        let request = request.header("user-agent", "tester/1").body(Body::from(body)).unwrap();
        tokio::time::timeout(PATIENCE, self.client.send(request)).await.unwrap()
    }

    /// Sends a body of any type; gives code and answer.
    async fn send(&self, method: &str, path: &str, content_type: &str, body: Value) -> (u16, Value) {
        let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
        let answer = self.raw(method, path, content_type, body).await.unwrap();
        let code = answer.status().as_u16();
        let bytes = answer.into_body().collect().await.unwrap().to_bytes();
        (code, serde_json::from_slice(&bytes).unwrap())
    }

    async fn get(&self, path: &str) -> Value {
        self.done("GET", path, JSON, Value::Null).await
    }

    async fn post(&self, path: &str, body: Value) -> Value {
        self.done("POST", path, JSON, body).await
    }

    async fn put(&self, path: &str, body: Value) -> Value {
        self.done("PUT", path, JSON, body).await
    }

    async fn patch(&self, path: &str, content_type: &str, body: Value) -> Value {
        self.done("PATCH", path, content_type, body).await
    }

    async fn delete(&self, path: &str, options: Value) -> Value {
        self.done("DELETE", path, JSON, options).await
    }

    /// A request that must succeed.
    async fn done(&self, method: &str, path: &str, content_type: &str, body: Value) -> Value {
        let (code, answer) = self.send(method, path, content_type, body).await;
        assert!((200..300).contains(&code), "{method} {path}: {code} {answer}");
        answer
    }

    /// A request that must fail with this code and reason; gives the message.
    async fn refused(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        body: Value,
        code: u16,
        reason: &str,
    ) -> String {
        let (found, status) = self.send(method, path, content_type, body).await;
        assert_eq!((found, text(&status, &["reason"])), (code, reason), "{status}");
        assert_eq!(status["kind"], "Status");
        text(&status, &["message"]).to_owned()
    }

    async fn watch(&self, path: &str) -> Lines {
        let answer = self.raw("GET", path, JSON, Vec::new()).await.unwrap();
        assert_eq!(answer.status(), 200);
        Lines { body: answer.into_body(), rest: Vec::new() }
    }

    async fn fault(&self, fault: Value) -> u64 {
        self.post("/sim/faults", fault).await["id"].as_u64().unwrap()
    }

    /// A bound, running and ready pod.
    async fn ready_pod(&self, name: &str, labels: Value) -> Value {
        self.post(PODS, json!({"metadata": {"name": name, "labels": labels}, "spec": spec(Some("n1"))})).await;
        let status = json!({"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}});
        self.patch(&format!("{PODS}/{name}/status"), MERGE, status).await
    }
}

impl Lines {
    /// The next event as type and object; none at the end of the watch.
    async fn next(&mut self) -> Option<(String, Value)> {
        tokio::time::timeout(PATIENCE, self.read()).await.unwrap().unwrap()
    }

    async fn read(&mut self) -> kube::Result<Option<(String, Value)>> {
        loop {
            if let Some(end) = self.rest.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.rest.drain(..=end).collect();
                let mut event: Value = serde_json::from_slice(&line).unwrap();
                return Ok(Some((text(&event, &["type"]).to_owned(), event["object"].take())));
            }
            match self.body.frame().await {
                None => return Ok(None),
                Some(frame) => self.rest.extend_from_slice(&frame?.into_data().unwrap()),
            }
        }
    }

    /// The type of the next event and the name of its object.
    async fn named(&mut self) -> (String, String) {
        let (kind, object) = self.next().await.unwrap();
        (kind, text(&object, &["metadata", "name"]).to_owned())
    }
}

const PODS: &str = "/api/v1/namespaces/default/pods";
const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const RULES: &str = "/apis/resource.k8s.io/v1/devicetaintrules";
const CLAIMS: &str = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims";

fn spec(node: Option<&str>) -> Value {
    let mut spec = json!({"containers": [{"name": "c", "image": "i"}]});
    if let Some(node) = node {
        spec["nodeName"] = json!(node);
    }
    spec
}

fn named(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

fn version(object: &Value) -> &str {
    text(object, &["metadata", "resourceVersion"])
}

#[test]
fn base64_pads_as_it_should() {
    assert_eq!(base64(b""), "");
    assert_eq!(base64(b"f"), "Zg==");
    assert_eq!(base64(b"fo"), "Zm8=");
    assert_eq!(base64(b"foobar"), "Zm9vYmFy");
}

#[tokio::test]
async fn only_loopback_addresses_are_served() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = Options::new(folder.path());
    options.listen = "0.0.0.0:0".parse().unwrap();
    assert!(matches!(Server::start(options).await, Err(StartError::NotLoopback(_))));
}

#[tokio::test]
async fn kube_speaks_tls_with_the_written_kubeconfig() {
    let sim = Sim::with(|options| options.tls = true).await;
    assert!(sim.running.url.starts_with("https://127.0.0.1:"));
    let version = sim.client.apiserver_version().await.unwrap();
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "37"));
}

#[tokio::test]
async fn a_stopped_server_answers_no_more() {
    let sim = Sim::start().await;
    let address = sim.running.address;
    sim.running.stop().await;
    assert!(tokio::net::TcpStream::connect(address).await.is_err());
}

#[tokio::test]
async fn garbage_ends_its_own_connection_only() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let sim = Sim::start().await;
    let mut stream = tokio::net::TcpStream::connect(sim.running.address).await.unwrap();
    stream.write_all(b"\x16\x03\x01 this is no HTTP\r\n\r\n").await.unwrap();
    let mut answer = Vec::new();
    tokio::time::timeout(PATIENCE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 400"));
    sim.get(MAPS).await;
}

#[tokio::test]
async fn a_body_without_end_is_not_read() {
    let sim = Sim::start().await;
    let large = json!({"metadata": {"name": "a"}, "data": {"k": "x".repeat(4 * 1024 * 1024)}});
    sim.refused("POST", MAPS, JSON, large, 413, "RequestEntityTooLarge").await;
}
