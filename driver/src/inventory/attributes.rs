//! Attribute values in the forms that resource/v1 accepts: strict semver, strings of at most 64 bytes, quantities.

/// A string or version attribute is at most this many bytes (resource/v1 `DeviceAttributeMaxValueLength`).
const LIMIT: usize = 64;

/// One attribute value of a device (resource/v1 `DeviceAttribute`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Attribute {
    /// A text of at most 64 bytes.
    String(String),
    /// A whole number.
    Int(i64),
    /// Yes or no.
    Bool(bool),
    /// A semantic version, as strict as semver 2.0.0.
    Version(String),
}

impl Attribute {
    /// A text, cut to what the API takes.
    #[must_use]
    pub fn text(text: &str) -> Self {
        Self::String(cut(text))
    }
}

/// A text cut to 64 bytes, never inside a character.
#[must_use]
pub fn cut(text: &str) -> String {
    let mut end = text.len().min(LIMIT);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    text[..end].to_owned()
}

/// A version as strict semver: three numbers without leading zeros, what follows as a pre-release. `580.95.05` becomes
/// `580.95.5`, `12.9` becomes `12.9.0`. `None` where the text does not begin with a number, or would be too long.
#[must_use]
pub fn semver_of(text: &str) -> Option<String> {
    let text = text.trim();
    let numbers_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (numbers, rest) = text.split_at(numbers_end);
    let mut parts = numbers.split('.').filter(|part| !part.is_empty());
    // u64 also strips leading zeros, and is the range that semver readers accept.
    let major: u64 = parts.next()?.parse().ok()?;
    let mut next = || parts.next().map_or(Some(0), |part| part.parse::<u64>().ok());
    let (minor, patch) = (next()?, next()?);
    let mut version = format!("{major}.{minor}.{patch}");
    let extra: Vec<String> = parts.map(ToOwned::to_owned).chain(identifiers(rest)).collect();
    if !extra.is_empty() {
        version.push('-');
        version.push_str(&extra.iter().map(|part| without_leading_zeros(part)).collect::<Vec<_>>().join("."));
    }
    (version.len() <= LIMIT).then_some(version)
}

fn identifiers(rest: &str) -> impl Iterator<Item = String> {
    rest.split(|c: char| !c.is_ascii_alphanumeric()).filter(|part| !part.is_empty()).map(ToOwned::to_owned)
}

/// A numeric identifier of a pre-release must not begin with zero.
fn without_leading_zeros(part: &str) -> String {
    if part.bytes().all(|byte| byte.is_ascii_digit()) {
        let trimmed = part.trim_start_matches('0');
        return if trimmed.is_empty() { "0".to_owned() } else { trimmed.to_owned() };
    }
    part.to_owned()
}

/// Bytes as a Kubernetes quantity in its canonical binary form: the largest suffix that leaves a whole number.
#[must_use]
pub fn memory_quantity(bytes: u64) -> String {
    let mut amount = bytes;
    let mut suffix = "";
    for larger in ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"] {
        if amount == 0 || !amount.is_multiple_of(1024) {
            break;
        }
        amount /= 1024;
        suffix = larger;
    }
    format!("{amount}{suffix}")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{cut, memory_quantity, semver_of};

    #[test]
    fn versions_become_strict() {
        let cases = [
            ("580.95.05", Some("580.95.5")),
            ("12.9", Some("12.9.0")),
            ("535", Some("535.0.0")),
            ("580.95.05.01", Some("580.95.5-1")),
            ("580.95.05-grid", Some("580.95.5-grid")),
            ("000.00.00", Some("0.0.0")),
            ("", None),
            ("unknown", None),
            ("v580", None),
            ("99999999999999999999.0.0", None),
        ];
        for (text, expected) in cases {
            assert_eq!(semver_of(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("NVIDIA T4"), "NVIDIA T4");
        let long = "é".repeat(40);
        assert_eq!(cut(&long).len(), 64);
        assert_eq!(cut(&format!("x{long}")).len(), 63);
    }

    #[test]
    fn memory_is_a_canonical_quantity() {
        let cases =
            [(0, "0"), (1000, "1000"), (1024, "1Ki"), (40 << 30, "40Gi"), (81_559 << 20, "81559Mi"), (1 << 60, "1Ei")];
        for (bytes, expected) in cases {
            assert_eq!(memory_quantity(bytes), expected);
        }
    }

    proptest! {
        #[test]
        fn every_version_that_is_published_has_three_plain_numbers(text in "[0-9a-z.+-]{0,80}") {
            if let Some(version) = semver_of(&text) {
                prop_assert!(version.len() <= 64);
                let core = version.split('-').next().unwrap();
                let parts: Vec<&str> = core.split('.').collect();
                prop_assert_eq!(parts.len(), 3);
                for part in parts {
                    prop_assert_eq!(part.parse::<u64>().unwrap().to_string(), part);
                }
                prop_assert!(!version.ends_with('-') && !version.contains(".."));
            }
        }

        #[test]
        fn a_quantity_reads_back_as_the_same_bytes(bytes: u64) {
            let text = memory_quantity(bytes);
            let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
            let power = ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].iter().position(|s| *s == &text[digits.len()..]).unwrap();
            prop_assert_eq!(u128::from(bytes), digits.parse::<u128>().unwrap() << (10 * power));
        }
    }
}
