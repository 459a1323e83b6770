use std::path::Path;

use super::{Control, Event, Fault, Gpu, Pci, Profile};

fn problem(text: &str) -> String {
    Control::parse(text, Path::new("control.json")).unwrap_err().to_string()
}

#[test]
fn a_control_survives_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.json");
    let mut control = Control::eight_h100s(7);
    control.gpus[2] = Gpu::seeded(Profile::A100, "0000:4e:00.0", 7).with_mig(&[("3g.40gb", 0), ("3g.40gb", 4)]);
    control.gpus[3].events.push(Event::xid("one", 94).on(1, 0));
    control.gpus[4].faults.push(Fault::hang("*"));
    control.gpus[5].fields.insert(230, 4);
    control.write_atomically(&path).unwrap();
    assert_eq!(Control::read(&path).unwrap(), control);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
}

#[test]
fn seeds_make_different_cards_and_the_same_seed_the_same() {
    let (one, again, two) = (Control::eight_h100s(1), Control::eight_h100s(1), Control::eight_h100s(2));
    assert_eq!(one, again);
    let uuids: std::collections::BTreeSet<_> = one.gpus.iter().chain(&two.gpus).map(Gpu::effective_uuid).collect();
    assert_eq!(uuids.len(), 16);
    let serials: std::collections::BTreeSet<_> = one.gpus.iter().chain(&two.gpus).map(Gpu::effective_serial).collect();
    assert_eq!(serials.len(), 16);
}

#[test]
fn a_wrong_type_is_told_with_line_and_field() {
    let text = "{\n \"gpus\": [\n  {\"profile\": \"t4\", \"pci\": \"0000:3b:00.0\",\n   \"minor\": \"one\"}\n ]\n}";
    let problem = problem(text);
    assert!(problem.starts_with("control.json:4:"), "{problem}");
    assert!(problem.contains("field `minor`") && problem.contains("invalid type"), "{problem}");
}

#[test]
fn an_unknown_field_is_refused_by_name() {
    let problem = problem("{\"gpus\": [], \"gpu\": []}");
    assert!(problem.contains("unknown field `gpu`"), "{problem}");
}

#[test]
fn a_bad_address_is_told_with_its_text() {
    let problem = problem("{\"gpus\": [{\"profile\": \"t4\", \"pci\": \"3b:00.0\"}]}");
    assert!(problem.contains("field `pci`") && problem.contains("`3b:00.0` is not a PCI address"), "{problem}");
}

#[test]
fn what_makes_no_sense_is_refused_with_the_path_of_the_field() {
    let mut control = Control::eight_h100s(0);
    control.gpus[1].faults.push(Fault::error("nvmlDeviceGetNothing", 3));
    assert_eq!(control.check().unwrap_err(), "gpus[1].faults[0].function: this library has no `nvmlDeviceGetNothing`");

    let mut control = Control::eight_h100s(0);
    control.gpus[1].pci = control.gpus[0].pci;
    assert_eq!(control.check().unwrap_err(), "gpus[1].pci: another GPU is at 0000:1b:00.0 already");

    let mut control = Control::eight_h100s(0);
    control.gpus[0].events = vec![Event::xid("a", 79), Event::xid("a", 94)];
    assert_eq!(control.check().unwrap_err(), "gpus[0].events[1].id: `a` is there already; each id is delivered once");

    let mut control = Control::server(Profile::T4, 1, 0);
    control.gpus[0] = control.gpus[0].clone().with_mig(&[("1g.10gb", 0)]);
    assert_eq!(control.check().unwrap_err(), "gpus[0].mig: a t4 has no MIG");

    let mut control = Control::eight_h100s(0);
    control.gpus[0].faults.push(Fault { function: "*".to_owned(), error: Some(1), hang: true });
    assert_eq!(control.check().unwrap_err(), "gpus[0].faults[0]: give either `error` or `hang`");

    let wrong_address = Control { gpus: vec![Gpu::seeded(Profile::H100, "nowhere", 0)], ..Control::default() };
    assert!(wrong_address.check().unwrap_err().starts_with("gpus[0].pci"));
}

#[test]
fn the_shipped_examples_parse_and_are_of_the_profile_that_they_are_named_after() {
    for profile in Profile::ALL {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("profiles/{}.json", profile.name()));
        let control = Control::read(&path).unwrap();
        assert!(control.gpus.iter().all(|gpu| gpu.profile == profile), "{}", path.display());
        assert!(!control.gpus.is_empty());
    }
}

#[test]
fn addresses_are_read_in_both_spellings() {
    assert_eq!(Pci::parse("0000:3b:00.0"), Pci::parse("00000000:3B:00.0"));
    assert_eq!(Pci::parse("0000:3b:00.0").unwrap().bus_id(), "00000000:3B:00.0");
    for bad in ["", "0000:3b:00", "0000:3b:00.0.0", "0000:3b:20.0", "0000:+b:00.0", "0000:3b:00.9"] {
        assert_eq!(Pci::parse(bad), None, "{bad}");
    }
}

#[test]
fn the_example_in_the_documentation_parses() {
    let text = include_str!("../../README.md");
    let example = text.split("```json\n").nth(1).unwrap().split("```").next().unwrap();
    let control = Control::parse(example, Path::new("README.md")).unwrap();
    assert_eq!(control.gpus.len(), 4);
    assert!(control.gpu("0000:5e:00.0").unwrap().lost);
}
