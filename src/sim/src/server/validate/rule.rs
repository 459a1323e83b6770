//! Rules for DeviceTaintRules.

use serde_json::Value;

use super::slice::{device_taint, driver, pool_name};
use super::{FieldError, dns_label};
use crate::server::value::{at, text};

pub(super) fn check(rule: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = at(rule, &["spec"]);
    let selector = at(spec, &["deviceSelector"]);
    let path = "spec.deviceSelector";
    if !at(selector, &["driver"]).is_null() {
        driver(text(selector, &["driver"]), &format!("{path}.driver"), errors);
    }
    if !at(selector, &["pool"]).is_null() {
        pool_name(text(selector, &["pool"]), &format!("{path}.pool"), errors);
    }
    if !at(selector, &["device"]).is_null() && !dns_label(text(selector, &["device"])) {
        let why = "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-'";
        errors.push(FieldError::invalid(format!("{path}.device"), at(selector, &["device"]), why));
    }
    let unchanged = old.is_some_and(|old| at(old, &["spec", "taint", "effect"]) == at(spec, &["taint", "effect"]));
    let mut found = Vec::new();
    device_taint(at(spec, &["taint"]), "spec.taint", &mut found);
    // An effect that was accepted once stays acceptable as long as it is not touched.
    found.retain(|error| !(unchanged && error.field == "spec.taint.effect"));
    errors.append(&mut found);
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn selector_and_taint_are_checked() {
        let mut errors = Vec::new();
        let bad =
            json!({"spec": {"deviceSelector": {"driver": "", "pool": "a//b", "device": "X"}, "taint": {"key": "k"}}});
        check(&bad, None, &mut errors);
        let fields: Vec<String> = errors.into_iter().map(|error| error.field).collect();
        assert_eq!(
            fields,
            [
                "spec.deviceSelector.driver",
                "spec.deviceSelector.pool",
                "spec.deviceSelector.device",
                "spec.taint.effect"
            ]
        );
    }

    #[test]
    fn an_empty_selector_and_none_are_both_legal() {
        for selector in [json!({}), Value::Null] {
            let mut errors = Vec::new();
            let rule = json!({"spec": {"deviceSelector": selector, "taint": {"key": "k", "effect": "NoExecute"}}});
            check(&rule, None, &mut errors);
            assert!(errors.is_empty(), "{errors:?}");
        }
    }
}
