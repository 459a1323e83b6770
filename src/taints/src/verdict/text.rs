//! Verdicts in words: one line for the pod, one for each reason.

use std::fmt::{self, Display, Formatter};

use super::{Held, HeldWhy, Origin, Reason, Spared, Subject, Tolerance, Verdict, Warning};
use crate::object::Rule;

impl Origin {
    /// The rule as the origin of its taint.
    #[must_use]
    pub fn rule(rule: &Rule) -> Self {
        Self::Rule { name: rule.name.clone(), uid: rule.uid.clone(), careful: rule.careful }
    }
}

impl Display for Origin {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match self {
            Self::Node => f.write_str("the node's own"),
            Self::Slice { name } => write!(f, "by the driver, in slice {name}"),
            Self::Rule { name, .. } => write!(f, "by rule {name}"),
        }
    }
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
            Self::For { by, seconds } => write!(f, "tolerated for {seconds}s by {by}"),
            Self::No { nearest: Some(nearest) } => write!(f, "not tolerated: {nearest}"),
            Self::No { nearest: None } => f.write_str("not tolerated: no toleration has its key"),
        }
    }
}

impl Display for Reason {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}: taint {} ({}), {}", self.subject, self.taint, self.origin, self.tolerance)?;
        match self.deadline {
            Some(deadline) => write!(f, ", until {deadline}"),
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
            (None, Some(at)) => write!(f, "leaves at {at}")?,
            (None, None) => f.write_str("stays")?,
        }
        let reasons = self.reasons.iter().chain(&self.tolerated);
        reasons.clone().try_for_each(|reason| write!(f, "\n  {reason}"))?;
        self.held.iter().try_for_each(|held| write!(f, "\n  held: {held}"))?;
        self.warnings.iter().try_for_each(|warning| write!(f, "\n  warning: {warning}"))
    }
}
