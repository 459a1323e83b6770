//! Taints of devices and rules, tolerations of requests, and the limits of a slice.

use super::{ErrorKind, FieldError, Report, child, is_dns_label, is_dns_subdomain};
use crate::object::{Rule, Selector, Slice};
use crate::taint::{Effect, Taint};
use crate::toleration::{Operator, Toleration};

/// The most taints of a device (`DeviceTaintsMaxLength`; 4 before Kubernetes 1.35).
const MOST_TAINTS: usize = 16;
/// The most tolerations of a request (`DeviceTolerationsMaxLength`).
const MOST_TOLERATIONS: usize = 16;
/// The most devices of a slice (`ResourceSliceMaxDevices`).
const MOST_DEVICES: usize = 128;
/// The most devices of a slice in which any has taints (`ResourceSliceMaxDevicesWithTaintsOrConsumesCounters`).
const MOST_TAINTED_DEVICES: usize = 64;

const EFFECTS: [&str; 3] = ["None", "NoSchedule", "NoExecute"];

/// What is wrong with a device's taint; `base` is its path. An effect that the server does not know is kept where it stood
/// before, in `old`.
#[must_use]
pub fn device_taint(taint: &Taint, old: Option<&Taint>, base: &str) -> Vec<FieldError> {
    let mut report = Report::new();
    check_taint(&mut report, taint, old, base);
    report.errors
}

fn check_taint(report: &mut Report, taint: &Taint, old: Option<&Taint>, path: &str) {
    if taint.key.is_empty() {
        report.add(child(path, "key"), ErrorKind::Required, "", "a taint needs a key");
    } else {
        report.label_key(child(path, "key"), &taint.key);
    }
    report.label_value(child(path, "value"), &taint.value);
    match &taint.effect {
        Effect::None | Effect::NoSchedule | Effect::NoExecute => {}
        Effect::Other(text) if text.is_empty() => {
            let message = format!("one of {}", EFFECTS.join(", "));
            report.add(child(path, "effect"), ErrorKind::Required, "", message);
        }
        effect if old.is_some_and(|old| old.effect == *effect) => {}
        effect => report.not_supported(child(path, "effect"), effect.as_str(), &EFFECTS),
    }
}

/// What is wrong with the taints of a new device; `base` is the list's path, such as `spec.devices[0].taints`.
#[must_use]
pub fn device_taints(taints: &[Taint], base: &str) -> Vec<FieldError> {
    let mut report = Report::new();
    check_taints(&mut report, taints, base);
    report.errors
}

fn check_taints(report: &mut Report, taints: &[Taint], base: &str) {
    if taints.len() > MOST_TAINTS {
        too_many(report, base, taints.len(), &format!("a device has at most {MOST_TAINTS} taints"));
    }
    for (index, taint) in taints.iter().enumerate() {
        check_taint(report, taint, None, &format!("{base}[{index}]"));
    }
}

/// What is wrong with the tolerations of a request; `base` is the list's path. An empty key needs no `Exists` here, and seconds
/// are allowed with any effect, unlike in a pod.
#[must_use]
pub fn device_tolerations(tolerations: &[Toleration], base: &str) -> Vec<FieldError> {
    let mut report = Report::new();
    if tolerations.len() > MOST_TOLERATIONS {
        let message = format!("a request has at most {MOST_TOLERATIONS} tolerations");
        too_many(&mut report, base, tolerations.len(), &message);
    }
    for (index, toleration) in tolerations.iter().enumerate() {
        device_toleration(&mut report, toleration, &format!("{base}[{index}]"));
    }
    report.errors
}

fn device_toleration(report: &mut Report, toleration: &Toleration, path: &str) {
    if !toleration.key.is_empty() {
        report.label_key(child(path, "key"), &toleration.key);
    }
    match &toleration.operator {
        Operator::Equal => report.label_value(child(path, "value"), &toleration.value),
        Operator::Exists if toleration.value.is_empty() => {}
        Operator::Exists => {
            let message = "the value must be empty when the operator is Exists";
            report.invalid(child(path, "value"), &toleration.value, message);
        }
        other => report.not_supported(child(path, "operator"), other.as_str(), &["Equal", "Exists"]),
    }
    if let Some(effect @ (Effect::PreferNoSchedule | Effect::Other(_))) = &toleration.effect {
        report.not_supported(child(path, "effect"), effect.as_str(), &EFFECTS);
    }
}

/// What is wrong with a DeviceTaintRule; fields are named from `spec`.
#[must_use]
pub fn rule(rule: &Rule, old: Option<&Rule>) -> Vec<FieldError> {
    let mut report = Report::new();
    if let Some(Selector { driver, pool, device }) = &rule.selector {
        let path = "spec.deviceSelector";
        let is_pool = |name: &str| name.len() <= 253 && name.split('/').all(is_dns_subdomain);
        let driver_form = "a driver's name is a DNS subdomain of at most 63 characters";
        name(&mut report, child(path, "driver"), driver.as_deref(), driver_form, |name| {
            name.len() <= 63 && is_dns_subdomain(name)
        });
        name(
            &mut report,
            child(path, "pool"),
            pool.as_deref(),
            "a pool's name is DNS subdomains joined by slashes",
            is_pool,
        );
        name(&mut report, child(path, "device"), device.as_deref(), "a device's name is a DNS label", is_dns_label);
    }
    check_taint(&mut report, &rule.taint, old.map(|old| &old.taint), "spec.taint");
    report.errors
}

fn name(report: &mut Report, field: String, value: Option<&str>, form: &str, is_fine: impl Fn(&str) -> bool) {
    if let Some(value) = value.filter(|value| !is_fine(value)) {
        report.invalid(field, value, form);
    }
}

/// What is wrong with a slice: how much it holds, its devices' names and taints; fields are named from `spec`.
#[must_use]
pub fn slice(slice: &Slice) -> Vec<FieldError> {
    let mut report = Report::new();
    let tainted = slice.devices.iter().any(|device| !device.taints.is_empty());
    let (most, why) = if tainted {
        (MOST_TAINTED_DEVICES, "when any of them has taints")
    } else {
        (MOST_DEVICES, "when none of them has taints")
    };
    if slice.devices.len() > most {
        let message = format!("a slice holds at most {most} devices {why}");
        too_many(&mut report, "spec.devices", slice.devices.len(), &message);
    }
    for (index, device) in slice.devices.iter().enumerate() {
        let path = format!("spec.devices[{index}]");
        if !is_dns_label(&device.name) {
            report.invalid(child(&path, "name"), &device.name, "a device's name is a DNS label");
        }
        if slice.devices.iter().take(index).any(|other| other.name == device.name) {
            report.add(child(&path, "name"), ErrorKind::Duplicate, device.name.clone(), "names are unique in a slice");
        }
        check_taints(&mut report, &device.taints, &child(&path, "taints"));
    }
    report.errors
}

fn too_many(report: &mut Report, field: &str, count: usize, message: &str) {
    report.add(field.to_owned(), ErrorKind::TooMany, count.to_string(), message);
}
