//! Devices: the time of taints in slices and rules, and the defaults of requests.

use jiff::Timestamp;
use serde_json::Value;

use crate::server::value::{at, items_mut, list, remove, set, set_default, text};
use crate::server::world::rfc3339;

/// A server whose gate is off leaves the taints out of a slice, unless the stored one has some already.
pub(super) fn drop_taints(slice: &mut Value, old: Option<&Value>) {
    let has = |slice: &Value| list(slice, &["spec", "devices"]).iter().any(|device| !at(device, &["taints"]).is_null());
    if old.is_some_and(has) {
        return;
    }
    for device in items_mut(slice, &["spec", "devices"]) {
        remove(device, &["taints"]);
    }
}

/// Every taint of a slice that comes without a time gets the time of this write.
pub(super) fn stamp_slice(slice: &mut Value, now: Timestamp) {
    for device in items_mut(slice, &["spec", "devices"]) {
        for taint in items_mut(device, &["taints"]) {
            set_default(taint, &["timeAdded"], rfc3339(now));
        }
    }
}

/// The time of a rule's taint: that of this write where the client gives none, or where the effect changed and the client
/// left the time as it was.
pub(super) fn stamp_rule(rule: &mut Value, old: Option<&Value>, now: Timestamp) {
    let field = |rule: &Value, name: &str| text(rule, &["spec", "taint", name]).to_owned();
    if at(rule, &["spec", "taint"]).is_null() {
        return;
    }
    let stale = old.is_some_and(|old| {
        field(old, "effect") != field(rule, "effect") && field(old, "timeAdded") == field(rule, "timeAdded")
    });
    if stale {
        set(rule, &["spec", "taint", "timeAdded"], rfc3339(now));
    }
    set_default(rule, &["spec", "taint", "timeAdded"], rfc3339(now));
}

pub(super) fn complete_claim(claim: &mut Value) {
    complete_requests(claim, &["spec", "devices", "requests"]);
    for result in items_mut(claim, &["status", "allocation", "devices", "results"]) {
        complete_tolerations(result);
    }
}

pub(super) fn complete_template(template: &mut Value) {
    complete_requests(template, &["spec", "spec", "devices", "requests"]);
}

fn complete_requests(object: &mut Value, path: &[&str]) {
    for request in items_mut(object, path) {
        if request.get("exactly").is_some() {
            complete_request(&mut request["exactly"]);
        }
        for alternative in items_mut(request, &["firstAvailable"]) {
            complete_request(alternative);
        }
    }
}

fn complete_request(request: &mut Value) {
    set_default(request, &["allocationMode"], "ExactCount");
    if text(request, &["allocationMode"]) == "ExactCount" && at(request, &["count"]).as_i64().unwrap_or(0) == 0 {
        set(request, &["count"], 1);
    }
    complete_tolerations(request);
}

fn complete_tolerations(request: &mut Value) {
    for toleration in items_mut(request, &["tolerations"]) {
        set_default(toleration, &["operator"], "Equal");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const THEN: &str = "2026-11-30T09:00:00Z";
    const NOW: &str = "2026-11-30T10:00:00Z";

    fn rule(effect: &str, value: &str, time: Option<&str>) -> Value {
        let mut rule = json!({"spec": {"taint": {"key": "k", "value": value, "effect": effect}}});
        if let Some(time) = time {
            rule["spec"]["taint"]["timeAdded"] = json!(time);
        }
        rule
    }

    fn stamped(mut new: Value, old: Option<&Value>) -> Value {
        stamp_rule(&mut new, old, NOW.parse().unwrap());
        new["spec"]["taint"]["timeAdded"].clone()
    }

    #[test]
    fn a_rule_without_a_time_gets_the_time_of_the_write() {
        assert_eq!(stamped(rule("NoExecute", "", None), None), NOW);
        let old = rule("NoExecute", "", Some(THEN));
        assert_eq!(stamped(rule("NoExecute", "", None), Some(&old)), NOW);
    }

    #[test]
    fn a_changed_effect_moves_the_time_and_a_changed_value_does_not() {
        let old = rule("NoSchedule", "a", Some(THEN));
        assert_eq!(stamped(rule("NoExecute", "a", Some(THEN)), Some(&old)), NOW);
        assert_eq!(stamped(rule("NoSchedule", "b", Some(THEN)), Some(&old)), THEN);
        assert_eq!(stamped(rule("NoExecute", "a", Some("2026-11-30T08:00:00Z")), Some(&old)), "2026-11-30T08:00:00Z");
    }

    #[test]
    fn slices_keep_given_times_and_fill_missing_ones() {
        let mut slice =
            json!({"spec": {"devices": [{"name": "a", "taints": [{"key": "k", "timeAdded": THEN}, {"key": "l"}]}]}});
        stamp_slice(&mut slice, NOW.parse().unwrap());
        let taints = &slice["spec"]["devices"][0]["taints"];
        assert_eq!((&taints[0]["timeAdded"], &taints[1]["timeAdded"]), (&json!(THEN), &json!(NOW)));
    }

    #[test]
    fn requests_get_their_defaults() {
        let mut claim = json!({"spec": {"devices": {"requests": [
            {"name": "a", "exactly": {"tolerations": [{"key": "k"}]}}, {"name": "b", "exactly": {"allocationMode": "All"}},
            {"name": "c", "firstAvailable": [{"name": "x"}]}]}}});
        complete_claim(&mut claim);
        let requests = &claim["spec"]["devices"]["requests"];
        assert_eq!(
            requests[0]["exactly"],
            json!({"allocationMode": "ExactCount", "count": 1,
            "tolerations": [{"key": "k", "operator": "Equal"}]})
        );
        assert_eq!(requests[1]["exactly"], json!({"allocationMode": "All"}));
        assert_eq!(requests[2]["firstAvailable"][0]["count"], 1);
    }
}
