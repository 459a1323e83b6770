//! Events on the own Node: what a person who looks at the node should find there. A courtesy: nothing waits for it, and an event that the server
//! keeps in the same words is not written anew, by a restarted agent neither.

use std::time::Duration;

use cluster::call::CallError;
use cluster::event::Event;
use jiff::Timestamp;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::slices::backoff::Backoff;
use crate::slices::{SliceApi, SliceError};

/// Who says it.
const COMPONENT: &str = "gpu-driver";
/// Notices that wait for the API server; there are two kinds, and each is told once.
const QUEUE: usize = 16;
/// Waits after failures.
const FIRST_WAIT: Duration = Duration::from_secs(1);
const LONGEST_WAIT: Duration = Duration::from_secs(60);

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The event's reason, in one word.
    pub reason: &'static str,
    /// What happened, and what to do.
    pub message: String,
}

/// Where notices are given.
#[derive(Clone, Debug)]
pub struct Notices(mpsc::Sender<Notice>);

impl Notices {
    /// Tells. One that finds no room is lost: the log has it.
    pub fn tell(&self, reason: &'static str, message: &str) {
        if self.0.try_send(Notice { reason, message: message.to_owned() }).is_err() {
            tracing::debug!(reason, "no room for an event");
        }
    }
}

/// A place to give notices, and where they are taken from.
#[must_use]
pub fn channel() -> (Notices, mpsc::Receiver<Notice>) {
    let (sender, receiver) = mpsc::channel(QUEUE);
    (Notices(sender), receiver)
}

/// Writes each notice as an event until `stop`.
pub async fn run(
    api: SliceApi,
    mut notices: mpsc::Receiver<Notice>,
    clock: fn() -> Timestamp,
    stop: CancellationToken,
) {
    let write = async {
        while let Some(notice) = notices.recv().await {
            write_out(&api, &notice, clock).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = stop.cancelled() => {}
        () = write => {}
    }
}

/// Tries until the server has it, or refuses it.
async fn write_out(api: &SliceApi, notice: &Notice, clock: fn() -> Timestamp) {
    let mut backoff = Backoff::new(FIRST_WAIT, LONGEST_WAIT, 0);
    while let Err(error) = write(api, notice, clock()).await {
        if let Failure::Event(error) = &error
            && !error.is_transient()
        {
            tracing::warn!(%error, reason = notice.reason, "the API server does not take an event about this node");
            return;
        }
        tracing::debug!(%error, reason = notice.reason, "an event is not written yet");
        tokio::time::sleep(backoff.after_failure()).await;
    }
}

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Node(#[from] SliceError),
    #[error(transparent)]
    Event(#[from] CallError),
}

async fn write(api: &SliceApi, notice: &Notice, now: Timestamp) -> Result<(), Failure> {
    let uid = api.node_uid().await?;
    let event = Event::node_warning(COMPONENT, &api.owner().node, &uid, notice.reason, notice.message.clone());
    Ok(event.write(api.client(), now).await?)
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use tokio_util::sync::CancellationToken;

    use super::{channel, run};
    use crate::slices::{Owner, SliceApi};
    use crate::testing::{FakeServer, Fault};

    #[tokio::test(start_paused = true)]
    async fn a_notice_is_written_once_whatever_fails_on_the_way() {
        let server = FakeServer::new();
        server.set_node(None);
        server.plan("event", Fault::Status(503), 2);
        server.plan("event", Fault::CutAfter, 1);
        let api = SliceApi::new(server.client(), Owner { driver: "d".to_owned(), node: "node-a".to_owned() });
        let (notices, receiver) = channel();
        let stop = CancellationToken::new();
        let task = tokio::spawn(run(api, receiver, || Timestamp::UNIX_EPOCH, stop.clone()));
        notices.tell("Reason", "it happened");
        tokio::time::sleep(std::time::Duration::from_secs(20)).await;
        server.set_node(Some("node-uid"));
        server.until_events(1).await;
        tokio::time::sleep(std::time::Duration::from_secs(300)).await;
        let events = server.events();
        assert_eq!((events.len(), server.count("event")), (1, 4), "{events:?}");
        assert_eq!(
            (&events[0]["involvedObject"]["uid"], &events[0]["message"]),
            (&"node-uid".into(), &"it happened".into())
        );
        stop.cancel();
        task.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_notice_is_given_up_and_the_next_one_is_written() {
        let server = FakeServer::new();
        server.plan("event", Fault::Status(403), 1);
        let api = SliceApi::new(server.client(), Owner { driver: "d".to_owned(), node: "node-a".to_owned() });
        let (notices, receiver) = channel();
        tokio::spawn(run(api, receiver, || Timestamp::UNIX_EPOCH, CancellationToken::new()));
        notices.tell("Reason", "refused");
        notices.tell("Reason", "taken");
        server.until_events(1).await;
        assert_eq!(server.events()[0]["message"], "taken");
    }
}
