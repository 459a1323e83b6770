//! DeviceMarks of the small API server.

use axum::body::Body;
use axum::http::Response;
use serde_json::{Value, json};

use super::{FakeServer, MARK, World, failure, ok};

impl FakeServer {
    /// Makes a DeviceMark, or changes it.
    pub(crate) fn put_mark(&self, mut mark: Value) {
        mark["kind"] = json!(MARK);
        mark["metadata"]["uid"] = json!("u");
        let name = mark["metadata"]["name"].as_str().unwrap().to_owned();
        self.record(|world| {
            mark["metadata"]["resourceVersion"] = json!(world.version.to_string());
            world.marks.insert(name, mark.clone());
            ("MODIFIED", mark)
        });
    }

    /// Deletes a DeviceMark. The last one takes the kind with it.
    pub(crate) fn remove_mark(&self, name: &str) {
        self.record(|world| {
            let mut mark = world.marks.remove(name).unwrap_or_default();
            mark["metadata"]["resourceVersion"] = json!(world.version.to_string());
            ("DELETED", mark)
        });
    }

    fn record(&self, act: impl FnOnce(&mut World) -> (&'static str, Value)) {
        let version = {
            let mut world = self.world.lock();
            world.version += 1;
            let (kind, object) = act(&mut world);
            let version = world.version;
            world.log.push((version, kind, object));
            version
        };
        self.changed.send_replace(version);
    }

    /// Every slice as it was written since that version.
    pub(crate) fn written_since(&self, since: u64) -> Vec<Value> {
        let world = self.world.lock();
        let written = world
            .log
            .iter()
            .filter(|(version, kind, object)| *version > since && *kind != "DELETED" && object["kind"] != MARK);
        written.map(|(_, _, object)| object.clone()).collect()
    }

    /// The version of the last write.
    pub(crate) fn version(&self) -> u64 {
        self.world.lock().version
    }

    pub(super) fn list_marks(&self) -> Response<Body> {
        let world = self.world.lock();
        if world.marks.is_empty() {
            return failure(404, "not served");
        }
        let items: Vec<&Value> = world.marks.values().collect();
        ok(&json!({"apiVersion": "devicetaint.dev/v1alpha1", "kind": "DeviceMarkList",
            "metadata": {"resourceVersion": world.version.to_string()}, "items": items}))
    }
}
