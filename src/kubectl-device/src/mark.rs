//! What to do about a person's wish to taint or untaint a device: decided here, done by the caller.

use cluster::mark::{Mark, Stored};
use jiff::Timestamp;
use taints::object::{DeviceId, Rule};
use taints::syntax::{self, Carrier, SyntaxError, TaintArg};
use taints::{Effect, Taint as DeviceTaint};

use crate::cli::TaintArguments;
use crate::target::Found;

/// Why a wish is refused. Nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum WishError {
    /// Not a taint, or not one that the API server takes.
    #[error(transparent)]
    Syntax(#[from] SyntaxError),
    /// It says what to remove.
    #[error("{0} says what to remove: use `kubectl device untaint`")]
    Removal(String),
    /// It would end at once.
    #[error("{0} is over already: give a moment to come with --expires-at, or a span with --expires-in")]
    Past(Timestamp),
    /// The span is longer than time goes.
    #[error("--expires-in goes beyond the end of time: give a shorter span")]
    Never,
    /// It is there with another value.
    #[error("the device has {there} already; change its value with --overwrite, or untaint first")]
    Exists {
        /// What is there.
        there: String,
    },
    /// The name is taken by a rule that we did not make.
    #[error("DeviceTaintRule {0} is not a mark of kubectl device; it is left alone")]
    Foreign(String),
    /// The driver put it there.
    #[error(
        "{taint} was put there by the driver {driver}, which takes it away when {clears}; only a mark of kubectl device can be untainted"
    )]
    Drivers {
        /// The taint.
        taint: String,
        /// The driver.
        driver: String,
        /// What would clear it.
        clears: String,
    },
    /// It is not there.
    #[error("device {device} has no mark {taint}{others}")]
    NotThere {
        /// The device.
        device: String,
        /// What was to be taken away.
        taint: String,
        /// Which marks it has.
        others: String,
    },
}

/// What to write for a taint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Taint {
    /// A new mark.
    Create(Mark),
    /// The same mark with another value, reason or expiry.
    Change(Mark),
    /// It is there as wished.
    Nothing(Rule),
}

/// The mark that a person wishes, with the hardware that the name means now.
pub(crate) fn wished(found: &Found, wish: &TaintArguments, by: Option<String>) -> anyhow::Result<Mark> {
    let taint = parse(&wish.taint)?;
    let expires_at = expiry(wish, now())?;
    Ok(Mark {
        device: found.id.clone(),
        key: taint.key,
        value: taint.value,
        effect: taint.effect,
        identity: found.identity.clone(),
        by,
        reason: wish.reason.clone(),
        expires_at,
        careful: false,
    })
}

/// The moment of the end, in whole seconds, as the API has them.
fn expiry(wish: &TaintArguments, now: Timestamp) -> Result<Option<Timestamp>, WishError> {
    let moment = match wish.expires_in {
        Some(span) => now.checked_add(span).ok(),
        None => wish.expires_at,
    };
    let whole = |moment: Timestamp| Timestamp::from_second(moment.as_second()).unwrap_or(moment);
    match moment.map(whole) {
        Some(past) if past <= now => Err(WishError::Past(past)),
        None if wish.expires_in.is_some() => Err(WishError::Never),
        moment => Ok(moment),
    }
}

/// The one place that reads a clock: an expiry that is given as a span begins now.
#[expect(clippy::disallowed_methods, reason = "the edge: a person's span begins at this moment")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// Reads `key=value:Effect` or `key:Effect`, by the rules of the API server.
fn parse(text: &str) -> Result<DeviceTaint, WishError> {
    match syntax::parse(text, Carrier::Device)? {
        TaintArg::Add(taint) => Ok(taint),
        TaintArg::Remove { .. } => Err(WishError::Removal(text.to_owned())),
    }
}

/// Decides between creating, changing, and leaving alone.
pub(crate) fn decide_taint(mark: Mark, existing: Option<&Stored>, overwrite: bool) -> Result<Taint, WishError> {
    let Some(stored) = existing else { return Ok(Taint::Create(mark)) };
    if !stored.rule.managed {
        return Err(WishError::Foreign(stored.rule.name.clone()));
    }
    let there = &stored.rule;
    let same_value = there.taint.value == mark.value;
    if !same_value && !overwrite {
        return Err(WishError::Exists { there: there.taint.to_string() });
    }
    let same_words = there.reason == mark.reason && there.expires_at == mark.expires_at;
    let same_card = there.identity == mark.identity;
    if same_value && same_words && same_card { Ok(Taint::Nothing(there.clone())) } else { Ok(Taint::Change(mark)) }
}

/// Decides which marks to delete. `standing` are the driver's own taints, for the reason of a refusal.
pub(crate) fn decide_untaint<'a>(
    id: &DeviceId,
    text: &str,
    rules: &'a [Stored],
    standing: &[DeviceTaint],
) -> Result<Vec<&'a Stored>, WishError> {
    let (key, effect) = pattern(text)?;
    let fits = |taint: &DeviceTaint| taint.key == key && effect.as_ref().is_none_or(|effect| *effect == taint.effect);
    let ours: Vec<&Stored> = rules.iter().filter(|stored| is_mark_of(&stored.rule, id)).collect();
    let wanted: Vec<&Stored> = ours.iter().copied().filter(|stored| fits(&stored.rule.taint)).collect();
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    if let Some(taint) = standing.iter().find(|taint| fits(taint)) {
        let clears = clears(&taint.key).to_owned();
        return Err(WishError::Drivers { taint: taint.to_string(), driver: id.driver.clone(), clears });
    }
    let marks: Vec<String> = ours.iter().map(|stored| stored.rule.taint.to_string()).collect();
    let others = if marks.is_empty() { String::new() } else { format!("; its marks are {}", marks.join(", ")) };
    Err(WishError::NotThere { device: format!("{}/{}", id.pool, id.device), taint: text.to_owned(), others })
}

/// Key and effect of `key`, `key:Effect`, `key=value:Effect`, each perhaps with a trailing minus, as kubectl takes them.
fn pattern(text: &str) -> Result<(String, Option<Effect>), WishError> {
    let removal = if text.ends_with('-') { text.to_owned() } else { format!("{text}-") };
    match syntax::parse(&removal, Carrier::Device)? {
        TaintArg::Remove { key, effect } => Ok((key, effect)),
        TaintArg::Add(taint) => Ok((taint.key, Some(taint.effect))),
    }
}

fn is_mark_of(rule: &Rule, id: &DeviceId) -> bool {
    Mark::of_rule(rule).is_some_and(|mark| mark.device == *id)
}

/// What takes a taint of our driver's vocabulary away (docs/taints.md).
fn clears(key: &str) -> &'static str {
    match key.rsplit_once('/').map_or(key, |(_, name)| name) {
        "lost" => "the GPU answers again at the same PCI address, with the same identity",
        "recovery" => "NVML's recovery action reads none and a reset was seen, or stayed none for a while",
        "xid" => "the fault's time is over, or a reset or reboot was seen, by the policy's row",
        "memory" => "NVML's flag reads clear, after a reset, or never for a card that must be replaced",
        "thermal" | "link" | "fabric" => "the condition has ended and stays ended",
        "driver" => "NVML initialises again",
        "unmonitored" => "monitoring works again",
        _ => "its own rule says so",
    }
}

/// What is told after a taint was written.
pub(crate) fn tainted_text(id: &DeviceId, rule: &Rule, verb: &str) -> String {
    let until = rule.expires_at.map(|time| format!(", until {time}")).unwrap_or_default();
    format!("device {}/{} {verb}: {} (DeviceTaintRule {}{until})\n", id.pool, id.device, rule.taint, rule.name)
}

#[cfg(test)]
mod tests;
