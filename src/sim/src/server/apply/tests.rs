use super::*;
use crate::server::schema::schema;

fn writer(manager: &'static str, time: &str) -> Writer<'static> {
    Writer { manager, api_version: "v1", subresource: "", now: time.parse().unwrap() }
}

fn node() -> Cursor<'static> {
    schema().root("core.v1.Node")
}

fn entry<'a>(object: &'a Value, manager: &str) -> &'a Value {
    list(object, &["metadata", "managedFields"]).iter().find(|entry| text(entry, &["manager"]) == manager).unwrap()
}

#[test]
fn the_time_tells_when_a_manager_last_changed_the_taints() {
    let mut first = json!({"metadata": {"name": "n"}, "spec": {"taints": [{"key": "a", "effect": "NoExecute"}]}});
    record_update(None, &mut first, &writer("kubectl-taint", "2026-11-30T10:00:00Z"), node());
    let mut second = first.clone();
    second["metadata"]["labels"] = json!({"x": "y"});
    record_update(Some(&first), &mut second, &writer("kubectl-label", "2026-11-30T10:05:00Z"), node());
    assert_eq!(entry(&second, "kubectl-taint")["time"], "2026-11-30T10:00:00Z");
    assert_eq!(entry(&second, "kubectl-label")["fieldsV1"], json!({"f:metadata": {"f:labels": {"f:x": {}}}}));
    let mut third = second.clone();
    third["spec"]["taints"] = json!([{"key": "b", "effect": "NoExecute"}]);
    record_update(Some(&second), &mut third, &writer("kubectl-taint", "2026-11-30T10:09:00Z"), node());
    assert_eq!(entry(&third, "kubectl-taint")["time"], "2026-11-30T10:09:00Z");
    assert_eq!(entry(&third, "kubectl-taint")["fieldsV1"], json!({"f:spec": {"f:taints": {}}}));
}

#[test]
fn a_write_takes_the_field_from_its_former_owner() {
    let mut first = json!({"metadata": {"labels": {"a": "1", "b": "1"}}});
    record_update(None, &mut first, &writer("one", "2026-11-30T10:00:00Z"), node());
    let mut second = first.clone();
    second["metadata"]["labels"] = json!({"a": "2"});
    record_update(Some(&first), &mut second, &writer("two", "2026-11-30T10:01:00Z"), node());
    assert_eq!(list(&second, &["metadata", "managedFields"]).len(), 1);
    assert_eq!(entry(&second, "two")["fieldsV1"], json!({"f:metadata": {"f:labels": {"f:a": {}}}}));
}

#[test]
fn apply_removes_what_the_manager_no_longer_applies() {
    let one = writer("one", "2026-11-30T10:00:00Z");
    let first = apply(None, &json!({"metadata": {"labels": {"a": "1", "b": "1"}}}), &one, node(), false).unwrap();
    let mut live = first.clone();
    live["metadata"]["labels"]["c"] = json!("3");
    record_update(Some(&first), &mut live, &writer("two", "2026-11-30T10:01:00Z"), node());
    let later = writer("one", "2026-11-30T10:02:00Z");
    let second = apply(Some(&live), &json!({"metadata": {"labels": {"a": "1"}}}), &later, node(), false).unwrap();
    assert_eq!(second["metadata"]["labels"], json!({"a": "1", "c": "3"}));
    let again = apply(Some(&second), &json!({"metadata": {"labels": {"a": "1"}}}), &later, node(), false).unwrap();
    assert_eq!(again, second, "the same apply again changes nothing");
}

#[test]
fn apply_meets_other_owners() {
    let mut live = json!({"spec": {"unschedulable": true}});
    record_update(None, &mut live, &writer("kubectl", "2026-11-30T10:00:00Z"), node());
    let mine = writer("mine", "2026-11-30T10:01:00Z");
    let same = apply(Some(&live), &json!({"spec": {"unschedulable": true}}), &mine, node(), false);
    assert!(same.is_ok(), "equal values are shared");
    let other = json!({"spec": {"unschedulable": false}});
    let conflicts = apply(Some(&live), &other, &mine, node(), false).unwrap_err();
    assert_eq!(conflicts, [("conflict with \"kubectl\" using v1".to_owned(), ".spec.unschedulable".to_owned())]);
    let forced = apply(Some(&live), &other, &mine, node(), true).unwrap();
    assert_eq!(forced["spec"]["unschedulable"], false);
    assert_eq!(list(&forced, &["metadata", "managedFields"]).len(), 1);
}
