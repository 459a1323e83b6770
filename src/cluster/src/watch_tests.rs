use super::*;
use crate::testing::{answer, fake_client};
use serde_json::{Value, json};

fn node(name: &str, version: &str) -> Value {
    json!({"metadata": {"name": name, "uid": name, "resourceVersion": version}})
}

fn list(items: &[Value]) -> Value {
    json!({"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "10"}, "items": items})
}

fn is_watch(uri: &http::Uri) -> bool {
    uri.query().is_some_and(|query| query.contains("watch=true"))
}

fn lines(events: &[Value]) -> http::Response<kube::client::Body> {
    let text: String = events.iter().map(|event| format!("{event}\n")).collect();
    http::Response::builder().status(200).body(kube::client::Body::from(text.into_bytes())).unwrap()
}

fn short(notice: &Notice) -> String {
    match notice {
        Notice::Change(change) => match &**change {
            Change::Node(node) => format!("+{}", node.name),
            Change::NodeGone(name) | Change::MarkGone(name) => format!("-{name}"),
            Change::Mark(mark) => format!("+{}", mark.name),
            other => panic!("{other:?}"),
        },
        Notice::Synced(kind) => format!("synced {kind}"),
        Notice::Failed { kind, .. } => format!("failed {kind}"),
        Notice::Malformed(kind) => format!("malformed {kind}"),
        Notice::NotServed(kind) => format!("not served {kind}"),
    }
}

/// Runs a watch of nodes against `client` and returns its first notices.
async fn first(client: Client, count: usize) -> Vec<String> {
    let (sender, mut notices) = mpsc::channel(1);
    let watch = tokio::spawn(run(Kind::Node, client, Kind::Node.resource("v1"), sender));
    let mut seen = Vec::new();
    while seen.len() < count {
        seen.push(short(&notices.recv().await.unwrap()));
    }
    drop(notices);
    // The watch ends by itself once nobody listens; it may wait for an answer that never comes, so it is not awaited.
    watch.abort();
    seen
}

#[tokio::test(start_paused = true)]
async fn a_list_then_a_watch() {
    let client = fake_client(|request, call| match (is_watch(request.uri()), call) {
        (false, _) => {
            answer(200, &list(&[node("a", "1"), json!({"metadata": {"name": "bad"}, "spec": 3}), node("b", "2")]))
        }
        (true, 1) => lines(&[
            json!({"type": "MODIFIED", "object": node("a", "11")}),
            json!({"type": "BOOKMARK", "object": {"kind": "Node", "apiVersion": "v1", "metadata": {"resourceVersion": "12"}}}),
            json!({"type": "DELETED", "object": node("b", "13")}),
        ]),
        (true, _) => answer(500, &json!({})),
    });
    let seen = first(client, 7).await;
    assert_eq!(seen, ["+a", "malformed nodes", "+b", "synced nodes", "+a", "-b", "failed nodes"]);
}

#[tokio::test(start_paused = true)]
async fn after_an_error_only_the_difference_is_told_and_it_is_synced_again() {
    let client = fake_client(|request, call| match (is_watch(request.uri()), call) {
        (false, 0..=2) => answer(503, &json!({})),
        (false, 3) => answer(200, &list(&[node("a", "1"), node("b", "2")])),
        (true, 4) => lines(&[json!({"type": "ERROR", "object":
            {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}})]),
        (false, _) => answer(200, &list(&[node("b", "2"), node("c", "3")])),
        (true, _) => answer(500, &json!({})),
    });
    let seen = first(client, 10).await;
    let failed = "failed nodes";
    assert_eq!(seen, [failed, failed, failed, "+a", "+b", "synced nodes", failed, "+c", "-a", "synced nodes"]);
}

#[tokio::test(start_paused = true)]
async fn what_failed_is_told_in_the_servers_words_alone() {
    let no = json!({"kind": "Status", "status": "Failure", "code": 403, "reason": "Forbidden", "message": "nodes is forbidden"});
    let client = fake_client(move |request, call| match (is_watch(request.uri()), call) {
        (false, 0) | (true, 2) => answer(403, &no),
        (false, _) => answer(200, &list(&[])),
        (true, _) => lines(&[json!({"type": "ERROR", "object":
            {"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "too old"}})]),
    });
    let (sender, mut notices) = mpsc::channel(1);
    let watch = tokio::spawn(run(Kind::Node, client, Kind::Node.resource("v1"), sender));
    let mut told = Vec::new();
    while told.len() < 3 {
        if let Notice::Failed { problem, .. } = notices.recv().await.unwrap() {
            told.push(problem);
        }
    }
    watch.abort();
    assert_eq!(
        told,
        [
            "cannot list: the server answered 403: nodes is forbidden",
            "cannot watch: the server answered 403: nodes is forbidden",
            "the watch broke: the server answered 410: too old",
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_the_watch_is_not_asked_without_pause() {
    let asked = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let count = asked.clone();
    let client = fake_client(move |request, _| {
        count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        if is_watch(request.uri()) { answer(403, &json!({})) } else { answer(200, &list(&[])) }
    });
    let (sender, mut notices) = mpsc::channel(64);
    let watch = tokio::spawn(run(Kind::Node, client, Kind::Node.resource("v1"), sender));
    let minute = tokio::time::sleep(Duration::from_secs(60));
    let mut minute = pin!(minute);
    loop {
        tokio::select! {
            () = &mut minute => break,
            notice = notices.recv() => assert!(notice.is_some()),
        }
    }
    watch.abort();
    // A list and a watch each time: 0.1, 0.2, ... 6.4 and then every 10 s.
    assert!(asked.load(std::sync::atomic::Ordering::SeqCst) <= 2 * 13);
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_not_installed_has_no_objects_and_is_looked_for_again() {
    let mark = json!({"metadata": {"name": "dt-1", "uid": "u", "resourceVersion": "5"}, "spec": {
        "deviceSelector": {"driver": "d", "pool": "n1", "device": "gpu-0"}, "taint": {"key": "k", "effect": "NoSchedule"}}});
    let client = fake_client(move |request, call| match (is_watch(request.uri()), call) {
        (false, 0 | 3) => answer(404, &json!({"kind": "Status", "code": 404, "message": "not found"})),
        (false, _) => {
            let query = request.uri().query().unwrap_or_default();
            assert!(
                query.contains("fieldSelector=spec.deviceSelector.driver%3Dd%2Cspec.deviceSelector.pool%3Dn1"),
                "{query}"
            );
            answer(200, &list(std::slice::from_ref(&mark)))
        }
        (true, _) => answer(404, &json!({"kind": "Status", "code": 404, "message": "not found"})),
    });
    let (sender, mut notices) = mpsc::channel(1);
    let watch = tokio::spawn(async move { marks_of("d", "n1", client, sender).await });
    let mut seen = Vec::new();
    while seen.len() < 6 {
        seen.push(short(&notices.recv().await.unwrap()));
    }
    watch.abort();
    let absent = "not served devicemarks";
    assert_eq!(seen, [absent, "+dt-1", "synced devicemarks", "-dt-1", absent, absent]);
}
