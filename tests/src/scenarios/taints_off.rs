//! A server that stores no device taints, as Kubernetes 1.34 and 1.35 come.

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Event, Node};
use kube::api::Api;

use crate::faults;
use crate::http;
use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{claim, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;
use crate::wait::{SOON, until};

/// The agent says so and works; faults show where they can.
pub const OFF: Scenario = Scenario {
    name: "device-taints-off",
    about: "a server that stores no device taints is told of once, everything else works, and nothing is written again and again",
    needs: &[Need::NoTaints],
    plan: one_node,
    steps: &[
        step!("The agent meets a server that stores no device taints, and says so before any GPU is bad.", says_so),
        step!(
            "A GPU is lost and another raises a fatal XID: findings and dropped taints are counted, nothing is written.",
            faults_show
        ),
        step!("A pod gets a GPU as ever.", pod_runs),
    ],
};

/// The gate is turned on while the agent runs.
pub const TURNED_ON: Scenario = Scenario {
    name: "device-taints-turned-on",
    about: "taints that the server did not store are published once it does, without a restart of the agent",
    needs: &[Need::SwitchedServer],
    plan: one_node,
    steps: &[
        step!("The agent meets a server that stores no device taints, and says so before any GPU is bad.", says_so),
        step!(
            "A GPU is lost and another raises a fatal XID: findings and dropped taints are counted, nothing is written.",
            faults_show
        ),
        step!("The server starts anew with the gate on: the taints are published.", turned_on),
    ],
};

fn one_node() -> Plan {
    Plan { nodes: vec!["n1".to_owned()], ..Plan::default() }
}

async fn says_so(stage: &mut Stage) -> Result<Notes> {
    stage.pool_size("n1", 8).await?;
    // A real server came so.
    if stage.lab.server_address().is_ok() {
        faults::device_taints(&stage.lab, "off").await?;
        stage.lab.node("n1")?.driver()?.stop().await?;
        stage.lab.start_driver("n1").await?;
    }
    stage.driver_says("n1", "/readyz", "[!]slices degraded: 0 wanted taints are not stored").await?;
    stage.driver_says("n1", "/metrics", "gpu_driver_device_taints_off 1").await?;
    stage.driver_ready("n1", 200).await?;
    one_event(stage).await
}

async fn faults_show(stage: &mut Stage) -> Result<Notes> {
    let before = writes(stage).await?;
    stage.lab.node("n1")?.gpus.lose(1)?;
    stage.lab.node("n1")?.gpus.xid(2, 79)?;
    stage.driver_says("n1", "/metrics", "gpu_driver_slice_dropped_taints 2").await?;
    for finding in ["gpu_driver_findings{key=\"lost\"} 1", "gpu_driver_findings{key=\"xid\"} 1"] {
        stage.driver_says("n1", "/metrics", finding).await?;
    }
    stage.slice_taints(&[]).await?;
    // One write for each of the two changes at most, which the server took without their taints.
    let after = writes(stage).await?;
    ensure!(after - before <= 2.5, "{before} writes became {after}");
    stage.driver_ready("n1", 200).await?;
    one_event(stage).await
}

async fn pod_runs(stage: &mut Stage) -> Result<Notes> {
    stage.lab.create(claim("ever").build()).await?;
    stage.lab.create(pod("ever").claim("ever").build()).await?;
    stage.running(&["ever"]).await?;
    Ok(Notes::new())
}

async fn turned_on(stage: &mut Stage) -> Result<Notes> {
    faults::device_taints(&stage.lab, "on").await?;
    let gpus = &stage.lab.node("n1")?.gpus;
    let (lost, xid) = (("n1".to_owned(), gpus.device(1)), ("n1".to_owned(), gpus.device(2)));
    let wanted = [(lost, "gpu.devicetaint.dev/lost:NoSchedule"), (xid, "gpu.devicetaint.dev/xid=79:NoSchedule")];
    stage.slice_taints(&wanted).await?;
    stage.driver_says("n1", "/metrics", "gpu_driver_device_taints_off 0").await?;
    stage.driver_says("n1", "/readyz", "[+]slices ok").await?;
    one_event(stage).await
}

async fn writes(stage: &mut Stage) -> Result<f64> {
    http::metric(stage.lab.node("n1")?.driver_address()?, "gpu_driver_slice_writes_total", "").await
}

/// Waits for the event on the Node; there is one, however often the agent said so.
async fn one_event(stage: &Stage) -> Result<Notes> {
    let events: Api<Event> = Api::namespaced(stage.lab.client.clone(), "default");
    let uid = Api::<Node>::all(stage.lab.client.clone()).get_metadata("n1").await?.metadata.uid;
    until(events, "one event DeviceTaintsOff on n1", SOON, |events| {
        let ours =
            |event: &&Event| event.involved_object.uid == uid && event.reason.as_deref() == Some("DeviceTaintsOff");
        let said: Vec<_> = events.values().filter(ours).filter_map(|event| event.message.clone()).collect();
        if said.len() == 1 { Ok(said) } else { Err(format!("there are {said:?}")) }
    })
    .await
}
