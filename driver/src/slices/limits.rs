//! What the API server of this cluster accepts in a slice: some limits moved between Kubernetes versions.

use taints::Effect;

/// Limits of a ResourceSlice (resource/v1 types.go, `ResourceSliceMaxDevices` and its neighbours).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Devices a slice. A slice may hold 128 devices while none has a taint and 64 once one has; we always split at 64, so
    /// that a taint never moves a device to another slice.
    pub devices: usize,
    /// Taints a device: 16, and 4 before Kubernetes 1.35.
    pub taints: usize,
    /// Whether the effect `None` exists: since Kubernetes 1.35. An older server refuses the whole slice.
    pub effect_none: bool,
}

impl Limits {
    /// Kubernetes 1.35 and newer; also the guess while the version is not known.
    pub const CURRENT: Self = Self { devices: 64, taints: 16, effect_none: true };

    /// Kubernetes 1.33 and 1.34.
    pub const BEFORE_1_35: Self = Self { devices: 64, taints: 4, effect_none: false };

    /// The limits of a server that calls itself `major.minor` in `/version`. Cloud vendors append a sign to the minor (`34+`).
    /// A text that is not a number counts as current.
    #[must_use]
    pub fn of_version(major: &str, minor: &str) -> Self {
        let number = |text: &str| text.trim_end_matches(|c: char| !c.is_ascii_digit()).parse::<u32>().ok();
        match (number(major), number(minor)) {
            (Some(1), Some(minor)) if minor < 35 => Self::BEFORE_1_35,
            _ => Self::CURRENT,
        }
    }

    /// Whether the server knows the effect.
    #[must_use]
    pub fn accepts(&self, effect: &Effect) -> bool {
        match effect {
            Effect::NoSchedule | Effect::NoExecute => true,
            Effect::None => self.effect_none,
            Effect::PreferNoSchedule | Effect::Other(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Limits;

    #[test]
    fn only_1_33_and_1_34_have_the_small_limits() {
        for (minor, want) in [
            ("33", Limits::BEFORE_1_35),
            ("34", Limits::BEFORE_1_35),
            ("34+", Limits::BEFORE_1_35),
            ("35", Limits::CURRENT),
            ("37", Limits::CURRENT),
            ("", Limits::CURRENT),
        ] {
            assert_eq!(Limits::of_version("1", minor), want, "1.{minor}");
        }
        assert_eq!(Limits::of_version("2", "0"), Limits::CURRENT);
    }
}
