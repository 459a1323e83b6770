//! The findings of one card, and the rules by which they open and go. Pure: a clock's reading is an argument.

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::change::{Changes, FindingEvent, FindingEventKind};
use super::clearing::{Action, over, ready, waits};
use super::finding::{Cleared, Finding, FindingId, History, Scope, Source};
use super::looks::{Look, Watch, looks};
use super::reset::Baseline;
use crate::nvml::{PciAddress, Presence, Reading, Snapshot};
use crate::policy::{Clear, Policy, Response, Row};

/// Findings of one card at most; a driver that raises ever new codes must not fill the memory.
const MOST: usize = 256;
/// How often the values that tell a reset are saved while a finding waits for one.
const BASELINE_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// What holds for all cards at a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment<'a> {
    pub(super) now: Timestamp,
    pub(super) boot_id: &'a str,
    pub(super) quiet_period: SignedDuration,
    pub(super) stale_after: SignedDuration,
    pub(super) policy: &'a Policy,
}

/// The health of one piece of hardware. It follows the card's identity, not its place.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CardHealth {
    /// UUID, or `pci:` and the address for a card that never answered.
    pub key: String,
    /// Where it was last.
    pub pci: PciAddress,
    /// Product name, for the policy.
    #[serde(default)]
    pub product: String,
    /// When the inventory last had it.
    pub last_known: Timestamp,
    /// Its driver can be asked for a recovery action.
    #[serde(default)]
    pub action_readable: bool,
    /// Values that a reset sets back.
    #[serde(default)]
    pub baseline: Baseline,
    #[serde(default)]
    findings: Vec<Finding>,
    #[serde(default)]
    history: Vec<History>,
    /// The last snapshot that said anything.
    #[serde(skip)]
    pub(super) last_report: Option<Timestamp>,
    /// The last snapshot in which the card answered.
    #[serde(skip)]
    last_answer: Option<Timestamp>,
    #[serde(skip)]
    baseline_saved: Option<Timestamp>,
    #[serde(skip)]
    watch: Watch,
}

/// Something that was seen.
pub(super) struct Seen<'a> {
    pub(super) source: Source,
    pub(super) key: &'a str,
    pub(super) value: &'a str,
    pub(super) scope: Scope,
    pub(super) evidence: String,
}

impl<'a> Seen<'a> {
    /// A state of the whole card.
    pub(super) fn state(key: &'a str, value: &'a str, evidence: impl Into<String>) -> Self {
        Self { source: Source::State, key, value, scope: Scope::Card, evidence: evidence.into() }
    }
}

impl CardHealth {
    pub(super) fn new(key: String, pci: PciAddress, now: Timestamp) -> Self {
        Self {
            key,
            pci,
            product: String::new(),
            last_known: now,
            action_readable: false,
            baseline: Baseline::default(),
            findings: Vec::new(),
            history: Vec::new(),
            last_report: None,
            last_answer: None,
            baseline_saved: None,
            watch: Watch::default(),
        }
    }

    /// Open findings, in the order in which they opened.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    /// What is remembered of findings, open and past.
    pub fn history(&self) -> impl Iterator<Item = &History> {
        self.history.iter()
    }

    /// An XID event. Codes that it cancels are withdrawn.
    pub(super) fn xid(&mut self, code: u64, scope: Scope, moment: &Moment<'_>, changes: &mut Changes) {
        let row = moment.policy.xid(code, &self.product);
        let scope = if row.whole_card { Scope::Card } else { scope };
        let seen = Seen {
            source: Source::Xid(code),
            key: "xid",
            value: "",
            scope,
            evidence: format!("XID {code} on {scope}"),
        };
        self.raise(&seen, &row, false, moment, changes);
        let cancelled = |finding: &Finding| match finding.source {
            Source::Xid(other) => row.cancels.contains(&other),
            Source::State => false,
        };
        let ids: Vec<FindingId> = self.findings.iter().filter(|f| cancelled(f)).map(|f| f.id.clone()).collect();
        for id in ids {
            self.close(&id, &format!("XID {code} says that it is over"), moment.now, changes);
        }
        changes.persist = true;
    }

    /// A state that holds.
    pub(super) fn state(&mut self, seen: &Seen<'_>, moment: &Moment<'_>, changes: &mut Changes) {
        let row = moment.policy.signal(seen.key, seen.value, &self.product);
        self.raise(seen, &row, true, moment, changes);
    }

    fn raise(&mut self, seen: &Seen<'_>, row: &Row, flag: bool, moment: &Moment<'_>, changes: &mut Changes) {
        let id = FindingId { key: row.key.clone(), value: row.value.clone(), scope: seen.scope };
        let known = self.findings.iter().position(|finding| finding.id == id);
        let Some(index) = known.or_else(|| self.open(&id, seen, moment)) else {
            changes.overflowed += 1;
            return;
        };
        let within = row.repeat.as_ref().map_or(SignedDuration::ZERO, |repeat| repeat.within);
        let event = matches!(seen.source, Source::Xid(_));
        let events = if event { self.history_of(&id).note_event(moment.now, within) } else { 0 };
        let (readable, finding) = (self.action_readable, &mut self.findings[index]);
        let before = finding.clone();
        finding.events += u64::from(event);
        finding.seen(moment.now, moment.boot_id, &seen.evidence, flag);
        finding.judge(row, events, readable);
        let fresh = known.is_none();
        changes.persist |= fresh || event || before.response != finding.response || before.evidence != finding.evidence;
        if fresh || before.response != finding.response {
            let kind = if fresh { FindingEventKind::Opened } else { FindingEventKind::Escalated };
            changes.taints_changed |= finding.response.effect().is_some();
            changes.events.push(FindingEvent::of(self.pci, &self.key, finding, kind));
        }
    }

    /// Makes room for a new finding; there is none when the card has too many.
    fn open(&mut self, id: &FindingId, seen: &Seen<'_>, moment: &Moment<'_>) -> Option<usize> {
        if self.findings.len() >= MOST {
            return None;
        }
        let relapses = self.history_of(id).reopen(moment.now);
        self.findings.push(Finding {
            id: id.clone(),
            source: seen.source,
            escalated: false,
            first_seen: moment.now,
            last_seen: moment.now,
            events: 0,
            boot_id: String::new(),
            evidence: String::new(),
            flag_seen: false,
            reset_proof: None,
            relapses,
            response: Response::Ignore,
            clear: None,
            note: String::new(),
            origin: String::new(),
            ended: false,
            ready_since: None,
        });
        Some(self.findings.len() - 1)
    }

    fn history_of(&mut self, id: &FindingId) -> &mut History {
        let index = self.history.iter().position(|entry| entry.id == *id).unwrap_or_else(|| {
            self.history.push(History::new(id.clone()));
            self.history.len() - 1
        });
        &mut self.history[index]
    }

    /// A finding is over: should it come back soon, that is a relapse.
    fn close(&mut self, id: &FindingId, why: &str, now: Timestamp, changes: &mut Changes) {
        self.history_of(id).cleared = Some(Cleared { at: now, why: why.to_owned() });
        self.take(id, why, changes);
    }

    fn take(&mut self, id: &FindingId, why: &str, changes: &mut Changes) {
        let Some(index) = self.findings.iter().position(|finding| finding.id == *id) else { return };
        let finding = self.findings.remove(index);
        changes.taints_changed |= finding.response.effect().is_some();
        changes.persist = true;
        let kind = FindingEventKind::Cleared { why: why.to_owned() };
        changes.events.push(FindingEvent::of(self.pci, &self.key, &finding, kind));
    }

    /// A person says that a finding is dealt with.
    pub(super) fn acknowledge(&mut self, key: &str, by: &str, now: Timestamp, changes: &mut Changes) {
        let ids: Vec<FindingId> = self.findings.iter().filter(|f| f.id.key == key).map(|f| f.id.clone()).collect();
        for id in ids {
            self.close(&id, &format!("cleared by {by}"), now, changes);
        }
    }

    /// A condition that no snapshot shows has ended: NVML opened, events arrive, a call returned. `value` of `None` means all.
    pub(super) fn end(&mut self, key: &str, value: Option<&str>, moment: &Moment<'_>, changes: &mut Changes) {
        for finding in &mut self.findings {
            if finding.id.key == key && value.is_none_or(|value| finding.id.value == value) {
                finding.ended = true;
            }
        }
        self.settle(moment, changes, |finding| finding.id.key == key);
    }

    /// Only one value of a key can hold at a time: the others give way without a relapse.
    pub(super) fn only(&mut self, key: &str, value: &str, changes: &mut Changes) {
        let other = |finding: &Finding| finding.id.key == key && finding.id.value != value;
        let ids: Vec<FindingId> = self.findings.iter().filter(|f| other(f)).map(|f| f.id.clone()).collect();
        for id in ids {
            self.take(&id, &format!("it is {value} now"), changes);
        }
    }

    /// A reading of the card.
    pub(super) fn snapshot(&mut self, snapshot: &Snapshot, moment: &Moment<'_>, changes: &mut Changes) {
        if !matches!(snapshot.presence, Presence::Unreadable(_)) {
            self.last_report = Some(moment.now);
            for blind in ["hung", "stale"] {
                self.end("unmonitored", Some(blind), moment, changes);
            }
        }
        if snapshot.presence == Presence::Answering {
            self.answered(snapshot, moment, changes);
        }
        for look in looks(snapshot, &mut self.watch, moment.now) {
            self.look(&look, moment, changes);
        }
        if snapshot.presence == Presence::Answering {
            self.settle_answering(snapshot, moment, changes);
        } else {
            self.interrupt();
        }
    }

    /// The card did not answer: whatever quiet time was counted starts again.
    fn interrupt(&mut self) {
        let presence = |key: &str| matches!(key, "lost" | "unmonitored" | "driver");
        for finding in self.findings.iter_mut().filter(|finding| !presence(&finding.id.key)) {
            finding.ready_since = None;
        }
    }

    /// What a reading of an answering card means before its conditions are looked at.
    fn answered(&mut self, snapshot: &Snapshot, moment: &Moment<'_>, changes: &mut Changes) {
        let gap = self.last_answer.is_none_or(|last| moment.now.duration_since(last) > moment.stale_after);
        self.last_answer = Some(moment.now);
        match snapshot.recovery_action {
            Reading::Value(_) => self.action_readable = true,
            Reading::NotSupported => self.action_readable = false,
            Reading::Failed(_) => {}
        }
        let proof = self.baseline.advance(snapshot);
        for finding in &mut self.findings {
            if gap {
                // Nobody saw what happened meanwhile, so quiet time counts from now.
                finding.ready_since = None;
            }
            if let Some(proof) = proof.as_ref().filter(|_| waits(finding) && finding.reset_proof.is_none()) {
                finding.reset_proof = Some(proof.clone());
                changes.persist = true;
            }
        }
        self.save_baseline(moment.now, changes);
    }

    fn save_baseline(&mut self, now: Timestamp, changes: &mut Changes) {
        let due = self.baseline_saved.is_none_or(|saved| now.duration_since(saved) >= BASELINE_EVERY);
        if due && self.findings.iter().any(waits) {
            self.baseline_saved = Some(now);
            changes.persist = true;
        }
    }

    fn look(&mut self, look: &Look, moment: &Moment<'_>, changes: &mut Changes) {
        let held = look.held.as_deref();
        for finding in self.findings.iter_mut().filter(|finding| finding.id.key == look.key) {
            if look.only.is_none_or(|value| finding.id.value == value) {
                finding.ended = held.is_some_and(|held| held.iter().all(|held| held.value != finding.id.value));
            }
        }
        for held in held.unwrap_or_default() {
            if look.key == "recovery" {
                self.only("recovery", &held.value, changes);
            }
            self.state(&Seen::state(look.key, &held.value, held.evidence.as_str()), moment, changes);
        }
        // The card did not answer, so what only an answer can clear waits; presence itself was read.
        if matches!(look.key, "lost" | "unmonitored") {
            self.settle(moment, changes, |finding| finding.id.key == look.key);
        }
    }

    fn settle_answering(&mut self, snapshot: &Snapshot, moment: &Moment<'_>, changes: &mut Changes) {
        let action = match snapshot.recovery_action {
            Reading::Value(action) => Action::Reads(action),
            Reading::NotSupported => Action::None,
            Reading::Failed(_) => Action::Unknown,
        };
        let pending = self.baseline.pending().is_some();
        for finding in &mut self.findings {
            let ready = ready(finding, action, pending, moment.boot_id);
            finding.ready_since = ready.then(|| finding.ready_since.unwrap_or(moment.now));
        }
        let due: Vec<(FindingId, String)> = (self.findings.iter())
            .filter(|finding| !matches!(finding.rule(), Clear::Timer(_)))
            .filter_map(|finding| Some((finding.id.clone(), over(finding, action, moment)?)))
            .collect();
        for (id, why) in due {
            self.close(&id, &why, moment.now, changes);
        }
    }

    /// Clears what ended, among the conditions that need no answering card to be judged.
    fn settle(&mut self, moment: &Moment<'_>, changes: &mut Changes, about: impl Fn(&Finding) -> bool) {
        let about = |finding: &Finding| about(finding) && matches!(finding.rule(), Clear::Ends(_));
        for finding in self.findings.iter_mut().filter(|finding| about(finding)) {
            finding.ready_since = finding.ended.then(|| finding.ready_since.unwrap_or(moment.now));
        }
        let due: Vec<(FindingId, String)> = (self.findings.iter())
            .filter(|finding| about(finding))
            .filter_map(|finding| Some((finding.id.clone(), over(finding, Action::Unknown, moment)?)))
            .collect();
        for (id, why) in due {
            self.close(&id, &why, moment.now, changes);
        }
    }

    /// Lets time pass: timers run out, conditions of the monitor that ended are held long enough, old history is dropped.
    pub(super) fn tick(&mut self, moment: &Moment<'_>, changes: &mut Changes) {
        self.settle(moment, changes, |finding| matches!(finding.id.key.as_str(), "driver" | "unmonitored"));
        let trusted = self.last_answer.is_some_and(|last| moment.now.duration_since(last) <= moment.stale_after);
        let due: Vec<(FindingId, String)> = (self.findings.iter())
            .filter(|finding| trusted || !finding.response.isolates())
            .filter(|finding| matches!(finding.rule(), Clear::Timer(_)))
            .filter_map(|finding| Some((finding.id.clone(), over(finding, Action::Unknown, moment)?)))
            .collect();
        for (id, why) in due {
            self.close(&id, &why, moment.now, changes);
        }
        let findings = &self.findings;
        let open = |id: &FindingId| findings.iter().any(|finding| finding.id == *id);
        self.history.retain(|entry| open(&entry.id) || !entry.is_over(moment.now));
    }

    /// Judges what was saved by today's policy. What only the old process could end is dropped.
    pub(super) fn restored(mut self, policy: &Policy) -> Self {
        let bound =
            |id: &FindingId| id.key == "unmonitored" && ["hung", "stale", "released"].contains(&id.value.as_str());
        self.findings.retain(|finding| !bound(&finding.id));
        let mut by_id: BTreeMap<FindingId, Finding> = BTreeMap::new();
        for mut finding in std::mem::take(&mut self.findings) {
            let row = match finding.source {
                Source::Xid(code) => policy.xid(code, &self.product),
                Source::State => policy.signal(&finding.id.key, &finding.id.value, &self.product),
            };
            finding.id = FindingId { key: row.key.clone(), value: row.value.clone(), scope: finding.id.scope };
            finding.judge(&row, 0, self.action_readable);
            by_id.entry(finding.id.clone()).or_insert(finding);
        }
        self.findings = by_id.into_values().collect();
        self.findings.sort_by_key(|finding| finding.first_seen);
        self
    }
}
