//! Side by side with kube-controller-manager's evictors: the same taints, the same pods; it evicts, and our controller only says what it would do.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use jiff::Timestamp;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{ClaimSpec, MAINTENANCE, claim, pod};
use crate::programs_say::asking;
use crate::stage::{Notes, Scenario, Stage};
use crate::step;
use crate::upstream::{Row, deadlines, table};
use crate::wait::SOON;

const LOST: &str = "gpu.devicetaint.dev/lost";
const OTHER: &str = "example.org/other";
const RACK: &str = "example.org/rack-work";
const FLAKY: &str = "example.org/flaky";
/// Longer than the longest toleration that ends here.
const WITHIN: Duration = Duration::from_secs(45);
/// Nodes without an agent: only their own taints count there.
const BARE_NODES: [&str; 3] = ["n4", "n5", "n6"];

/// Who evicts whom, and when.
pub const UPSTREAM: Scenario = Scenario {
    name: "as-upstream",
    about: "our controller would evict whom kube-controller-manager evicts, and when it does, but for what the cases decide",
    needs: &[Need::UpstreamEvictor, Need::Rules, Need::Taints],
    plan,
    steps: &[
        step!("Pods run on devices and nodes, with all kinds of tolerations.", populate),
        step!("Devices and nodes are tainted; who tolerates nothing goes at once.", taint),
        step!("Some taints go, one more comes, and some tolerations change.", change),
        step!("Everybody has gone whom kube-controller-manager evicts; the times are compared.", compare),
    ],
};

fn plan() -> Plan {
    let flags = ["--device-mode", "observe", "--node-mode", "observe", "--log-format", "json"];
    Plan {
        nodes: ["n1", "n2", "n3"].map(str::to_owned).into(),
        controller: flags.map(str::to_owned).into(),
        policy: Some("version: 1\nsignals:\n  lost: {effect: NoExecute}\n"),
        ..Plan::default()
    }
}

/// A pod, whether upstream evicts it, and the case that decides for a difference.
struct Subject {
    pod: &'static str,
    leaves: bool,
    case: Option<&'static str>,
}

const fn leaves(pod: &'static str) -> Subject {
    Subject { pod, leaves: true, case: None }
}

const fn stays(pod: &'static str) -> Subject {
    Subject { pod, leaves: false, case: None }
}

const fn leaves_unlike_ours(pod: &'static str, case: &'static str) -> Subject {
    Subject { pod, leaves: true, case: Some(case) }
}

const SUBJECTS: [Subject; 20] = [
    leaves("device-untolerated"),
    leaves("device-seconds"),
    stays("device-for-ever"),
    leaves("device-shared-a"),
    leaves("device-shared-b"),
    leaves("device-two-taints"),
    stays("device-rule-deleted"),
    leaves("device-slice-taint"),
    leaves_unlike_ours("device-any-effect", "DE-013"),
    leaves_unlike_ours("device-any-effect-seconds", "DE-203"),
    leaves("device-zero-seconds"),
    stays("device-no-schedule"),
    leaves("node-untolerated"),
    leaves("node-seconds"),
    stays("node-for-ever"),
    leaves("device-before-node"),
    leaves_unlike_ours("node-shorter-comes-later", "NE-013"),
    leaves_unlike_ours("node-made-longer", "NE-022"),
    leaves_unlike_ours("node-made-shorter", "NE-023"),
    stays("node-taint-deleted"),
];

/// A pod with a device: its node, the device's place there, and what its claim tolerates.
type Holder = (&'static str, &'static str, usize, Vec<Value>);
/// A pod without a device: its node, and the taints that it tolerates for some seconds or for ever.
type Guest = (&'static str, &'static str, Vec<(&'static str, Option<i64>)>);

fn holders() -> Vec<Holder> {
    let for_ever = |key: &str| json!({"key": key, "operator": "Exists", "effect": "NoExecute"});
    let seconds = |key: &str, seconds: i64| json!({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds});
    let any_effect = json!({"key": MAINTENANCE, "operator": "Exists"});
    let any_effect_seconds = json!({"key": MAINTENANCE, "operator": "Exists", "tolerationSeconds": 6});
    vec![
        ("device-untolerated", "n1", 0, vec![]),
        ("device-seconds", "n1", 1, vec![seconds(MAINTENANCE, 5)]),
        ("device-for-ever", "n1", 2, vec![for_ever(MAINTENANCE)]),
        ("device-shared-a", "n1", 3, vec![seconds(MAINTENANCE, 4)]),
        ("device-two-taints", "n1", 4, vec![seconds(MAINTENANCE, 10), seconds(OTHER, 4)]),
        ("device-rule-deleted", "n1", 5, vec![seconds(MAINTENANCE, 9)]),
        ("device-slice-taint", "n1", 6, vec![seconds(LOST, 5)]),
        ("device-any-effect", "n1", 7, vec![any_effect]),
        ("device-any-effect-seconds", "n2", 0, vec![any_effect_seconds]),
        ("device-zero-seconds", "n2", 1, vec![seconds(MAINTENANCE, 0)]),
        ("device-no-schedule", "n2", 2, vec![]),
        ("device-before-node", "n3", 0, vec![seconds(MAINTENANCE, 3)]),
    ]
}

fn guests() -> Vec<Guest> {
    vec![
        ("node-untolerated", "n3", vec![]),
        ("node-seconds", "n3", vec![(RACK, Some(5))]),
        ("node-for-ever", "n3", vec![(RACK, None)]),
        ("node-shorter-comes-later", "n4", vec![(RACK, Some(14)), (FLAKY, Some(4))]),
        ("node-made-longer", "n5", vec![(RACK, Some(7))]),
        ("node-made-shorter", "n5", vec![(RACK, Some(14))]),
        ("node-taint-deleted", "n6", vec![(RACK, Some(10))]),
    ]
}

async fn populate(stage: &mut Stage) -> Result<Notes> {
    stage.published(24).await?;
    BARE_NODES.iter().try_for_each(|node| stage.lab.add_node(node))?;
    for (name, node, index, tolerations) in holders() {
        let uuid = stage.lab.node(node)?.gpus.uuid(index);
        let wanted = tolerations.into_iter().fold(claim(name).uuid(&uuid), ClaimSpec::toleration);
        stage.lab.create(wanted.build()).await?;
        // The node's taint is tolerated for longer than the device's.
        stage.lab.create(pod(name).claim(name).on(node).tolerates(RACK, Some(7)).build()).await?;
    }
    let second = pod("device-shared-b").claim("device-shared-a").on("n1");
    stage.lab.create(second.build()).await?;
    for (name, node, tolerations) in guests() {
        let tolerant = tolerations.into_iter().fold(pod(name).on(node), |pod, (key, time)| pod.tolerates(key, time));
        stage.lab.create(tolerant.build()).await?;
    }
    stage.running(&SUBJECTS.map(|subject| subject.pod)).await?;
    Ok(Notes::new())
}

async fn taint(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n1")?.gpus.lose(6)?;
    for (name, node, index, _) in holders() {
        let taints: &[(&str, &str)] = match name {
            "device-slice-taint" => &[],
            "device-two-taints" => &[(MAINTENANCE, "NoExecute"), (OTHER, "NoExecute")],
            "device-no-schedule" => &[(MAINTENANCE, "NoSchedule")],
            _ => &[(MAINTENANCE, "NoExecute")],
        };
        let device = format!("{node}/{}", stage.lab.node(node)?.gpus.device(index));
        for (key, effect) in taints {
            stage.lab.kubectl_device(&["taint", &device, &format!("{key}:{effect}")]).await?;
        }
    }
    for node in ["n4", "n5", "n6", "n3"] {
        stage.lab.taint_node(node, json!([{"key": RACK, "effect": "NoExecute"}])).await?;
    }
    stage.gone("device-untolerated", SOON).await?;
    stage.gone("node-untolerated", SOON).await?;
    Ok(Notes::new())
}

async fn change(stage: &mut Stage) -> Result<Notes> {
    for counted in ["device-rule-deleted", "node-taint-deleted", "node-shorter-comes-later", "node-made-longer"] {
        told(stage, counted).await?;
    }
    let device = format!("n1/{}", stage.lab.node("n1")?.gpus.device(5));
    stage.lab.kubectl_device(&["untaint", &device, MAINTENANCE]).await?;
    stage.lab.taint_node("n6", json!([])).await?;
    let both = json!([{"key": RACK, "effect": "NoExecute"}, {"key": FLAKY, "effect": "NoExecute"}]);
    stage.lab.taint_node("n4", both).await?;
    tolerate(stage, "node-made-longer", 12).await?;
    tolerate(stage, "node-made-shorter", 4).await?;
    Ok(Notes::new())
}

async fn compare(stage: &mut Stage) -> Result<Notes> {
    for subject in SUBJECTS.iter().filter(|subject| subject.leaves) {
        stage.gone(subject.pod, WITHIN).await?;
    }
    let stay: Vec<&str> = SUBJECTS.iter().filter(|subject| !subject.leaves).map(|subject| subject.pod).collect();
    stage.running(&stay).await?;
    let ours = deadlines(&stage.lab.controller()?.log()?);
    let evicted = stage.witness.evicted();
    let upstream: BTreeMap<&str, Timestamp> =
        evicted.iter().filter_map(|one| Some((one.pod.as_str(), one.at?))).collect();
    let row = |Subject { pod, case, .. }: &Subject| Row {
        pod: (*pod).to_owned(),
        upstream: upstream.get(pod).copied(),
        ours: ours.get(*pod).copied(),
        case: *case,
    };
    let rows: Vec<Row> = SUBJECTS.iter().map(row).collect();
    let lines = table(&rows);
    ensure!(!rows.iter().any(Row::is_unexplained), "differences that no case decides:\n{}", lines.join("\n"));
    Ok(lines)
}

/// Waits until our controller has told a deadline of this pod.
async fn told(stage: &mut Stage, pod: &str) -> Result<()> {
    let controller = stage.lab.controller()?;
    let told = || deadlines(&controller.log().unwrap_or_default()).contains_key(pod);
    asking(&format!("our controller to tell when {pod} would leave"), || async {
        if told() { Ok(()) } else { bail!("it has not") }
    })
    .await
}

/// Changes how long a pod tolerates its node's taint.
async fn tolerate(stage: &Stage, name: &str, seconds: i64) -> Result<()> {
    let pod = stage.lab.pods().get(name).await?;
    let mut tolerations = pod.spec.and_then(|spec| spec.tolerations).unwrap_or_default();
    let of_rack = tolerations.iter_mut().find(|toleration| toleration.key.as_deref() == Some(RACK));
    of_rack.with_context(|| format!("pod {name} does not tolerate {RACK}"))?.toleration_seconds = Some(seconds);
    let patch = Patch::Merge(json!({"spec": {"tolerations": tolerations}}));
    stage.lab.pods().patch(name, &PatchParams::default(), &patch).await.map(drop)?;
    Ok(())
}
