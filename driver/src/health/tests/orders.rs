//! Properties: order does not matter where it should not, nothing panics, a restart changes nothing, and a naive model agrees.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::{Node, shipped};
use crate::health::{Intent, Limits};
use crate::inventory::testkit::{absent, after_reset, asking, healthy, name, partitioned, read, signal, xid, xid_on};
use crate::nvml::{Code, Presence, Reading, SignalKind, Update};
use crate::policy::{Policy, Response};

/// A signal of card 0 or 1, by small numbers that shrink well.
#[derive(Clone, Debug)]
enum Step {
    Xid(u64),
    Part(u64, u32),
    Action(u32),
    Lost,
    Healthy,
    Reset,
    RemapFailed,
    Unreadable,
    Hung,
    Tick,
}

fn code() -> impl Strategy<Value = u64> {
    prop::sample::select(vec![
        13, 31, 43, 45, 48, 62, 63, 64, 69, 74, 79, 94, 95, 109, 119, 140, 149, 154, 162, 163, 900,
    ])
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        code().prop_map(Step::Xid),
        (code(), 0u32..4).prop_map(|(code, gpu)| Step::Part(code, gpu)),
        (0u32..9).prop_map(Step::Action),
        Just(Step::Lost),
        Just(Step::Healthy),
        Just(Step::Reset),
        Just(Step::RemapFailed),
        Just(Step::Unreadable),
        Just(Step::Hung),
        Just(Step::Tick),
    ]
}

fn update(n: u8, step: &Step) -> Option<Update> {
    let update = match step {
        Step::Xid(code) => xid(n, *code),
        Step::Part(code, gpu) => xid_on(n, *code, Some((*gpu, 0))),
        Step::Action(action) => read(n, asking(*action)),
        Step::Lost => read(n, absent(Presence::Lost)),
        Step::Healthy => read(n, healthy()),
        Step::Reset => read(n, after_reset()),
        Step::RemapFailed => {
            let mut snapshot = healthy();
            snapshot.remapped_rows.failed = Reading::Value(true);
            read(n, snapshot)
        }
        Step::Unreadable => read(n, absent(Presence::Unreadable(Code::UNKNOWN))),
        Step::Hung => signal(n, SignalKind::Hung { function: "f", since: tokio::time::Instant::now() }),
        Step::Tick => return None,
    };
    Some(update)
}

fn run(node: &mut Node, n: u8, steps: &[(Step, i64)]) -> i64 {
    let mut now = 0;
    for (step, wait) in steps {
        now += wait;
        match update(n, step) {
            Some(update) => node.see(&update, now),
            None => node.tick(now),
        };
    }
    now
}

/// What the table alone says of events on a card that is never read: for each key the strongest response.
fn naive(policy: &Policy, codes: &[u64]) -> BTreeMap<String, Response> {
    let mut counts: BTreeMap<u64, u32> = BTreeMap::new();
    for code in codes {
        *counts.entry(*code).or_default() += 1;
    }
    let cancelled: BTreeSet<u64> = codes.iter().flat_map(|code| policy.xid(*code, "").cancels).collect();
    let mut worst: BTreeMap<String, Response> = BTreeMap::new();
    for (code, count) in counts.into_iter().filter(|(code, _)| !cancelled.contains(code)) {
        let row = policy.xid(code, "");
        let response = row.response_to(count, true).0;
        let entry = worst.entry(row.key).or_insert(Response::Ignore);
        *entry = response.max(entry.clone());
    }
    worst.retain(|_, response| response.effect().is_some());
    worst
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// Codes that arrive within a minute make the same taints in any order, and the ones that a naive reading of the table says.
    #[test]
    fn the_order_of_codes_does_not_matter(mut codes in prop::collection::vec(code(), 0..12), seed: u64) {
        // 162 withdraws a 163 that came before it: there the order is the meaning.
        codes.retain(|code| *code != 162);
        let taints = |codes: &[u64]| {
            let mut node = Node::with(1);
            for code in codes {
                node.see(&xid(0, *code), 30);
            }
            node.taints_of(0)
        };
        let mut shuffled = codes.clone();
        for index in (1..shuffled.len()).rev() {
            shuffled.swap(index, usize::try_from(seed % (index as u64 + 1)).unwrap());
        }
        prop_assert_eq!(taints(&codes), taints(&shuffled));
        let effects: BTreeSet<String> = taints(&codes).iter().map(|line| {
            let (key, effect) = line.split_once(':').unwrap();
            format!("{}:{effect}", key.split('=').next().unwrap())
        }).collect();
        let policy = shipped();
        let expected: BTreeSet<String> =
            naive(&policy, &codes).into_iter().map(|(key, response)| format!("{key}:{response}")).collect();
        prop_assert_eq!(effects, expected);
    }

    /// What happens to one card never shows on another.
    #[test]
    fn a_neighbour_is_never_touched(steps in prop::collection::vec((step(), 0i64..30), 0..30)) {
        let mut node = Node::with(2);
        let mut now = 0;
        for (step, wait) in &steps {
            now += wait;
            if let Some(update) = update(0, step) {
                node.see(&update, now);
            }
            node.see(&read(1, healthy()), now);
            node.tick(now);
        }
        prop_assert_eq!(node.taints_of(1), Vec::<String>::new());
    }

    /// A restart of the agent in the same boot changes no taint of the hardware, and no time of one.
    #[test]
    fn a_restart_changes_nothing(steps in prop::collection::vec((step(), 0i64..400), 0..30)) {
        let mut node = Node::of(vec![partitioned(0, &[(1, 0), (2, 0)])]);
        let now = run(&mut node, 0, &steps);
        let hardware = |node: &mut Node| {
            let mut taints = node.taints();
            taints.retain(|line| !line.contains(" unmonitored"));
            taints
        };
        let before = hardware(&mut node);
        for (device, taints) in node.sets(&[], &Limits::default()) {
            for taint in taints {
                let stored = taints::Taint { time_added: Some(super::at(now)), ..taint };
                node.health.adopt_time(&node.inventory, &device, &stored);
            }
        }
        node.restart("boot-1", now);
        prop_assert_eq!(hardware(&mut node), before);
        let stamped = node.sets(&[], &Limits::default());
        let kept = |taint: &taints::Taint| taint.key.ends_with("/unmonitored") || taint.time_added == Some(super::at(now));
        prop_assert!(stamped.values().flatten().all(kept));
    }

    /// Whatever happens, a set that is published is one that the API takes, and nothing evicts unless the policy says so.
    #[test]
    fn every_set_is_valid(steps in prop::collection::vec((step(), 0i64..4000), 0..40), most in 1usize..17, none: bool) {
        let mut node = Node::of(vec![partitioned(0, &[(1, 0), (2, 0)])]);
        run(&mut node, 0, &steps);
        for (_, taints) in node.sets(&[] as &[Intent], &Limits { max_taints: most, none_effect: none }) {
            prop_assert!(taints.len() <= most);
            let keys: BTreeSet<_> = taints.iter().map(|taint| (&taint.key, &taint.effect)).collect();
            prop_assert_eq!(keys.len(), taints.len());
            for taint in &taints {
                prop_assert!(taint.value.len() <= 63);
                prop_assert!(taint.effect != taints::Effect::NoExecute);
                prop_assert!(none || taint.effect != taints::Effect::None);
            }
        }
        let device = format!("{}-mig-1g10gb-2-0", name(0));
        prop_assert!(node.health.explain(&node.inventory, &device).is_some());
    }

    /// Without one good reading, an isolating finding stays, however long it takes.
    #[test]
    fn absence_of_news_is_not_recovery(code in code(), waits in prop::collection::vec(0i64..100_000, 0..20)) {
        let mut node = Node::with(1);
        node.see(&xid(0, code), 1);
        let isolating = |node: &mut Node| node.taints_of(0).into_iter().filter(|t| t.ends_with("NoSchedule")).collect::<Vec<_>>();
        let before = isolating(&mut node);
        let mut now = 100;
        for wait in waits {
            now += wait;
            node.see(&read(0, absent(Presence::Unreadable(Code::UNKNOWN))), now);
            node.tick(now);
        }
        prop_assert_eq!(isolating(&mut node), before);
    }
}
