//! The kinds that the server serves: the built-in ones as a table, and those that CustomResourceDefinitions add.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;

use super::value::{at, list, text};

/// One served kind, with everything that routing, discovery and printing need.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Resource {
    /// API group, empty for the core group.
    pub(crate) group: String,
    /// Served versions, the preferred one first.
    pub(crate) versions: Vec<String>,
    pub(crate) kind: String,
    pub(crate) plural: String,
    pub(crate) singular: String,
    pub(crate) short: Vec<String>,
    pub(crate) categories: Vec<String>,
    pub(crate) namespaced: bool,
    /// Whether the status is a part of its own, written through `/status` only.
    pub(crate) status: bool,
    /// Whether `metadata.generation` counts changes of the spec.
    pub(crate) generation: bool,
    /// The type in the schema; `custom.Object` for kinds of a CustomResourceDefinition.
    pub(crate) schema: String,
    /// The name of the table that keeps the objects; two kinds may share one (events).
    pub(crate) table: String,
    /// The definition that made this kind, null for built-in ones.
    pub(crate) definition: Arc<Value>,
}

impl Resource {
    /// `pods`, `resourceclaims.resource.k8s.io`: the name that messages use.
    pub(crate) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// The `apiVersion` of objects in this version.
    pub(crate) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    /// Whether the kind is part of Kubernetes itself.
    pub(crate) fn builtin(&self) -> bool {
        self.schema != CUSTOM
    }

    /// Whether this is the built-in kind of that name.
    pub(crate) fn is(&self, kind: &str) -> bool {
        self.builtin() && self.kind == kind
    }

    /// The subresources that are served beside `status`: name and kind of the body.
    pub(crate) fn actions(&self) -> &'static [(&'static str, &'static str, &'static str, &'static str)] {
        if self.is("Pod") { &[("binding", "", "v1", "Binding"), ("eviction", "policy", "v1", "Eviction")] } else { &[] }
    }
}

const CUSTOM: &str = "custom.Object";

/// Which versions of DeviceTaintRule the server offers: clusters differ here (1.35: v1alpha3, 1.36: v1beta2, 1.37: v1).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rules {
    /// `resource.k8s.io/v1`, as 1.37 does.
    #[default]
    V1,
    /// `resource.k8s.io/v1beta2`, as 1.36 does with the gate on.
    V1Beta2,
    /// `resource.k8s.io/v1alpha3`, as 1.35 does with the gate on.
    V1Alpha3,
    /// No rules at all.
    None,
}

impl Rules {
    fn version(self) -> Option<&'static str> {
        match self {
            Self::V1 => Some("v1"),
            Self::V1Beta2 => Some("v1beta2"),
            Self::V1Alpha3 => Some("v1alpha3"),
            Self::None => None,
        }
    }
}

impl std::str::FromStr for Rules {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "v1" => Ok(Self::V1),
            "v1beta2" => Ok(Self::V1Beta2),
            "v1alpha3" => Ok(Self::V1Alpha3),
            "none" => Ok(Self::None),
            _ => Err(format!("{text:?} is not one of v1, v1beta2, v1alpha3, none")),
        }
    }
}

/// A row of the table of built-in kinds. `flags`: `n` namespaced, `s` status subresource, `g` generation.
struct Row(&'static str, &'static str, &'static str, &'static str, &'static str, &'static str);

#[rustfmt::skip]
const ROWS: &[Row] = &[
    //  group                    kind                        plural                       short    flags  schema package
    Row("",                      "ConfigMap",                "configmaps",                "cm",    "n",   "core"),
    Row("",                      "Event",                    "events",                    "ev",    "n",   "core"),
    Row("",                      "Namespace",                "namespaces",                "ns",    "s",   "core"),
    Row("",                      "Node",                     "nodes",                     "no",    "s",   "core"),
    Row("",                      "Pod",                      "pods",                      "po",    "nsg", "core"),
    Row("",                      "Secret",                   "secrets",                   "",      "n",   "core"),
    Row("",                      "Service",                  "services",                  "svc",   "ns",  "core"),
    Row("",                      "ServiceAccount",           "serviceaccounts",           "sa",    "n",   "core"),
    Row("apiextensions.k8s.io",  "CustomResourceDefinition", "customresourcedefinitions", "crd",   "sg",  "apiextensions"),
    Row("apps",                  "DaemonSet",                "daemonsets",                "ds",    "nsg", "apps"),
    Row("apps",                  "Deployment",               "deployments",               "deploy", "nsg", "apps"),
    Row("apps",                  "ReplicaSet",               "replicasets",               "rs",    "nsg", "apps"),
    Row("apps",                  "StatefulSet",              "statefulsets",              "sts",   "nsg", "apps"),
    Row("coordination.k8s.io",   "Lease",                    "leases",                    "",      "n",   "coordination"),
    Row("events.k8s.io",         "Event",                    "events",                    "ev",    "n",   "events"),
    Row("policy",                "PodDisruptionBudget",      "poddisruptionbudgets",      "pdb",   "nsg", "policy"),
    Row("resource.k8s.io",       "DeviceClass",              "deviceclasses",             "",      "g",   "resource"),
    Row("resource.k8s.io",       "DeviceTaintRule",          "devicetaintrules",          "",      "sg",  "resource"),
    Row("resource.k8s.io",       "ResourceClaim",            "resourceclaims",            "",      "ns",  "resource"),
    Row("resource.k8s.io",       "ResourceClaimTemplate",    "resourceclaimtemplates",    "",      "n",   "resource"),
    Row("resource.k8s.io",       "ResourceSlice",            "resourceslices",            "",      "g",   "resource"),
    Row("scheduling.k8s.io",     "PriorityClass",            "priorityclasses",           "pc",    "g",   "scheduling"),
];

impl Row {
    fn resource(&self, versions: Vec<String>) -> Resource {
        let Row(group, kind, plural, short, flags, package) = *self;
        let all = ["Pod", "Service", "DaemonSet", "Deployment", "ReplicaSet", "StatefulSet"].contains(&kind);
        Resource {
            group: group.to_owned(),
            versions,
            kind: kind.to_owned(),
            plural: plural.to_owned(),
            singular: kind.to_lowercase(),
            short: if short.is_empty() { Vec::new() } else { vec![short.to_owned()] },
            categories: if all { vec!["all".to_owned()] } else { Vec::new() },
            namespaced: flags.contains('n'),
            status: flags.contains('s'),
            generation: flags.contains('g'),
            schema: format!("{package}.v1.{kind}"),
            table: if plural == "events" { plural.to_owned() } else { format!("{plural}.{group}") },
            definition: Arc::new(Value::Null),
        }
    }
}

/// All kinds that are served at this moment, by group and plural name.
#[derive(Debug, Clone, Default)]
pub(crate) struct Kinds {
    resources: BTreeMap<(String, String), Arc<Resource>>,
}

impl Kinds {
    /// The built-in kinds.
    pub(crate) fn new(rules: Rules) -> Self {
        let mut kinds = Self::default();
        for row in ROWS {
            let version = if row.1 == "DeviceTaintRule" { rules.version() } else { Some("v1") };
            if let Some(version) = version {
                kinds.add(row.resource(vec![version.to_owned()]));
            }
        }
        kinds
    }

    /// Serves a kind from now on, in place of an older form of it.
    pub(crate) fn add(&mut self, resource: Resource) {
        self.resources.insert((resource.group.clone(), resource.plural.clone()), Arc::new(resource));
    }

    /// Serves a kind no longer.
    pub(crate) fn remove(&mut self, group: &str, plural: &str) -> Option<Arc<Resource>> {
        self.resources.remove(&(group.to_owned(), plural.to_owned()))
    }

    /// The kind behind a path, if it is served in this version.
    pub(crate) fn find(&self, group: &str, version: &str, plural: &str) -> Option<Arc<Resource>> {
        let resource = self.resources.get(&(group.to_owned(), plural.to_owned()))?;
        resource.versions.iter().any(|v| v == version).then(|| resource.clone())
    }

    /// The built-in kind of this name (the core one for events).
    pub(crate) fn builtin(&self, kind: &str) -> Option<Arc<Resource>> {
        self.resources.values().find(|resource| resource.is(kind)).cloned()
    }

    /// The kind that an owner reference names.
    pub(crate) fn of_kind(&self, group: &str, kind: &str) -> Option<Arc<Resource>> {
        self.resources.values().find(|r| r.group == group && r.kind == kind).cloned()
    }

    /// Every served kind, by group and plural name.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// The served versions of a group, the preferred one first; none if the group is unknown.
    pub(crate) fn versions(&self, group: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for version in self.iter().filter(|r| r.group == group).flat_map(|r| &r.versions) {
            if !found.contains(version) {
                found.push(version.clone());
            }
        }
        found.sort_by_key(|v| (v.contains("alpha"), v.contains("beta"), v.clone()));
        found
    }

    /// The groups besides the core one.
    pub(crate) fn groups(&self) -> Vec<String> {
        let mut groups: Vec<String> = self.resources.keys().map(|(group, _)| group.clone()).collect();
        groups.dedup();
        groups.retain(|group| !group.is_empty());
        groups
    }
}

/// The kind that a CustomResourceDefinition describes.
pub(crate) fn custom(definition: &Value) -> Resource {
    let spec = at(definition, &["spec"]);
    let names = at(spec, &["names"]);
    let texts = |path: &[&str]| list(names, path).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let served = list(spec, &["versions"]).iter().filter(|v| at(v, &["served"]) == &Value::Bool(true));
    let kind = text(names, &["kind"]).to_owned();
    let singular = match text(names, &["singular"]) {
        "" => kind.to_lowercase(),
        given => given.to_owned(),
    };
    let (group, plural) = (text(spec, &["group"]).to_owned(), text(names, &["plural"]).to_owned());
    let status = served.clone().any(|v| !at(v, &["subresources", "status"]).is_null());
    Resource {
        versions: served.map(|v| text(v, &["name"]).to_owned()).collect(),
        table: format!("{plural}.{group}"),
        group,
        kind,
        plural,
        singular,
        short: texts(&["shortNames"]),
        categories: texts(&["categories"]),
        namespaced: text(spec, &["scope"]) == "Namespaced",
        status,
        generation: true,
        schema: CUSTOM.to_owned(),
        definition: Arc::new(definition.clone()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_are_served_in_the_chosen_version_only() {
        let kinds = Kinds::new(Rules::V1Beta2);
        assert!(kinds.find("resource.k8s.io", "v1", "devicetaintrules").is_none());
        assert!(kinds.find("resource.k8s.io", "v1beta2", "devicetaintrules").is_some());
        assert_eq!(kinds.versions("resource.k8s.io"), ["v1", "v1beta2"]);
        assert!(Kinds::new(Rules::None).builtin("DeviceTaintRule").is_none());
    }

    #[test]
    fn events_of_both_groups_share_one_table() {
        let kinds = Kinds::new(Rules::V1);
        let core = kinds.find("", "v1", "events").unwrap();
        let newer = kinds.find("events.k8s.io", "v1", "events").unwrap();
        assert_eq!(core.table, newer.table);
    }

    #[test]
    fn a_definition_makes_a_kind() {
        let kind = custom(&json!({"spec": {"group": "devicetaint.dev", "scope": "Namespaced",
            "names": {"kind": "DeviceMark", "plural": "devicemarks", "shortNames": ["dm"]},
            "versions": [{"name": "v1", "served": true, "storage": true, "subresources": {"status": {}}},
                         {"name": "v0", "served": false}]}}));
        assert_eq!((kind.versions.as_slice(), kind.status), (&["v1".to_owned()][..], true));
        assert_eq!(kind.singular, "devicemark");
        assert_eq!(kind.qualified(), "devicemarks.devicetaint.dev");
    }
}
