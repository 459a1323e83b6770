//! Verdicts in words: one line for the pod, one for each reason.
//!
//! A reason is read by somebody whose work was just evicted: what has which taint, who put it there and why, what the tolerations
//! say to it, and when the pod leaves. Times have whole seconds, as the API's have.

use std::fmt::{self, Display, Formatter};

use super::{Held, HeldWhy, Origin, Reason, Spared, Subject, Tolerance, Verdict, Warning};
use crate::object::{Rule, Slice};
use crate::toleration::Toleration;

/// So many characters of a note by a person are shown: a message has room for other reasons too.
const NOTE_LIMIT: usize = 120;

impl Origin {
    /// A slice as the origin of a taint, or the mark of which its driver made the taint.
    #[must_use]
    pub(super) fn slice(slice: &Slice, mark: Option<&Rule>) -> Self {
        match mark {
            None => Self::Slice { name: slice.name.clone() },
            Some(mark) => Self::Mark {
                name: mark.name.clone(),
                careful: mark.careful,
                by: mark.by.clone(),
                note: mark.reason.clone(),
            },
        }
    }

    /// The rule as the origin of its taint.
    #[must_use]
    pub fn rule(rule: &Rule) -> Self {
        Self::Rule {
            name: rule.name.clone(),
            uid: rule.uid.clone(),
            careful: rule.careful,
            by: rule.by.clone(),
            note: rule.reason.clone(),
        }
    }
}

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("on the node itself"),
            Self::Slice { name } => write!(f, "by the driver in ResourceSlice {name}"),
            Self::Mark { name, by, note, .. } => {
                write!(f, "by DeviceMark {name}")?;
                person(f, by.as_deref(), note.as_deref())
            }
            Self::Rule { name, by, note, .. } => {
                write!(f, "by DeviceTaintRule {name}")?;
                person(f, by.as_deref(), note.as_deref())
            }
        }
    }
}

/// Who, and why in their words.
fn person(f: &mut Formatter<'_>, by: Option<&str>, note: Option<&str>) -> fmt::Result {
    match (by, note) {
        (Some(by), Some(note)) => write!(f, " of {}: \"{}\"", short(by), short(note)),
        (Some(by), None) => write!(f, " of {}", short(by)),
        (None, Some(note)) => write!(f, ": \"{}\"", short(note)),
        (None, None) => Ok(()),
    }
}

/// A person's words on one line, and not too many of them.
fn short(text: &str) -> String {
    let mut line: Vec<char> = text.trim().chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    if line.len() > NOTE_LIMIT {
        line.truncate(NOTE_LIMIT);
        line.extend("...".chars());
    }
    line.into_iter().collect()
}

impl Display for Subject {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node { name } => write!(f, "node {name}"),
            Self::Device { id, claim, request } => write!(f, "device {id} (claim {claim}, request {request})"),
        }
    }
}

impl Display for Tolerance {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Forever { by } => write!(f, "tolerated by {by}"),
            Self::For { by, seconds } => {
                let by = Toleration { toleration_seconds: None, ..by.clone() };
                write!(f, "tolerated for {seconds}s by {by}")
            }
            Self::No { nearest: Some(nearest) } => write!(f, "not tolerated ({nearest})"),
            Self::No { nearest: None } => f.write_str("not tolerated"),
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{} has taint {}", self.subject, self.taint)?;
        // A node's taint can only be on the node, which is named already.
        if self.origin != Origin::Node {
            write!(f, " ({})", self.origin)?;
        }
        write!(f, ", {}", self.tolerance)?;
        // Where a person would have to add one: tolerations of devices are the claim's, those of the node the pod's.
        if self.tolerance == (Tolerance::No { nearest: None }) {
            match &self.subject {
                Subject::Node { .. } => f.write_str(" (the pod has no toleration for this key)")?,
                Subject::Device { .. } => f.write_str(" (the claim has no toleration for this key)")?,
            }
        }
        match self.deadline {
            Some(deadline) => write!(f, ", leaves at {deadline:.0}"),
            None => Ok(()),
        }
    }
}

impl Display for Held {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.subject)?;
        match &self.why {
            HeldWhy::NotListed => f.write_str("no current slice lists it; what its driver says of it is unknown"),
            HeldWhy::IdentityUnknown { rule } => {
                write!(f, "rule {rule} is for one card, and which card has this name now is unknown")
            }
            HeldWhy::NoTime { taint } => write!(f, "since when taint {taint} stands is unknown"),
        }
    }
}

impl Display for Warning {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::FromRequest { claim, request, device } => write!(
                f,
                "claim {claim}, device {device}: the allocation carries no tolerations, so those of request {request} count \
                 (an older scheduler loses them; kube-controller-manager evicts here)"
            ),
            Self::ResultDiffers { claim, request, device } => write!(
                f,
                "claim {claim}, device {device}: the tolerations of the allocation differ from those of request {request}; \
                 the allocation's count"
            ),
            Self::EmptyEffect { device, toleration } => write!(
                f,
                "device {device}: toleration {toleration} has no effect, so it covers every effect and its seconds do not \
                 count (kube-controller-manager evicts here: name the effect NoExecute)"
            ),
            Self::TargetChanged { rule, device } => write!(
                f,
                "rule {rule} was made for another card than the one that is {device} now: not acted on, though the \
                 scheduler still applies it by name; delete it or renew it"
            ),
            Self::UnresolvedConsumer { claim, resource, name } => write!(
                f,
                "claim {claim} is reserved for {resource} {name}, which is neither a pod nor a pod group: who else uses \
                 its devices is unknown"
            ),
        }
    }
}

impl Display for Spared {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Finished => "it has ended",
            Self::Terminating => "it is ending already",
        })
    }
}

impl Display for Verdict {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "pod {} ", self.pod)?;
        match (self.spared, self.leave_at) {
            (Some(spared), _) => write!(f, "is left alone: {spared}")?,
            (None, Some(at)) => write!(f, "leaves at {at:.0}")?,
            (None, None) => f.write_str("stays")?,
        }
        let reasons = self.reasons.iter().chain(&self.tolerated);
        reasons.clone().try_for_each(|reason| write!(f, "\n  {reason}"))?;
        self.held.iter().try_for_each(|held| write!(f, "\n  held: {held}"))?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\n  warning: {warning}"))
    }
}
