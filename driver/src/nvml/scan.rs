//! A look at which GPUs there are: every GPU is asked by a thread of its own, so that one that hangs is only missing from the answer.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, timeout_at};

use super::identify;
use super::pulse::Pulse;
use super::raw::{Calls, Session};
use super::{CallError, Code, GpuReading, Missing, PciAddress, Scan, Unidentified, Versions};

/// What one thread is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Question {
    Count,
    Index(u32),
    Address(PciAddress),
}

#[derive(Debug)]
enum Answer {
    Count(Versions, Result<u32, CallError>),
    Index(Result<GpuReading, Unidentified>),
    Address(Result<GpuReading, CallError>),
}

/// A thread that has not answered yet. It is waited for in later scans too: asking again would hang one more thread.
#[derive(Debug)]
struct Asked {
    pulse: Arc<Pulse>,
    answer: oneshot::Receiver<Answer>,
}

impl Asked {
    /// Whether the thread is still at it. What it has answered since nobody waited for it is old.
    fn is_pending(&self) -> bool {
        self.answer.is_empty() && !self.answer.is_terminated()
    }
}

/// Scans of one session.
#[derive(Debug)]
pub(super) struct Scanner {
    session: Arc<Session>,
    patience: Duration,
    /// Told when an answer comes too late for its scan.
    late_answer: Arc<Notify>,
    unanswered: BTreeMap<Question, Asked>,
}

impl Scanner {
    pub(super) fn new(session: Arc<Session>, patience: Duration, late_answer: Arc<Notify>) -> Self {
        Self { session, patience, late_answer, unanswered: BTreeMap::new() }
    }

    /// Threads that hang in a call of a scan.
    pub(super) fn hanging(&mut self) -> usize {
        self.unanswered.retain(|_, asked| asked.is_pending());
        self.unanswered.len()
    }

    /// Asks for everything: the list by index, then the known addresses that the list does not show.
    pub(super) async fn scan(&mut self, known: &BTreeSet<PciAddress>) -> (Versions, Scan) {
        let (versions, count) = self.count().await;
        let indices = (0..*count.as_ref().unwrap_or(&0)).map(Question::Index);
        let mut scan = Scan { count, gpus: Vec::new(), unidentified: Vec::new(), missing: Vec::new() };
        for (question, answer) in self.ask_all(indices).await {
            match (question, answer) {
                (_, Ok(Answer::Index(Ok(gpu)))) => scan.gpus.push(gpu),
                (_, Ok(Answer::Index(Err(unidentified)))) => scan.unidentified.push(unidentified),
                (Question::Index(index), Err(error)) => {
                    scan.unidentified.push(Unidentified { index, pci: None, error });
                }
                _ => {}
            }
        }
        let listed: BTreeSet<_> = scan.gpus.iter().map(|gpu| gpu.pci).collect();
        let unlisted = known.difference(&listed).copied().map(Question::Address);
        for (question, answer) in self.ask_all(unlisted).await {
            match (question, answer) {
                (_, Ok(Answer::Address(Ok(gpu)))) => scan.gpus.push(gpu),
                (Question::Address(pci), Ok(Answer::Address(Err(error))) | Err(error)) => {
                    scan.missing.push(Missing { pci, error });
                }
                _ => {}
            }
        }
        scan.gpus.sort_by_key(|gpu| gpu.pci);
        scan.unidentified.sort_by_key(|unidentified| unidentified.index);
        scan.missing.sort_by_key(|missing| missing.pci);
        (versions, scan)
    }

    async fn count(&mut self) -> (Versions, Result<u32, CallError>) {
        let mut answers = self.ask_all([Question::Count]).await;
        match answers.pop() {
            Some((_, Ok(Answer::Count(versions, count)))) => (versions, count),
            Some((_, Err(error))) => (Versions::default(), Err(error)),
            _ => (Versions::default(), Err(CallError::new("nvmlDeviceGetCount_v2", Code::UNKNOWN))),
        }
    }

    /// Asks at once and waits for all answers, as long as the patience lasts.
    async fn ask_all(
        &mut self,
        questions: impl IntoIterator<Item = Question>,
    ) -> Vec<(Question, Result<Answer, CallError>)> {
        let end = Instant::now() + self.patience;
        let asked = questions.into_iter().map(|question| (question, self.ask(question)));
        let waits: FuturesUnordered<_> = asked.map(|(question, asked)| wait(question, asked, end)).collect();
        let answers: Vec<_> = waits.collect().await;
        let mut results = Vec::new();
        for (question, answered) in answers {
            let result = match answered {
                Ok(answer) => Ok(answer),
                Err(None) => Err(CallError::new("a thread for NVML", Code::UNKNOWN)),
                Err(Some(asked)) => {
                    let function = asked.pulse.current().map_or("NVML", |beat| beat.function);
                    self.unanswered.insert(question, asked);
                    Err(CallError::unanswered(function, self.patience))
                }
            };
            results.push((question, result));
        }
        results
    }

    /// The thread that was asked before and has not answered, or a new one. `None` when the system gives no thread.
    fn ask(&mut self, question: Question) -> Option<Asked> {
        if let Some(asked) = self.unanswered.remove(&question).filter(Asked::is_pending) {
            return Some(asked);
        }
        let (reply, answer) = oneshot::channel();
        let pulse = Arc::new(Pulse::default());
        let (session, of_thread, late) = (Arc::clone(&self.session), Arc::clone(&pulse), Arc::clone(&self.late_answer));
        let patience_ends = Instant::now() + self.patience;
        let thread = std::thread::Builder::new().name("nvml scan".to_owned()).spawn(move || {
            let answer = reply_to(Calls::new(&session, &of_thread), question);
            drop(session);
            reply.send(answer).ok();
            if Instant::now() > patience_ends {
                late.notify_one();
            }
        });
        match thread {
            Ok(_) => Some(Asked { pulse, answer }),
            Err(error) => {
                tracing::warn!(%error, "NVML is not asked: no thread");
                None
            }
        }
    }
}

fn reply_to(calls: Calls<'_>, question: Question) -> Answer {
    match question {
        Question::Count => Answer::Count(calls.versions(), calls.count()),
        Question::Index(index) => Answer::Index(identify::at_index(calls, index)),
        Question::Address(pci) => Answer::Address(identify::at_address(calls, pci)),
    }
}

/// The answer, or the thread that has not answered in time.
async fn wait(question: Question, asked: Option<Asked>, end: Instant) -> (Question, Result<Answer, Option<Asked>>) {
    let Some(mut asked) = asked else { return (question, Err(None)) };
    let result = match timeout_at(end, &mut asked.answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(None),
        Err(_) => Err(Some(asked)),
    };
    (question, result)
}
