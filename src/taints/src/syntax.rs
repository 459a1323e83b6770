//! The way people write taints on a command line, as `kubectl taint` has it: `key=value:Effect` and `key:Effect` add,
//! `key-`, `key:Effect-` and `key=value:Effect-` remove.

use crate::taint::{Effect, Taint};
use crate::validate::{is_label_key, is_label_value};

/// One argument: a taint to add, or taints to remove.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaintArg {
    /// Add this taint, without a time.
    Add(Taint),
    /// Remove the taint of a key with one effect, or with every effect. A value that was given is not looked at.
    Remove {
        /// The key.
        key: String,
        /// The effect; absent for every effect.
        effect: Option<Effect>,
    },
}

/// What may carry the taint: it decides which effects there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Carrier {
    /// A node: `NoSchedule`, `PreferNoSchedule`, `NoExecute`.
    Node,
    /// A device: `None`, `NoSchedule`, `NoExecute`.
    Device,
}

/// Why an argument is not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SyntaxError {
    /// Nothing to add without an effect.
    #[error(
        "{arg:?} has no effect: write it as key=value:Effect or key:Effect to add a taint, or as {arg}- to remove one"
    )]
    NoEffect {
        /// The argument.
        arg: String,
    },
    /// More parts than a taint has.
    #[error("{arg:?} is not a taint: write it as key=value:Effect, key:Effect or, to remove, key- or key:Effect-")]
    Form {
        /// The argument.
        arg: String,
    },
    /// The key is no label key.
    #[error(
        "{key:?} in {arg:?} is not a label key: an optional DNS prefix and a slash, then at most 63 letters, digits, '-', '_' \
         and '.', such as devicetaint.dev/maintenance"
    )]
    Key {
        /// The argument.
        arg: String,
        /// The key.
        key: String,
    },
    /// The value is no label value.
    #[error(
        "{value:?} in {arg:?} is not a label value: at most 63 letters, digits, '-', '_' and '.', alphanumeric at both ends"
    )]
    Value {
        /// The argument.
        arg: String,
        /// The value.
        value: String,
    },
    /// There is no such effect.
    #[error("{effect:?} in {arg:?} is not an effect here: use one of {known}")]
    Effect {
        /// The argument.
        arg: String,
        /// The effect.
        effect: String,
        /// The effects that there are.
        known: &'static str,
    },
    /// Two arguments speak of the same taint.
    #[error("{arg:?} names a taint, by key and effect, that another argument names as well: give it once")]
    Twice {
        /// The later argument.
        arg: String,
    },
}

impl Carrier {
    const fn known(self) -> &'static str {
        match self {
            Self::Node => "NoSchedule, PreferNoSchedule, NoExecute",
            Self::Device => "None, NoSchedule, NoExecute",
        }
    }

    fn effect(self, arg: &str, text: &str) -> Result<Effect, SyntaxError> {
        let effect = Effect::from(text);
        let fine = match effect {
            Effect::NoSchedule | Effect::NoExecute => true,
            Effect::PreferNoSchedule => self == Self::Node,
            Effect::None => self == Self::Device,
            Effect::Other(_) => false,
        };
        if fine {
            return Ok(effect);
        }
        Err(SyntaxError::Effect { arg: arg.to_owned(), effect: text.to_owned(), known: self.known() })
    }
}

/// Reads one argument.
///
/// # Errors
///
/// What is wrong with it, and how it is written.
pub fn parse(arg: &str, carrier: Carrier) -> Result<TaintArg, SyntaxError> {
    match arg.strip_suffix('-') {
        Some(removed) => {
            let (key, _, effect) = parts(arg, removed, carrier)?;
            Ok(TaintArg::Remove { key, effect })
        }
        None => {
            let (key, value, effect) = parts(arg, arg, carrier)?;
            let effect = effect.ok_or_else(|| SyntaxError::NoEffect { arg: arg.to_owned() })?;
            Ok(TaintArg::Add(Taint { key, value, effect, time_added: None }))
        }
    }
}

/// Reads all arguments of a command; the same key and effect may be named once.
///
/// # Errors
///
/// The first argument that is not understood, or that repeats another.
pub fn parse_all<'a>(args: impl IntoIterator<Item = &'a str>, carrier: Carrier) -> Result<Vec<TaintArg>, SyntaxError> {
    let mut parsed: Vec<TaintArg> = Vec::new();
    for arg in args {
        let next = parse(arg, carrier)?;
        if parsed.iter().any(|other| other.overlaps(&next)) {
            return Err(SyntaxError::Twice { arg: arg.to_owned() });
        }
        parsed.push(next);
    }
    Ok(parsed)
}

impl TaintArg {
    fn names(&self) -> (&str, Option<&Effect>) {
        match self {
            Self::Add(taint) => (&taint.key, Some(&taint.effect)),
            Self::Remove { key, effect } => (key, effect.as_ref()),
        }
    }

    fn overlaps(&self, other: &Self) -> bool {
        let ((key, effect), (other_key, other_effect)) = (self.names(), other.names());
        key == other_key && effect.zip(other_effect).is_none_or(|(effect, other)| effect == other)
    }
}

fn parts(arg: &str, text: &str, carrier: Carrier) -> Result<(String, String, Option<Effect>), SyntaxError> {
    let form = || SyntaxError::Form { arg: arg.to_owned() };
    let (pair, effect) = match text.split_once(':') {
        Some((pair, effect)) => (pair, Some(carrier.effect(arg, effect)?)),
        None => (text, None),
    };
    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
    if value.contains('=') {
        return Err(form());
    }
    if !is_label_key(key) {
        return Err(SyntaxError::Key { arg: arg.to_owned(), key: key.to_owned() });
    }
    if !is_label_value(value) {
        return Err(SyntaxError::Value { arg: arg.to_owned(), value: value.to_owned() });
    }
    // `key=value-` would remove every effect of the key, whatever its value: kubectl refuses it as well.
    if effect.is_none() && pair.contains('=') && arg.ends_with('-') {
        return Err(form());
    }
    Ok((key.to_owned(), value.to_owned(), effect))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(arg: &str) -> Result<TaintArg, SyntaxError> {
        parse(arg, Carrier::Node)
    }

    #[test]
    fn taints_are_added_with_and_without_a_value() {
        let Ok(TaintArg::Add(taint)) = node("rack=r7:NoSchedule") else { panic!("not added") };
        assert_eq!((taint.key.as_str(), taint.value.as_str(), taint.effect), ("rack", "r7", Effect::NoSchedule));
        let Ok(TaintArg::Add(taint)) = node("example.test/rack:NoExecute") else { panic!("not added") };
        assert_eq!((taint.key.as_str(), taint.value.as_str()), ("example.test/rack", ""));
    }

    #[test]
    fn taints_are_removed_by_key_or_by_key_and_effect() {
        let removed = |effect| Ok(TaintArg::Remove { key: "rack".into(), effect });
        assert_eq!(node("rack-"), removed(None));
        assert_eq!(node("rack:NoSchedule-"), removed(Some(Effect::NoSchedule)));
        assert_eq!(node("rack=zzz:NoSchedule-"), removed(Some(Effect::NoSchedule)));
    }

    #[test]
    fn what_is_not_a_taint_is_refused_with_the_form_that_would_be() {
        for arg in ["rack=r7", "rack"] {
            assert!(matches!(node(arg), Err(SyntaxError::NoEffect { .. })), "{arg}");
        }
        for arg in ["a=b=c:NoSchedule", "a=b-"] {
            assert!(matches!(node(arg), Err(SyntaxError::Form { .. })), "{arg}");
        }
        for arg in ["", "-", ":NoSchedule", "a/b/c:NoSchedule", "=v:NoSchedule"] {
            assert!(matches!(node(arg), Err(SyntaxError::Key { .. })), "{arg}");
        }
        for arg in ["a:", "a:noexecute", "a:None", "a:b:NoSchedule", "a:NoSchedule:NoExecute"] {
            assert!(matches!(node(arg), Err(SyntaxError::Effect { .. })), "{arg}");
        }
        assert!(matches!(node("a=-5:NoSchedule"), Err(SyntaxError::Value { .. })));
    }

    #[test]
    fn devices_know_none_and_nodes_prefer() {
        assert!(parse("a:None", Carrier::Device).is_ok());
        assert!(parse("a:PreferNoSchedule", Carrier::Device).is_err());
        assert!(node("a:PreferNoSchedule").is_ok());
    }

    #[test]
    fn one_command_names_a_taint_once() {
        let all = |args: &[&str]| parse_all(args.iter().copied(), Carrier::Node);
        assert!(all(&["a=1:NoSchedule", "a=1:NoExecute", "b-"]).is_ok());
        assert!(all(&["a=1:NoSchedule", "a=2:NoSchedule"]).is_err());
        assert!(all(&["a=1:NoSchedule", "a-"]).is_err());
    }

    #[test]
    fn a_taint_reads_back_as_it_was_written() {
        for arg in ["rack=r7:NoSchedule", "rack:NoExecute"] {
            let Ok(TaintArg::Add(taint)) = node(arg) else { panic!("not added") };
            assert_eq!(taint.to_string(), arg);
        }
    }
}
