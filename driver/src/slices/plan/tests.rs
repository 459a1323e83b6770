//! The plan against a small model of the API server: every history ends in the wanted state, and a taint never opens a gap.

use proptest::prelude::*;

use super::super::model::{Device, PoolRef};
use super::{Known, Step, Stored, complete_generation, generate_name, index_of, plan};
use taints::{Effect, Taint};

const POOL: &str = "node-a";

/// What the API server would hold.
#[derive(Clone, Debug, Default)]
struct Server {
    slices: Vec<Stored>,
    writes: u64,
}

impl Server {
    fn apply(&mut self, step: &Step, wanted: &[Vec<Device>]) -> Result<(), String> {
        self.writes += 1;
        let version = self.writes.to_string();
        match step {
            Step::Delete { name, uid, resource_version } => {
                let at = self.find(name, resource_version)?;
                if self.slices[at].uid != *uid {
                    return Err(format!("{name} has another UID"));
                }
                self.slices.remove(at);
            }
            Step::Update { name, resource_version, index, pool } => {
                let at = self.find(name, resource_version)?;
                self.slices[at].pool = Some(pool.clone());
                self.slices[at].devices = wanted[*index].clone();
                self.slices[at].resource_version = version;
            }
            Step::Create { index, pool } => {
                let name = format!("{}{:05}", generate_name(*index, "gpu.devicetaint.dev", POOL), self.writes);
                self.slices.push(stored(&name, pool.generation, pool.resource_slice_count, &wanted[*index], &version));
            }
        }
        Ok(())
    }

    fn find(&self, name: &str, version: &str) -> Result<usize, String> {
        let at = self.slices.iter().position(|slice| slice.name == name).ok_or(format!("{name} is not there"))?;
        (self.slices[at].resource_version == version).then_some(at).ok_or(format!("{name} is at another version"))
    }

    fn plan(&self, wanted: &[Vec<Device>], known: Known) -> Vec<Step> {
        plan(POOL, &self.slices, wanted, known, |index, slice| slice.devices == wanted[index])
    }

    /// Plans and writes until nothing is left to do; every plan must work on the state that it was made for.
    fn settle(&mut self, wanted: &[Vec<Device>], known: &mut Known) -> usize {
        for round in 0..4 {
            let steps = self.plan(wanted, *known);
            if steps.is_empty() {
                return round;
            }
            for step in steps {
                self.apply(&step, wanted).unwrap();
                self.learn(known);
            }
        }
        panic!("does not settle: {:?}", self.plan(wanted, *known));
    }

    fn learn(&self, known: &mut Known) {
        let top = self.slices.iter().filter_map(|slice| slice.pool.as_ref()).map(|pool| pool.generation).max();
        known.highest = known.highest.max(top.unwrap_or(0));
        known.complete = known.complete.max(complete_generation(&self.slices).unwrap_or(0));
    }

    /// What a consumer reads: the devices of the complete pool.
    fn read(&self) -> Option<Vec<Vec<Device>>> {
        complete_generation(&self.slices)?;
        let mut sorted: Vec<&Stored> = self.slices.iter().collect();
        sorted.sort_by_key(|slice| index_of(&slice.name));
        Some(sorted.iter().map(|slice| slice.devices.clone()).collect())
    }
}

fn stored(name: &str, generation: i64, count: i64, devices: &[Device], version: &str) -> Stored {
    Stored {
        name: name.to_owned(),
        uid: format!("uid-{name}"),
        resource_version: version.to_owned(),
        pool: Some(PoolRef { name: POOL.to_owned(), generation, resource_slice_count: count }),
        devices: devices.to_vec(),
    }
}

fn device(name: &str, tainted: bool) -> Device {
    let taint = Taint { key: "k".to_owned(), value: String::new(), effect: Effect::NoSchedule, time_added: None };
    Device { name: name.to_owned(), taints: tainted.then_some(taint).into_iter().collect(), ..Device::default() }
}

#[test]
fn names_carry_their_index_and_fit() {
    let name = generate_name(31, "gpu.devicetaint.dev", "node-a");
    assert_eq!(name, "0001f-gpu.devicetaint.dev-node-a-");
    assert_eq!(index_of(&format!("{name}x7k2p")), Some(31));
    let long = generate_name(0, "gpu.devicetaint.dev", &"n.".repeat(200));
    assert!(long.len() <= 248 && long.ends_with("n-"), "{long}");
    for foreign in ["node-a-gpu-x", "0001-gpu", "ABCDE-x", "00001", "zzzzz-x"] {
        assert_eq!(index_of(foreign), None, "{foreign}");
    }
}

#[test]
fn nothing_there_is_created_at_generation_1() {
    let wanted = vec![vec![device("a", false)], vec![device("b", false)]];
    let steps = Server::default().plan(&wanted, Known::default());
    let pool = PoolRef { name: POOL.to_owned(), generation: 1, resource_slice_count: 2 };
    assert_eq!(steps, [Step::Create { index: 0, pool: pool.clone() }, Step::Create { index: 1, pool }]);
}

#[test]
fn after_a_wipe_the_generation_goes_on() {
    let wanted = vec![vec![]];
    let (mut server, mut known) = (Server::default(), Known::default());
    server.settle(&wanted, &mut known);
    server.slices.clear();
    server.settle(&wanted, &mut known);
    assert_eq!(complete_generation(&server.slices), Some(2));
}

#[test]
fn a_pool_of_another_name_and_an_unreadable_object_are_deleted_first() {
    let mut server = Server::default();
    let wanted = vec![vec![device("a", false)]];
    server.settle(&wanted, &mut Known::default());
    let mut other = stored("00000-old", 1, 1, &[], "7");
    other.pool = Some(PoolRef { name: "elsewhere".to_owned(), generation: 1, resource_slice_count: 1 });
    let unreadable = Stored { pool: None, ..stored("00000-odd", 0, 0, &[], "8") };
    server.slices.extend([other, unreadable]);
    let steps = server.plan(&wanted, Known::default());
    assert!(matches!(&steps[0], Step::Delete { name, .. } if name == "00000-old"), "{steps:?}");
    assert!(matches!(&steps[1], Step::Delete { name, .. } if name == "00000-odd"), "{steps:?}");
    server.settle(&wanted, &mut Known::default());
    assert_eq!(server.read(), Some(wanted));
}

#[test]
fn a_change_of_two_slices_raises_the_generation_of_all() {
    let (mut server, mut known) = (Server::default(), Known::default());
    server.settle(&[vec![device("a", false)], vec![device("b", false)], vec![device("c", false)]], &mut known);
    let wanted = vec![vec![device("a", true)], vec![device("b", true)], vec![device("c", false)]];
    let steps = server.plan(&wanted, known);
    assert_eq!(steps.len(), 3);
    assert!(steps.iter().all(|step| matches!(step, Step::Update { pool, .. } if pool.generation == 2)), "{steps:?}");
}

#[test]
fn a_raise_that_was_cut_off_is_finished_at_its_own_generation() {
    let (mut server, mut known) = (Server::default(), Known::default());
    server.settle(&[vec![device("a", false)], vec![device("b", false)]], &mut known);
    let wanted = vec![vec![device("a", true)], vec![device("b", true)]];
    let steps = server.plan(&wanted, known);
    server.apply(&steps[0], &wanted).unwrap();
    server.settle(&wanted, &mut Known::default());
    assert_eq!(complete_generation(&server.slices), Some(2));
}

fn pools() -> impl Strategy<Value = Vec<Vec<Device>>> {
    prop::collection::vec(prop::collection::vec(any::<bool>(), 0..4), 1..4).prop_map(|slices| {
        let devices = |(index, taints): (usize, &Vec<bool>)| {
            taints.iter().enumerate().map(|(n, tainted)| device(&format!("d{index}-{n}"), *tainted)).collect()
        };
        slices.iter().enumerate().map(devices).collect()
    })
}

/// What may happen to the pool.
#[derive(Clone, Debug)]
enum Happening {
    /// Another state is wanted, and this many writes come through before the process is killed.
    Want(Vec<Vec<Device>>, usize, bool),
    /// Kubelet deletes every slice.
    Wipe,
    /// Somebody deletes one slice.
    Lose(usize),
    /// Somebody writes into a slice.
    Spoil(usize),
    /// A creation whose answer was lost was made twice.
    Double(usize),
}

fn happenings() -> impl Strategy<Value = Happening> {
    prop_oneof![
        4 => (pools(), 0_usize..6, any::<bool>()).prop_map(|(pool, writes, killed)| Happening::Want(pool, writes, killed)),
        1 => Just(Happening::Wipe),
        1 => (0_usize..4).prop_map(Happening::Lose),
        1 => (0_usize..4).prop_map(Happening::Spoil),
        1 => (0_usize..4).prop_map(Happening::Double),
    ]
}

fn happen(server: &mut Server, known: &mut Known, wanted: &mut Vec<Vec<Device>>, what: Happening) {
    let pick = |server: &Server, at: usize| (!server.slices.is_empty()).then(|| at % server.slices.len());
    match what {
        Happening::Want(pool, writes, killed) => {
            *wanted = pool;
            for step in server.plan(wanted, *known).into_iter().take(writes) {
                server.apply(&step, wanted).unwrap();
                server.learn(known);
            }
            if killed {
                *known = Known::default();
            }
        }
        Happening::Wipe => server.slices.clear(),
        Happening::Lose(at) => drop(pick(server, at).map(|at| server.slices.remove(at))),
        Happening::Spoil(at) => {
            if let Some(at) = pick(server, at) {
                server.slices[at].devices.push(device("foreign", false));
                server.slices[at].resource_version.push('0');
            }
        }
        Happening::Double(at) => {
            if let Some(at) = pick(server, at) {
                let mut twin = server.slices[at].clone();
                server.writes += 1;
                twin.name.push_str(&format!("x{}", server.writes));
                twin.uid.push_str(&format!("x{}", server.writes));
                server.slices.push(twin);
            }
        }
    }
}

proptest! {
    /// Whatever happened, the next plans reach the wanted state within two rounds and then have nothing to do.
    #[test]
    fn every_history_ends_in_the_wanted_state(history in prop::collection::vec(happenings(), 1..12)) {
        let (mut server, mut known, mut wanted) = (Server::default(), Known::default(), vec![vec![]]);
        for what in history {
            happen(&mut server, &mut known, &mut wanted, what);
            server.learn(&mut known);
        }
        let rounds = server.settle(&wanted, &mut known);
        prop_assert!(rounds <= 2, "{rounds} rounds");
        prop_assert_eq!(server.read(), Some(wanted));
    }

    /// A taint on one card of a settled pool is one write, without a new generation: the pool is never incomplete.
    #[test]
    fn a_taint_is_one_write_in_place(mut wanted in pools(), at in 0_usize..16) {
        let (mut server, mut known) = (Server::default(), Known::default());
        server.settle(&wanted, &mut known);
        let before = complete_generation(&server.slices);
        let slice = at % wanted.len();
        prop_assume!(!wanted[slice].is_empty());
        let inside = at % wanted[slice].len();
        let name = wanted[slice][inside].name.clone();
        let tainted = !wanted[slice][inside].taints.is_empty();
        wanted[slice][inside] = device(&name, !tainted);
        let steps = server.plan(&wanted, known);
        prop_assert_eq!(steps.len(), 1);
        server.apply(&steps[0], &wanted).unwrap();
        prop_assert_eq!(complete_generation(&server.slices), before);
        prop_assert_eq!(server.read(), Some(wanted));
    }

    /// While a new state is written, what a consumer reads is the old one, the new one, or an incomplete pool; never a mixture.
    #[test]
    fn no_mixture_is_ever_complete(old in pools(), new in pools()) {
        let (mut server, mut known) = (Server::default(), Known::default());
        server.settle(&old, &mut known);
        for step in server.plan(&new, known) {
            server.apply(&step, &new).unwrap();
            if let Some(read) = server.read() {
                prop_assert!(read == old || read == new, "{read:?}");
            }
        }
        prop_assert_eq!(server.read(), Some(new));
    }
}
