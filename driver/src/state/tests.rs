//! What survives, what is refused, and what a broken file does.

use std::fs;

use taints::{Effect, Taint};

use super::{Memory, State, StateError};
use crate::health::{HealthRecord, Intent, Stamp};
use crate::inventory::{InventoryRecord, SeenVersions};
use crate::owner::{Offer, Owner, Which};

fn offer(which: Which) -> Offer {
    let owner = match which {
        Which::Any => Owner::Plugin { resource: "nvidia.com/gpu".into() },
        _ => Owner::Driver { name: "gpu.nvidia.com".into() },
    };
    Offer { owner, which }
}

fn memory() -> Memory {
    let stamp = Stamp {
        device: "gpu-0000-3b-00-0".into(),
        uuid: Some("GPU-a".into()),
        taint: Taint {
            key: "gpu.devicetaint.dev/xid".into(),
            value: "79".into(),
            effect: Effect::NoSchedule,
            time_added: Some("2026-11-02T10:00:00Z".parse().unwrap()),
        },
    };
    let taint = Taint { key: "devicetaint.dev/maintenance".into(), ..stamp.taint.clone() };
    let mark =
        Intent { mark: "dt-1".into(), device: stamp.device.clone(), uuid: Some("GPU-a".into()), serial: None, taint };
    let versions = SeenVersions { driver: Some("580.95.05".into()), cuda: None };
    Memory {
        inventory: InventoryRecord { versions, ..InventoryRecord::default() },
        health: HealthRecord { cards: Vec::new(), stamps: vec![stamp] },
        marks: vec![mark],
        others: [Which::Any, Which::At("0000:3b:00.0".parse().unwrap()), Which::Is("gpu-a".into())].map(offer).into(),
    }
}

#[test]
fn what_is_saved_is_loaded() {
    let root = tempfile::tempdir().unwrap();
    let dir = root.path().join("deep/state");
    let (mut state, empty, aside) = State::load(&dir).unwrap();
    assert_eq!((empty, aside), (Memory::default(), Vec::new()));
    state.save(&memory()).unwrap();
    let (_, loaded, aside) = State::load(&dir).unwrap();
    assert_eq!((loaded, aside), (memory(), Vec::new()));
}

#[test]
fn an_unchanged_document_is_not_written_again() {
    let root = tempfile::tempdir().unwrap();
    let (mut state, ..) = State::load(root.path()).unwrap();
    state.save(&memory()).unwrap();
    let file = root.path().join("stamps.json");
    fs::remove_file(&file).unwrap();
    state.save(&memory()).unwrap();
    assert!(!file.exists());
    let mut other = memory();
    other.health.stamps.clear();
    state.save(&other).unwrap();
    assert!(file.exists());
}

#[test]
fn a_broken_document_is_set_aside_and_the_others_are_kept() {
    let root = tempfile::tempdir().unwrap();
    let (mut state, ..) = State::load(root.path()).unwrap();
    for (number, broken) in
        ["", "{", "{\"kind\":\"findings\",\"version\":1,\"data\":7}", "{\"kind\":\"stamps\",\"version\":1,\"data\":[]}"]
            .iter()
            .enumerate()
    {
        state.save(&memory()).unwrap();
        fs::write(root.path().join("findings.json"), broken).unwrap();
        let (_, loaded, aside) = State::load(root.path()).unwrap();
        assert_eq!(loaded, memory());
        assert_eq!(aside.len(), 1);
        let renamed = root.path().join(format!("findings.json.unreadable-{}", number + 1));
        assert_eq!(aside[0].aside, renamed);
        assert_eq!(fs::read_to_string(renamed).unwrap(), *broken);
        assert!(aside[0].to_string().contains("findings.json"), "{}", aside[0]);
    }
}

#[test]
fn broken_documents_do_not_pile_up() {
    let root = tempfile::tempdir().unwrap();
    for _ in 0..15 {
        fs::write(root.path().join("stamps.json"), "no json").unwrap();
        State::load(root.path()).unwrap();
    }
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 10);
}

#[test]
fn a_newer_document_is_refused_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let text = "{\"kind\":\"stamps\",\"version\":2,\"data\":{\"new\":\"form\"}}";
    fs::write(root.path().join("stamps.json"), text).unwrap();
    let error = State::load(root.path()).unwrap_err();
    assert!(matches!(error, StateError::Newer { found: 2, .. }));
    assert!(error.to_string().contains("stamps.json is of version 2"), "{error}");
    assert_eq!(fs::read_to_string(root.path().join("stamps.json")).unwrap(), text);
}

#[test]
fn what_a_crash_left_half_written_is_swept() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(".half-written-x"), "{").unwrap();
    let (_, loaded, aside) = State::load(root.path()).unwrap();
    assert_eq!((loaded, aside), (Memory::default(), Vec::new()));
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 0);
}

#[test]
fn a_directory_that_cannot_be_made_is_told_with_the_flag() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    fs::write(&file, "").unwrap();
    let error = State::load(&file.join("state")).unwrap_err().to_string();
    assert!(error.contains("--state-dir"), "{error}");
}
