//! A file that is no policy, in words: the reader knows places and types, and a person wants the field and what may stand there.

use cluster::yaml;

use super::file::PolicyError;

/// What is wrong with the form of this file.
pub(super) fn complaint(file: &str, text: &str, error: &serde_saphyr::Error) -> PolicyError {
    if is_empty(text) {
        let message = "the file holds nothing; write at least `version: 1`, or leave --policy away".to_owned();
        return PolicyError::Form { place: file.to_owned(), message };
    }
    let place = error.location().map(|place| (place.line(), place.column()));
    let said = yaml::complaint(&error.to_string(), place);
    match place {
        Some((line, column)) => {
            PolicyError::Form { place: format!("{file}, line {line}"), message: in_words(&said, text, line, column) }
        }
        None => PolicyError::Form { place: file.to_owned(), message: said },
    }
}

/// Only comments, and the line that begins a document.
fn is_empty(text: &str) -> bool {
    text.lines().map(str::trim).all(|line| line.is_empty() || line.starts_with('#') || line == "---")
}

fn in_words(said: &str, text: &str, line: u64, column: u64) -> String {
    if let Some(key) = said.strip_prefix("duplicate mapping key: ").and_then(|rest| rest.split(',').next()) {
        return format!("{key}: stands twice in the same table; write one row");
    }
    if !["expected ", "invalid "].iter().any(|start| said.starts_with(start)) {
        return said.to_owned();
    }
    match field_at(text, line, column) {
        Some(field) => format!("{field}: write {}", allowed(&field)),
        None => said.to_owned(),
    }
}

/// The name before the last colon before this place, be it on the same line or above.
fn field_at(text: &str, line: u64, column: u64) -> Option<String> {
    let (line, column) = (usize::try_from(line).ok()?, usize::try_from(column).ok()?);
    let mut before: Vec<String> = text.lines().take(line).map(ToOwned::to_owned).collect();
    if let Some(last) = before.last_mut().filter(|_| text.lines().count() >= line) {
        *last = last.chars().take(column.saturating_sub(1)).collect();
    }
    let named = before.iter().rev().filter(|line| !line.trim_start().starts_with('#')).find_map(|line| {
        let (head, _) = line.rsplit_once(':')?;
        Some(head.rsplit(|c: char| " {,\t".contains(c)).next()?.trim_matches(['"', '\'']).to_owned())
    });
    named.filter(|name| !name.is_empty())
}

/// What may stand in a field. What is none of ours is the name of a row.
fn allowed(field: &str) -> &'static str {
    match field {
        "version" => "the whole number 1",
        "xid" | "signals" => {
            "a table with a row a line, such as `79: {effect: NoSchedule, clear: reset}` or `lost: {effect: NoExecute}`"
        }
        "products" => "a list, each entry with `product` and rows",
        "product" => "a product name in which `*` stands for any text",
        "effect" | "effectIfActionReadable" => "Ignore, None, NoSchedule or NoExecute",
        "clear" => "`timer 1h`, `ends`, `ends 10m`, `flag`, `recovery-none`, `reset`, `reboot` or `manual`",
        "repeat" => "a table with `times`, `within` and `effect`",
        "times" => "a whole number of at least 2",
        "within" => "a time, such as 90s, 10m or 24h",
        "wholeCard" => "true or false",
        "cancels" => "a list of XID codes, such as [13, 31]",
        "key" | "value" | "note" => "a text",
        _ => "a row, such as {effect: NoSchedule, clear: reset}",
    }
}
