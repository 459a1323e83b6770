//! The rules by which a finding goes: on evidence, or by time where the fault was an application's.

use jiff::SignedDuration;

use super::card::Moment;
use super::finding::Finding;
use crate::policy::Clear;

/// Whether a finding's clearing can take a seen reset as its evidence.
pub(super) fn waits(finding: &Finding) -> bool {
    matches!(finding.rule(), Clear::Reset | Clear::RecoveryNone | Clear::Flag)
}

/// What the driver's recovery action reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// This.
    Reads(u32),
    /// This driver has none.
    None,
    /// It could not be read now.
    Unknown,
}

impl Action {
    fn clear(self) -> bool {
        matches!(self, Self::Reads(0) | Self::None)
    }
}

/// Whether a reading gives everything that clearing a finding needs, time aside.
pub(super) fn ready(finding: &Finding, action: Action, pending: bool, boot_id: &str) -> bool {
    let rebooted = rebooted(finding, boot_id);
    let reset = rebooted || finding.reset_proof.is_some();
    match finding.rule() {
        Clear::Ends(_) => finding.ended,
        Clear::Flag => finding.ended && (finding.flag_seen || reset),
        Clear::RecoveryNone => !pending && (action == Action::Reads(0) || (action == Action::None && reset)),
        Clear::Reset => !pending && action.clear() && reset,
        Clear::Reboot => action.clear() && rebooted,
        Clear::Timer(_) | Clear::Manual => false,
    }
}

/// Whether the node was rebooted since the finding was last seen. A boot id that could not be read proves nothing.
fn rebooted(finding: &Finding, boot_id: &str) -> bool {
    !boot_id.is_empty() && !finding.boot_id.is_empty() && finding.boot_id != boot_id
}

/// Whether a finding is over at this moment, and what shows it.
pub(super) fn over(finding: &Finding, action: Action, moment: &Moment<'_>) -> Option<String> {
    if let Clear::Timer(after) = finding.rule() {
        let after = finding.lengthened(after);
        let passed = moment.now.duration_since(finding.last_seen) >= after;
        return passed.then(|| format!("no further event for {after:#}"));
    }
    let ready_for = moment.now.duration_since(finding.ready_since?);
    let (hold, why) = hold(finding, action, moment);
    (ready_for >= hold).then_some(why)
}

/// How long a finding must stay ready, and why it is over then.
fn hold(finding: &Finding, action: Action, moment: &Moment<'_>) -> (SignedDuration, String) {
    let proof = match (&finding.reset_proof, rebooted(finding, moment.boot_id)) {
        (_, true) => Some("the node's boot id changed".to_owned()),
        (proof, false) => proof.clone(),
    };
    let flap = finding.flap_hold();
    let says = if action == Action::None { "nothing is pending" } else { "the recovery action reads none" };
    match (finding.rule(), proof) {
        (Clear::Ends(base), _) => (finding.lengthened(base).max(flap), "the condition ended".to_owned()),
        (Clear::Flag, _) => (flap, "the hardware's flag reads clear".to_owned()),
        (_, Some(proof)) => (flap, format!("the card answers, {says}, and {proof}")),
        (_, None) => {
            let quiet = finding.lengthened(moment.quiet_period);
            (quiet.max(flap), format!("the recovery action reads none for {quiet:#}"))
        }
    }
}
