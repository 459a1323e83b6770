//! The shipped table, files on top of it, and what is refused.

use jiff::SignedDuration;
use proptest::prelude::*;
use taints::Effect;

use super::{Clear, Policy, PolicyError, Response, matches};

const ANY: &str = "NVIDIA H100 80GB HBM3";

fn shipped() -> Policy {
    Policy::default_table().unwrap()
}

fn with(text: &str) -> Result<Policy, PolicyError> {
    shipped().with_file("policy.yaml", text)
}

fn taint(effect: Effect) -> Response {
    Response::Taint(effect)
}

#[test]
fn the_shipped_table_never_evicts() {
    let policy = shipped();
    for code in 0..1000 {
        let row = policy.xid(code, ANY);
        assert!(row.response <= taint(Effect::NoSchedule), "{code}");
        assert!(row.repeat.is_none_or(|repeat| repeat.response <= taint(Effect::NoSchedule)), "{code}");
    }
}

#[test]
fn every_code_of_the_catalogue_has_a_row_of_its_own() {
    let policy = shipped();
    let unknown = policy.xid(99_999, ANY).note;
    let listed = (8..=173).filter(|code| policy.xid(*code, ANY).note != unknown).count();
    assert_eq!(listed, 128);
    for code in [13, 31, 45, 48, 63, 64, 74, 79, 94, 95, 109, 119, 140, 149, 154, 173] {
        assert_ne!(policy.xid(code, ANY).note, unknown, "{code}");
    }
}

#[test]
fn the_rows_that_matter_most_say_what_they_should() {
    let policy = shipped();
    let row = |code| policy.xid(code, ANY);
    assert_eq!((row(79).response, row(79).clear), (taint(Effect::NoSchedule), Some(Clear::Reboot)));
    assert_eq!((row(48).response, row(48).clear), (taint(Effect::NoSchedule), Some(Clear::RecoveryNone)));
    assert_eq!(row(119).clear, Some(Clear::Reset));
    assert_eq!((row(31).response, row(154).response), (Response::Ignore, Response::Ignore));
    assert_eq!((row(63).key, row(63).value), ("memory".to_owned(), "remap-pending".to_owned()));
    assert_eq!(row(162).cancels, [163]);
    assert_eq!(policy.signal("recovery", "gpu-reset", ANY).response, taint(Effect::NoSchedule));
    assert_eq!(policy.signal("recovery", "recover-imex-domain", ANY).response, taint(Effect::None));
}

#[test]
fn an_unknown_code_is_softer_where_the_driver_gives_a_verdict() {
    let row = shipped().xid(4242, ANY);
    assert_eq!(row.value, "4242");
    assert_eq!(row.response_to(1, false).0, taint(Effect::NoSchedule));
    assert_eq!(row.response_to(1, true).0, taint(Effect::None));
}

#[test]
fn a_repeat_raises_the_response_and_changes_the_exit() {
    let row = shipped().xid(109, ANY);
    assert_eq!(row.response_to(1, true), (taint(Effect::None), Some(Clear::Timer(SignedDuration::from_hours(24)))));
    assert_eq!(row.response_to(2, true), (taint(Effect::NoSchedule), Some(Clear::RecoveryNone)));
}

#[test]
fn a_file_replaces_only_the_fields_that_it_gives() {
    let policy = with("version: 1\nxid:\n  63: {effect: NoSchedule}\n").unwrap();
    let row = policy.xid(63, ANY);
    assert_eq!(row.response, taint(Effect::NoSchedule));
    assert_eq!((row.value.as_str(), row.clear), ("remap-pending", Some(Clear::Flag)));
    assert_eq!(row.origin, "policy.yaml, line 3: xid.63");
}

#[test]
fn a_product_row_wins_for_its_product_only() {
    let text =
        "version: 1\nxid:\n  79: {effect: NoExecute}\nproducts:\n- product: '*A100*'\n  xid:\n    79: {effect: None}\n";
    let policy = with(text).unwrap();
    assert_eq!(policy.xid(79, "NVIDIA A100-SXM4-40GB").response, taint(Effect::None));
    assert_eq!(policy.xid(79, ANY).response, taint(Effect::NoExecute));
}

#[test]
fn a_plain_effect_is_not_softened_by_the_shipped_condition() {
    let policy = with("version: 1\nxid:\n  unknown: {effect: NoExecute}\n").unwrap();
    assert_eq!(policy.xid(4242, ANY).response_to(1, true).0, taint(Effect::NoExecute));
}

/// F11: a taint that isolates must have an exit.
#[test]
fn f11_an_isolating_row_without_an_exit_is_refused() {
    let error = with("version: 1\nxid:\n  900: {effect: NoSchedule}\n").unwrap_err();
    assert_eq!(
        error.to_string(),
        "policy.yaml, line 3: xid.900: effect NoSchedule keeps work away and has no exit; add `clear`"
    );
    assert!(with("version: 1\nxid:\n  900: {effect: None}\n").is_ok());
    assert!(with("version: 1\nxid:\n  900: {effect: NoSchedule, clear: manual}\n").is_ok());
    assert_eq!(shipped().xid(31, ANY).response, Response::Ignore);
}

#[test]
fn an_exit_that_cannot_come_is_refused() {
    let cases = [
        ("xid:\n  900: {effect: NoSchedule, clear: ends}\n", "an event has no end"),
        ("xid:\n  900: {effect: NoSchedule, clear: flag}\n", "`xid` has no flag"),
        ("signals:\n  lost: {clear: timer 1h}\n", "use `ends`"),
        ("xid:\n  79: {repeat: {times: 2, within: 1h, effect: NoExecute, clear: ends}}\n", "an event has no end"),
    ];
    for (rows, expected) in cases {
        let error = with(&format!("version: 1\n{rows}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn what_does_not_parse_is_refused_with_file_line_and_field() {
    let cases = [
        ("xid:\n  79: {effect: noschedule}\n", "policy.yaml, line 3: xid.79.effect: `noschedule` is no effect"),
        ("xid:\n  79: {clear: some day}\n", "policy.yaml, line 3: xid.79.clear: `some day` is no rule"),
        ("xid:\n  79: {clear: timer soon}\n", "xid.79.clear: `soon` is no duration"),
        ("xid:\n  79: {clear: timer -5s}\n", "is not longer than zero"),
        ("xid:\n  seventy: {effect: None}\n", "xid.seventy: `seventy` is neither a code nor a range"),
        ("xid:\n  79: {effect: None}\n  70-80: {effect: None}\n", "code 79 has another row"),
        ("xid:\n  79: {key: nope}\n", "xid.79.key: `nope` is no key"),
        ("xid:\n  79: {value: 'a b'}\n", "is no label value"),
        ("signals:\n  heat: {effect: None}\n", "signals.heat: `heat` is no key"),
        ("signals:\n  lost: {value: x}\n", "belong to XID rows only"),
        ("xid:\n  79: {repeat: {times: 1, within: 1h, effect: None}}\n", "a repeat begins at 2"),
        ("products:\n- product: ''\n", "name a product"),
    ];
    for (rows, expected) in cases {
        let error = with(&format!("version: 1\n{rows}")).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn unknown_fields_and_broken_yaml_are_refused_with_the_line() {
    let cases = [
        (
            "version: 1\nxid:\n  79: {efect: None}\n",
            "policy.yaml, line 3: unknown field `efect`, expected one of key, value",
        ),
        ("version: 1\nxid:\n  79: {repeat: {times: 2}}\n", "policy.yaml, line 3: missing field `within`"),
        ("xid: {}\n", "policy.yaml, line 1: missing field `version`"),
        ("version: 1\nxid: [", "policy.yaml, line 2: xid: write a table"),
        ("", "policy.yaml: the file holds nothing; write at least `version: 1`"),
        ("---\n# nothing yet\n\n", "policy.yaml: the file holds nothing"),
    ];
    for (text, expected) in cases {
        let error = with(text).unwrap_err();
        assert!(matches!(error, PolicyError::Form { .. }) && error.to_string().starts_with(expected), "{error}");
    }
    let newer = with("version: 2\n").unwrap_err().to_string();
    assert_eq!(newer, "policy.yaml, line 1: version: this program reads version 1");
}

#[test]
fn a_value_of_the_wrong_type_is_refused_with_the_field_and_what_may_stand_there() {
    let cases = [
        ("version: one\n", "line 1: version: write the whole number 1"),
        ("version: 1\nxid: 3\n", "line 2: xid: write a table"),
        ("version: 1\nxid:\n- 79\n", "line 3: xid: write a table"),
        ("version: 1\nxid:\n  79: NoSchedule\n", "line 3: 79: write a row"),
        ("version: 1\nxid:\n  79: {effect: [a]}\n", "line 3: effect: write Ignore, None, NoSchedule or NoExecute"),
        ("version: 1\nxid:\n  79: {cancels: [x]}\n", "line 3: cancels: write a list of XID codes"),
        ("version: 1\nxid:\n  79:\n    # of the card\n    wholeCard: 3\n", "line 5: wholeCard: write true or false"),
        (
            "version: 1\nxid:\n  79: {repeat: {times: many, within: 1h, effect: None}}\n",
            "line 3: times: write a whole number",
        ),
        ("version: 1\nxid:\n  79: {effect: None}\n  79: {effect: None}\n", "line 4: 79: stands twice"),
    ];
    for (text, expected) in cases {
        let error = with(text).unwrap_err().to_string();
        assert!(error.starts_with(&format!("policy.yaml, {expected}")), "{error}");
    }
}

#[test]
fn product_patterns_match_whole_names() {
    assert!(matches("*", ""));
    assert!(matches("nvidia a100*", "NVIDIA A100-SXM4-40GB"));
    assert!(matches("*A100*40GB", "NVIDIA A100-SXM4-40GB"));
    assert!(!matches("A100", "NVIDIA A100"));
    assert!(!matches("*80GB", "NVIDIA A100-SXM4-40GB"));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in ".{0,200}") {
        let outcome = with(&format!("version: 1\n{text}"));
        prop_assert!(outcome.is_ok() || !outcome.unwrap_err().to_string().is_empty());
    }

    #[test]
    fn a_pattern_of_stars_around_a_part_of_the_name_matches(name in "[a-zA-Z0-9 -]{1,30}", from in 0usize..30, to in 0usize..30) {
        let (from, to) = (from.min(name.len()), to.min(name.len()));
        let part = &name[from.min(to)..from.max(to)];
        let pattern = format!("*{part}*");
        prop_assert!(matches(&pattern, &name));
    }
}
