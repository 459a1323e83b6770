//! The looks against an API server with faults.

use serde_json::json;
use tokio::task::JoinHandle;

use super::*;
use crate::owner::Owner as Other;
use crate::owner::Which;
use crate::testing::{FakeServer, Fault};

const GRACE: Duration = Duration::from_secs(60);

struct Bench {
    server: FakeServer,
    others: watch::Receiver<Option<Others>>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Bench {
    fn start(server: FakeServer, look: bool) -> Self {
        Self::start_remembering(server, look, BTreeSet::new())
    }

    fn start_remembering(server: FakeServer, look: bool, remembered: BTreeSet<Offer>) -> Self {
        let (sender, others) = watch::channel(None);
        let ours = Owner { driver: "gpu.devicetaint.dev".to_owned(), node: "node-a".to_owned() };
        let metrics = OwnerMetrics::default();
        let looker = Looker { client: server.client(), ours, grace: GRACE, remembered, look, others: sender, metrics };
        let stop = CancellationToken::new();
        let task = tokio::spawn(looker.run(stop.clone()));
        Self { server, others, stop, task }
    }

    /// Waits until what is known is as wanted.
    async fn until(&mut self, wanted: impl Fn(&Others) -> bool) -> Others {
        let known = self.others.wait_for(|others| others.as_ref().is_some_and(&wanted));
        tokio::time::timeout(Duration::from_secs(3600), known).await.unwrap().unwrap().clone().unwrap()
    }

    async fn end(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

fn foreign(name: &str, uuid: &str) -> Value {
    let device = json!({"name": "gpu-0", "attributes": {"uuid": {"string": uuid}}});
    json!({"metadata": {"name": name}, "spec": {"driver": "gpu.nvidia.com", "nodeName": "node-a", "devices": [device]}})
}

fn driver(uuid: &str) -> Offer {
    Offer { owner: Other::Driver { name: "gpu.nvidia.com".to_owned() }, which: Which::Is(uuid.to_owned()) }
}

fn plugin() -> Offer {
    Offer { owner: Other::Plugin { resource: "nvidia.com/gpu".to_owned() }, which: Which::Any }
}

#[tokio::test(start_paused = true)]
async fn what_others_offer_is_known_at_the_start_and_as_it_comes_and_goes() {
    let server = FakeServer::new();
    server.put_slice(foreign("a", "gpu-1"));
    let mut bench = Bench::start(server, true);
    assert_eq!(
        bench.until(|_| true).await,
        Others { offers: [driver("gpu-1")].into(), unreadable: None, settled: true }
    );
    bench.server.put_slice(foreign("b", "gpu-2"));
    bench.until(|others| others.offers == [driver("gpu-1"), driver("gpu-2")].into()).await;
    bench.server.set_allocatable(json!({"nvidia.com/gpu": "2"}));
    bench.until(|others| others.offers.contains(&plugin())).await;
    let gone = Instant::now();
    bench.server.set_allocatable(json!({"nvidia.com/gpu": "0"}));
    bench.server.remove_slice("b");
    bench.until(|others| others.offers == [driver("gpu-1")].into()).await;
    assert_eq!(gone.elapsed(), GRACE);
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn our_own_slices_and_a_quiet_server_cost_nothing() {
    let server = FakeServer::new();
    let own = json!({"metadata": {"name": "own"}, "spec": {"driver": "gpu.devicetaint.dev", "devices": []}});
    server.put_slice(own);
    let mut bench = Bench::start(server, true);
    assert_eq!(bench.until(|_| true).await, Others { settled: true, ..Others::default() });
    tokio::time::sleep(Duration::from_secs(60)).await;
    let calls = bench.server.calls();
    assert_eq!(calls.len(), 4, "a list and a watch each: {calls:?}");
    bench.end().await;
}

/// Unknown is not bad: the first look ends all the same, and what was seen counts on.
#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_is_told_and_tried_again() {
    for verb in ["list-node", "watch-node", "list-others", "watch-others"] {
        for fault in [Fault::Status(403), Fault::Status(500), Fault::Cut, Fault::Silent, Fault::Empty] {
            let server = FakeServer::new();
            server.put_slice(foreign("a", "gpu-1"));
            server.set_allocatable(json!({"nvidia.com/gpu": "1"}));
            server.plan(verb, fault, 4);
            let mut bench = Bench::start(server, true);
            let told = bench.until(|others| others.unreadable.is_some()).await;
            let part = if verb.ends_with("node") { "this Node" } else { "the ResourceSlices of other drivers" };
            assert!(told.unreadable.as_ref().unwrap().contains(part), "{verb} {fault:?}: {told:?}");
            let all: BTreeSet<Offer> = [driver("gpu-1"), plugin()].into();
            bench.until(|others| others.unreadable.is_none() && others.offers == all).await;
            bench.end().await;
        }
    }
}

/// Nothing can be published meanwhile, and the first thing that is may not be a contested card.
#[tokio::test(start_paused = true)]
async fn a_server_that_is_away_or_stumbles_at_the_start_is_waited_for() {
    for (fault, times) in [(Fault::Cut, 40), (Fault::Status(500), 2), (Fault::Silent, 2)] {
        for verb in ["list-node", "list-others"] {
            let server = FakeServer::new();
            server.put_slice(foreign("a", "gpu-1"));
            server.set_allocatable(json!({"nvidia.com/gpu": "1"}));
            server.plan(verb, fault, times);
            let mut bench = Bench::start(server, true);
            let first = bench.until(|others| others.settled).await;
            assert_eq!(first.offers, [driver("gpu-1"), plugin()].into(), "{verb} {fault:?}");
            bench.end().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn who_is_refused_is_waited_for_by_nobody() {
    let server = FakeServer::new();
    server.plan("list-node", Fault::Status(403), 1000);
    let mut bench = Bench::start(server, true);
    let asked = Instant::now();
    assert!(bench.until(|others| others.settled).await.unreadable.is_some());
    assert!(asked.elapsed() < FIRST_WAIT, "{:?}", asked.elapsed());
    bench.end().await;
}

/// A node boots, and the API server is away for longer than the grace; when it comes, the other owner is not back yet.
#[tokio::test(start_paused = true)]
async fn one_that_was_remembered_counts_until_the_grace_is_over_after_the_first_full_look() {
    let server = FakeServer::new();
    server.plan("list-others", Fault::Cut, 100);
    let mut bench = Bench::start_remembering(server, true, [driver("gpu-1")].into());
    bench.until(|others| others.unreadable.is_some()).await;
    tokio::time::sleep(GRACE * 2).await;
    assert_eq!(bench.others.borrow().clone().unwrap().offers, [driver("gpu-1")].into());
    let first = bench.until(|others| others.settled).await;
    let listed = Instant::now();
    assert_eq!(first.offers, [driver("gpu-1")].into());
    bench.until(|others| others.offers.is_empty()).await;
    assert_eq!(listed.elapsed().as_secs(), GRACE.as_secs());
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn what_was_seen_counts_on_while_nothing_can_be_read() {
    let server = FakeServer::new();
    server.put_slice(foreign("a", "gpu-1"));
    let mut bench = Bench::start(server, true);
    bench.until(|others| !others.offers.is_empty()).await;
    tokio::time::sleep(Duration::from_secs(10)).await;
    bench.server.plan("watch-others", Fault::Cut, 10_000);
    bench.server.plan("list-others", Fault::Cut, 10_000);
    bench.server.close_watches();
    bench.until(|others| others.unreadable.is_some()).await;
    tokio::time::sleep(GRACE * 10).await;
    let told = bench.others.borrow().clone().unwrap();
    assert_eq!((told.offers, told.unreadable.is_some()), ([driver("gpu-1")].into(), true));
    assert!(bench.server.count("list-others") < 40, "{}", bench.server.count("list-others"));
    bench.end().await;
}

#[tokio::test(start_paused = true)]
async fn who_is_not_to_look_asks_nothing() {
    let server = FakeServer::new();
    server.put_slice(foreign("a", "gpu-1"));
    let mut bench = Bench::start(server, false);
    assert_eq!(bench.until(|_| true).await, Others { settled: true, ..Others::default() });
    tokio::time::sleep(GRACE).await;
    assert_eq!(bench.server.calls(), Vec::<String>::new());
    bench.end().await;
}
