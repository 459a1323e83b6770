//! Taints of nodes and tolerations of pods.

use super::{ErrorKind, FieldError, Report, child};
use crate::node::canonical_int;
use crate::taint::{Effect, Taint};
use crate::toleration::{Operator, Toleration};

const EFFECTS: [&str; 3] = ["NoSchedule", "PreferNoSchedule", "NoExecute"];

/// What is wrong with a node's taints; `base` is the list's path, such as `spec.taints`.
#[must_use]
pub fn node_taints(taints: &[Taint], base: &str) -> Vec<FieldError> {
    let mut report = Report::new();
    for (index, taint) in taints.iter().enumerate() {
        let path = format!("{base}[{index}]");
        report.label_key(child(&path, "key"), &taint.key);
        report.label_value(child(&path, "value"), &taint.value);
        node_effect(&mut report, child(&path, "effect"), &taint.effect);
        if taints.iter().take(index).any(|other| other.same_as(taint)) {
            let message = "taints must be unique by key and effect pair";
            report.add(path, ErrorKind::Duplicate, taint.to_string(), message);
        }
    }
    report.errors
}

fn node_effect(report: &mut Report, field: String, effect: &Effect) {
    match effect {
        Effect::NoSchedule | Effect::PreferNoSchedule | Effect::NoExecute => {}
        Effect::Other(text) if text.is_empty() => {
            report.add(field, ErrorKind::Required, "", format!("one of {}", EFFECTS.join(", ")));
        }
        Effect::None | Effect::Other(_) => report.not_supported(field, effect.as_str(), &EFFECTS),
    }
}

/// What is wrong with a new pod's tolerations; `base` is the list's path, such as `spec.tolerations`.
///
/// `numbers` says whether `Gt` and `Lt` may be used: the gate `TaintTolerationComparisonOperators` is on, or the object used them
/// before.
#[must_use]
pub fn pod_tolerations(tolerations: &[Toleration], base: &str, numbers: bool) -> Vec<FieldError> {
    let mut report = Report::new();
    for (index, toleration) in tolerations.iter().enumerate() {
        pod_toleration(&mut report, toleration, &format!("{base}[{index}]"), numbers);
    }
    report.errors
}

fn pod_toleration(report: &mut Report, toleration: &Toleration, path: &str, numbers: bool) {
    if !toleration.key.is_empty() {
        report.label_key(child(path, "key"), &toleration.key);
    } else if toleration.operator != Operator::Exists {
        let message = "the operator must be Exists when the key is empty, which matches all values and all keys";
        report.invalid(child(path, "operator"), toleration.operator.as_str(), message);
    }
    if toleration.toleration_seconds.is_some() && toleration.effect != Some(Effect::NoExecute) {
        let effect = toleration.effect.as_ref().map_or("", Effect::as_str);
        report.invalid(child(path, "effect"), effect, "the effect must be NoExecute when tolerationSeconds is set");
    }
    pod_operator(report, toleration, path, numbers);
    if let Some(effect) = &toleration.effect {
        node_effect(report, child(path, "effect"), effect);
    }
}

/// The server files trouble with the values of `Equal` and `Exists` under the operator.
fn pod_operator(report: &mut Report, toleration: &Toleration, path: &str, numbers: bool) {
    let field = child(path, "operator");
    match &toleration.operator {
        Operator::Equal => report.label_value(field, &toleration.value),
        Operator::Exists if toleration.value.is_empty() => {}
        Operator::Exists => {
            report.invalid(field, &toleration.value, "the value must be empty when the operator is Exists");
        }
        Operator::Gt | Operator::Lt if numbers => {
            if canonical_int(&toleration.value).is_none() {
                let message = "the value must be a valid decimal integer in canonical form, of 64 bits";
                report.invalid(child(path, "value"), &toleration.value, message);
            }
        }
        other => {
            let supported: &[&str] = if numbers { &["Equal", "Exists", "Lt", "Gt"] } else { &["Equal", "Exists"] };
            report.not_supported(field, other.as_str(), supported);
        }
    }
}

/// What is wrong with a change of a pod's tolerations: they may be added to, and their seconds may change.
#[must_use]
pub fn pod_tolerations_update(old: &[Toleration], new: &[Toleration], base: &str, numbers: bool) -> Vec<FieldError> {
    let kept = |old: &Toleration| new.iter().any(|new| old.same_as(new));
    let mut report = Report::new();
    if !old.iter().all(kept) {
        let message = "existing toleration can not be modified except its tolerationSeconds";
        report.add(base.to_owned(), ErrorKind::Forbidden, "", message);
    }
    let used = old.iter().any(|toleration| matches!(toleration.operator, Operator::Gt | Operator::Lt));
    report.errors.extend(pod_tolerations(new, base, numbers || used));
    report.errors
}
