//! The policy file: YAML of a strict form. Every complaint names file, line and field.

use std::collections::BTreeMap;

use jiff::SignedDuration;
use serde::Deserialize;
use serde_saphyr::Spanned;
use taints::Effect;

use super::form;
use super::{Clear, CodeSet, KEYS, ProductTable, Repeat, Response, Row, Table};

/// Version of the form that this program reads.
const VERSION: u32 = 1;
/// Label values are at most this long (Kubernetes label syntax); a taint's value is one.
const VALUE_LIMIT: usize = 63;

/// The longest window in which repeats are counted: what happened longer ago is forgotten.
pub const LONGEST_REPEAT: SignedDuration = SignedDuration::from_hours(7 * 24);

/// Why a policy file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PolicyError {
    /// Not YAML, or not of this form: an unknown field, a missing one, a wrong type.
    #[error("{place}: {message}")]
    Form {
        /// The file, with the line where that is known.
        place: String,
        /// The field, what is wrong, and what to write.
        message: String,
    },
    /// A value that means nothing.
    #[error("{file}, line {line}: {field}: {message}")]
    Value {
        /// The file.
        file: String,
        /// Line, counted from 1.
        line: u64,
        /// Path of the field, such as `xid.79.effect`.
        field: String,
        /// What is wrong and what to write.
        message: String,
    },
    /// A row that, with all layers merged, cannot work.
    #[error("{origin}: {message}")]
    Row {
        /// File, line and row that gave the last word.
        origin: String,
        /// What is wrong and what to write.
        message: String,
    },
}

/// Whether a row is about events or about a state that is read again and again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// Something that happened; nobody tells when it is over.
    Event,
    /// Something that can be read.
    State,
}

/// The fields that one row of one file gives.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Patch {
    pub(super) key: Option<String>,
    pub(super) value: Option<String>,
    pub(super) response: Option<Response>,
    pub(super) if_action_readable: Option<Response>,
    pub(super) clear: Option<Clear>,
    pub(super) repeat: Option<Repeat>,
    pub(super) whole_card: Option<bool>,
    pub(super) cancels: Option<Vec<u64>>,
    pub(super) note: Option<String>,
    pub(super) origin: String,
}

/// A file, read and checked row by row.
#[derive(Debug)]
pub(super) struct Parsed {
    pub(super) table: Table,
    pub(super) products: Vec<ProductTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct FileForm {
    version: Spanned<u32>,
    #[serde(default)]
    xid: BTreeMap<String, Spanned<RowForm>>,
    #[serde(default)]
    signals: BTreeMap<String, Spanned<RowForm>>,
    #[serde(default)]
    products: Vec<ProductForm>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ProductForm {
    product: Spanned<String>,
    #[serde(default)]
    xid: BTreeMap<String, Spanned<RowForm>>,
    #[serde(default)]
    signals: BTreeMap<String, Spanned<RowForm>>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RowForm {
    key: Option<Spanned<String>>,
    value: Option<Spanned<String>>,
    effect: Option<Spanned<String>>,
    effect_if_action_readable: Option<Spanned<String>>,
    clear: Option<Spanned<String>>,
    repeat: Option<RepeatForm>,
    whole_card: Option<bool>,
    cancels: Option<Vec<u64>>,
    note: Option<String>,
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RepeatForm {
    times: Spanned<u32>,
    within: Spanned<String>,
    effect: Spanned<String>,
    clear: Option<Spanned<String>>,
}

/// Reads a file's text.
pub(super) fn parse(file: &str, text: &str) -> Result<Parsed, PolicyError> {
    let form: FileForm = serde_saphyr::from_str(text).map_err(|error| form::complaint(file, text, &error))?;
    let reader = Reader { file };
    if form.version.value != VERSION {
        let message = format!("this program reads version {VERSION}");
        return Err(reader.error(&form.version, "version", message));
    }
    let table = reader.table("", form.xid, form.signals)?;
    let mut products = Vec::new();
    for entry in form.products {
        if entry.product.value.trim().is_empty() {
            return Err(reader.error(
                &entry.product,
                "products.product",
                "name a product, `*` stands for any text".into(),
            ));
        }
        let prefix = format!("products[{}].", entry.product.value);
        let table = reader.table(&prefix, entry.xid, entry.signals)?;
        products.push(ProductTable { product: entry.product.value, table });
    }
    Ok(Parsed { table, products })
}

struct Reader<'a> {
    file: &'a str,
}

impl Reader<'_> {
    fn error<T>(&self, at: &Spanned<T>, field: impl Into<String>, message: String) -> PolicyError {
        PolicyError::Value { file: self.file.to_owned(), line: at.referenced.line(), field: field.into(), message }
    }

    fn table(
        &self,
        prefix: &str,
        xid: BTreeMap<String, Spanned<RowForm>>,
        signals: BTreeMap<String, Spanned<RowForm>>,
    ) -> Result<Table, PolicyError> {
        let mut table = Table::default();
        for (name, form) in xid {
            let field = format!("{prefix}xid.{name}");
            let codes: CodeSet = name.parse().map_err(|message| self.error(&form, &field, message))?;
            let patch = self.patch(&field, &form)?;
            match codes {
                CodeSet::Unknown => table.unknown_xid = Some(patch),
                CodeSet::Codes(codes) => self.insert(&mut table, &codes, &patch, &form, &field)?,
            }
        }
        for (name, form) in signals {
            let field = format!("{prefix}signals.{name}");
            let key = name.split_once('/').map_or(name.as_str(), |(key, _)| key);
            self.known_key(key, &form, &field)?;
            if form.value.key.is_some() || form.value.value.is_some() || form.value.cancels.is_some() {
                return Err(self.error(&form, field, "key, value and cancels belong to XID rows only".into()));
            }
            table.signals.insert(name, self.patch(&field, &form)?);
        }
        Ok(table)
    }

    /// Two rows of one file for the same code would make the order of the file matter.
    fn insert(
        &self,
        table: &mut Table,
        codes: &[u64],
        patch: &Patch,
        form: &Spanned<RowForm>,
        field: &str,
    ) -> Result<(), PolicyError> {
        for code in codes {
            if table.xid.insert(*code, patch.clone()).is_some() {
                return Err(self.error(form, field, format!("code {code} has another row in the same table")));
            }
        }
        Ok(())
    }

    fn patch(&self, field: &str, form: &Spanned<RowForm>) -> Result<Patch, PolicyError> {
        let row = &form.value;
        if let Some(key) = &row.key {
            self.known_key(&key.value, key, &format!("{field}.key"))?;
        }
        if let Some(value) = row.value.as_ref().filter(|value| !is_label_value(&value.value)) {
            let message = format!("`{}` is no label value: letters, digits, `-`, `_`, `.`, at most 63", value.value);
            return Err(self.error(value, format!("{field}.value"), message));
        }
        Ok(Patch {
            key: row.key.as_ref().map(|key| key.value.clone()),
            value: row.value.as_ref().map(|value| value.value.clone()),
            response: self.optional(&format!("{field}.effect"), row.effect.as_ref(), response)?,
            if_action_readable: self.optional(
                &format!("{field}.effectIfActionReadable"),
                row.effect_if_action_readable.as_ref(),
                response,
            )?,
            clear: self.optional(&format!("{field}.clear"), row.clear.as_ref(), clear)?,
            repeat: row.repeat.as_ref().map(|repeat| self.repeat(&format!("{field}.repeat"), repeat)).transpose()?,
            whole_card: row.whole_card,
            cancels: row.cancels.clone(),
            note: row.note.clone(),
            origin: format!("{}, line {}: {field}", self.file, form.referenced.line()),
        })
    }

    fn repeat(&self, field: &str, form: &RepeatForm) -> Result<Repeat, PolicyError> {
        if form.times.value < 2 {
            return Err(self.error(&form.times, format!("{field}.times"), "a repeat begins at 2".into()));
        }
        let within = self.required(&format!("{field}.within"), &form.within, duration)?;
        if within > LONGEST_REPEAT {
            let message = format!("events are remembered for {LONGEST_REPEAT:#} at most");
            return Err(self.error(&form.within, format!("{field}.within"), message));
        }
        Ok(Repeat {
            times: form.times.value,
            within,
            response: self.required(&format!("{field}.effect"), &form.effect, response)?,
            clear: self.optional(&format!("{field}.clear"), form.clear.as_ref(), clear)?,
        })
    }

    fn required<T>(
        &self,
        field: &str,
        text: &Spanned<String>,
        read: fn(&str) -> Result<T, String>,
    ) -> Result<T, PolicyError> {
        read(&text.value).map_err(|message| self.error(text, field, message))
    }

    fn optional<T>(
        &self,
        field: &str,
        text: Option<&Spanned<String>>,
        read: fn(&str) -> Result<T, String>,
    ) -> Result<Option<T>, PolicyError> {
        text.map(|text| self.required(field, text, read)).transpose()
    }

    fn known_key<T>(&self, key: &str, at: &Spanned<T>, field: &str) -> Result<(), PolicyError> {
        match KEYS.contains(&key) {
            true => Ok(()),
            false => Err(self.error(at, field, format!("`{key}` is no key; there are {}", KEYS.join(", ")))),
        }
    }
}

fn response(text: &str) -> Result<Response, String> {
    match text {
        "Ignore" => Ok(Response::Ignore),
        "None" => Ok(Response::Taint(Effect::None)),
        "NoSchedule" => Ok(Response::Taint(Effect::NoSchedule)),
        "NoExecute" => Ok(Response::Taint(Effect::NoExecute)),
        other => Err(format!("`{other}` is no effect; write Ignore, None, NoSchedule or NoExecute")),
    }
}

fn clear(text: &str) -> Result<Clear, String> {
    let mut words = text.split_whitespace();
    let rule = match (words.next(), words.next(), words.next()) {
        (Some("timer"), Some(after), None) => Clear::Timer(duration(after)?),
        (Some("ends"), None, None) => Clear::Ends(SignedDuration::ZERO),
        (Some("ends"), Some(hold), None) => Clear::Ends(duration(hold)?),
        (Some("flag"), None, None) => Clear::Flag,
        (Some("recovery-none"), None, None) => Clear::RecoveryNone,
        (Some("reset"), None, None) => Clear::Reset,
        (Some("reboot"), None, None) => Clear::Reboot,
        (Some("manual"), None, None) => Clear::Manual,
        _ => {
            return Err(format!(
                "`{text}` is no rule; write `timer 1h`, `ends`, `ends 10m`, `flag`, `recovery-none`, `reset`, `reboot` or `manual`"
            ));
        }
    };
    Ok(rule)
}

/// A positive time such as `90s`, `10m` or `24h`.
fn duration(text: &str) -> Result<SignedDuration, String> {
    match text.parse::<SignedDuration>() {
        Ok(duration) if duration.is_positive() => Ok(duration),
        Ok(_) => Err(format!("`{text}` is not longer than zero")),
        Err(_) => Err(format!("`{text}` is no duration; write 90s, 10m or 24h")),
    }
}

fn is_label_value(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    let ends = |byte: Option<u8>| byte.is_none_or(|byte| byte.is_ascii_alphanumeric());
    text.len() <= VALUE_LIMIT && text.bytes().all(inner) && ends(text.bytes().next()) && ends(text.bytes().last())
}

/// What a merged row must have: an exit when it isolates, and one that can come true.
pub(super) fn check_row(row: &Row, source: Source) -> Result<(), PolicyError> {
    let refuse = |message: String| Err(PolicyError::Row { origin: row.origin.clone(), message });
    let repeat = row.repeat.as_ref();
    let softer = row.if_action_readable.as_ref();
    let plain = std::iter::once(&row.response).chain(softer).map(|response| (response, row.clear));
    let again = repeat.map(|repeat| (&repeat.response, repeat.clear.or(row.clear)));
    for (response, clear) in plain.chain(again) {
        if response.isolates() && clear.is_none() {
            return refuse(format!("effect {response} keeps work away and has no exit; add `clear`"));
        }
        if let Some(problem) = clear.and_then(|clear| impossible(clear, &row.key, source)) {
            return refuse(problem);
        }
    }
    Ok(())
}

/// Why a rule can never come true for this kind of signal.
fn impossible(clear: Clear, key: &str, source: Source) -> Option<String> {
    match (clear, source) {
        (Clear::Ends(_), Source::Event) => {
            Some("an event has no end that could be seen; use another `clear`".to_owned())
        }
        (Clear::Timer(_), Source::State) => {
            Some("a state is read again and again, a timer would clear what is still there; use `ends`".to_owned())
        }
        (Clear::Flag, _) if key != "memory" => Some(format!("`{key}` has no flag in the hardware; only memory has")),
        _ => None,
    }
}
