//! For this crate's tests: an API server in the process, with faults on request. It knows the rules that the agent relies on
//! (versions, merge patches, preconditions, `timeAdded`), and no socket lies in between, so the paused clock works.

mod marks;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Method, Request, Response};
use futures::{StreamExt, stream};
use kube::Client;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::sync::watch;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

const SLICES: &str = "/apis/resource.k8s.io/v1/resourceslices";
const MARKS: &str = "/apis/devicetaint.dev/v1alpha1/devicemarks";
const MARK: &str = "DeviceMark";

/// What goes wrong with a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// It is answered with this status and not carried out.
    Status(u16),
    /// The connection breaks before it is carried out.
    Cut,
    /// It is carried out, and then the connection breaks.
    CutAfter,
    /// It is carried out, and never answered.
    Silent,
    /// It is carried out, and answered with an empty body: an answer that cannot be read, and the end of a watch.
    Empty,
    /// It is answered after this time.
    Slow(Duration),
}

#[derive(Debug)]
struct Planned {
    verb: &'static str,
    fault: Fault,
    left: usize,
}

/// The server's state.
#[derive(Debug, Default)]
struct World {
    version: u64,
    clock: i64,
    watches_closed: u64,
    slices: BTreeMap<String, Value>,
    claims: BTreeMap<String, Value>,
    /// DeviceMarks; without any the server does not serve the kind.
    marks: BTreeMap<String, Value>,
    log: Vec<(u64, &'static str, Value)>,
    faults: Vec<Planned>,
    calls: Vec<String>,
    drops_taints: bool,
    minor: String,
    node: Option<String>,
    allocatable: Value,
    events: Vec<Value>,
}

/// A small API server. Clones share their state.
#[derive(Clone)]
pub(crate) struct FakeServer {
    world: Arc<Mutex<World>>,
    changed: Arc<watch::Sender<u64>>,
}

impl FakeServer {
    pub(crate) fn new() -> Self {
        let world =
            World { minor: "37".to_owned(), node: Some("node-uid".to_owned()), clock: 1_000, ..World::default() };
        Self { world: Arc::new(Mutex::new(world)), changed: Arc::new(watch::channel(0).0) }
    }

    pub(crate) fn client(&self) -> Client {
        let server = self.clone();
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let server = server.clone();
            async move { server.serve(request.map(Body::new)).await }
        });
        Client::new(service, "default")
    }

    /// Serves over loopback as well, until the test ends. Returns the text of a kubeconfig.
    pub(crate) async fn listen(&self) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = self.clone();
        let routes = axum::Router::new().fallback(move |request: Request<Body>| async move {
            let answer = server.serve(request).await;
            // A broken body is a broken connection.
            answer.unwrap_or_else(|error| Response::new(Body::from_stream(stream::iter([Err::<Bytes, _>(error)]))))
        });
        tokio::spawn(async move { axum::serve(listener, routes).await });
        format!(
            "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
             clusters: [{{name: c, cluster: {{server: 'http://{address}'}}}}], users: [{{name: u, user: {{}}}}]}}"
        )
    }

    /// The next `times` calls of this verb fail. Verbs: `list`, `watch`, `create`, `patch`, `delete`, `probe` (a create that is a dry run), `node`, `version`,
    /// `claim`, `event`; of who looks for other owners: `list-node`, `watch-node`, `list-others`, `watch-others`; of marks: `marks`, `watch-marks`.
    pub(crate) fn plan(&self, verb: &'static str, fault: Fault, times: usize) {
        self.world.lock().faults.push(Planned { verb, fault, left: times });
    }

    pub(crate) fn drop_taints(&self) {
        self.world.lock().drops_taints = true;
    }

    /// As a server that was started anew with the feature gate on.
    pub(crate) fn keep_taints(&self) {
        self.world.lock().drops_taints = false;
    }

    pub(crate) fn set_minor(&self, minor: &str) {
        minor.clone_into(&mut self.world.lock().minor);
    }

    pub(crate) fn set_node(&self, uid: Option<&str>) {
        self.world.lock().node = uid.map(ToOwned::to_owned);
    }

    /// What kubelet says that the node has for pods.
    pub(crate) fn set_allocatable(&self, resources: Value) {
        self.world.lock().allocatable = resources;
        self.change(|world| ("MODIFIED", world.node_object("node-a")));
    }

    pub(crate) fn events(&self) -> Vec<Value> {
        self.world.lock().events.clone()
    }

    /// Waits until so many events were written.
    pub(crate) async fn until_events(&self, count: usize) {
        self.until(|_| self.events().len() >= count).await;
    }

    /// Moves the clock that stamps taints.
    pub(crate) fn set_clock(&self, seconds: i64) {
        self.world.lock().clock = seconds;
    }

    pub(crate) fn slices(&self) -> Vec<Value> {
        self.world.lock().slices.values().cloned().collect()
    }

    /// Verbs of all calls so far.
    pub(crate) fn calls(&self) -> Vec<String> {
        self.world.lock().calls.clone()
    }

    pub(crate) fn count(&self, verb: &str) -> usize {
        self.world.lock().calls.iter().filter(|call| *call == verb).count()
    }

    pub(crate) fn put_claim(&self, namespace: &str, name: &str, claim: Value) {
        self.world.lock().claims.insert(format!("{namespace}/{name}"), claim);
    }

    pub(crate) fn remove_claim(&self, namespace: &str, name: &str) {
        self.world.lock().claims.remove(&format!("{namespace}/{name}"));
    }

    /// What kubelet does when it starts.
    pub(crate) fn wipe(&self) {
        let names: Vec<String> = self.world.lock().slices.keys().cloned().collect();
        for name in names {
            self.change(|world| {
                let object = world.slices.remove(&name).unwrap_or_default();
                ("DELETED", object)
            });
        }
    }

    /// Ends every watch that is open, as servers do after a while.
    pub(crate) fn close_watches(&self) {
        let version = {
            let mut world = self.world.lock();
            world.watches_closed += 1;
            world.version
        };
        self.changed.send_replace(version);
    }

    /// A foreign write into every slice.
    pub(crate) fn spoil(&self) {
        let names: Vec<String> = self.world.lock().slices.keys().cloned().collect();
        for name in names {
            self.change(|world| {
                let mut object = world.slices[&name].clone();
                object["spec"]["devices"] = json!([{"name": "spoiled"}]);
                world.slices.insert(name.clone(), object.clone());
                ("MODIFIED", object)
            });
        }
    }

    pub(crate) fn remove_slice(&self, name: &str) {
        self.change(|world| ("DELETED", world.slices.remove(name).unwrap_or_default()));
    }

    pub(crate) fn put_slice(&self, mut object: Value) {
        let name = object["metadata"]["name"].as_str().unwrap().to_owned();
        self.change(|world| {
            object["metadata"]["uid"] = json!(format!("uid-{name}"));
            world.slices.insert(name.clone(), object.clone());
            ("ADDED", object)
        });
    }

    /// Waits until the slices are as wanted; the test fails when they never are.
    pub(crate) async fn until(&self, wanted: impl Fn(&[Value]) -> bool) -> Vec<Value> {
        let mut changed = self.changed.subscribe();
        let waited = tokio::time::timeout(Duration::from_secs(3600), async {
            loop {
                let slices = self.slices();
                if wanted(&slices) {
                    return slices;
                }
                changed.changed().await.unwrap();
            }
        });
        waited.await.unwrap_or_else(|_| panic!("never came to be: {:#?}\n{:?}", self.slices(), self.calls()))
    }

    fn change(&self, act: impl FnOnce(&mut World) -> (&'static str, Value)) -> Value {
        let (version, object) = {
            let mut world = self.world.lock();
            world.version += 1;
            let version = world.version;
            let (kind, mut object) = act(&mut world);
            object["metadata"]["resourceVersion"] = json!(version.to_string());
            let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
            if kind != "DELETED" && object["kind"] != "Node" {
                world.slices.insert(name, object.clone());
            }
            world.log.push((version, kind, object.clone()));
            (version, object)
        };
        self.changed.send_replace(version);
        object
    }

    async fn serve(&self, request: Request<Body>) -> Result<Response<Body>, BoxError> {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 1 << 22).await?;
        let path = parts.uri.path().to_owned();
        let verb = verb(&parts.method, &path, parts.uri.query().unwrap_or_default());
        let fault = self.begin(verb);
        match fault {
            Some(Fault::Status(code)) => return Ok(failure(code, "planned")),
            Some(Fault::Cut) => return Err("cut".into()),
            Some(Fault::Slow(time)) => tokio::time::sleep(time).await,
            Some(Fault::CutAfter | Fault::Silent | Fault::Empty) | None => {}
        }
        let answer = self.carry_out(verb, &path, parts.uri.query().unwrap_or_default(), &body);
        match fault {
            Some(Fault::CutAfter) => Err("cut".into()),
            Some(Fault::Silent) => std::future::pending().await,
            Some(Fault::Empty) => Ok(Response::new(Body::empty())),
            _ => Ok(answer),
        }
    }

    fn begin(&self, verb: &'static str) -> Option<Fault> {
        let mut world = self.world.lock();
        world.calls.push(verb.to_owned());
        let planned = world.faults.iter_mut().find(|planned| planned.verb == verb && planned.left > 0)?;
        planned.left -= 1;
        Some(planned.fault)
    }

    fn carry_out(&self, verb: &str, path: &str, query: &str, body: &Bytes) -> Response<Body> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let sent = || serde_json::from_slice::<Value>(body).unwrap_or_default();
        match verb {
            "version" => ok(&json!({
                "major": "1", "minor": self.world.lock().minor, "gitVersion": "v1", "gitCommit": "", "gitTreeState": "",
                "buildDate": "", "goVersion": "", "compiler": "", "platform": "",
            })),
            "node" => {
                let world = self.world.lock();
                if world.node.is_some() { ok(&world.node_object(name)) } else { failure(404, "no such node") }
            }
            "event" => self.event(&sent()),
            "list-node" => {
                let world = self.world.lock();
                let items: Vec<Value> = world.node.iter().map(|_| world.node_object("node-a")).collect();
                ok(&json!({"apiVersion": "v1", "kind": "NodeList",
                    "metadata": {"resourceVersion": world.version.to_string()}, "items": items}))
            }
            "claim" => {
                let mut parts = path.rsplit('/');
                let (name, namespace) = (parts.next().unwrap_or_default(), parts.nth(1).unwrap_or_default());
                let found = self.world.lock().claims.get(&format!("{namespace}/{name}")).cloned();
                found.map_or_else(|| failure(404, "no such claim"), |claim| ok(&claim))
            }
            "list" | "list-others" => {
                let world = self.world.lock();
                let items: Vec<&Value> =
                    world.slices.values().filter(|slice| verb == "list" || is_foreign(slice)).collect();
                ok(&json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList",
                    "metadata": {"resourceVersion": world.version.to_string()}, "items": items}))
            }
            "watch" => self.watch(query, |object| object["kind"] != "Node" && object["kind"] != MARK),
            "watch-others" => {
                self.watch(query, |object| object["kind"] != "Node" && object["kind"] != MARK && is_foreign(object))
            }
            "watch-node" => self.watch(query, |object| object["kind"] == "Node"),
            "marks" => self.list_marks(),
            "watch-marks" => self.watch(query, |object| object["kind"] == MARK),
            "create" => self.create(sent()),
            "probe" => {
                let mut object = sent();
                self.world.lock().default_taints(&mut object);
                ok(&object)
            }
            "patch" => self.patch(name, &sent()),
            "delete" => self.delete(name, &sent()),
            other => failure(404, other),
        }
    }

    fn create(&self, mut object: Value) -> Response<Body> {
        ok(&self.change(|world| {
            let prefix = object["metadata"]["generateName"].as_str().unwrap_or_default().to_owned();
            let name = format!("{prefix}{:05}", world.version);
            object["metadata"]["name"] = json!(name);
            object["metadata"]["uid"] = json!(format!("uid-{name}"));
            world.default_taints(&mut object);
            ("ADDED", object)
        }))
    }

    fn event(&self, event: &Value) -> Response<Body> {
        let mut world = self.world.lock();
        if world.events.iter().any(|other| other["metadata"]["name"] == event["metadata"]["name"]) {
            return failure(409, "there already");
        }
        world.events.push(event.clone());
        let version = world.version;
        drop(world);
        self.changed.send_replace(version);
        ok(event)
    }

    fn patch(&self, name: &str, patch: &Value) -> Response<Body> {
        let Some(mut object) = self.world.lock().slices.get(name).cloned() else { return failure(404, "gone") };
        let asked = &patch["metadata"]["resourceVersion"];
        if !asked.is_null() && *asked != object["metadata"]["resourceVersion"] {
            return failure(409, "the object has been modified");
        }
        let before = object.clone();
        merge(&mut object, patch);
        self.world.lock().default_taints(&mut object);
        if object == before {
            return ok(&object);
        }
        ok(&self.change(|_| ("MODIFIED", object)))
    }

    fn delete(&self, name: &str, options: &Value) -> Response<Body> {
        let Some(object) = self.world.lock().slices.get(name).cloned() else { return failure(404, "gone") };
        let wanted = &options["preconditions"];
        for field in ["uid", "resourceVersion"] {
            if !wanted[field].is_null() && wanted[field] != object["metadata"][field] {
                return failure(409, "precondition failed");
            }
        }
        self.change(|world| ("DELETED", world.slices.remove(name).unwrap_or_default()));
        ok(&object)
    }

    fn watch(&self, query: &str, selects: fn(&Value) -> bool) -> Response<Body> {
        let from = query.split('&').find_map(|part| part.strip_prefix("resourceVersion="));
        let from: u64 = from.and_then(|text| text.parse().ok()).unwrap_or(0);
        let opened = self.world.lock().watches_closed;
        let state = (self.clone(), from, self.changed.subscribe());
        let lines = stream::unfold(state, move |(server, from, mut changed)| async move {
            loop {
                if server.world.lock().watches_closed != opened {
                    return None;
                }
                let is_next = |(version, _, object): &&(u64, _, Value)| *version > from && selects(object);
                let next = server.world.lock().log.iter().find(is_next).cloned();
                if let Some((version, kind, object)) = next {
                    let line = format!("{}\n", json!({"type": kind, "object": object}));
                    return Some((Ok::<_, BoxError>(line), (server, version, changed)));
                }
                changed.changed().await.ok()?;
            }
        });
        Response::new(Body::from_stream(lines.boxed()))
    }
}

impl World {
    fn node_object(&self, name: &str) -> Value {
        let metadata = json!({"name": name, "uid": self.node, "resourceVersion": self.version.to_string()});
        json!({"apiVersion": "v1", "kind": "Node", "metadata": metadata, "status": {"allocatable": self.allocatable}})
    }

    fn default_taints(&self, object: &mut Value) {
        for device in object["spec"]["devices"].as_array_mut().into_iter().flatten() {
            if self.drops_taints {
                device.as_object_mut().map(|device| device.remove("taints"));
            }
            for taint in device["taints"].as_array_mut().into_iter().flatten() {
                if taint["timeAdded"].is_null() {
                    let now = jiff::Timestamp::from_second(self.clock).unwrap();
                    taint["timeAdded"] = json!(now.to_string());
                }
            }
            if device["taints"].is_null() {
                device.as_object_mut().map(|device| device.remove("taints"));
            }
        }
    }
}

/// Of another driver than ours, as the field selector of who looks for other owners says.
fn is_foreign(slice: &Value) -> bool {
    slice["spec"]["driver"] != "gpu.devicetaint.dev"
}

fn verb(method: &Method, path: &str, query: &str) -> &'static str {
    let (watches, others) = (query.contains("watch=true"), query.contains("spec.driver%21%3D"));
    match (method, path) {
        (_, "/version") => "version",
        (&Method::POST, path) if path.ends_with("/events") => "event",
        (&Method::GET, "/api/v1/nodes") => {
            if watches {
                "watch-node"
            } else {
                "list-node"
            }
        }
        (&Method::GET, SLICES) if others => {
            if watches {
                "watch-others"
            } else {
                "list-others"
            }
        }
        (&Method::POST, SLICES) if query.contains("dryRun") => "probe",
        (_, path) if path.starts_with("/api/v1/nodes/") => "node",
        (_, path) if path.contains("/resourceclaims/") => "claim",
        (&Method::GET, MARKS) if query.contains("watch=true") => "watch-marks",
        (&Method::GET, MARKS) => "marks",
        (&Method::GET, SLICES) if query.contains("watch=true") => "watch",
        (&Method::GET, SLICES) => "list",
        (&Method::POST, SLICES) => "create",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, _) => "delete",
        _ => "unknown",
    }
}

fn ok(object: &Value) -> Response<Body> {
    Response::new(Body::from(object.to_string()))
}

fn failure(code: u16, message: &str) -> Response<Body> {
    let status = json!({"kind": "Status", "status": "Failure", "code": code, "reason": "Test", "message": message});
    Response::builder().status(code).body(Body::from(status.to_string())).unwrap()
}

/// RFC 7386.
fn merge(target: &mut Value, patch: &Value) {
    let (Value::Object(target), Value::Object(patch)) = (&mut *target, patch) else {
        *target = patch.clone();
        return;
    };
    for (name, value) in patch {
        if value.is_null() {
            target.remove(name);
        } else {
            merge(target.entry(name.clone()).or_insert(Value::Null), value);
        }
    }
}
