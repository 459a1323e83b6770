//! What a request asks for: its path taken apart, its query decoded.

use super::api::{Query, RevisionMatch, Target, Validation, WriteOptions};
use super::error::ApiError;
use super::kinds::{Kinds, Resource};
use super::selector::{FieldSelector, LabelSelector};

/// The part of the API that a path names.
#[derive(Debug)]
pub(crate) enum Route {
    /// Objects of a kind.
    Objects(Target),
    /// `/api` or `/apis`: all groups of the core or of the named kind.
    Groups { core: bool },
    /// `/apis/GROUP`.
    Group(String),
    /// `/api/v1` or `/apis/GROUP/VERSION`: the kinds of one version.
    Version { group: String, version: String },
    /// Anything else, by its path.
    Other,
}

/// Finds what a path names. Only paths below `/api` and `/apis` name objects.
pub(crate) fn route(path: &str, kinds: &Kinds) -> Result<Route, ApiError> {
    let steps: Vec<&str> = path.split('/').filter(|step| !step.is_empty()).collect();
    match steps.as_slice() {
        ["api"] => Ok(Route::Groups { core: true }),
        ["apis"] => Ok(Route::Groups { core: false }),
        ["api", version] => Ok(Route::Version { group: String::new(), version: (*version).to_owned() }),
        ["apis", group] => Ok(Route::Group((*group).to_owned())),
        ["apis", group, version] => Ok(Route::Version { group: (*group).to_owned(), version: (*version).to_owned() }),
        ["api", version, rest @ ..] => target("", version, rest, kinds),
        ["apis", group, version, rest @ ..] => target(group, version, rest, kinds),
        _ => Ok(Route::Other),
    }
}

fn target(group: &str, version: &str, rest: &[&str], kinds: &Kinds) -> Result<Route, ApiError> {
    // `namespaces/NS/status` is about the namespace itself, `namespaces/NS/pods` is not.
    let of_namespace = |step: &str| group.is_empty() && ["status", "finalize"].contains(&step);
    let (namespace, rest) = match rest {
        ["namespaces", namespace, inner, ..] if !of_namespace(inner) => (*namespace, &rest[2..]),
        _ => ("", rest),
    };
    let (plural, name, subresource) = match rest {
        [plural] => (*plural, "", ""),
        [plural, name] => (*plural, *name, ""),
        [plural, name, subresource] => (*plural, *name, *subresource),
        _ => return Err(ApiError::no_path()),
    };
    let resource = kinds.find(group, version, plural).ok_or_else(ApiError::no_path)?;
    let misplaced = resource.namespaced == namespace.is_empty() && !(resource.namespaced && name.is_empty());
    if misplaced || !serves(&resource, subresource) {
        return Err(ApiError::no_path());
    }
    Ok(Route::Objects(Target {
        resource,
        version: version.to_owned(),
        namespace: decode(namespace),
        name: decode(name),
        subresource: subresource.to_owned(),
    }))
}

fn serves(resource: &Resource, subresource: &str) -> bool {
    match subresource {
        "" => true,
        "status" => resource.status,
        "finalize" => resource.is("Namespace"),
        other => resource.actions().iter().any(|action| action.0 == other),
    }
}

/// A decoded query.
#[derive(Debug, Clone, Default)]
pub(crate) struct Parameters(Vec<(String, String)>);

impl Parameters {
    pub(crate) fn parse(query: &str) -> Self {
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decode(name), decode(value))
        };
        Self(query.split('&').filter(|part| !part.is_empty()).map(pair).collect())
    }

    /// The value of a parameter, empty where it is missing.
    pub(crate) fn get(&self, name: &str) -> &str {
        self.0.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }

    pub(crate) fn flag(&self, name: &str) -> bool {
        self.0.iter().any(|(n, value)| n == name && ["", "true", "1", "True"].contains(&value.as_str()))
    }

    /// A whole number; the error names the parameter.
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, ApiError> {
        match self.get(name) {
            "" => Ok(None),
            text => match text.parse() {
                Ok(number) => Ok(Some(number)),
                Err(_) => Err(ApiError::bad_request(format!("{name}: {text:?} is not a whole number"))),
            },
        }
    }

    /// The selection of a list or a watch.
    pub(crate) fn query(&self, resource: &Resource) -> Result<Query, ApiError> {
        let labels = LabelSelector::parse(self.get("labelSelector"))
            .map_err(|why| ApiError::bad_request(format!("unable to parse labelSelector: {why}")))?;
        let fields = FieldSelector::parse(self.get("fieldSelector"), resource).map_err(ApiError::bad_request)?;
        let revision = match (self.number("resourceVersion")?, self.get("resourceVersionMatch")) {
            (Some(revision), "Exact") => Some(RevisionMatch::Exact(revision)),
            (None | Some(_), "" | "NotOlderThan") => self.number("resourceVersion")?.map(RevisionMatch::NotOlderThan),
            (_, other) => {
                return Err(ApiError::bad_request(format!("resourceVersionMatch: {other:?} is not possible here")));
            }
        };
        let limit = usize::try_from(self.number("limit")?.unwrap_or(0)).unwrap_or(usize::MAX);
        let token = Some(self.get("continue").to_owned()).filter(|token| !token.is_empty());
        Ok(Query { labels, fields, limit, token, revision })
    }

    /// How a write is to be done. The manager is the one that the client names, else its program.
    pub(crate) fn write_options(&self, agent: &str) -> Result<WriteOptions, ApiError> {
        let manager = match self.get("fieldManager") {
            "" => agent.split('/').next().unwrap_or_default(),
            named => named,
        };
        let dry_run = match self.get("dryRun") {
            "" => false,
            "All" => true,
            other => return Err(ApiError::bad_request(format!("dryRun: {other:?} is not All"))),
        };
        let validation = match self.get("fieldValidation") {
            "Strict" => Validation::Strict,
            "Ignore" => Validation::Ignore,
            "Warn" | "" => Validation::Warn,
            other => {
                return Err(ApiError::bad_request(format!("fieldValidation: {other:?} is not Ignore, Warn or Strict")));
            }
        };
        let manager = if manager.is_empty() { "unknown" } else { manager };
        Ok(WriteOptions { manager: manager.to_owned(), dry_run, validation, force: self.flag("force") })
    }
}

/// Undoes percent-encoding, and `+` for a space.
fn decode(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut index = 0;
    while index < bytes.len() {
        let hex = bytes.get(index + 1..index + 3).and_then(|pair| std::str::from_utf8(pair).ok());
        match (bytes[index], hex.and_then(|pair| u8::from_str_radix(pair, 16).ok())) {
            (b'%', Some(byte)) => {
                out.push(byte);
                index += 2;
            }
            (b'+', _) => out.push(b' '),
            (byte, _) => out.push(byte),
        }
        index += 1;
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::server::kinds::Rules;

    fn found(path: &str) -> Option<(String, String, String, String)> {
        match route(path, &Kinds::new(Rules::V1)) {
            Ok(Route::Objects(t)) => Some((t.resource.plural.clone(), t.namespace, t.name, t.subresource)),
            _ => None,
        }
    }

    fn parts(plural: &str, namespace: &str, name: &str, subresource: &str) -> Option<(String, String, String, String)> {
        Some((plural.to_owned(), namespace.to_owned(), name.to_owned(), subresource.to_owned()))
    }

    #[test]
    fn paths_name_objects() {
        assert_eq!(found("/api/v1/pods"), parts("pods", "", "", ""));
        assert_eq!(found("/api/v1/namespaces/a/pods/b/eviction"), parts("pods", "a", "b", "eviction"));
        assert_eq!(found("/api/v1/namespaces/a"), parts("namespaces", "", "a", ""));
        assert_eq!(found("/api/v1/namespaces/a/status"), parts("namespaces", "", "a", "status"));
        assert_eq!(found("/apis/resource.k8s.io/v1/resourceslices/s"), parts("resourceslices", "", "s", ""));
    }

    #[test]
    fn paths_that_make_no_sense_are_not_found() {
        for path in [
            "/api/v1/pods/b",
            "/api/v1/namespaces/a/nodes/n",
            "/api/v1/namespaces/a/pods/b/explode",
            "/apis/resource.k8s.io/v1/resourceslices/s/status",
            "/apis/resource.k8s.io/v1beta2/devicetaintrules",
        ] {
            assert_eq!(found(path), None, "{path}");
        }
    }

    #[test]
    fn queries_are_decoded() {
        let query = Parameters::parse("labelSelector=a%3Db%2Cc+in+%28d%29&watch=true&limit=5&force");
        assert_eq!(query.get("labelSelector"), "a=b,c in (d)");
        assert!(query.flag("watch") && query.flag("force") && !query.flag("other"));
        assert_eq!(query.number("limit").unwrap(), Some(5));
        assert_eq!(Parameters::parse("limit=x").number("limit").unwrap_err().code, 400);
        assert_eq!(decode("100%"), "100%");
    }

    #[test]
    fn the_manager_is_named_or_the_program() {
        let options = Parameters::parse("").write_options("kubectl/v1.37.2 (linux)").unwrap();
        assert_eq!(options.manager, "kubectl");
        let options =
            Parameters::parse("fieldManager=me&dryRun=All&fieldValidation=Strict").write_options("x").unwrap();
        assert_eq!((options.manager.as_str(), options.dry_run, options.validation), ("me", true, Validation::Strict));
        assert!(Parameters::parse("fieldValidation=Maybe").write_options("x").is_err());
    }
}
