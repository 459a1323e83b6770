//! The kinds that we watch, and how the API serves each.

use std::fmt;

use kube::core::ApiResource;

/// A kind that we watch. Few and fixed, so that it can be a metric's label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// core/v1 `Node`.
    Node,
    /// core/v1 `Pod`.
    Pod,
    /// resource.k8s.io/v1 `ResourceClaim`.
    Claim,
    /// resource.k8s.io/v1 `ResourceSlice`.
    Slice,
    /// resource.k8s.io `DeviceTaintRule`, in the version that the server has.
    Rule,
    /// devicetaint.dev `DeviceMark`, our own kind, which need not be there.
    Mark,
}

impl Kind {
    /// Every kind, in the order in which people read them.
    pub const ALL: [Self; 6] = [Self::Node, Self::Pod, Self::Claim, Self::Slice, Self::Rule, Self::Mark];

    /// The plural that the API uses, such as `resourceclaims`.
    #[must_use]
    pub const fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Pod => "pods",
            Self::Claim => "resourceclaims",
            Self::Slice => "resourceslices",
            Self::Rule => "devicetaintrules",
            Self::Mark => "devicemarks",
        }
    }

    /// The kind as manifests write it, such as `ResourceClaim`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Node => "Node",
            Self::Pod => "Pod",
            Self::Claim => "ResourceClaim",
            Self::Slice => "ResourceSlice",
            Self::Rule => "DeviceTaintRule",
            Self::Mark => "DeviceMark",
        }
    }

    /// The API group; empty for core.
    #[must_use]
    pub const fn group(self) -> &'static str {
        match self {
            Self::Node | Self::Pod => "",
            Self::Claim | Self::Slice | Self::Rule => "resource.k8s.io",
            Self::Mark => "devicetaint.dev",
        }
    }

    /// Whether a server that we work with may lack it: our own kind has to be installed.
    #[must_use]
    pub const fn may_be_absent(self) -> bool {
        matches!(self, Self::Mark)
    }

    /// How to reach the kind in the given version of its group.
    #[must_use]
    pub fn resource(self, version: &str) -> ApiResource {
        let group = self.group();
        let api_version = if group.is_empty() { version.to_owned() } else { format!("{group}/{version}") };
        ApiResource {
            group: group.to_owned(),
            version: version.to_owned(),
            api_version,
            kind: self.name().to_owned(),
            plural: self.plural().to_owned(),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.plural())
    }
}
