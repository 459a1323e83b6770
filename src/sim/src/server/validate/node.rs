//! Rules for the taints of nodes.

use serde_json::Value;

use super::{FieldError, LABEL_KEY, LABEL_VALUE, label_key, label_value};
use crate::server::value::{list, text};

pub(super) const EFFECTS: &[&str] = &["NoSchedule", "PreferNoSchedule", "NoExecute"];

pub(super) fn check(node: &Value, errors: &mut Vec<FieldError>) {
    let taints = list(node, &["spec", "taints"]);
    for (index, taint) in taints.iter().enumerate() {
        let path = format!("spec.taints[{index}]");
        let (key, value, effect) = (text(taint, &["key"]), text(taint, &["value"]), text(taint, &["effect"]));
        if !label_key(key) {
            errors.push(FieldError::invalid(format!("{path}.key"), &Value::from(key), LABEL_KEY));
        }
        if !label_value(value) {
            errors.push(FieldError::invalid(format!("{path}.value"), &Value::from(value), LABEL_VALUE));
        }
        match effect {
            "" => errors.push(FieldError::required(format!("{path}.effect"), "")),
            known if EFFECTS.contains(&known) => {}
            other => errors.push(FieldError::not_supported(format!("{path}.effect"), other, EFFECTS)),
        }
        let same = |other: &Value| text(other, &["key"]) == key && text(other, &["effect"]) == effect;
        if taints[..index].iter().any(same) {
            let why = "taints must be unique by key and effect pair";
            errors.push(FieldError::invalid(path, taint, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn taints_are_whole_and_unique() {
        let node = json!({"spec": {"taints": [
            {"key": "a", "effect": "NoSchedule"}, {"key": "a", "effect": "NoExecute"},
            {"key": "a", "value": "x", "effect": "NoSchedule"}, {"key": "", "effect": "None"}, {"key": "b", "value": "-1"}]}});
        let mut errors = Vec::new();
        check(&node, &mut errors);
        let fields: Vec<&str> = errors.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(
            fields,
            [
                "spec.taints[2]",
                "spec.taints[3].key",
                "spec.taints[3].effect",
                "spec.taints[4].value",
                "spec.taints[4].effect"
            ]
        );
    }
}
