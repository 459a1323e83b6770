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
