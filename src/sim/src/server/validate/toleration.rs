//! Rules for tolerations, of pods and of device requests: the two differ in operators, effects and where an error is reported.

use serde_json::Value;

use super::node::EFFECTS as NODE_EFFECTS;
use super::{FieldError, LABEL_KEY, LABEL_VALUE, label_key, label_value};
use crate::server::value::{at, list, text};

const NODE_OPERATORS: &[&str] = &["Equal", "Exists", "Lt", "Gt"];
const DEVICE_OPERATORS: &[&str] = &["Equal", "Exists"];
pub(super) const DEVICE_EFFECTS: &[&str] = &["NoExecute", "NoSchedule", "None"];

/// The most tolerations of one request.
const LIMIT: usize = 16;

/// Checks one toleration of a pod.
pub(super) fn of_pod(toleration: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|field| text(toleration, &[field]));
    if !key.is_empty() && !label_key(key) {
        errors.push(FieldError::invalid(format!("{path}.key"), &Value::from(key), LABEL_KEY));
    }
    if key.is_empty() && operator != "Exists" {
        let why = "operator must be Exists when `key` is empty, which means \"match all values and all keys\"";
        errors.push(FieldError::invalid(format!("{path}.operator"), &Value::from(operator), why));
    }
    if !at(toleration, &["tolerationSeconds"]).is_null() && effect != "NoExecute" {
        let why = "effect must be 'NoExecute' when `tolerationSeconds` is set";
        errors.push(FieldError::invalid(format!("{path}.effect"), &Value::from(effect), why));
    }
    let invalid = |why: &str| FieldError::invalid(format!("{path}.operator"), &Value::from(value), why);
    match operator {
        "" | "Equal" if !label_value(value) => errors.push(invalid(LABEL_VALUE)),
        "Exists" if !value.is_empty() => errors.push(invalid("value must be empty when `operator` is 'Exists'")),
        "Gt" | "Lt" if taints::node::canonical_int(value).is_none() => {
            let why = "must be a valid decimal integer in canonical form";
            errors.push(FieldError::invalid(format!("{path}.value"), &Value::from(value), why));
        }
        "" | "Equal" | "Exists" | "Gt" | "Lt" => {}
        other => errors.push(FieldError::not_supported(format!("{path}.operator"), other, NODE_OPERATORS)),
    }
    if !effect.is_empty() && !NODE_EFFECTS.contains(&effect) {
        errors.push(FieldError::not_supported(format!("{path}.effect"), effect, NODE_EFFECTS));
    }
}

/// Checks the tolerations of a device request.
pub(super) fn of_request(request: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let tolerations = list(request, &["tolerations"]);
    if tolerations.len() > LIMIT {
        errors.push(FieldError::too_many(format!("{path}.tolerations"), tolerations.len(), LIMIT));
    }
    for (index, toleration) in tolerations.iter().enumerate() {
        of_device(toleration, &format!("{path}.tolerations[{index}]"), errors);
    }
}

fn of_device(toleration: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let [key, operator, value, effect] = ["key", "operator", "value", "effect"].map(|field| text(toleration, &[field]));
    if !key.is_empty() && !label_key(key) {
        errors.push(FieldError::invalid(format!("{path}.key"), &Value::from(key), LABEL_KEY));
    }
    let invalid = |why: &str| FieldError::invalid(format!("{path}.value"), &Value::from(value), why);
    match operator {
        "Exists" if !value.is_empty() => errors.push(invalid("must be empty for operator `Exists`")),
        "Equal" if !label_value(value) => errors.push(invalid(LABEL_VALUE)),
        "Exists" | "Equal" => {}
        "" => errors.push(FieldError::required(format!("{path}.operator"), "operator is required")),
        other => errors.push(FieldError::not_supported(format!("{path}.operator"), other, DEVICE_OPERATORS)),
    }
    if !effect.is_empty() && !DEVICE_EFFECTS.contains(&effect) {
        errors.push(FieldError::not_supported(format!("{path}.effect"), effect, DEVICE_EFFECTS));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(toleration: Value) -> Vec<String> {
        let mut errors = Vec::new();
        of_pod(&toleration, "t", &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    fn device(toleration: Value) -> Vec<String> {
        let mut errors = Vec::new();
        of_request(&json!({"tolerations": [toleration]}), "r", &mut errors);
        errors.into_iter().map(|error| error.field).collect()
    }

    #[test]
    fn pod_tolerations() {
        let none: [&str; 0] = [];
        assert_eq!(pod(json!({"operator": "Exists"})), none);
        assert_eq!(pod(json!({"key": "k", "operator": "Gt", "value": "-5"})), none);
        assert_eq!(pod(json!({"key": "k", "effect": "NoExecute", "tolerationSeconds": -1})), none);
        assert_eq!(pod(json!({"value": "v"})), ["t.operator"]);
        assert_eq!(pod(json!({"key": "k", "operator": "Exists", "value": "v"})), ["t.operator"]);
        assert_eq!(pod(json!({"key": "k", "tolerationSeconds": 5})), ["t.effect"]);
        assert_eq!(pod(json!({"key": "k", "operator": "Gt", "value": "05"})), ["t.value"]);
        assert_eq!(pod(json!({"key": "k", "operator": "In"})), ["t.operator"]);
        assert_eq!(pod(json!({"key": "k", "effect": "None"})), ["t.effect"]);
    }

    #[test]
    fn device_tolerations() {
        let none: [&str; 0] = [];
        assert_eq!(device(json!({"operator": "Equal"})), none);
        assert_eq!(device(json!({"key": "k", "operator": "Exists", "effect": "None", "tolerationSeconds": 3})), none);
        assert_eq!(device(json!({"operator": "Exists", "value": "v"})), ["r.tolerations[0].value"]);
        assert_eq!(device(json!({"operator": "Gt", "value": "1"})), ["r.tolerations[0].operator"]);
        assert_eq!(device(json!({"operator": "Exists", "effect": "PreferNoSchedule"})), ["r.tolerations[0].effect"]);
    }
}
