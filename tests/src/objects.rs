//! The API objects that scenarios make, as a person would write them.

use serde_json::{Value, json};

/// The DRA driver, and the class that offers its whole GPUs.
pub const DRIVER: &str = "gpu.devicetaint.dev";
/// Kubernetes' DRA test driver, and the class that offers its devices.
pub const FOREIGN_DRIVER: &str = "test-driver.cdi.k8s.io";
/// The namespace of every scenario; it carries the label that admin access needs.
pub const NAMESPACE: &str = "story";
/// The image of every container; `cargo xtask kube up` brings it into a real node.
const IMAGE: &str = "devicetaint.dev/busybox:1";
/// The name of every pod's one container.
pub const CONTAINER: &str = "main";
/// The last line that a container prints which was asked to tell what it sees.
pub const TOLD: &str = "that is all";
/// Prints what a container sees, a thing a line. `true` opens the node: a container's cgroup may forbid that.
const TELL: &str = r#"env | sed 's/^/env /'
for node in /dev/nvidia*; do [ -c "$node" ] && true < "$node" && echo "device $node"; done
awk '{print "mount " $5}' /proc/self/mountinfo
echo "that is all"
exec sleep 1000000"#;
/// The key that administrators mark devices with (`kubectl device taint`).
pub const MAINTENANCE: &str = "devicetaint.dev/maintenance";

/// The namespace of the scenarios, open for admin access (KEP-5018).
#[must_use]
pub fn namespace() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Namespace",
        "metadata": {"name": NAMESPACE, "labels": {"resource.kubernetes.io/admin-access": "true"}},
    })
}

/// The class that offers the devices of Kubernetes' DRA test driver.
#[must_use]
pub fn foreign_class() -> Value {
    json!({
        "apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": FOREIGN_DRIVER},
        "spec": {"selectors": [{"cel": {"expression": format!("device.driver == \"{FOREIGN_DRIVER}\"")}}]},
    })
}

/// A claim with one request, built up field by field.
#[derive(Clone, Debug)]
pub struct ClaimSpec {
    name: String,
    request: Value,
}

/// A claim for one GPU.
#[must_use]
pub fn claim(name: &str) -> ClaimSpec {
    ClaimSpec { name: name.to_owned(), request: json!({"deviceClassName": DRIVER}) }
}

impl ClaimSpec {
    /// Asks for `count` GPUs.
    #[must_use]
    pub fn count(mut self, count: u64) -> Self {
        self.request["count"] = json!(count);
        self
    }

    /// Asks for devices of another class.
    #[must_use]
    pub fn of_class(mut self, class: &str) -> Self {
        self.request["deviceClassName"] = json!(class);
        self
    }

    /// Asks for admin access: the device may be in use by others.
    #[must_use]
    pub fn admin(mut self) -> Self {
        self.request["adminAccess"] = json!(true);
        self
    }

    /// Asks for the card with this UUID.
    #[must_use]
    pub fn uuid(self, uuid: &str) -> Self {
        self.selector(&format!("device.attributes[\"gpu.nvidia.com\"].uuid == \"{uuid}\""))
    }

    /// Adds a CEL selector.
    #[must_use]
    pub fn selector(mut self, expression: &str) -> Self {
        push(&mut self.request["selectors"], json!({"cel": {"expression": expression}}));
        self
    }

    /// Tolerates a key with effect NoExecute, for some seconds or for ever.
    #[must_use]
    pub fn tolerates(self, key: &str, seconds: Option<i64>) -> Self {
        self.toleration(no_execute(key, seconds))
    }

    /// Adds any toleration.
    #[must_use]
    pub fn toleration(mut self, toleration: Value) -> Self {
        push(&mut self.request["tolerations"], toleration);
        self
    }

    /// The object.
    #[must_use]
    pub fn build(self) -> Value {
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim",
            "metadata": {"name": self.name, "namespace": NAMESPACE},
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": self.request}]}},
        })
    }
}

/// A pod with one container, built up field by field.
#[derive(Clone, Debug)]
pub struct PodSpec {
    object: Value,
}

/// A pod without claims.
#[must_use]
pub fn pod(name: &str) -> PodSpec {
    let object = json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"app": name}},
        "spec": {
            "containers": [{"name": CONTAINER, "image": IMAGE, "command": ["sleep", "1000000"], "imagePullPolicy": "IfNotPresent"}],
            "automountServiceAccountToken": false,
            "terminationGracePeriodSeconds": 1,
        },
    });
    PodSpec { object }
}

impl PodSpec {
    /// Uses a claim of this name.
    #[must_use]
    pub fn claim(mut self, claim: &str) -> Self {
        push(&mut self.object["spec"]["resourceClaims"], json!({"name": "gpu", "resourceClaimName": claim}));
        self.object["spec"]["containers"][0]["resources"] = json!({"claims": [{"name": "gpu"}]});
        self
    }

    /// Must run on this node.
    #[must_use]
    pub fn on(mut self, node: &str) -> Self {
        self.object["spec"]["nodeSelector"] = json!({"kubernetes.io/hostname": node});
        self
    }

    /// Tolerates a node taint's key with effect NoExecute, for some seconds or for ever.
    #[must_use]
    pub fn tolerates(mut self, key: &str, seconds: Option<i64>) -> Self {
        push(&mut self.object["spec"]["tolerations"], no_execute(key, seconds));
        self
    }

    /// Is not restarted when its container ends; on a real node the container ends at once.
    #[must_use]
    pub fn finishes(mut self) -> Self {
        self.object["spec"]["restartPolicy"] = json!("Never");
        self.object["spec"]["containers"][0]["command"] = json!(["true"]);
        self
    }

    /// Its container prints what it sees, for [`crate::lab::Lab::inside`].
    #[must_use]
    pub fn tells(mut self) -> Self {
        self.object["spec"]["containers"][0]["command"] = json!(["sh", "-c", TELL]);
        self
    }

    /// Sets an annotation.
    #[must_use]
    pub fn annotate(mut self, key: &str, value: &str) -> Self {
        self.object["metadata"]["annotations"][key] = json!(value);
        self
    }

    /// The object.
    #[must_use]
    pub fn build(self) -> Value {
        self.object
    }
}

fn no_execute(key: &str, seconds: Option<i64>) -> Value {
    let mut toleration = json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    if let Some(seconds) = seconds {
        toleration["tolerationSeconds"] = json!(seconds);
    }
    toleration
}

fn push(list: &mut Value, item: Value) {
    match list {
        Value::Array(items) => items.push(item),
        other => *other = json!([item]),
    }
}
