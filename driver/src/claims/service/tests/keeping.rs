//! What is kept there for prepared claims, and what readiness hears of a disk that refuses.

use std::fs;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::super::super::keep::{Disk, run};
use super::super::super::service::Claims;
use super::{DRIVER, Node, prepare};
use crate::http_checks::Level;

const LOOK: Duration = Duration::from_secs(15);

/// Keeps in the background; the levels of both directories.
fn keep(claims: &Claims) -> (watch::Receiver<Level>, watch::Receiver<Level>) {
    let (cdi, cdi_level) = watch::channel(Level::Good);
    let (checkpoints, checkpoints_level) = watch::channel(Level::Good);
    tokio::spawn(run(claims.clone(), Disk { cdi, checkpoints }, LOOK, CancellationToken::new()));
    (cdi_level, checkpoints_level)
}

/// The reason, once the level is failed.
async fn failed(level: &mut watch::Receiver<Level>) -> String {
    match &*level.wait_for(|level| *level != Level::Good).await.unwrap() {
        Level::Failed(why) => why.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn directories_that_cannot_be_written_are_told_before_a_pod_needs_them() {
    let node = Node::new();
    let claims = node.start();
    fs::write(node.path("cdi"), "a file where a directory should be").unwrap();
    let (mut cdi, mut checkpoints) = keep(&claims);
    let why = failed(&mut cdi).await;
    assert!(why.contains("--cdi-root") && why.contains("no claim can be prepared"), "{why}");
    assert_eq!(*checkpoints.borrow(), Level::Good);
    fs::remove_file(node.path("cdi")).unwrap();
    cdi.wait_for(|level| *level == Level::Good).await.unwrap();
    assert_eq!(fs::read_dir(node.path("cdi")).unwrap().count(), 0, "a trial leaves nothing");

    fs::remove_dir_all(node.path("state/claims")).unwrap();
    assert!(failed(&mut checkpoints).await.contains("--state-dir"));
}

#[tokio::test(start_paused = true)]
async fn a_write_that_the_disk_refused_is_followed_by_a_trial_at_once() {
    let node = Node::new();
    let claims = node.start();
    let (mut cdi, _checkpoints) = keep(&claims);
    tokio::time::sleep(Duration::from_secs(1)).await;
    fs::remove_dir(node.path("cdi")).unwrap();
    fs::write(node.path("cdi"), "a file where a directory should be").unwrap();
    prepare(&claims, &node.allocate("a", &["gpu-0"])).await.unwrap_err();
    tokio::time::timeout(Duration::from_secs(1), failed(&mut cdi)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_spec_that_somebody_removes_is_there_again_after_a_look() {
    let node = Node::new();
    let claims = node.start();
    let asked = node.allocate("a", &["gpu-0"]);
    prepare(&claims, &asked).await.unwrap();
    let before = node.spec(&asked).unwrap();
    let _levels = keep(&claims);
    tokio::time::sleep(LOOK / 3).await;
    for _ in 0..2 {
        fs::remove_file(node.path("cdi").join(format!("k8s.{DRIVER}-claim_{}.json", asked.uid))).unwrap();
        tokio::time::sleep(LOOK).await;
        assert_eq!(node.spec(&asked), Some(before.clone()));
    }
}
