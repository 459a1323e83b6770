//! Whether an answer is what a case expects.

use serde_json::Value;

/// Whether `got` has everything that `expected` has. Keys that the expectation lacks are not looked at; lists have the same
/// members in the same order; numbers are equal as numbers.
pub(super) fn agrees(expected: &Value, got: &Value) -> bool {
    match (expected, got) {
        (Value::Object(expected), Value::Object(got)) => {
            expected.iter().all(|(key, expected)| got.get(key).is_some_and(|got| agrees(expected, got)))
        }
        (Value::Array(expected), Value::Array(got)) => {
            expected.len() == got.len() && expected.iter().zip(got).all(|(expected, got)| agrees(expected, got))
        }
        (Value::Number(expected), Value::Number(got)) => {
            expected == got || expected.as_f64().zip(got.as_f64()).is_some_and(|(a, b)| (a - b).abs() < 1e-6)
        }
        (expected, got) => expected == got,
    }
}

/// An answer in a form in which two that mean the same are the same: what happens over time is in the order of time and pod,
/// however it was listed, and a message is its first word.
pub(super) fn normal(answer: &Value) -> Value {
    let mut answer = answer.clone();
    for list in ["deletions", "evictions", "events"] {
        let Some(items) = answer.get_mut(list).and_then(Value::as_array_mut) else { continue };
        for message in items.iter_mut().filter_map(|item| item.get_mut("message")) {
            let verb = message.as_str().and_then(|text| text.split(' ').next()).map(Value::from);
            *message = verb.unwrap_or_default();
        }
        items.sort_by(|a, b| {
            let at = |item: &Value| item.get("at").and_then(Value::as_f64).unwrap_or_default();
            let text = |item: &Value, key: &str| item.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            let name = |item: &Value| (text(item, "pod"), text(item, "message"));
            at(a).total_cmp(&at(b)).then_with(|| name(a).cmp(&name(b)))
        });
    }
    answer
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_expected_must_be_there_and_more_may_be() {
        assert!(agrees(&json!({"at": 100.0}), &json!({"at": 100, "pod": "a"})));
        assert!(!agrees(&json!({"at": 100, "pod": null}), &json!({"at": 100})));
        assert!(!agrees(&json!({"list": []}), &json!({"list": [1]})));
        assert!(!agrees(&json!({"valid": true}), &json!({"valid": false})));
    }
}
