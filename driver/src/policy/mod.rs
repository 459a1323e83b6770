//! What a signal or an XID code means: data, not code.
//!
//! The shipped table (`driver/policy/default.yaml`) and the operator's file (`--policy`) flow in through [`Policy::default_table`]
//! and [`Policy::with_file`]; out comes one [`Row`] for a code or a signal on a card of a given product. The file's rows replace
//! field by field, its `products` after its plain rows. A table with a taint that isolates and can never go is refused.

mod codes;
mod file;
mod form;
mod row;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

pub use codes::CodeSet;
pub use file::{LONGEST_REPEAT, PolicyError};
use file::{Patch, Source};
pub use row::{Clear, Repeat, Response, Row};

/// Keys of the taint vocabulary, without their domain. Fixed and few, so that tolerations can name them.
pub const KEYS: [&str; 9] = ["lost", "recovery", "memory", "xid", "driver", "fabric", "link", "thermal", "unmonitored"];

/// The shipped table's text.
const DEFAULT: &str = include_str!("../../policy/default.yaml");

/// One layer of rows: of a file, or of a product within a file.
#[derive(Clone, Debug, Default, PartialEq)]
struct Table {
    xid: BTreeMap<u64, Patch>,
    unknown_xid: Option<Patch>,
    signals: BTreeMap<String, Patch>,
}

/// Rows for the products whose name matches.
#[derive(Clone, Debug, PartialEq)]
struct ProductTable {
    product: String,
    table: Table,
}

/// The whole policy: the shipped table, with an operator's file on top where one was given.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// From weak to strong.
    layers: Vec<Table>,
    products: Vec<ProductTable>,
}

impl Policy {
    /// The shipped table.
    ///
    /// # Errors
    /// When the table that was compiled in is not valid; a test keeps that from being shipped.
    pub fn default_table() -> Result<Self, PolicyError> {
        let empty = Self { layers: Vec::new(), products: Vec::new() };
        empty.with_file("the shipped policy", DEFAULT)
    }

    /// This policy with the operator's file on top. `name` is the file's name for messages, `text` its content.
    ///
    /// # Errors
    /// A text that is not YAML of this form, an unknown field, an effect, key or duration that does not exist, or a row that
    /// isolates without an exit: each with file, line and field.
    pub fn with_file(&self, name: &str, text: &str) -> Result<Self, PolicyError> {
        let parsed = file::parse(name, text)?;
        let mut merged = self.clone();
        merged.layers.push(parsed.table);
        merged.products.extend(parsed.products);
        merged.check()?;
        Ok(merged)
    }

    /// The row of an XID code on a card of this product. A code that no table lists has the row `unknown`.
    #[must_use]
    pub fn xid(&self, code: u64, product: &str) -> Row {
        let known = self.tables(product).any(|table| table.xid.contains_key(&code));
        let patches = self.tables(product).filter_map(|table| match known {
            true => table.xid.get(&code),
            false => table.unknown_xid.as_ref(),
        });
        Row::merged("xid", &code.to_string(), patches)
    }

    /// The row of a state signal: `memory` with `remap-failed`, `lost` with an empty value. The row of the key alone counts
    /// where none names the value.
    #[must_use]
    pub fn signal(&self, key: &str, value: &str, product: &str) -> Row {
        let full = format!("{key}/{value}");
        let patches = self
            .tables(product)
            .filter_map(|table| table.signals.get(key))
            .chain(self.tables(product).filter_map(|table| table.signals.get(&full)));
        Row::merged(key, value, patches)
    }

    /// Layers that concern a product, from weak to strong.
    fn tables<'a>(&'a self, product: &'a str) -> impl Iterator<Item = &'a Table> {
        let special = self.products.iter().filter(move |entry| matches(&entry.product, product));
        self.layers.iter().chain(special.map(|entry| &entry.table))
    }

    /// Looks at every row that any product can get. Each is judged after merging: a file may give an effect to a row whose
    /// exit stands in the shipped table.
    fn check(&self) -> Result<(), PolicyError> {
        let products = self.products.iter().map(|entry| entry.product.as_str());
        for product in std::iter::once("").chain(products) {
            // A pattern matches itself, so it stands for every product that it means.
            for code in self.codes(product) {
                file::check_row(&self.xid(code, product), Source::Event)?;
            }
            file::check_row(&self.xid(u64::MAX, product), Source::Event)?;
            for name in self.signal_names(product) {
                let (key, value) = name.split_once('/').unwrap_or((name, ""));
                file::check_row(&self.signal(key, value, product), Source::State)?;
            }
        }
        Ok(())
    }

    fn codes(&self, product: &str) -> BTreeSet<u64> {
        self.tables(product).flat_map(|table| table.xid.keys().copied()).collect()
    }

    fn signal_names<'a>(&'a self, product: &'a str) -> BTreeSet<&'a str> {
        self.tables(product).flat_map(|table| table.signals.keys().map(String::as_str)).collect()
    }
}

/// Whether a product name matches a pattern in which `*` stands for any text. Case does not count.
fn matches(pattern: &str, product: &str) -> bool {
    fn go(pattern: &[u8], text: &[u8]) -> bool {
        // Remembers the last star, so that the work is bounded by pattern times text.
        let (mut p, mut t) = (0, 0);
        let mut star: Option<(usize, usize)> = None;
        while t < text.len() {
            match pattern.get(p) {
                Some(b'*') => {
                    star = Some((p, t));
                    p += 1;
                }
                Some(byte) if byte.eq_ignore_ascii_case(&text[t]) => {
                    p += 1;
                    t += 1;
                }
                _ => {
                    let Some((at, from)) = star else { return false };
                    star = Some((at, from + 1));
                    p = at + 1;
                    t = from + 1;
                }
            }
        }
        pattern[p..].iter().all(|&byte| byte == b'*')
    }
    go(pattern.as_bytes(), product.as_bytes())
}
