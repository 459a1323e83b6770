//! The versions of Kubernetes that the project is tried on, and what each must be told so that device taints are on.

use std::fmt;
use std::str::FromStr;

/// A version of Kubernetes that `tests/real` has a tools module for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version {
    minor: u16,
    patch: u16,
}

impl Version {
    /// All of them, oldest first. The tools modules say the same.
    pub(crate) const ALL: [Self; 4] = [
        Self { minor: 34, patch: 4 },
        Self { minor: 35, patch: 4 },
        Self { minor: 36, patch: 3 },
        Self { minor: 37, patch: 2 },
    ];

    /// The folder of its tools module below `tests/real`.
    pub(crate) fn module(self) -> String {
        format!("v1.{}", self.minor)
    }

    /// The feature gates that every program of this version is started with. A gate that a version has locked, or does not know, ends its programs,
    /// so each stands only where it is off by default. `stock` leaves the version as it comes.
    pub(crate) fn feature_gates(self, stock: bool) -> &'static [&'static str] {
        match self.minor {
            _ if stock => &[],
            ..=34 => &["DRADeviceTaints", "ResourceHealthStatus"],
            35 => &["DRADeviceTaints", "DRADeviceTaintRules", "ResourceHealthStatus"],
            36 => &["DRADeviceTaintRules"],
            _ => &[],
        }
    }

    /// The API versions that the server does not serve by default: every beta of the group, for what a policy forbids it has to forbid in each; and
    /// v1alpha3 while that holds `DeviceTaintRule`.
    pub(crate) fn runtime_config(self, stock: bool) -> &'static [&'static str] {
        match self.minor {
            _ if stock => &[],
            ..=36 => &["resource.k8s.io/v1alpha3", "resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2"],
            _ => &["resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2"],
        }
    }

    /// Whether its tools module has Kubernetes' own DRA test driver, the foreign driver of the scenarios.
    pub(crate) fn has_test_driver(self) -> bool {
        self == Self::default()
    }
}

impl Default for Version {
    fn default() -> Self {
        Self::ALL[Self::ALL.len() - 1]
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1.{}.{}", self.minor, self.patch)
    }
}

/// What was asked for is none of [`Version::ALL`].
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Unknown(String);

impl std::error::Error for Unknown {}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = Version::ALL.map(|version| version.to_string()).join(", ");
        write!(f, "`{}` is no version with a tools module in tests/real, there are {known}", self.0)
    }
}

impl FromStr for Version {
    type Err = Unknown;

    /// `1.37`, `1.37.2` and `v1.37.2` are the same.
    fn from_str(text: &str) -> Result<Self, Unknown> {
        let plain = text.strip_prefix('v').unwrap_or(text);
        let named =
            Self::ALL.into_iter().find(|version| plain == version.to_string() || plain == &version.module()[1..]);
        named.ok_or_else(|| Unknown(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(text: &str) -> Version {
        text.parse().unwrap()
    }

    #[test]
    fn a_version_is_named_with_and_without_its_patch() {
        for text in ["1.37", "v1.37", "1.37.2", "v1.37.2"] {
            assert_eq!(version(text), Version::default(), "{text}");
        }
        assert_eq!(version("1.34").to_string(), "1.34.4");
    }

    #[test]
    fn another_version_is_refused_with_those_there_are() {
        for text in ["1.33", "1.37.1", "37", "", "1.3"] {
            let told = text.parse::<Version>().unwrap_err().to_string();
            assert!(told.contains(&format!("`{text}`")) && told.contains("1.34.4, 1.35.4, 1.36.3, 1.37.2"), "{told}");
        }
    }

    #[test]
    fn a_gate_stands_only_where_it_is_off_by_default() {
        let gates = |text: &str| version(text).feature_gates(false);
        assert_eq!(gates("1.34"), ["DRADeviceTaints", "ResourceHealthStatus"]);
        assert_eq!(gates("1.35"), ["DRADeviceTaints", "DRADeviceTaintRules", "ResourceHealthStatus"]);
        assert_eq!(gates("1.36"), ["DRADeviceTaintRules"]);
        assert!(gates("1.37").is_empty());
    }

    #[test]
    fn rules_and_all_betas_are_served_by_every_version_unless_it_is_left_as_it_comes() {
        for known in Version::ALL {
            let config = known.runtime_config(false);
            assert_eq!(config.contains(&"resource.k8s.io/v1alpha3"), known != Version::default(), "{known}");
            assert!(config.ends_with(&["resource.k8s.io/v1beta1", "resource.k8s.io/v1beta2"]), "{known}");
            assert!(known.runtime_config(true).is_empty() && known.feature_gates(true).is_empty(), "{known}");
        }
    }

    #[test]
    fn the_tools_modules_require_these_versions() {
        for known in Version::ALL {
            let module = crate::kube::programs::kubernetes(known, &[]);
            assert_eq!(module.version().unwrap(), format!("v{known}"));
        }
    }
}
