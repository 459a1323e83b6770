//! Opening, letting go, and opening again.

use nvidia_ml::control::{Control, Fault};
use nvidia_ml::{Machine, built_library};
use tokio::time::timeout;

use super::{PATIENCE, SECOND, Stand, pci, timing};
use crate::nvml::{Code, Config, OpenError, Reading, Signal, SignalKind, Supervisor, Update};

#[tokio::test]
async fn no_library_is_told_and_tried_again_until_there_is_one() {
    let folder = tempfile::tempdir().unwrap();
    let library = folder.path().join(nvidia_ml::LOADED_AS);
    let config = Config { timing: timing(), ..Config::new(&library) };
    let (supervisor, mut updates) = Supervisor::spawn(config);
    for wanted in 1..=3 {
        let Some(Update::Unavailable { error, attempt, .. }) = updates.recv().await else { panic!("unavailable") };
        assert_eq!(attempt, wanted);
        assert!(matches!(&error, OpenError::NoLibrary { .. }), "{error}");
        assert!(error.to_string().contains("--nvml-library"), "{error}");
    }
    let control = Control::eight_h100s(1);
    // In one step, as a package manager does: half a library is another error.
    let elsewhere = tempfile::tempdir_in(folder.path()).unwrap();
    let machine = Machine::install(&built_library().unwrap(), elsewhere.path(), &control).unwrap();
    std::fs::copy(&machine.control, folder.path().join(nvidia_ml::CONTROL_BESIDE)).unwrap();
    std::fs::rename(&machine.library, &library).unwrap();
    let opened = async {
        loop {
            match updates.recv().await {
                Some(Update::Opened { scan, .. }) => return scan,
                Some(Update::Unavailable { .. }) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    assert_eq!(timeout(PATIENCE, opened).await.unwrap().gpus.len(), 8);
    supervisor.stop().await;
}

#[tokio::test]
async fn each_reason_to_fail_has_its_own_name() {
    let mut stand = Stand::new(Control::eight_h100s(1).with_init_error(9));
    assert_eq!(stand.unavailable().await, OpenError::NotLoaded);
    stand.change(|control| control.faults = vec![Fault::error("nvmlInit_v2", 18)]);
    stand.until("mismatch", |update| is_unavailable(update, &OpenError::VersionMismatch)).await;
    stand.change(|control| control.faults = vec![Fault::error("nvmlInit_v2", 4)]);
    let failed = OpenError::Failed { code: Code::NO_PERMISSION };
    stand.until("no permission", |update| is_unavailable(update, &failed)).await;
    stand.change(|control| control.faults.clear());
    assert_eq!(stand.opened().await.gpus.len(), 8);
    stand.supervisor.stop().await;
}

fn is_unavailable(update: &Update, wanted: &OpenError) -> Option<()> {
    matches!(update, Update::Unavailable { error, .. } if error == wanted).then_some(())
}

#[tokio::test]
async fn a_library_that_could_not_be_closed_again_is_refused() {
    let mut stand = Stand::lacking(&["nvmlShutdown", "nvmlEventSetFree"], Control::eight_h100s(1), |_| {});
    match stand.unavailable().await {
        OpenError::Unusable { missing, .. } => assert_eq!(missing, ["nvmlShutdown", "nvmlEventSetFree"]),
        other => panic!("{other}"),
    }
    stand.supervisor.stop().await;
}

/// As on a node where only the third of the usual places has the driver, and the first has the leftover of an older one.
#[tokio::test]
async fn the_first_library_that_opens_is_taken() {
    let folder = tempfile::tempdir().unwrap();
    let install = |name: &str, control: &Control| {
        let place = folder.path().join(name);
        std::fs::create_dir(&place).unwrap();
        Machine::install(&built_library().unwrap(), &place, control).unwrap()
    };
    let old = install("old", &Control { faults: vec![Fault::error("nvmlInit_v2", 18)], ..Control::eight_h100s(1) });
    let text = folder.path().join("text.so");
    std::fs::write(&text, "no library").unwrap();
    let absent = folder.path().join("absent.so");
    let candidates = |last: &std::path::Path| vec![old.library.clone(), absent.clone(), text.clone(), last.to_owned()];

    let mut stand = Stand::with(Control::eight_h100s(2), |config| {
        let good = config.libraries[0].clone();
        config.libraries = candidates(&good);
    });
    assert_eq!(stand.opened().await.gpus[0].uuid, stand.uuid(0), "the one that works");
    stand.supervisor.stop().await;

    let mut stand = Stand::with(Control::eight_h100s(2), |config| config.libraries = candidates(&absent));
    assert_eq!(stand.unavailable().await, OpenError::VersionMismatch, "says more than a file that is not there");
    stand.supervisor.stop().await;

    let libraries = vec![absent.clone(), text.clone(), absent.clone()];
    let mut stand = Stand::with(Control::eight_h100s(2), |config| config.libraries = libraries);
    match stand.unavailable().await {
        OpenError::NoLibrary { path, others, .. } => assert_eq!((path, others), (text, 2), "the one that is there"),
        other => panic!("{other}"),
    }
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn an_opening_that_hangs_is_told_and_used_when_it_returns() {
    let mut control = Control::eight_h100s(1);
    control.faults.push(Fault::hang("nvmlInit_v2"));
    let mut stand = Stand::new(control);
    assert!(matches!(stand.unavailable().await, OpenError::Unanswered { .. }));
    stand.change(|control| control.faults.clear());
    assert_eq!(stand.opened().await.gpus.len(), 8);
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn everything_is_let_go_and_taken_back() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("calls.jsonl");
    let mut stand = Stand::new(Control { log: Some(log.clone()), ..Control::eight_h100s(1) });
    stand.all_watching().await;
    assert_eq!(stand.supervisor.watched(), 8);
    stand.supervisor.release();
    let abandoned = stand.until("Released", released).await;
    assert_eq!((abandoned, stand.supervisor.watched()), (0, 0));
    let calls = std::fs::read_to_string(&log).unwrap();
    let count = |function: &str| calls.lines().filter(|line| line.contains(function)).count();
    assert_eq!((count("nvmlEventSetFree"), count("nvmlEventSetCreate")), (8, 8), "every set is freed");
    assert!(calls.lines().last().unwrap().contains("nvmlShutdown"), "and the library is closed last");

    // What happens meanwhile is nobody's business; the state is read when NVML is open again.
    stand.change_second(|gpu| gpu.health.recovery_action = Some(2));
    assert_eq!(std::fs::read_to_string(&log).unwrap(), calls, "nothing is called while it is let go");
    stand.supervisor.reopen();
    assert_eq!(stand.opened().await.gpus.len(), 8);
    stand.snapshot(SECOND, "the state of now", |snapshot| snapshot.recovery_action == Reading::Value(2)).await;
    stand.supervisor.stop().await;
}

fn released(update: &Update) -> Option<usize> {
    match update {
        Update::Released { abandoned } => Some(*abandoned),
        _ => None,
    }
}

#[tokio::test]
async fn a_thread_that_hangs_is_left_behind_at_a_release_and_says_nothing_more() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    stand.change_second(|gpu| gpu.faults.push(Fault::hang("nvmlDeviceGetTemperature")));
    stand.hung(SECOND).await;
    stand.supervisor.release();
    assert_eq!(stand.until("Released", released).await, 1);
    assert_eq!(stand.supervisor.abandoned(), 1);
    stand.supervisor.reopen();
    assert_eq!(stand.opened().await.gpus.len(), 8, "discovery does not ask for the temperature");
    stand.hung(SECOND).await;
    stand.change_second(|gpu| gpu.faults.clear());
    // Both threads return at once. By the second snapshot after that, the one left behind would have spoken.
    let (mut returned, mut snapshots) = (0, 0);
    while returned == 0 || snapshots < 2 {
        if let Update::Signal(Signal { pci: at, kind, .. }) = stand.next().await
            && at == pci(SECOND)
        {
            returned += usize::from(matches!(kind, SignalKind::Unhung { .. }));
            snapshots += usize::from(returned > 0 && matches!(kind, SignalKind::Snapshot(_)));
        }
    }
    assert_eq!(returned, 1, "only the thread of now speaks");
    stand.supervisor.stop().await;
}

#[tokio::test]
async fn a_driver_that_is_unloaded_closes_the_session_and_comes_back() {
    let mut stand = Stand::new(Control::eight_h100s(1));
    stand.all_watching().await;
    stand.change(|control| {
        control.faults = vec![Fault::error("nvmlInit_v2", 9), Fault::error("nvmlDeviceGetCount_v2", 9)];
        for gpu in &mut control.gpus {
            gpu.faults = vec![Fault::error("*", 9)];
        }
    });
    assert_eq!(stand.unavailable().await, OpenError::NotLoaded);
    stand.change(|control| {
        control.faults.clear();
        control.gpus.iter_mut().for_each(|gpu| gpu.faults.clear());
    });
    assert_eq!(stand.opened().await.gpus.len(), 8);
    stand.all_watching().await;
    stand.supervisor.stop().await;
}
