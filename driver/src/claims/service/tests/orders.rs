//! Any order of calls, restarts and reboots.

use futures::FutureExt;
use proptest::prelude::*;

use super::{Node, prepare, unprepare};

/// What may happen to the claims of a node.
#[derive(Clone, Debug)]
enum Act {
    Prepare(usize),
    Unprepare(usize),
    Restart,
    Reboot,
}

fn acts() -> impl Strategy<Value = Act> {
    prop_oneof![
        4 => (0_usize..5).prop_map(Act::Prepare),
        2 => (0_usize..5).prop_map(Act::Unprepare),
        1 => Just(Act::Restart),
        1 => Just(Act::Reboot),
    ]
}

/// Devices of each claim; some overlap.
const CLAIMS: [&[&str]; 5] = [&["gpu-0"], &["gpu-0", "gpu-1"], &["gpu-1"], &["gpu-2", "gpu-3"], &["gpu-3"]];

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever comes in whatever order: no device is prepared for two claims, and what is answered stands on the disk.
    #[test]
    fn no_device_is_ever_prepared_twice(acts in prop::collection::vec(acts(), 1..16)) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let mut node = Node::new();
            let asked: Vec<_> = CLAIMS.iter().enumerate().map(|(n, devices)| node.allocate(&n.to_string(), devices)).collect();
            let mut claims = node.start();
            let mut prepared = std::collections::BTreeSet::new();
            for act in acts {
                match act {
                    Act::Prepare(n) => {
                        let free = |m: &usize| *m == n || CLAIMS[*m].iter().all(|device| !CLAIMS[n].contains(device));
                        let expected = prepared.iter().all(free);
                        assert_eq!(prepare(&claims, &asked[n]).await.is_ok(), expected);
                        if expected {
                            prepared.insert(n);
                        }
                    }
                    Act::Unprepare(n) => {
                        unprepare(&claims, &asked[n]).await;
                        prepared.remove(&n);
                    }
                    Act::Restart => claims = node.start(),
                    Act::Reboot => {
                        node.reboot();
                        claims = node.start();
                    }
                }
                for (n, claim) in asked.iter().enumerate() {
                    assert_eq!(node.checkpoint(claim).is_some(), prepared.contains(&n));
                }
            }
            assert!(claims.drain().now_or_never().is_some());
        });
    }
}
