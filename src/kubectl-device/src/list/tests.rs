use super::*;

use taints::fleet::Change;
use taints::object::{
    Allocated, Claim, ClaimRef, ClaimRefKind, Consumer, Identity, Key, Phase, Pod, Rule, Selector, Slice,
};

const DRIVER: &str = "gpu.devicetaint.dev";

fn taint(text: &str) -> Taint {
    let (left, effect) = text.split_once(':').unwrap();
    let (key, value) = left.split_once('=').unwrap_or((left, ""));
    Taint {
        key: key.into(),
        value: value.into(),
        effect: Effect::from(effect),
        time_added: Some("2026-11-30T12:00:00Z".parse().unwrap()),
    }
}

fn device(name: &str, uuid: &str, taints: &[&str]) -> Device {
    Device {
        name: name.into(),
        taints: taints.iter().map(|text| taint(text)).collect(),
        identity: Identity { uuid: Some(uuid.into()), serial: Some("1650".into()) },
        attributes: [("gpu.nvidia.com/productName".to_owned(), Attribute::String("NVIDIA H100".into()))].into(),
        ..Device::default()
    }
}

fn slice() -> Slice {
    Slice {
        name: "s1".into(),
        uid: "u-s1".into(),
        driver: DRIVER.into(),
        pool: "n1".into(),
        generation: 1,
        slice_count: 1,
        node_name: Some("n1".into()),
        devices: vec![
            device("gpu-0", "GPU-aa", &[]),
            device("gpu-1", "GPU-bb", &["gpu.devicetaint.dev/lost:NoSchedule"]),
            device("gpu-2", "GPU-cc", &["gpu.devicetaint.dev/unmonitored=hung:None"]),
        ],
        ..Slice::default()
    }
}

fn rule(uuid: &str) -> Rule {
    Rule {
        name: "dt-1".into(),
        uid: "u-r".into(),
        selector: Some(Selector { driver: Some(DRIVER.into()), pool: Some("n1".into()), device: Some("gpu-0".into()) }),
        taint: taint("devicetaint.dev/maintenance=fan:NoExecute"),
        careful: false,
        identity: Identity { uuid: Some(uuid.into()), serial: None },
        expires_at: None,
        managed: true,
        reason: None,
        by: None,
    }
}

fn claim(name: &str, device: &str, admin_access: bool, pod: Option<&str>) -> Claim {
    let id = DeviceId { driver: DRIVER.into(), pool: "n1".into(), device: device.into() };
    let consumer = |pod: &str| Consumer {
        api_group: String::new(),
        resource: "pods".into(),
        name: pod.into(),
        uid: format!("u-{pod}"),
    };
    Claim {
        key: Key::new("red", name),
        uid: format!("u-{name}"),
        results: Some(vec![Allocated {
            id,
            request: "gpu".into(),
            tolerations: Some(vec![]),
            admin_access,
            share_id: None,
        }]),
        reserved_for: pod.map(consumer).into_iter().collect(),
        ..Claim::default()
    }
}

fn pod(name: &str, claim: &str) -> Pod {
    Pod {
        key: Key::new("red", name),
        uid: format!("u-{name}"),
        node: Some("n1".into()),
        phase: Phase::Running,
        claims: vec![ClaimRef { claim: Some(claim.into()), kind: ClaimRefKind::Named }],
        ..Pod::default()
    }
}

fn world(rule_uuid: &str) -> World {
    let mut world = World::empty();
    let changes = [
        Change::Slice(slice()),
        Change::Rule(rule(rule_uuid)),
        Change::Claim(claim("train", "gpu-0", false, Some("job-1"))),
        Change::Claim(claim("watch", "gpu-0", true, Some("monitor"))),
        Change::Claim(claim("idle", "gpu-1", false, None)),
        Change::Pod(pod("job-1", "train")),
        Change::Pod(pod("monitor", "watch")),
    ];
    for change in changes {
        world.fleet.apply(change);
    }
    world
}

#[test]
fn the_table_reads_well() {
    insta::assert_snapshot!("list", table(&rows(&world("GPU-aa"), &[]), false));
    insta::assert_snapshot!("list-wide", table(&rows(&world("GPU-aa"), &[]), true));
}

#[test]
fn a_rule_for_another_card_is_shown_as_not_applied() {
    let all = rows(&world("GPU-zz"), &[]);
    assert_eq!(all[0].taints[0].not_applied, Some("the name means another card now"));
}

/// The cluster with a mark in the place of the rule, and the taints of device gpu-0 in its slice.
fn marked(uuid: &str, published: &[&str]) -> World {
    let mut world = World::empty();
    let mut slice = Slice { follows_marks: true, ..slice() };
    slice.devices[0] = device("gpu-0", "GPU-aa", published);
    world.fleet.apply(Change::Slice(slice));
    world.fleet.apply(Change::Mark(Rule {
        by: Some("ada".into()),
        reason: Some("replace a \"fan\"".into()),
        expires_at: Some("2026-12-01T00:00:00Z".parse().unwrap()),
        ..rule(uuid)
    }));
    world
}

#[test]
fn a_mark_in_a_slice_is_a_persons_and_says_nothing_of_health() {
    let all = rows(&marked("GPU-aa", &["devicetaint.dev/maintenance=fan:NoExecute"]), &[]);
    assert_eq!(all[0].health, Health::Healthy);
    let [on] = all[0].taints.as_slice() else { panic!("{:?}", all[0].taints) };
    assert_eq!((on.from.as_str(), on.not_applied), ("DeviceMark dt-1 in ResourceSlice s1", None));
    let wide = table(&all, true);
    assert!(wide.contains(r#"ada: "replace a \"fan\"" until 2026-12-01T00:00:00Z"#), "{wide}");
}

#[test]
fn an_end_is_shown_of_marks_of_ours_only() {
    let mut world = World::empty();
    let end = Some("2026-12-01T00:00:00Z".parse().unwrap());
    world.fleet.apply(Change::Slice(slice()));
    world.fleet.apply(Change::Rule(Rule { expires_at: end, ..rule("GPU-aa") }));
    assert!(table(&rows(&world, &[]), true).contains(" until 2026-12-01T00:00:00Z"));
    world.fleet.apply(Change::Rule(Rule { expires_at: end, managed: false, ..rule("GPU-aa") }));
    assert_eq!(rows(&world, &[])[0].taints[0].expires_at, None, "nobody takes it away");
}

#[test]
fn a_mark_that_is_not_in_the_slice_is_shown_with_the_reason() {
    let why = |uuid: &str, published: &[&str]| {
        let all = rows(&marked(uuid, published), &[]);
        all[0].taints.iter().filter_map(|on| on.not_applied).collect::<Vec<_>>()
    };
    assert_eq!(why("GPU-aa", &[]), ["its agent has not published it"]);
    assert_eq!(why("GPU-aa", &["devicetaint.dev/maintenance=old:NoExecute"]), ["its agent has not published it"]);
    assert_eq!(why("GPU-zz", &[]), ["the name means another card now"]);
    let mut foreign = World::empty();
    foreign.fleet.apply(Change::Slice(slice()));
    foreign.fleet.apply(Change::Mark(rule("GPU-aa")));
    assert_eq!(rows(&foreign, &[])[0].taints[0].not_applied, Some("its driver does not follow marks"));
}

/// Else anybody's mark of the same words would hide what the driver found.
#[test]
fn a_mark_says_nothing_of_a_taint_of_a_driver_that_follows_none() {
    let mut foreign = World::empty();
    let mut slice = slice();
    slice.devices[0] = device("gpu-0", "GPU-aa", &["devicetaint.dev/maintenance=fan:NoExecute"]);
    foreign.fleet.apply(Change::Slice(slice));
    foreign.fleet.apply(Change::Mark(rule("GPU-aa")));
    let row = &rows(&foreign, &[])[0];
    let from: Vec<_> = row.taints.iter().map(|on| (on.from.as_str(), on.not_applied)).collect();
    let wanted = [("ResourceSlice s1", None), ("DeviceMark dt-1", Some("its driver does not follow marks"))];
    assert_eq!((row.health, from), (Health::Unhealthy, wanted.to_vec()));
}

#[test]
fn nodes_narrow_the_list() {
    assert_eq!(rows(&world("GPU-aa"), &["n2".into()]), []);
    assert_eq!(names(&rows(&world("GPU-aa"), &["n1".into()])), "n1/gpu-0\nn1/gpu-1\nn1/gpu-2\n");
    let nothing = table(&[], false);
    assert!(
        nothing.starts_with("no devices are published; ") && nothing.contains("kubectl describe node"),
        "{nothing}"
    );
}

#[test]
fn a_node_without_devices_is_told_with_those_that_have_some() {
    let mut world = world("GPU-aa");
    let missing = |world: &World, nodes: &[&str]| {
        let nodes: Vec<String> = nodes.iter().map(|node| (*node).to_owned()).collect();
        super::missing(world, &rows(world, &nodes), &nodes)
    };
    assert_eq!(missing(&world, &[]), None);
    assert_eq!(missing(&world, &["n1"]), None);
    assert_eq!(missing(&world, &["n1", "nope"]).unwrap(), "no node nope; nodes with devices: n1");
    world.fleet.apply(Change::Node(taints::object::Node { name: "n3".into(), ..Default::default() }));
    assert_eq!(missing(&world, &["n3"]).unwrap(), "node n3 publishes no device; nodes with devices: n1");
    assert_eq!(missing(&World::empty(), &["n1"]).unwrap(), "no node n1; no node has devices");
}
