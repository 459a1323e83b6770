//! What a crash of the process, or of the node, leaves behind.

use std::fs;

use super::super::super::checkpoint::Checkpoints;
use super::super::super::error::ClaimError;
use super::super::super::record::{PreparedDevice, State};
use super::{DRIVER, Node, prepare, unprepare};

/// The states in which a crash can leave the disk, one for each step.
#[tokio::test(start_paused = true)]
async fn after_a_crash_at_any_step_both_ways_are_open() {
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Crash {
        BeforeCheckpoint,
        AfterStarted,
        AfterSpec,
        AfterCompleted,
        WhileUnpreparing,
    }
    for crash in
        [Crash::BeforeCheckpoint, Crash::AfterStarted, Crash::AfterSpec, Crash::AfterCompleted, Crash::WhileUnpreparing]
    {
        for again in [true, false] {
            let node = Node::new();
            let asked = node.allocate("a", &["gpu-0"]);
            let wanted = prepare(&node.start(), &asked).await.unwrap();
            let checkpoints = Checkpoints::open(&node.path("state/claims")).unwrap();
            let mut record = checkpoints.load().unwrap().records.remove(0);
            let spec = node.path("cdi").join(format!("k8s.{DRIVER}-claim_{}.json", asked.uid));
            if crash != Crash::AfterCompleted && crash != Crash::WhileUnpreparing {
                record.state = State::Started;
                checkpoints.write(&record).unwrap();
            }
            match crash {
                Crash::BeforeCheckpoint => {
                    checkpoints.remove(&asked.uid).unwrap();
                    fs::remove_file(&spec).unwrap();
                    fs::write(node.path("state/claims/uid-a.tmp"), "{\"ver").unwrap();
                }
                Crash::AfterStarted | Crash::WhileUnpreparing => fs::remove_file(&spec).unwrap(),
                Crash::AfterSpec | Crash::AfterCompleted => {}
            }
            let claims = node.start();
            if crash != Crash::BeforeCheckpoint {
                let other = node.allocate("other", &["gpu-0"]);
                assert!(matches!(prepare(&claims, &other).await, Err(ClaimError::Held(_))), "{crash:?}");
            }
            if again {
                assert_eq!(prepare(&claims, &asked).await.unwrap(), wanted, "{crash:?}");
                assert!(node.spec(&asked).is_some());
                assert_eq!(node.checkpoint(&asked).unwrap()["state"], "Completed");
            } else {
                unprepare(&claims, &asked).await;
                assert!(node.is_clean(&asked), "{crash:?}");
                assert!(prepare(&claims, &node.allocate("other", &["gpu-0"])).await.is_ok(), "{crash:?}");
            }
        }
    }
}

/// Field report F20: after a reboot the name means another card.
#[tokio::test(start_paused = true)]
async fn a_reboot_keeps_the_card_or_refuses() {
    let mut node = Node::new();
    let asked = node.allocate("a", &["gpu-0"]);
    let answer = prepare(&node.start(), &asked).await.unwrap();
    node.reboot();
    node.change("gpu-0", |device| device.minor = Some(5));
    let ids = |devices: &[PreparedDevice]| devices.iter().map(|d| d.cdi_ids.clone()).collect::<Vec<_>>();
    assert_eq!(ids(&prepare(&node.start(), &asked).await.unwrap()), ids(&answer));
    assert_eq!(node.spec(&asked).unwrap()["devices"][0]["containerEdits"]["deviceNodes"][0]["path"], "/dev/nvidia5");
    assert_eq!(node.checkpoint(&asked).unwrap()["bootId"], "boot-1+");

    node.reboot();
    node.change("gpu-0", |device| device.identity.uuid = Some("GPU-other".to_owned()));
    let error = prepare(&node.start(), &asked).await.unwrap_err().to_string();
    assert!(error.contains("it was GPU-0 and is GPU-other"), "{error}");
    assert!(node.spec(&asked).is_none(), "no container gets the other card");
}

/// The last checkpoint was lost with the power, so the claim looks as if it was only begun; kubelet had its answer all the same.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_only_begun_is_not_given_another_card_either() {
    let mut node = Node::new();
    let asked = node.allocate("a", &["gpu-0"]);
    prepare(&node.start(), &asked).await.unwrap();
    let checkpoints = Checkpoints::open(&node.path("state/claims")).unwrap();
    let mut record = checkpoints.load().unwrap().records.remove(0);
    record.state = State::Started;
    checkpoints.write(&record).unwrap();
    node.reboot();
    node.change("gpu-0", |device| device.identity.uuid = Some("GPU-other".to_owned()));
    assert!(matches!(prepare(&node.start(), &asked).await, Err(ClaimError::OtherHardware { .. })));
    node.change("gpu-0", |device| device.identity.uuid = Some("GPU-0".to_owned()));
    assert!(prepare(&node.start(), &asked).await.is_ok());
}

/// Kubelet remembers the CDI ids that it was answered, and asks no more: without the spec no container of the claim could start again.
#[tokio::test(start_paused = true)]
async fn a_spec_that_somebody_removed_is_written_anew_within_a_boot() {
    let mut node = Node::new();
    let (kept, swapped) = (node.allocate("a", &["gpu-0"]), node.allocate("b", &["gpu-1"]));
    let claims = node.start();
    prepare(&claims, &kept).await.unwrap();
    prepare(&claims, &swapped).await.unwrap();
    let before = node.spec(&kept).unwrap();
    fs::remove_dir_all(node.path("cdi")).unwrap();
    node.change("gpu-1", |hardware| hardware.identity.uuid = Some("GPU-other".to_owned()));

    let claims = node.start();
    claims.restore_specs().await;
    assert_eq!(node.spec(&kept), Some(before));
    assert_eq!(node.spec(&swapped), None, "the card is another one");

    unprepare(&claims, &kept).await;
    claims.restore_specs().await;
    assert!(node.is_clean(&kept));

    prepare(&claims, &kept).await.unwrap();
    fs::remove_dir_all(node.path("cdi")).unwrap();
    node.boot = "boot-2".to_owned();
    node.start().restore_specs().await;
    assert_eq!(node.spec(&kept), None, "kubelet asks again after a reboot");
}
