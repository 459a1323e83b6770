//! What to do about a person's wish to taint or untaint a device: decided here, done by the caller.

use cluster::Server;
use cluster::mark::{DEFAULT_KEY, Form, Mark, Stored};
use jiff::Timestamp;
use taints::Effect;
use taints::object::{DeviceId, Rule};
use taints::syntax::{self, Carrier, SyntaxError, TaintArg};

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
    /// The key says that a driver found a fault.
    #[error(
        "{key} is a key of the driver {domain}: a mark with it would look like a fault that the driver found; use a key of your own, such as {DEFAULT_KEY}"
    )]
    DriversKey {
        /// The key.
        key: String,
        /// Its domain.
        domain: String,
    },
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
    #[error("{0} is not a mark of kubectl device; it is left alone")]
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
    /// Somebody else wrote the object that it comes from.
    #[error(
        "{taint} comes from {kind} {name}, which kubectl device did not make, and which may be meant for more than this device; to take it away: kubectl delete {} {name}",
        .kind.to_lowercase()
    )]
    NotOurs {
        /// The taint.
        taint: String,
        /// The object's kind.
        kind: String,
        /// The object's name.
        name: String,
    },
    /// Its mark is gone, and it will follow.
    #[error(
        "{taint} has no mark any more: the device's agent takes it out of its ResourceSlice when it hears of that; where it stays, look whether gpu-driver runs on the node"
    )]
    Leaving {
        /// The taint.
        taint: String,
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
#[derive(Clone, Debug)]
pub(crate) enum Taint {
    /// A new mark.
    Create(Mark),
    /// The same mark with another value, reason, expiry or card, in the form in which it is there, and what is new about it.
    Change(Form, Mark, Vec<String>),
    /// It is there as wished.
    Nothing(Stored),
}

/// The domain of the keys under which the agent tells faults (docs/taints.md), whatever name its driver was given.
const FAULTS: &str = "gpu.devicetaint.dev";

/// The mark that a person wishes, with the hardware that the name means now.
pub(crate) fn wished(found: &Found, wish: &TaintArguments, by: Option<String>) -> Result<Mark, WishError> {
    let taint = parse(&wish.taint)?;
    if let Some(domain) = drivers_domain(&taint.key, &found.id.driver) {
        return Err(WishError::DriversKey { domain: domain.to_owned(), key: taint.key });
    }
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

/// The domain of a key, where it says that a driver found a fault.
fn drivers_domain<'a>(key: &'a str, driver: &str) -> Option<&'a str> {
    let (domain, _) = key.split_once('/')?;
    (domain == FAULTS || domain == driver).then_some(domain)
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
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// Whether a mark of ours has reached the expiry that it was given, and only waits to be taken away.
pub(crate) fn is_over(rule: &Rule, now: Timestamp) -> bool {
    rule.managed && rule.expires_at.is_some_and(|end| end <= now)
}

/// Reads `key=value:Effect` or `key:Effect`, by the rules of the API server.
pub(crate) fn parse(text: &str) -> Result<taints::Taint, WishError> {
    match syntax::parse(text, Carrier::Device)? {
        TaintArg::Add(taint) => Ok(taint),
        TaintArg::Remove { .. } => Err(WishError::Removal(text.to_owned())),
    }
}

/// Decides between creating, changing, and leaving alone. Reason and expiry that are not given stay as they are.
pub(crate) fn decide_taint(mark: Mark, existing: Option<&Stored>, overwrite: bool) -> Result<Taint, WishError> {
    let Some(stored) = existing else { return Ok(Taint::Create(mark)) };
    let there = &stored.rule;
    if !there.managed {
        return Err(WishError::Foreign(format!("{} {}", stored.form, there.name)));
    }
    if there.taint.value != mark.value && !overwrite {
        return Err(WishError::Exists { there: there.taint.to_string() });
    }
    let mark = Mark {
        reason: mark.reason.or_else(|| there.reason.clone()),
        expires_at: mark.expires_at.or(there.expires_at),
        careful: there.careful,
        ..mark
    };
    let news = news(there, &mark);
    if news.is_empty() { Ok(Taint::Nothing(stored.clone())) } else { Ok(Taint::Change(stored.form, mark, news)) }
}

/// What differs between the mark that is there and the one that is wished, in words.
fn news(there: &Rule, mark: &Mark) -> Vec<String> {
    let none = || "none".to_owned();
    let quoted = |text: &Option<String>| text.as_ref().map_or_else(none, |text| format!("\"{text}\""));
    let moment = |time: Option<Timestamp>| time.map_or_else(none, |time| time.to_string());
    let card = |uuid: &Option<String>| uuid.clone().unwrap_or_else(|| "unknown".to_owned());
    let mut news = Vec::new();
    if there.taint.value != mark.value {
        news.push(format!("value was \"{}\"", there.taint.value));
    }
    if there.reason != mark.reason {
        news.push(format!("reason was {}", quoted(&there.reason)));
    }
    if there.expires_at != mark.expires_at {
        news.push(format!("expiry was {}", moment(there.expires_at)));
    }
    if there.identity != mark.identity {
        news.push(format!("card was {}", card(&there.identity.uuid)));
    }
    news
}

/// Decides which marks to delete. `found` is the device as its slice shows it, for the reason of a refusal.
pub(crate) fn decide_untaint<'a>(
    id: &DeviceId,
    text: &str,
    rules: &'a [Stored],
    found: Option<&Found>,
) -> Result<Vec<&'a Stored>, WishError> {
    let (key, effect) = pattern(text)?;
    let fits = |taint: &taints::Taint| taint.key == key && effect.as_ref().is_none_or(|effect| *effect == taint.effect);
    let ours: Vec<&Stored> = rules.iter().filter(|stored| is_mark_of(&stored.rule, id)).collect();
    let wanted: Vec<&Stored> = ours.iter().copied().filter(|stored| fits(&stored.rule.taint)).collect();
    if !wanted.is_empty() {
        return Ok(wanted);
    }
    let foreign = |stored: &&Stored| {
        let rule = &stored.rule;
        !rule.managed && fits(&rule.taint) && rule.selector.as_ref().is_some_and(|selector| selector.matches(id))
    };
    if let Some(Stored { form, rule, .. }) = rules.iter().find(foreign) {
        return Err(WishError::NotOurs {
            taint: rule.taint.to_string(),
            kind: form.to_string(),
            name: rule.name.clone(),
        });
    }
    if let Some((found, taint)) = found.and_then(|found| Some((found, found.taints.iter().find(|taint| fits(taint))?)))
    {
        return Err(standing(found, taint));
    }
    let marks: Vec<String> = ours.iter().map(|stored| stored.rule.taint.to_string()).collect();
    let others = if marks.is_empty() {
        "; it has no mark at all".to_owned()
    } else {
        format!("; its marks are {}", marks.join(", "))
    };
    Err(WishError::NotThere { device: format!("{}/{}", id.pool, id.device), taint: text.to_owned(), others })
}

/// Why a taint of the slice that no mark stands for is left alone. A driver that follows marks has no keys but its own.
fn standing(found: &Found, taint: &taints::Taint) -> WishError {
    let (text, driver) = (taint.to_string(), found.id.driver.clone());
    if found.follows_marks && drivers_domain(&taint.key, &driver).is_none() {
        return WishError::Leaving { taint: text };
    }
    WishError::Drivers { taint: text, driver, clears: clears(&taint.key).to_owned() }
}

/// Key and effect of `key`, `key:Effect`, `key=value:Effect`, each perhaps with a trailing minus, as kubectl takes them.
pub(crate) fn pattern(text: &str) -> Result<(String, Option<Effect>), WishError> {
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

/// What is told after a taint was written, or found as it is wished.
pub(crate) fn tainted_text(server: &Server, stored: &Stored, verb: &str, news: &[String]) -> String {
    let rule = &stored.rule;
    let until = rule.expires_at.map(|time| format!(", until {time}")).unwrap_or_default();
    let why = match (stored.form, server.rules) {
        (Form::Rule(_), _) => "",
        (Form::Mark, Some(_)) => ", which the device's agent publishes",
        (Form::Mark, None) => ", which the device's agent publishes: this API server serves no DeviceTaintRule",
    };
    let news: String = news.iter().map(|new| format!("; {new}")).collect();
    format!("{verb}: {} ({} {}{until}{why}){news}", rule.taint, stored.form, rule.name)
}

/// What is told after a mark was deleted.
pub(crate) fn untainted_text(stored: &Stored) -> String {
    let how = match stored.form {
        Form::Rule(_) => "",
        Form::Mark => " (the device's agent takes it out of its ResourceSlice)",
    };
    format!("untainted: {}{how}", stored.rule.taint)
}

#[cfg(test)]
mod tests;
