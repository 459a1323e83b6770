//! How a verdict is reached: each evicting taint of the node and of every held device is weighed, then the earliest deadline is
//! taken.

use std::borrow::Cow;

use jiff::{SignedDuration, Timestamp};

use super::{FirstSeen, Held, HeldWhy, Origin, Reason, Settings, Spared, Subject, Tolerance, Verdict, Warning};
use crate::fleet::{Fleet, Link, PoolView, RuleOn, Standing, Via};
use crate::object::{Allocated, Claim, DeviceId, Key, Pod, Rule};
use crate::taint::{Effect, Taint};
use crate::toleration::Toleration;
use crate::{device, node};

/// Judges one pod at the state of the fleet; `None` where the fleet has no such pod.
///
/// Observations must be up to date with the fleet: a taint whose beginning is not known is held, and never evicts.
#[must_use]
pub fn judge(fleet: &Fleet, key: &Key, seen: &FirstSeen, settings: &Settings) -> Option<Verdict> {
    let pod = fleet.pod(key)?;
    let mut court = Court { fleet, seen, settings, pod, verdict: blank(pod) };
    court.weigh_node();
    for claim in fleet.claims_of(pod) {
        court.weigh_claim(claim);
    }
    Some(court.close())
}

fn blank(pod: &Pod) -> Verdict {
    Verdict {
        pod: pod.key.clone(),
        uid: pod.uid.clone(),
        resource_version: pod.resource_version.clone(),
        leave_at: None,
        reasons: Vec::new(),
        tolerated: Vec::new(),
        held: Vec::new(),
        warnings: Vec::new(),
        spared: None,
    }
}

struct Court<'a> {
    fleet: &'a Fleet,
    seen: &'a FirstSeen,
    settings: &'a Settings,
    pod: &'a Pod,
    verdict: Verdict,
}

impl Court<'_> {
    fn weigh_node(&mut self) {
        let Some(node) = self.pod.node.as_ref().and_then(|name| self.fleet.node(name)) else { return };
        for taint in &node.taints {
            let Some(judged) = self.evicting(taint, false) else { continue };
            let tolerance = self.node_tolerance(&judged);
            // A countdown never begins before the pod was bound.
            let since =
                self.seen.since(&node.uid, taint).map(|since| self.pod.bound_at.map_or(since, |at| at.max(since)));
            let subject = Subject::Node { name: node.name.clone() };
            self.record(subject, taint, Origin::Node, tolerance, since);
        }
    }

    /// The first toleration in the pod's list that matches decides.
    fn node_tolerance(&self, judged: &Taint) -> Tolerance {
        let numbers = self.settings.comparison_operators;
        match node::first_match(&self.pod.tolerations, judged, numbers) {
            Some(by) => match by.toleration_seconds {
                Some(seconds) => Tolerance::For { by: by.clone(), seconds: seconds.max(0) },
                None => Tolerance::Forever { by: by.clone() },
            },
            None => Tolerance::No { nearest: node::nearest_miss(&self.pod.tolerations, judged, numbers) },
        }
    }

    fn weigh_claim(&mut self, claim: &Claim) {
        match Fleet::link(self.pod, claim) {
            Link::Holds(Via::Pod) => {}
            Link::Holds(Via::Group) if self.settings.pod_groups => {}
            Link::Holds(Via::Group) | Link::Not(_) => return,
        }
        for consumer in Fleet::unresolved(claim) {
            self.verdict.warnings.push(Warning::UnresolvedConsumer {
                claim: claim.key.clone(),
                resource: format!("{}/{}", consumer.api_group, consumer.resource),
                name: consumer.name.clone(),
            });
        }
        // The devices of a claim mostly come from one pool.
        let mut last: Option<(&DeviceId, PoolView<'_>)> = None;
        for result in claim.results.iter().flatten() {
            let view = match last.take().filter(|(id, _)| id.pool == result.id.pool && id.driver == result.id.driver) {
                Some((_, view)) => view,
                None => self.fleet.view(&result.id),
            };
            self.weigh_device(claim, result, &view);
            last = Some((&result.id, view));
        }
    }

    fn weigh_device(&mut self, claim: &Claim, result: &Allocated, pool: &PoolView<'_>) {
        match pool.device(&result.id) {
            None => self.hold(claim, result, HeldWhy::NotListed),
            Some(listed) => {
                for taint in &listed.device.taints {
                    let mark = pool.mark_of(&result.id, taint);
                    let Some(judged) = self.evicting(taint, mark.is_some_and(|mark| mark.careful)) else { continue };
                    let origin = Origin::slice(listed.slice, mark);
                    let since = self.seen.slice_since(&result.id, taint);
                    self.weigh_taint(claim, result, taint, &judged, origin, since);
                }
            }
        }
        for RuleOn { rule, standing } in pool.rules_on(&result.id) {
            self.weigh_rule(claim, result, rule, standing);
        }
    }

    fn weigh_rule(&mut self, claim: &Claim, result: &Allocated, rule: &Rule, standing: Standing) {
        let Some(judged) = self.evicting(&rule.taint, rule.careful) else { return };
        match standing {
            Standing::Applies => {
                let since = self.seen.rule_since(rule);
                self.weigh_taint(claim, result, &rule.taint, &judged, Origin::rule(rule), since);
            }
            Standing::Unknown => self.hold(claim, result, HeldWhy::IdentityUnknown { rule: rule.name.clone() }),
            Standing::TargetChanged => self
                .verdict
                .warnings
                .push(Warning::TargetChanged { rule: rule.name.clone(), device: result.id.clone() }),
        }
    }

    fn weigh_taint(
        &mut self,
        claim: &Claim,
        result: &Allocated,
        taint: &Taint,
        judged: &Taint,
        origin: Origin,
        since: Option<Timestamp>,
    ) {
        let tolerations = self.tolerations(claim, result);
        let tolerance = device_tolerance(tolerations, judged);
        if let Tolerance::Forever { by } = &tolerance
            && by.effect.is_none()
        {
            let warning = Warning::EmptyEffect { device: result.id.clone(), toleration: by.clone() };
            self.warn(warning);
        }
        self.record(device_subject(claim, result), taint, origin, tolerance, since);
    }

    /// What counts as tolerated: the copy in the allocation result, else what the request asked for.
    fn tolerations<'c>(&mut self, claim: &'c Claim, result: &'c Allocated) -> &'c [Toleration] {
        let (copied, asked) = copied_and_asked(claim, result);
        if copied != asked && !asked.is_empty() {
            let (claim, request, device) = (claim.key.clone(), result.request.clone(), result.id.clone());
            self.warn(if copied.is_empty() {
                Warning::FromRequest { claim, request, device }
            } else {
                Warning::ResultDiffers { claim, request, device }
            });
        }
        if copied.is_empty() { asked } else { copied }
    }

    /// The taint as it is judged, when it evicts: a careful one is judged as if its effect were `NoExecute`.
    fn evicting<'t>(&self, taint: &'t Taint, careful_rule: bool) -> Option<Cow<'t, Taint>> {
        match taint.effect {
            Effect::NoExecute => Some(Cow::Borrowed(taint)),
            Effect::NoSchedule if careful_rule || self.settings.is_careful(taint) => {
                Some(Cow::Owned(Taint { effect: Effect::NoExecute, ..taint.clone() }))
            }
            Effect::None | Effect::PreferNoSchedule | Effect::NoSchedule | Effect::Other(_) => None,
        }
    }

    fn record(
        &mut self,
        subject: Subject,
        taint: &Taint,
        origin: Origin,
        tolerance: Tolerance,
        since: Option<Timestamp>,
    ) {
        let seconds = match &tolerance {
            Tolerance::Forever { .. } => None,
            Tolerance::For { seconds, .. } => Some(*seconds),
            Tolerance::No { .. } => Some(0),
        };
        let deadline = seconds.zip(since).map(|(seconds, since)| later(since, seconds));
        if seconds.is_some() && since.is_none() {
            self.verdict.held.push(Held { subject, why: HeldWhy::NoTime { taint: taint.clone() } });
            return;
        }
        let reason = Reason { subject, taint: taint.clone(), origin, tolerance, since, deadline };
        let list = if seconds.is_some() { &mut self.verdict.reasons } else { &mut self.verdict.tolerated };
        list.push(reason);
    }

    fn hold(&mut self, claim: &Claim, result: &Allocated, why: HeldWhy) {
        self.verdict.held.push(Held { subject: device_subject(claim, result), why });
    }

    fn warn(&mut self, warning: Warning) {
        if !self.verdict.warnings.contains(&warning) {
            self.verdict.warnings.push(warning);
        }
    }

    fn close(mut self) -> Verdict {
        self.verdict.reasons.sort_by_key(|reason| reason.deadline);
        self.verdict.spared = if self.pod.phase.is_finished() {
            Some(Spared::Finished)
        } else {
            self.pod.deleted_at.map(|_| Spared::Terminating)
        };
        let earliest = self.verdict.reasons.first().and_then(|reason| reason.deadline);
        self.verdict.leave_at = earliest.filter(|_| self.verdict.spared.is_none());
        self.verdict
    }
}

fn copied_and_asked<'c>(claim: &'c Claim, result: &'c Allocated) -> (&'c [Toleration], &'c [Toleration]) {
    let copied = result.tolerations.as_deref().unwrap_or_default();
    let asked = claim.requests.get(&result.request).map_or(&[][..], Vec::as_slice);
    (copied, asked)
}

/// Whether an allocated device's evicting taint, judged as `NoExecute`, is tolerated for ever.
#[must_use]
pub fn tolerates_for_ever(claim: &Claim, result: &Allocated, judged: &Taint) -> bool {
    let (copied, asked) = copied_and_asked(claim, result);
    let tolerations = if copied.is_empty() { asked } else { copied };
    matches!(device_tolerance(tolerations, judged), Tolerance::Forever { .. })
}

fn device_subject(claim: &Claim, result: &Allocated) -> Subject {
    Subject::Device { id: result.id.clone(), claim: claim.key.clone(), request: result.request.clone() }
}

/// For ever wins over any time, and the smallest time over others. Without an effect the seconds are ignored, as the API says.
fn device_tolerance(tolerations: &[Toleration], judged: &Taint) -> Tolerance {
    let mut shortest: Option<(i64, &Toleration)> = None;
    for by in tolerations.iter().filter(|toleration| device::tolerates(toleration, judged)) {
        match (&by.effect, by.toleration_seconds) {
            (Some(_), Some(seconds)) if shortest.is_none_or(|(least, _)| seconds < least) => {
                shortest = Some((seconds, by));
            }
            (Some(_), Some(_)) => {}
            (None, _) | (Some(_), None) => return Tolerance::Forever { by: by.clone() },
        }
    }
    match shortest {
        Some((seconds, by)) => Tolerance::For { by: by.clone(), seconds: seconds.max(0) },
        None => Tolerance::No { nearest: device::nearest_miss(tolerations, judged) },
    }
}

/// Saturates at the end of time: a toleration may ask for more seconds than there are.
fn later(since: Timestamp, seconds: i64) -> Timestamp {
    since.checked_add(SignedDuration::from_secs(seconds)).unwrap_or(Timestamp::MAX)
}
