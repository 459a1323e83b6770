//! One row of the policy, merged from its layers: what a signal means and how its finding goes away.

use std::fmt;

use jiff::SignedDuration;
use serde::{Deserialize, Serialize};
use taints::Effect;

use super::file::Patch;

/// What an open finding does. Ordered from harmless to severe.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Response {
    /// It is counted and shown, without a taint.
    Ignore,
    /// It makes a taint with this effect.
    Taint(Effect),
}

impl Response {
    /// The taint's effect, where there is a taint.
    #[must_use]
    pub fn effect(&self) -> Option<&Effect> {
        match self {
            Self::Ignore => None,
            Self::Taint(effect) => Some(effect),
        }
    }

    /// Whether it keeps new work away.
    #[must_use]
    pub fn isolates(&self) -> bool {
        self.effect().is_some_and(Effect::blocks_new_work)
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ignore => f.write_str("Ignore"),
            Self::Taint(effect) => effect.fmt(f),
        }
    }
}

/// How a finding goes away. Ordered from easy to hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Clear {
    /// So long after the last event: the fault was the application's, and the next one is fine.
    Timer(SignedDuration),
    /// The condition ended, and stayed ended for so long.
    Ends(SignedDuration),
    /// The flag in the hardware reads clear, after it was seen set or after a reset was seen.
    Flag,
    /// The driver asks for no recovery action, and a reset was seen or it stayed so for the quiet period.
    RecoveryNone,
    /// A reset, driver reload or reboot was seen, and nothing pending is left.
    Reset,
    /// The node was rebooted, and the card answers with nothing wrong.
    Reboot,
    /// Only a person clears it.
    Manual,
}

impl fmt::Display for Clear {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timer(after) => write!(f, "{after:#} after the last event"),
            Self::Ends(hold) if hold.is_zero() => f.write_str("when the condition ends"),
            Self::Ends(hold) => write!(f, "when the condition has ended for {hold:#}"),
            Self::Flag => f.write_str("when the hardware's flag reads clear"),
            Self::RecoveryNone => {
                f.write_str("when the driver asks for no recovery action and a reset was seen, or it stayed so for the quiet period")
            }
            Self::Reset => f.write_str("when a reset, driver reload or reboot was seen and nothing pending is left"),
            Self::Reboot => f.write_str("when the node was rebooted and the card answers"),
            Self::Manual => f.write_str("when a person clears it"),
        }
    }
}

/// A habit is worse than a single event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeat {
    /// So many events ...
    pub times: u32,
    /// ... within this time ...
    pub within: SignedDuration,
    /// ... have this response.
    pub response: Response,
    /// How the finding goes then, if not as the row says.
    pub clear: Option<Clear>,
}

/// What one code or signal means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Key of the taint, without its domain.
    pub key: String,
    /// Value of the taint.
    pub value: String,
    /// What an open finding does.
    pub response: Response,
    /// The same, where the driver can be asked for its recovery action.
    pub if_action_readable: Option<Response>,
    /// How it goes; `None` only where nothing is isolated.
    pub clear: Option<Clear>,
    /// When it gets worse.
    pub repeat: Option<Repeat>,
    /// It concerns the whole card, even when the event names a partition.
    pub whole_card: bool,
    /// XID codes whose findings on the same card it withdraws.
    pub cancels: Vec<u64>,
    /// What it is, for people.
    pub note: String,
    /// Which rows of which files decided, for `explain`.
    pub origin: String,
}

impl Row {
    /// Lays patches over each other, from weak to strong. Without any, the row is counted and no more.
    pub(super) fn merged<'a>(key: &str, value: &str, patches: impl Iterator<Item = &'a Patch>) -> Self {
        let mut row = Self {
            key: key.to_owned(),
            value: value.to_owned(),
            response: Response::Ignore,
            if_action_readable: None,
            clear: None,
            repeat: None,
            whole_card: false,
            cancels: Vec::new(),
            note: String::new(),
            origin: String::new(),
        };
        for patch in patches {
            row.lay(patch);
        }
        row
    }

    fn lay(&mut self, patch: &Patch) {
        fn set<T: Clone>(target: &mut T, value: Option<&T>) {
            if let Some(value) = value {
                target.clone_from(value);
            }
        }
        set(&mut self.key, patch.key.as_ref());
        set(&mut self.value, patch.value.as_ref());
        set(&mut self.whole_card, patch.whole_card.as_ref());
        set(&mut self.cancels, patch.cancels.as_ref());
        set(&mut self.note, patch.note.as_ref());
        if let Some(response) = &patch.response {
            self.response = response.clone();
            // A plain effect of a stronger layer means what it says: it must not be softened by a weaker layer's condition.
            self.if_action_readable = None;
        }
        if patch.if_action_readable.is_some() {
            self.if_action_readable.clone_from(&patch.if_action_readable);
        }
        if patch.clear.is_some() {
            self.clear = patch.clear;
        }
        if patch.repeat.is_some() {
            self.repeat.clone_from(&patch.repeat);
        }
        self.origin.clone_from(&patch.origin);
    }

    /// The response to this many events within the row's window, on a card whose recovery action can or cannot be read.
    #[must_use]
    pub fn response_to(&self, events: u32, action_readable: bool) -> (Response, Option<Clear>) {
        if let Some(repeat) = self.repeat.as_ref().filter(|repeat| events >= repeat.times) {
            return (repeat.response.clone(), repeat.clear.or(self.clear));
        }
        let response = match &self.if_action_readable {
            Some(softer) if action_readable => softer.clone(),
            _ => self.response.clone(),
        };
        (response, self.clear)
    }
}
