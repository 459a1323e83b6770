use super::*;

use cluster::RuleVersion;
use taints::object::{Identity, Selector};

const RULE: Form = Form::Rule(RuleVersion::V1);

fn device() -> DeviceId {
    DeviceId { driver: "gpu.devicetaint.dev".into(), pool: "n1".into(), device: "gpu-0000-3b-00-0".into() }
}

fn taint(text: &str) -> taints::Taint {
    parse(text).unwrap()
}

fn stored(taint: taints::Taint, managed: bool) -> Stored {
    let id = device();
    let rule = Rule {
        name: cluster::mark::name(&id, &taint.key, &taint.effect),
        uid: "u1".into(),
        selector: Some(Selector { driver: Some(id.driver), pool: Some(id.pool), device: Some(id.device) }),
        taint,
        careful: false,
        identity: Identity { uuid: Some("GPU-1".into()), serial: None },
        expires_at: None,
        managed,
        reason: None,
        by: None,
    };
    Stored { form: RULE, rule, resource_version: "7".into() }
}

/// What is decided, in short: `create`, `nothing`, or the news of a change, with the mark that is written.
fn decided(mark: Mark, existing: Option<&Stored>, overwrite: bool) -> Result<(Option<Mark>, Vec<String>), WishError> {
    Ok(match decide_taint(mark, existing, overwrite)? {
        Taint::Create(mark) => (Some(mark), vec!["create".to_owned()]),
        Taint::Change(_, mark, news) => (Some(mark), news),
        Taint::Nothing(_) => (None, vec!["nothing".to_owned()]),
    })
}

fn nothing() -> Result<(Option<Mark>, Vec<String>), WishError> {
    Ok((None, vec!["nothing".to_owned()]))
}

fn found(driver: &str, taints: &[&str]) -> Found {
    Found {
        id: DeviceId { driver: driver.into(), ..device() },
        identity: Identity::default(),
        taints: taints.iter().map(|text| taint(text)).collect(),
        follows_marks: true,
    }
}

fn server(rules: Option<RuleVersion>) -> Server {
    Server { version: "v1.37.2".into(), release: (1, 37), rules, marks: true }
}

fn mark(text: &str) -> Mark {
    let taint = taint(text);
    Mark {
        device: device(),
        key: taint.key,
        value: taint.value,
        effect: taint.effect,
        identity: Identity { uuid: Some("GPU-1".into()), serial: None },
        by: Some("ada".into()),
        reason: None,
        expires_at: None,
        careful: false,
    }
}

#[test]
fn a_new_mark_is_created_and_the_same_one_is_left_alone() {
    let wish = mark("devicetaint.dev/maintenance=fan:NoExecute");
    assert_eq!(decided(wish.clone(), None, false), Ok((Some(wish.clone()), vec!["create".to_owned()])));
    let there = stored(taint("devicetaint.dev/maintenance=fan:NoExecute"), true);
    assert_eq!(decided(wish, Some(&there), false), nothing());
}

#[test]
fn another_value_needs_overwrite() {
    let there = stored(taint("devicetaint.dev/maintenance=fan:NoExecute"), true);
    let wish = mark("devicetaint.dev/maintenance=cable:NoExecute");
    let refused = decide_taint(wish.clone(), Some(&there), false).unwrap_err().to_string();
    assert!(refused.contains("maintenance=fan:NoExecute") && refused.contains("--overwrite"), "{refused}");
    let news = vec!["value was \"fan\"".to_owned()];
    assert_eq!(decided(wish.clone(), Some(&there), true), Ok((Some(wish), news)));
}

#[test]
fn what_is_not_given_stays_as_it_is() {
    let mut there = stored(taint("devicetaint.dev/maintenance=fan:NoExecute"), true);
    there.rule.reason = Some("loud".into());
    there.rule.expires_at = Some("2026-12-01T00:00:00Z".parse().unwrap());
    there.rule.by = Some("ada".into());
    let wish = mark("devicetaint.dev/maintenance=fan:NoExecute");
    assert_eq!(decided(Mark { by: Some("bob".into()), ..wish.clone() }, Some(&there), false), nothing());
    let longer = Mark { expires_at: Some("2026-12-02T00:00:00Z".parse().unwrap()), ..wish };
    let (written, news) = decided(longer.clone(), Some(&there), false).unwrap();
    assert_eq!(written.unwrap(), Mark { reason: Some("loud".into()), ..longer });
    assert_eq!(news, ["expiry was 2026-12-01T00:00:00Z"]);
    let text = tainted_text(&server(Some(RuleVersion::V1)), &there, "modified", &news);
    assert!(text.ends_with(", until 2026-12-01T00:00:00Z); expiry was 2026-12-01T00:00:00Z"), "{text}");
}

#[test]
fn a_key_of_the_drivers_domain_is_refused() {
    let wish = |taint: &str| TaintArguments {
        target: "n1/gpu-0".into(),
        taint: taint.into(),
        reason: None,
        expires_in: None,
        expires_at: None,
        overwrite: false,
        driver: None,
    };
    for (driver, key) in [("gpu.devicetaint.dev", "gpu.devicetaint.dev"), ("d.org", "d.org"), ("d.org", FAULTS)] {
        let refused =
            wished(&found(driver, &[]), &wish(&format!("{key}/lost:NoSchedule")), None).unwrap_err().to_string();
        assert!(refused.contains(&format!("{key}/lost")) && refused.contains(DEFAULT_KEY), "{refused}");
    }
    assert!(wished(&found("d.org", &[]), &wish("devicetaint.dev/maintenance:NoSchedule"), None).is_ok());
    assert!(wished(&found("d.org", &[]), &wish("lost:NoSchedule"), None).is_ok());
}

#[test]
fn another_reason_or_card_changes_the_mark_without_overwrite() {
    let there = stored(taint("devicetaint.dev/maintenance=fan:NoExecute"), true);
    let mut wish = mark("devicetaint.dev/maintenance=fan:NoExecute");
    wish.reason = Some("louder now".into());
    let news = vec!["reason was none".to_owned()];
    assert_eq!(decided(wish.clone(), Some(&there), false), Ok((Some(wish.clone()), news)));
    wish.reason = None;
    wish.identity.uuid = Some("GPU-2".into());
    let news = vec!["card was GPU-1".to_owned()];
    assert_eq!(decided(wish.clone(), Some(&there), false), Ok((Some(wish), news)));
}

#[test]
fn an_end_lies_in_the_future_and_has_whole_seconds() {
    let now: Timestamp = "2026-11-30T12:00:00.75Z".parse().unwrap();
    let wish = |expires_in: Option<i64>, expires_at: Option<&str>| TaintArguments {
        target: "n1/gpu-0".into(),
        taint: "k:NoSchedule".into(),
        reason: None,
        expires_in: expires_in.map(jiff::SignedDuration::from_secs),
        expires_at: expires_at.map(|text| text.parse().unwrap()),
        overwrite: false,
        driver: None,
    };
    let text = |wish| expiry(&wish, now).map(|end| end.map(|end| end.to_string()));
    assert_eq!(text(wish(None, None)), Ok(None));
    assert_eq!(text(wish(Some(90), None)), Ok(Some("2026-11-30T12:01:30Z".to_owned())));
    assert_eq!(text(wish(None, Some("2026-12-01T00:00:00Z"))), Ok(Some("2026-12-01T00:00:00Z".to_owned())));
    assert!(matches!(text(wish(None, Some("2026-11-30T12:00:00Z"))), Err(WishError::Past(_))));
    assert_eq!(text(wish(Some(i64::MAX), None)), Err(WishError::Never));
}

#[test]
fn a_rule_of_somebody_else_is_left_alone() {
    let there = stored(taint("devicetaint.dev/maintenance=fan:NoExecute"), false);
    let wish = mark("devicetaint.dev/maintenance=fan:NoExecute");
    let refused = decided(wish, Some(&there), true).unwrap_err().to_string();
    assert!(refused.starts_with(&format!("DeviceTaintRule {} is not a mark", there.rule.name)), "{refused}");
    let name = there.rule.name.clone();
    let mut rules = [there];
    let refused = |rules: &[Stored], found: Option<&Found>| {
        decide_untaint(&device(), "devicetaint.dev/maintenance", rules, found).unwrap_err().to_string()
    };
    let text = refused(&rules, None);
    assert!(text.ends_with(&format!("kubectl delete devicetaintrule {name}")), "{text}");
    rules[0].form = Form::Mark;
    let published = found("gpu.devicetaint.dev", &["devicetaint.dev/maintenance=fan:NoExecute"]);
    let text = refused(&rules, Some(&published));
    assert!(text.ends_with(&format!("kubectl delete devicemark {name}")), "it has a mark, and is not leaving: {text}");
    rules[0].rule.selector.as_mut().unwrap().device = Some("gpu-0000-5d-00-0".into());
    let text = refused(&rules, Some(&published));
    assert!(text.contains("has no mark any more"), "it is about another device: {text}");
}

#[test]
fn what_the_api_server_would_refuse_is_refused_before_it_is_sent() {
    for (text, part) in
        [("k=v:PreferNoSchedule", "effect"), ("bad key=v:NoSchedule", "key"), ("k=b@d:NoSchedule", "value")]
    {
        let refused = parse(text).unwrap_err().to_string();
        assert!(refused.contains(text) && refused.contains(part), "{refused}");
    }
    for text in ["", "k", "k=v", ":NoSchedule", "k=v:", "k:NoSchedule-"] {
        assert!(parse(text).is_err(), "{text:?}");
    }
}

#[test]
fn untaint_takes_one_effect_or_all_of_a_key() {
    let rules = [
        stored(taint("devicetaint.dev/maintenance=fan:NoExecute"), true),
        stored(taint("devicetaint.dev/maintenance:NoSchedule"), true),
        stored(taint("example.org/other:NoSchedule"), true),
    ];
    let count = |text| decide_untaint(&device(), text, &rules, None).unwrap().len();
    assert_eq!(count("devicetaint.dev/maintenance:NoExecute"), 1);
    assert_eq!(count("devicetaint.dev/maintenance=fan:NoExecute-"), 1);
    assert_eq!(count("devicetaint.dev/maintenance"), 2);
    assert_eq!(count("devicetaint.dev/maintenance-"), 2);
    let other = DeviceId { device: "gpu-0000-5d-00-0".into(), ..device() };
    assert!(decide_untaint(&other, "devicetaint.dev/maintenance", &rules, None).is_err());
}

#[test]
fn a_drivers_taint_is_not_taken_away_but_its_exit_is_told() {
    let found =
        found("gpu.devicetaint.dev", &["gpu.devicetaint.dev/lost:NoSchedule", "devicetaint.dev/maintenance:NoExecute"]);
    let refused = |found: &Found, text| decide_untaint(&device(), text, &[], Some(found)).unwrap_err().to_string();
    let text = refused(&found, "gpu.devicetaint.dev/lost");
    assert!(text.contains("gpu.devicetaint.dev") && text.contains("answers again"), "{text}");
    let text = refused(&found, "devicetaint.dev/maintenance");
    assert!(text.contains("has no mark any more"), "{text}");
    let foreign = Found { follows_marks: false, ..found };
    assert!(refused(&foreign, "devicetaint.dev/maintenance").contains("was put there by the driver"));
}

#[test]
fn a_mark_of_either_form_is_kept_in_its_form_and_both_are_taken_away() {
    let old = Stored { form: Form::Mark, ..stored(taint("k=fan:NoExecute"), true) };
    let Ok(Taint::Change(form, ..)) = decide_taint(mark("k=cable:NoExecute"), Some(&old), true) else { panic!() };
    assert_eq!(form, Form::Mark);
    let both = [stored(taint("k=fan:NoExecute"), true), old];
    assert_eq!(decide_untaint(&device(), "k", &both, None).unwrap().len(), 2);
}

#[test]
fn the_line_says_which_object_it_is_and_why() {
    let mark = Stored { form: Form::Mark, ..stored(taint("k=fan:NoExecute"), true) };
    let name = &mark.rule.name;
    let text = tainted_text(&server(None), &mark, "tainted", &[]);
    let why = "which the device's agent publishes";
    assert_eq!(
        text,
        format!("tainted: k=fan:NoExecute (DeviceMark {name}, {why}: this API server serves no DeviceTaintRule)")
    );
    let text = tainted_text(&server(Some(RuleVersion::V1)), &mark, "unchanged", &[]);
    assert_eq!(text, format!("unchanged: k=fan:NoExecute (DeviceMark {name}, {why})"));
    assert!(untainted_text(&mark).ends_with("takes it out of its ResourceSlice)"));
    let rule = Stored { form: RULE, ..mark };
    assert_eq!(untainted_text(&rule), "untainted: k=fan:NoExecute");
}

#[test]
fn what_is_not_there_is_an_error_that_names_what_is() {
    let refused = decide_untaint(&device(), "devicetaint.dev/none", &[], None).unwrap_err().to_string();
    assert!(refused.ends_with("has no mark devicetaint.dev/none; it has no mark at all"), "{refused}");
    let rules = [stored(taint("example.org/other:NoSchedule"), true)];
    let refused = decide_untaint(&device(), "devicetaint.dev/maintenance", &rules, None).unwrap_err().to_string();
    assert!(refused.contains("n1/gpu-0000-3b-00-0") && refused.contains("example.org/other:NoSchedule"), "{refused}");
}

#[test]
fn a_mark_is_over_at_its_expiry_and_only_ours_is() {
    let end: Timestamp = "2026-12-01T00:00:00Z".parse().unwrap();
    let before: Timestamp = "2026-11-30T23:59:59Z".parse().unwrap();
    let mut rule = stored(taint("key:NoSchedule"), true).rule;
    assert!(!is_over(&rule, end), "without an expiry it stands");
    rule.expires_at = Some(end);
    assert!(is_over(&rule, end) && !is_over(&rule, before));
    rule.managed = false;
    assert!(!is_over(&rule, end), "a rule of somebody else is not ours to take away");
}
