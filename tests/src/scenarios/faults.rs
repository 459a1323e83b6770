//! Things go wrong around the agent: publishing fails, cards vanish or hang, NVML is away, sockets get garbage.

use anyhow::{Result, ensure};
use nvidia_ml::control::Fault;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::faults::{self, Answer};
use crate::http;
use crate::lab::Plan;
use crate::needs::Need;
use crate::objects::{claim, pod};
use crate::stage::{Notes, Scenario, Stage};
use crate::step;

/// Where the agent writes a slice.
const SLICE: &str = "/apis/resource.k8s.io/v1/resourceslices/*";

/// Publishing fails in every way, and the taint comes all the same (F15).
pub const PUBLISH: Scenario = Scenario {
    name: "failed-publish-is-retried",
    about: "F15: a taint that could not be published is published as soon as the API server takes it",
    needs: &[Need::FailingServer, Need::Taints],
    plan: failing_server,
    steps: &[
        step!("Writing slices fails with 500, with 409, and with a cut connection.", break_publishing),
        step!(
            "A fatal XID arrives: the taint is there in the end, and the failures were counted.",
            publish_all_the_same
        ),
    ],
};

/// One card is lost, another hangs, a third leaves NVML's list: the others do not notice (F07, F19).
pub const NEIGHBOURS: Scenario = Scenario {
    name: "one-bad-card-harms-nobody-else",
    about: "F07 and F19: a lost, a hung and a vanished card each get their own taint; names and neighbours stay",
    needs: &[Need::Taints],
    plan: one_node,
    steps: &[
        step!("One of eight is lost: exactly it is tainted.", lose_one),
        step!("The first card leaves NVML's list but not the bus: its neighbours keep their names.", vanish),
        step!("A call about a third one hangs: it is unmonitored, and never isolated for that.", hang),
        step!("An XID of a neighbour still arrives, and a pod gets a healthy GPU.", neighbours_work),
    ],
};

/// NVML does not come up, comes up, and goes away again.
pub const NVML: Scenario = Scenario {
    name: "nvml-away",
    about: "a node without NVML has an empty pool; cards that were seen once stay published, with the taint driver",
    needs: &[Need::Taints],
    plan: one_node,
    steps: &[
        step!("The agent starts while the driver is not loaded, on a node that never had a GPU.", no_nvml),
        step!("The driver is loaded: the GPUs appear without a restart.", nvml_comes),
        step!("The agent restarts while the driver is not loaded: the cards stay, tainted.", nvml_goes),
        step!("The driver is loaded again: the taints go.", nvml_is_back),
    ],
};

/// Garbage on the agent's sockets, and an API server that does not answer.
pub const GARBAGE: Scenario = Scenario {
    name: "garbage-and-a-silent-api-server",
    about: "a socket that gets garbage closes that connection only; an API server that is away loses nothing",
    needs: &[Need::FailingServer],
    plan: failing_server,
    steps: &[
        step!("Garbage arrives on both sockets: the connections are closed.", garbage),
        step!("The API server refuses the agent while a GPU is lost: not ready, and the taint comes later.", refuse),
        step!("A pod is prepared as ever.", prepared),
    ],
};

fn one_node() -> Plan {
    Plan { nodes: vec!["n1".to_owned()], ..Plan::default() }
}

fn failing_server() -> Plan {
    Plan { failing_server: true, ..one_node() }
}

fn device(stage: &mut Stage, index: usize) -> Result<(String, String)> {
    Ok(("n1".to_owned(), stage.lab.node("n1")?.gpus.device(index)))
}

async fn break_publishing(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    for answer in [Answer::Status(500), Answer::Status(409), Answer::Cut] {
        faults::inject(&stage.lab, "gpu-driver", "P*", SLICE, 1, answer).await?;
    }
    Ok(Notes::new())
}

async fn publish_all_the_same(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n1")?.gpus.xid(2, 79)?;
    let tainted = device(stage, 2)?;
    stage.slice_taints(&[(tainted, "gpu.devicetaint.dev/xid=79:NoSchedule")]).await?;
    let hits = faults::hits(&stage.lab).await?;
    ensure!(hits == 3, "all three failures should have been met, {hits} were");
    let address = stage.lab.node("n1")?.driver_address()?.to_owned();
    let failed = http::metric(&address, "gpu_driver_slice_publish_failures_total", "").await?;
    ensure!(failed >= 3.0, "three publishes failed, the metric counts {failed}");
    stage.driver_ready("n1", 200).await
}

async fn lose_one(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    stage.lab.node("n1")?.gpus.lose(3)?;
    let lost = device(stage, 3)?;
    stage.slice_taints(&[(lost, "gpu.devicetaint.dev/lost:NoSchedule")]).await?;
    Ok(Notes::new())
}

async fn vanish(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n1")?.gpus.change(|control| control.gpus[0].absent = true)?;
    let gone = [device(stage, 0)?, device(stage, 3)?];
    let lost = "gpu.devicetaint.dev/lost:NoSchedule";
    stage.slice_taints(&gone.map(|device| (device, lost))).await?;
    stage.published(8).await?;
    Ok(Notes::new())
}

async fn hang(stage: &mut Stage) -> Result<Notes> {
    let fault = Fault::hang("nvmlDeviceGetFieldValues");
    stage.lab.node("n1")?.gpus.change(|control| control.gpus[5].faults.push(fault))?;
    let (first, third, fifth) = (device(stage, 0)?, device(stage, 3)?, device(stage, 5)?);
    let lost = "gpu.devicetaint.dev/lost:NoSchedule";
    let unmonitored = "gpu.devicetaint.dev/unmonitored=hung:None";
    stage.slice_taints(&[(first, lost), (third, lost), (fifth, unmonitored)]).await?;
    Ok(Notes::new())
}

async fn neighbours_work(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n1")?.gpus.xid(6, 79)?;
    let lost = "gpu.devicetaint.dev/lost:NoSchedule";
    let wanted = [
        (device(stage, 0)?, lost),
        (device(stage, 3)?, lost),
        (device(stage, 5)?, "gpu.devicetaint.dev/unmonitored=hung:None"),
        (device(stage, 6)?, "gpu.devicetaint.dev/xid=79:NoSchedule"),
    ];
    stage.slice_taints(&wanted).await?;
    stage.lab.create(claim("healthy").build()).await?;
    stage.lab.create(pod("healthy").claim("healthy").build()).await?;
    stage.running(&["healthy"]).await?;
    let have = stage.only_device("healthy").await?;
    ensure!(have == device(stage, 1)?, "the pod should get the first healthy card, it has {have:?}");
    Ok(Notes::new())
}

async fn no_nvml(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    stage.lab.add_broken_node("n2", "nvmlInit_v2", 9)?;
    stage.lab.start_driver("n2").await?;
    stage.pool_size("n2", 0).await?;
    stage.driver_says("n2", "/readyz", "not loaded").await
}

async fn nvml_comes(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n2")?.gpus.change(|control| control.faults.clear())?;
    stage.pool_size("n2", 8).await?;
    stage.slice_taints(&[]).await?;
    stage.driver_ready("n2", 200).await
}

async fn nvml_goes(stage: &mut Stage) -> Result<Notes> {
    stage.lab.kill_driver("n2").await?;
    stage.lab.node("n2")?.gpus.change(|control| control.faults.push(Fault::error("nvmlInit_v2", 9)))?;
    stage.lab.start_driver("n2").await?;
    let names: Vec<String> = (0..8).map(|index| Ok(stage.lab.node("n2")?.gpus.device(index))).collect::<Result<_>>()?;
    let wanted: Vec<_> = names
        .into_iter()
        .map(|name| (("n2".to_owned(), name), "gpu.devicetaint.dev/driver=not-loaded:NoSchedule"))
        .collect();
    stage.slice_taints(&wanted).await?;
    stage.pool_size("n2", 8).await?;
    Ok(Notes::new())
}

async fn nvml_is_back(stage: &mut Stage) -> Result<Notes> {
    stage.lab.node("n2")?.gpus.change(|control| control.faults.clear())?;
    stage.slice_taints(&[]).await?;
    stage.pool_size("n2", 8).await?;
    Ok(Notes::new())
}

async fn garbage(stage: &mut Stage) -> Result<Notes> {
    stage.published(8).await?;
    for socket in stage.lab.node("n1")?.sockets()? {
        for garbage in [
            &b"GET / HTTP/1.1\r\n\r\n"[..],
            &[0xff; 4096],
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\xff\xff\xff\xff\xff\xff\xff\xff\xff",
        ] {
            let mut stream = UnixStream::connect(&socket).await?;
            // The other side may close before all is written: that is what is wanted.
            stream.write_all(garbage).await.ok();
            stream.shutdown().await.ok();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.ok();
        }
    }
    Ok(Notes::new())
}

async fn refuse(stage: &mut Stage) -> Result<Notes> {
    faults::inject(&stage.lab, "gpu-driver", "*", "*", 100_000, Answer::Status(503)).await?;
    stage.lab.node("n1")?.gpus.lose(1)?;
    stage.driver_ready("n1", 503).await?;
    faults::clear(&stage.lab).await?;
    let lost = device(stage, 1)?;
    stage.slice_taints(&[(lost, "gpu.devicetaint.dev/lost:NoSchedule")]).await?;
    stage.driver_ready("n1", 200).await
}

async fn prepared(stage: &mut Stage) -> Result<Notes> {
    stage.lab.create(claim("after").build()).await?;
    stage.lab.create(pod("after").claim("after").build()).await?;
    stage.running(&["after"]).await?;
    Ok(Notes::new())
}
