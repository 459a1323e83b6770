//! The methods on objects and collections, as requests of the API.

use http::{HeaderValue, Method, Response};
use serde_json::{Value, json};

use super::accept::{self, Form};
use super::{Body, Call, Service, json as json_answer, render, stream, value};
use crate::server::api::{DeleteOptions, Page, Target, Txn, WriteOptions, deleted};
use crate::server::discovery;
use crate::server::error::ApiError;
use crate::server::error::success;
use crate::server::faults::Hit;
use crate::server::patch::Format;
use crate::server::request::{Route, route};
use crate::server::store::{Key, Object};
use crate::server::value::{at, int, list, text};
use crate::server::watch::Watch;

impl Service {
    /// Answers a request below `/api` and `/apis`.
    pub(super) fn api(&self, call: &Call, hit: Option<Hit>) -> Result<Response<Body>, ApiError> {
        if let Some(review) = access_review(call)? {
            return Ok(value(201, &review));
        }
        match self.cluster.read(|state| route(&call.path, &state.kinds))? {
            Route::Objects(target) => self.objects(call, target, hit),
            other => {
                if call.method != Method::GET {
                    return Err(ApiError::method_not_allowed());
                }
                let aggregated = accept::aggregated_discovery(&call.accept);
                self.cluster.read(|state| discovery::answer(&other, &state.kinds, aggregated))
            }
        }
    }

    fn objects(&self, call: &Call, target: Target, hit: Option<Hit>) -> Result<Response<Body>, ApiError> {
        let form = accept::form(&call.accept)?;
        let collection = target.name.is_empty();
        match (call.method.as_str(), target.subresource.as_str()) {
            ("GET", "" | "status") if call.watch() => self.watch(call, target, form, hit),
            ("GET", "" | "status") => self.get(call, &target, form, hit),
            ("POST", "") if collection => self.create(call, &target, form),
            ("POST", "binding" | "eviction") => self.act(call, &target),
            ("PUT", "" | "status" | "finalize") if !collection => self.replace(call, &target, form),
            ("PATCH", "" | "status") if !collection => self.patch(call, &target, form),
            ("DELETE", "") if collection => self.delete_collection(call, &target, form),
            ("DELETE", "") => self.delete(call, &target, form),
            _ => Err(ApiError::method_not_allowed()),
        }
    }

    fn watch(&self, call: &Call, target: Target, form: Form, hit: Option<Hit>) -> Result<Response<Body>, ApiError> {
        let watch = Watch::new(&self.cluster, target, form, &call.parameters)?;
        Ok(stream(watch.start(call.caller(), &self.faults, hit, self.cancel.clone())))
    }

    fn get(&self, call: &Call, target: &Target, form: Form, hit: Option<Hit>) -> Result<Response<Body>, ApiError> {
        let stale = hit.filter(|hit| hit.answer.stale).map(|hit| hit.revision);
        let now = self.cluster.now();
        if !target.name.is_empty() {
            let object = self.cluster.read(|state| state.get(target, stale))?;
            return Ok(json_answer(200, render::object(form, target, &object, now)));
        }
        let query = call.parameters.query(&target.resource)?;
        let page = self.cluster.read(|state| state.list(target, &query, stale))?;
        Ok(json_answer(200, render::list(form, target, &page, now)))
    }

    fn create(&self, call: &Call, target: &Target, form: Form) -> Result<Response<Body>, ApiError> {
        let body = accept::body(&call.content_type, &call.body)?;
        if target.resource.namespaced && target.namespace.is_empty() {
            return Err(ApiError::bad_request("a namespaced object is created below its namespace"));
        }
        let options = call.parameters.write_options(&call.agent)?;
        self.written(&options, target, form, |txn| Ok((txn.create(target, body)?, 201)))
    }

    fn replace(&self, call: &Call, target: &Target, form: Form) -> Result<Response<Body>, ApiError> {
        let body = accept::body(&call.content_type, &call.body)?;
        let options = call.parameters.write_options(&call.agent)?;
        self.written(&options, target, form, |txn| Ok((txn.replace(target, body)?, 200)))
    }

    fn patch(&self, call: &Call, target: &Target, form: Form) -> Result<Response<Body>, ApiError> {
        let format = Format::of(&call.content_type).ok_or_else(|| ApiError::media_type(&call.content_type))?;
        let body = match format {
            Format::Apply => accept::body("application/yaml", &call.body)?,
            _ => accept::body("application/json", &call.body)?,
        };
        let options = call.parameters.write_options(&call.agent)?;
        if format == Format::Apply && call.parameters.get("fieldManager").is_empty() {
            return Err(ApiError::bad_request("fieldManager is required for apply patch"));
        }
        self.written(&options, target, form, |txn| {
            let (object, created) = txn.patch(target, &body, format)?;
            Ok((object, if created { 201 } else { 200 }))
        })
    }

    fn written(
        &self,
        options: &WriteOptions,
        target: &Target,
        form: Form,
        work: impl FnOnce(&mut Txn<'_>) -> Result<(Object, u16), ApiError>,
    ) -> Result<Response<Body>, ApiError> {
        let ((object, code), warnings) = self.cluster.write(options, work)?;
        let answer = json_answer(code, render::object(form, target, &object, self.cluster.now()));
        Ok(with_warnings(answer, &warnings))
    }

    fn delete(&self, call: &Call, target: &Target, form: Form) -> Result<Response<Body>, ApiError> {
        let (options, write) = delete_options(call)?;
        let ((object, gone), _) = self.cluster.write(&write, |txn| txn.delete(target, &options))?;
        if gone && !target.resource.is("Pod") {
            return Ok(value(200, &deleted(target, &object)));
        }
        Ok(json_answer(200, render::object(form, target, &object, self.cluster.now())))
    }

    fn delete_collection(&self, call: &Call, target: &Target, form: Form) -> Result<Response<Body>, ApiError> {
        let (options, write) = delete_options(call)?;
        let query = call.parameters.query(&target.resource)?;
        let page = self.cluster.read(|state| state.list(target, &query, None))?;
        let mut items = Vec::new();
        for object in &page.items {
            let key = Key::of(object);
            let one = Target { namespace: key.namespace, name: key.name, ..target.clone() };
            match self.cluster.write(&write, |txn| txn.delete(&one, &options)) {
                Ok(((object, _), _)) => items.push(object),
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        let page = Page { items, ..page };
        Ok(json_answer(200, render::list(form, target, &page, self.cluster.now())))
    }

    /// Binding and eviction of a pod.
    fn act(&self, call: &Call, target: &Target) -> Result<Response<Body>, ApiError> {
        let body = accept::body(&call.content_type, &call.body)?;
        let mut write = call.parameters.write_options(&call.agent)?;
        if target.subresource == "binding" {
            self.cluster.write(&write, |txn| txn.bind(target, &body))?;
            return Ok(value(201, &success(201)));
        }
        let options = read_options(at(&body, &["deleteOptions"]));
        write.dry_run |= dry_run(at(&body, &["deleteOptions"]));
        let (status, _) = self.cluster.write(&write, |txn| txn.evict(target, &body, &options))?;
        Ok(value(201, &status))
    }
}

/// The options of a deletion, from the body, and from the query where the body is silent.
fn delete_options(call: &Call) -> Result<(DeleteOptions, WriteOptions), ApiError> {
    let body = if call.body.is_empty() { Value::Null } else { accept::body(&call.content_type, &call.body)? };
    let mut options = read_options(&body);
    if options.grace.is_none() {
        let seconds = call.parameters.number("gracePeriodSeconds")?;
        options.grace = seconds.and_then(|seconds| i64::try_from(seconds).ok());
    }
    options.orphan |= call.parameters.get("propagationPolicy") == "Orphan";
    let mut write = call.parameters.write_options(&call.agent)?;
    write.dry_run |= dry_run(&body);
    Ok((options, write))
}

fn read_options(body: &Value) -> DeleteOptions {
    let given = |path: &[&str]| Some(text(body, path).to_owned()).filter(|text| !text.is_empty());
    DeleteOptions {
        grace: int(body, &["gracePeriodSeconds"]),
        uid: given(&["preconditions", "uid"]),
        resource_version: given(&["preconditions", "resourceVersion"]),
        orphan: text(body, &["propagationPolicy"]) == "Orphan",
    }
}

fn dry_run(body: &Value) -> bool {
    list(body, &["dryRun"]).iter().any(|value| value == "All")
}

/// Everything is allowed here; a client that asks hears so.
fn access_review(call: &Call) -> Result<Option<Value>, ApiError> {
    if call.method != Method::POST || call.path != "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews" {
        return Ok(None);
    }
    let mut review = accept::body(&call.content_type, &call.body)?;
    crate::server::value::set(
        &mut review,
        &["status"],
        json!({"allowed": true, "reason": "the sim allows everything"}),
    );
    Ok(Some(review))
}

fn with_warnings(mut answer: Response<Body>, warnings: &[String]) -> Response<Body> {
    for warning in warnings {
        let text = format!("299 - \"{}\"", warning.replace('\\', "\\\\").replace('"', "\\\""));
        if let Ok(value) = HeaderValue::from_str(&text) {
            answer.headers_mut().append(http::header::WARNING, value);
        }
    }
    answer
}
