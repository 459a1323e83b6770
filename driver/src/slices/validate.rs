//! The API server's rules for devices, checked before anything is sent: one value that it would refuse must not keep the
//! whole slice, with every healthy card in it, from being published (field report F34).

use std::collections::BTreeSet;
use std::fmt;

use super::limits::Limits;
use super::model::{Attribute, Card, Device, Pool};
use taints::validate::{is_dns_label, is_dns_subdomain, is_label_key, is_label_value};
use taints::{Effect, Taint};

/// Attributes and capacities of a device together (`ResourceSliceMaxAttributesAndCapacitiesPerDevice`).
const MAX_ATTRIBUTES: usize = 32;
/// Bytes of a text or version attribute (`DeviceAttributeMaxValueLength`).
const MAX_TEXT: usize = 64;

/// Something that the API server would have refused, and what was done about it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Problem {
    /// The device.
    pub device: String,
    /// What was left out, and why.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "device {}: {}", self.device, self.what)
    }
}

/// The pool without what the server would refuse, and what that was. Optional parts go first; a device is left out only when
/// its name is not valid or is taken. Plain devices always remain.
#[must_use]
pub fn valid(pool: &Pool, limits: &Limits) -> (Pool, Vec<Problem>) {
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    let mut cards = Vec::new();
    for card in &pool.cards {
        let devices: Vec<Device> =
            card.devices.iter().filter_map(|device| checked(device, limits, &mut names, &mut problems)).collect();
        if !devices.is_empty() {
            cards.push(Card { devices });
        }
    }
    (Pool { cards }, problems)
}

fn checked(
    device: &Device,
    limits: &Limits,
    names: &mut BTreeSet<String>,
    problems: &mut Vec<Problem>,
) -> Option<Device> {
    let mut report = |what: String| problems.push(Problem { device: device.name.clone(), what });
    if !is_dns_label(&device.name) {
        report("not published, its name is not a DNS label".to_owned());
        return None;
    }
    if !names.insert(device.name.clone()) {
        report("published once, its name is there twice".to_owned());
        return None;
    }
    let mut kept = device.clone();
    kept.attributes.retain(|name, value| match attribute_problem(name, value) {
        Some(why) => {
            report(format!("attribute {name} left out, {why}"));
            false
        }
        None => true,
    });
    kept.capacity.retain(|name, capacity| {
        let good = is_qualified_name(name) && is_quantity(&capacity.value);
        if !good {
            report(format!("capacity {name}={} left out, it is no quantity under a valid name", capacity.value));
        }
        good
    });
    while kept.attributes.len() + kept.capacity.len() > MAX_ATTRIBUTES {
        let Some((name, _)) = kept.attributes.pop_last() else { break };
        report(format!("attribute {name} left out, a device has at most {MAX_ATTRIBUTES}"));
    }
    kept.taints = checked_taints(&device.taints, limits, report);
    Some(kept)
}

fn checked_taints(taints: &[Taint], limits: &Limits, mut report: impl FnMut(String)) -> Vec<Taint> {
    let mut kept: Vec<Taint> = Vec::new();
    for taint in taints {
        if !is_label_key(&taint.key) || !is_label_value(&taint.value) {
            report(format!("taint {taint} left out, its key or value is not a valid label"));
        } else if !limits.accepts(&taint.effect) {
            report(format!("taint {taint} left out, this API server does not know its effect"));
        } else {
            kept.push(taint.clone());
        }
    }
    while kept.len() > limits.taints {
        let weakest = kept.iter().enumerate().min_by_key(|(at, taint)| (strength(&taint.effect), usize::MAX - at));
        let Some((at, _)) = weakest else { break };
        report(format!("taint {} left out, a device has at most {} on this API server", kept[at], limits.taints));
        kept.remove(at);
    }
    kept
}

fn strength(effect: &Effect) -> u8 {
    match effect {
        Effect::NoExecute => 2,
        Effect::NoSchedule => 1,
        Effect::None | Effect::PreferNoSchedule | Effect::Other(_) => 0,
    }
}

fn attribute_problem(name: &str, value: &Attribute) -> Option<String> {
    if !is_qualified_name(name) {
        return Some("its name is not valid".to_owned());
    }
    match value {
        Attribute::String(text) | Attribute::Version(text) if text.len() > MAX_TEXT => {
            Some(format!("its value has more than {MAX_TEXT} bytes"))
        }
        Attribute::Version(text) if !is_semver(text) => Some(format!("{text} is not a semantic version 2.0.0")),
        Attribute::Bool(_) | Attribute::Int(_) | Attribute::String(_) | Attribute::Version(_) => None,
    }
}

/// `domain/identifier` or a bare identifier of at most 32 (resource/v1 `QualifiedName`).
fn is_qualified_name(text: &str) -> bool {
    let (domain, name) = text.split_once('/').map_or((None, text), |(domain, name)| (Some(domain), name));
    let starts = name.chars().next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_');
    domain.is_none_or(|domain| domain.len() <= 63 && is_dns_subdomain(domain))
        && name.len() <= 32
        && starts
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// A decimal number with an optional suffix of Kubernetes' quantities.
fn is_quantity(text: &str) -> bool {
    const SUFFIXES: [&str; 16] = ["", "n", "u", "m", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    number.parse::<f64>().is_ok() && SUFFIXES.contains(&suffix)
}

/// Semantic version 2.0.0: three numbers without leading zeros, then optional pre-release and build parts.
fn is_semver(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest.split_once('-').map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let word = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
    let number = |part: &str| {
        !part.is_empty() && part.chars().all(|c| c.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let identifier = |part: &str| word(part) && (!part.chars().all(|c| c.is_ascii_digit()) || number(part));
    core.split('.').count() == 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(identifier))
        && build.is_none_or(|build| build.split('.').all(word))
}

#[cfg(test)]
mod tests {
    use super::super::limits::Limits;
    use super::super::model::{Attribute, Capacity, Card, Device, Pool};
    use super::{is_qualified_name, is_quantity, is_semver, valid};
    use taints::{Effect, Taint};

    fn taint(key: &str, effect: Effect) -> Taint {
        Taint { key: key.to_owned(), value: String::new(), effect, time_added: None }
    }

    fn one(device: Device) -> Pool {
        Pool { cards: vec![Card { devices: vec![device] }] }
    }

    fn plain(name: &str) -> Device {
        Device { name: name.to_owned(), ..Device::default() }
    }

    #[test]
    fn what_the_server_refuses_is_left_out_and_the_device_stays() {
        let mut device = plain("gpu-0");
        let mut put = |name: &str, value| device.attributes.insert(name.to_owned(), value);
        put("gpu.nvidia.com/driverVersion", Attribute::Version("580.95.05".to_owned()));
        put("gpu.nvidia.com/uuid", Attribute::String("x".repeat(65)));
        put("gpu.nvidia.com/product-name", Attribute::Bool(true));
        put("gpu.nvidia.com/fine", Attribute::Int(3));
        device.capacity.insert("gpu.nvidia.com/memory".to_owned(), Capacity { value: "lots".to_owned() });
        device.taints = vec![taint("gpu.devicetaint.dev/lost", Effect::NoSchedule), taint("a b", Effect::NoSchedule)];
        let (pool, problems) = valid(&one(device), &Limits::CURRENT);
        let kept = &pool.cards[0].devices[0];
        assert_eq!(kept.attributes.keys().collect::<Vec<_>>(), ["gpu.nvidia.com/fine"]);
        assert_eq!((kept.capacity.len(), kept.taints.len()), (0, 1));
        assert_eq!(problems.len(), 5, "{problems:?}");
        assert!(problems.iter().any(|p| p.to_string().contains("580.95.05 is not a semantic version")), "{problems:?}");
    }

    #[test]
    fn a_bad_or_double_name_costs_only_that_device() {
        let pool =
            Pool { cards: ["gpu-0", "GPU_1", "gpu-0", "gpu-2"].map(|name| Card { devices: vec![plain(name)] }).into() };
        let (pool, problems) = valid(&pool, &Limits::CURRENT);
        let names: Vec<_> = pool.cards.iter().map(|card| card.devices[0].name.as_str()).collect();
        assert_eq!((names, problems.len()), (vec!["gpu-0", "gpu-2"], 2));
    }

    #[test]
    fn an_old_server_gets_four_taints_the_strongest_and_never_none() {
        let mut device = plain("gpu-0");
        device.taints = (0..5).map(|n| taint(&format!("k{n}"), Effect::NoSchedule)).collect();
        device.taints.push(taint("none", Effect::None));
        device.taints.push(taint("last", Effect::NoExecute));
        let (pool, problems) = valid(&one(device.clone()), &Limits::BEFORE_1_35);
        let keys: Vec<_> = pool.cards[0].devices[0].taints.iter().map(|t| t.key.as_str()).collect();
        assert_eq!((keys, problems.len()), (vec!["k0", "k1", "k2", "last"], 3));
        assert_eq!(valid(&one(device), &Limits::CURRENT).1, []);
    }

    #[test]
    fn more_than_32_attributes_are_cut() {
        let mut device = plain("gpu-0");
        device.attributes = (0..40).map(|n| (format!("a{n:02}"), Attribute::Int(n))).collect();
        let (pool, problems) = valid(&one(device), &Limits::CURRENT);
        assert_eq!((pool.cards[0].devices[0].attributes.len(), problems.len()), (32, 8));
    }

    #[test]
    fn the_forms_are_those_of_the_api() {
        for good in ["1.2.3", "0.0.0", "1.2.3-rc.1+b.01", "13.0.0"] {
            assert!(is_semver(good), "{good}");
        }
        for bad in ["1.2", "v1.2.3", "1.02.3", "1.2.3-01", "1.2.3-", "1.2.3+", ""] {
            assert!(!is_semver(bad), "{bad}");
        }
        assert!(is_qualified_name("gpu.nvidia.com/type") && is_qualified_name("bare_1"));
        assert!(!is_qualified_name("a/b/c") && !is_qualified_name("1x") && !is_qualified_name("x-y"));
        assert!(is_quantity("80Gi") && is_quantity("1.5k") && !is_quantity("Gi") && !is_quantity("1 Gi"));
    }
}
