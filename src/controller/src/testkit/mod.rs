//! An API server for tests, in the process and on the paused clock: lists, watches, evictions, events, rules, and faults.
//!
//! Tests set objects and faults, let the real tasks work against it, and look at what is stored and what was asked for.

mod objects;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Method, Request, Response};
use kube::Client;
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::mpsc;

pub(crate) use objects::*;

/// What the next matching calls get instead of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    /// This status.
    Status(u16),
    /// A refusal by a disruption budget.
    Budget,
    /// No answer, ever.
    Hang,
    /// The connection breaks before the server did anything.
    Cut,
    /// The server does what was asked, and the connection breaks before the answer.
    Lost,
}

/// The calls that a fault is for: method and a part of the path; how often; what.
#[derive(Debug)]
struct Trap {
    method: Method,
    path: String,
    left: usize,
    fault: Fault,
}

/// A body that can be a stream: kube's own cannot be made of one.
type Answer = Response<axum::body::Body>;

/// An object's collection and name, as its path: `/api/v1/pods` and `ml/train`.
type Place = (String, String);

#[derive(Default)]
struct World {
    version: u64,
    objects: BTreeMap<Place, Value>,
    /// Everything that happened, for watches that begin at a version.
    history: Vec<(u64, String, Value)>,
    watches: Vec<(String, mpsc::UnboundedSender<Bytes>)>,
    traps: Vec<Trap>,
    log: Vec<String>,
    events: Vec<Value>,
    without_rules: bool,
}

/// The server; all clones are one.
#[derive(Clone, Default)]
pub(crate) struct Api(Arc<Mutex<World>>);

impl Api {
    /// A client of it.
    pub(crate) fn client(&self) -> Client {
        let api = self.clone();
        let service = tower::service_fn(move |request: Request<Body>| {
            let api = api.clone();
            async move { api.answer(request).await }
        });
        Client::new(service, "default")
    }

    /// Serves it over HTTP on a loopback port, and returns a kubeconfig that leads there.
    pub(crate) async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let api = self.clone();
        let answer = move |request: axum::extract::Request| {
            let api = api.clone();
            async move {
                let (parts, body) = request.into_parts();
                let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
                match api.answer(Request::from_parts(parts, Body::from(body))).await {
                    Ok(answer) => answer,
                    // A stream that fails at once: the connection is closed without an answer.
                    Err(error) => {
                        Response::new(axum::body::Body::from_stream(futures::stream::iter([Err::<Bytes, _>(error)])))
                    }
                }
            }
        };
        tokio::spawn(async move { axum::serve(listener, axum::Router::new().fallback(answer)).await });
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "test",
            "clusters": [{"name": "test", "cluster": {"server": format!("http://{address}")}}],
            "users": [{"name": "test", "user": {}}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
        })
        .to_string()
    }

    /// Stores an object as it is now; UID and version are filled in.
    pub(crate) fn put(&self, collection: &str, object: Value) {
        self.0.lock().put(collection, object);
    }

    /// Removes an object.
    pub(crate) fn remove(&self, collection: &str, name: &str) {
        self.0.lock().remove(collection, name);
    }

    /// An object as it is stored.
    pub(crate) fn get(&self, collection: &str, name: &str) -> Option<Value> {
        self.0.lock().objects.get(&place(collection, name)).cloned()
    }

    /// Sets a trap for the next calls.
    pub(crate) fn fail(&self, method: Method, path: &str, times: usize, fault: Fault) {
        self.0.lock().traps.push(Trap { method, path: path.to_owned(), left: times, fault });
    }

    /// Breaks every watch that is open.
    pub(crate) fn cut_watches(&self) {
        self.0.lock().watches.clear();
    }

    /// Whether the server serves DeviceTaintRules.
    pub(crate) fn serve_rules(&self, serve: bool) {
        self.0.lock().without_rules = !serve;
    }

    /// How often the server was asked for something, by method and a part of the path. Calls that fell into a trap count.
    pub(crate) fn asked(&self, method: &Method, path: &str) -> usize {
        let wanted = |line: &&String| line.starts_with(method.as_str()) && line.contains(path);
        self.0.lock().log.iter().filter(wanted).count()
    }

    /// Message of every event, as `namespace/name reason: message`.
    pub(crate) fn events(&self) -> Vec<String> {
        let text = |event: &Value, field: &str| event[field].as_str().unwrap_or_default().to_owned();
        let line = |event: &Value| {
            let about = &event["involvedObject"];
            let name = about["namespace"].as_str().map_or_else(String::new, |namespace| format!("{namespace}/"));
            format!("{name}{} {}: {}", text(about, "name"), text(event, "reason"), text(event, "message"))
        };
        self.0.lock().events.iter().map(line).collect()
    }

    /// The pods that were asked to leave, by name.
    pub(crate) fn leaving(&self) -> Vec<String> {
        let world = self.0.lock();
        let pods = world.objects.iter().filter(|((collection, _), _)| collection == PODS);
        pods.filter(|(_, pod)| pod.pointer("/metadata/deletionTimestamp").is_some())
            .map(|((_, name), _)| name.clone())
            .collect()
    }

    /// Waits, in paused time, for a state; fails when it does not come within five minutes of that time.
    pub(crate) async fn until(&self, what: &str, mut is: impl FnMut(&Self) -> bool) {
        for _ in 0..6000 {
            if is(self) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let world = self.0.lock();
        panic!("never: {what}\nasked: {:#?}\nevents: {:#?}", world.log, world.events);
    }

    async fn answer(&self, request: Request<Body>) -> Result<Answer, std::io::Error> {
        let cut = || std::io::Error::from(std::io::ErrorKind::ConnectionReset);
        let (parts, body) = request.into_parts();
        let path = parts.uri.path().to_owned();
        let fault = self.0.lock().trap(&parts.method, &path);
        match fault {
            Some(Fault::Hang) => std::future::pending().await,
            Some(Fault::Cut) => return Err(cut()),
            Some(Fault::Status(code)) => return Ok(status(code, &json!({}))),
            Some(Fault::Budget) => {
                return Ok(status(429, &json!({"causes": [{"reason": "DisruptionBudget"}], "retryAfterSeconds": 1})));
            }
            Some(Fault::Lost) | None => {}
        }
        let body = body.collect_bytes().await.map_err(std::io::Error::other)?;
        let body = serde_json::from_slice(&body).unwrap_or_default();
        let query = parts.uri.query().unwrap_or_default();
        let answer = self.0.lock().serve(&parts.method, &path, query, &body);
        if matches!(fault, Some(Fault::Lost)) { Err(cut()) } else { Ok(answer) }
    }
}

impl World {
    fn trap(&mut self, method: &Method, path: &str) -> Option<Fault> {
        self.log.push(format!("{method} {path}"));
        let trap = self.traps.iter_mut().find(|t| t.left > 0 && t.method == *method && path.contains(&t.path))?;
        trap.left -= 1;
        Some(trap.fault)
    }

    fn put(&mut self, collection: &str, mut object: Value) {
        self.version += 1;
        let place = place(collection, &name_of(&object));
        let kind = if self.objects.contains_key(&place) { "MODIFIED" } else { "ADDED" };
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if object.pointer("/metadata/uid").is_none() {
            object["metadata"]["uid"] = json!(format!("uid-{}", place.1));
        }
        self.objects.insert(place, object.clone());
        self.publish(collection, kind, &object);
    }

    fn remove(&mut self, collection: &str, name: &str) {
        if let Some(mut object) = self.objects.remove(&place(collection, name)) {
            self.version += 1;
            object["metadata"]["resourceVersion"] = json!(self.version.to_string());
            self.publish(collection, "DELETED", &object);
        }
    }

    fn publish(&mut self, collection: &str, kind: &str, object: &Value) {
        let event = json!({"type": kind, "object": object});
        let line = Bytes::from(format!("{event}\n"));
        self.watches.retain(|(watched, watch)| watched != collection || watch.send(line.clone()).is_ok());
        self.history.push((self.version, collection.to_owned(), event));
    }

    fn serve(&mut self, method: &Method, path: &str, query: &str, body: &Value) -> Answer {
        if *method == Method::POST && path.ends_with("/events") {
            if self.events.iter().any(|event| event["metadata"]["name"] == body["metadata"]["name"]) {
                return status(409, &json!({}));
            }
            self.events.push(body.clone());
            return ok(body);
        }
        if let Some(pod) = path.strip_suffix("/eviction") {
            return self.evict(pod, body);
        }
        match (method.as_str(), path) {
            ("GET", "/version") => ok(&json!({"gitVersion": "v1.37.0", "major": "1", "minor": "37"})),
            ("GET", "/apis/resource.k8s.io/v1") => ok(&self.served()),
            ("GET", MARKS) if !self.history.iter().any(|(_, of, _)| of == MARKS) => status(404, &json!({})),
            ("GET", PODS | NODES | SLICES | CLAIMS | RULES | MARKS) if query.contains("watch=true") => {
                self.watch(path, query)
            }
            ("GET", PODS | NODES | SLICES | CLAIMS | RULES | MARKS) => self.list(path),
            _ => match path.rsplit_once('/') {
                Some((of @ (RULES | MARKS), name)) => self.rule(method, of, name, body),
                _ => status(404, &json!({})),
            },
        }
    }

    fn served(&self) -> Value {
        let names = ["resourceslices", "resourceclaims", "devicetaintrules"];
        let served = names.iter().filter(|name| !(self.without_rules && **name == "devicetaintrules"));
        let resource = |name| json!({"name": name, "singularName": "", "namespaced": false, "kind": "", "verbs": []});
        let resources: Vec<Value> = served.map(resource).collect();
        json!({"kind": "APIResourceList", "groupVersion": "resource.k8s.io/v1", "resources": resources})
    }

    fn list(&self, collection: &str) -> Answer {
        let objects = self.objects.iter().filter(|((listed, _), _)| listed == collection);
        let items: Vec<&Value> = objects.map(|(_, object)| object).collect();
        ok(
            &json!({"kind": "List", "apiVersion": "v1", "metadata": {"resourceVersion": self.version.to_string()}, "items": items}),
        )
    }

    fn watch(&mut self, collection: &str, query: &str) -> Answer {
        let from = query.split('&').find_map(|pair| pair.strip_prefix("resourceVersion="));
        let from: u64 = from.and_then(|text| text.parse().ok()).unwrap_or(0);
        let (sender, receiver) = mpsc::unbounded_channel();
        for (version, of, event) in &self.history {
            if *version > from && of == collection {
                sender.send(Bytes::from(format!("{event}\n"))).unwrap();
            }
        }
        self.watches.push((collection.to_owned(), sender));
        let lines = futures::stream::unfold(receiver, |mut lines| async move {
            let line = lines.recv().await?;
            Some((Ok::<_, Infallible>(line), lines))
        });
        Response::new(axum::body::Body::from_stream(lines))
    }

    fn evict(&mut self, pod_path: &str, eviction: &Value) -> Answer {
        let name = pod_path.trim_start_matches("/api/v1/namespaces/").replacen("/pods/", "/", 1);
        let Some(mut pod) = self.objects.get(&place(PODS, &name)).cloned() else { return status(404, &json!({})) };
        let wanted = &eviction["deleteOptions"]["preconditions"];
        let meta = &pod["metadata"];
        if wanted["uid"] != meta["uid"] || wanted["resourceVersion"] != meta["resourceVersion"] {
            return status(409, &json!({}));
        }
        assert!(meta.get("deletionTimestamp").is_none(), "{name} was evicted twice");
        pod["metadata"]["deletionTimestamp"] = json!("2026-11-01T12:00:00Z");
        self.put(PODS, pod);
        ok(&json!({"kind": "Status", "status": "Success"}))
    }

    fn rule(&mut self, method: &Method, of: &str, name: &str, options: &Value) -> Answer {
        let Some(rule) = self.objects.get(&place(of, name)).cloned() else { return status(404, &json!({})) };
        if *method == Method::DELETE {
            let (wanted, meta) = (&options["preconditions"], &rule["metadata"]);
            if wanted["uid"] != meta["uid"] || wanted["resourceVersion"] != meta["resourceVersion"] {
                return status(409, &json!({}));
            }
            self.remove(of, name);
        }
        ok(&rule)
    }
}

fn place(collection: &str, name: &str) -> Place {
    (collection.to_owned(), name.to_owned())
}

fn ok(body: &Value) -> Answer {
    Response::new(axum::body::Body::from(body.to_string().into_bytes()))
}

fn status(code: u16, details: &Value) -> Answer {
    let body = json!({"kind": "Status", "status": "Failure", "code": code, "message": "no", "reason": "Test", "details": details});
    Response::builder().status(code).body(axum::body::Body::from(body.to_string().into_bytes())).unwrap()
}
