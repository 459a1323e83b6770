//! Sets of XID codes as the policy file writes them: `79`, `39-41`, `11,25`, `unknown`.

use std::str::FromStr;

/// The most codes that one key may name: XIDs are three-digit numbers, a longer range is a slip of the pen.
const MOST: usize = 1000;

/// What one key of the `xid` table names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CodeSet {
    /// These codes.
    Codes(Vec<u64>),
    /// Every code that no other row names.
    Unknown,
}

impl FromStr for CodeSet {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.trim() == "unknown" {
            return Ok(Self::Unknown);
        }
        let mut codes = Vec::new();
        for part in text.split(',') {
            let range = parse_range(part.trim()).ok_or_else(|| {
                format!("`{part}` is neither a code nor a range such as 39-41; write numbers with commas, or `unknown`")
            })?;
            codes.extend(range);
            if codes.len() > MOST {
                return Err(format!("`{text}` names more than {MOST} codes"));
            }
        }
        Ok(Self::Codes(codes))
    }
}

/// An inclusive range; a single number is a range of one. Too long a range is cut where the caller notices it.
fn parse_range(text: &str) -> Option<impl Iterator<Item = u64>> {
    let (from, to) = text.split_once('-').unwrap_or((text, text));
    let (from, to) = (number(from)?, number(to)?);
    (from <= to).then(|| (from..=to).take(MOST + 1))
}

/// `parse` alone would take a sign.
fn number(text: &str) -> Option<u64> {
    let text = text.trim();
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use super::CodeSet;

    #[test]
    fn numbers_ranges_and_lists_mix() {
        assert_eq!("79".parse(), Ok(CodeSet::Codes(vec![79])));
        assert_eq!("39-41, 85".parse(), Ok(CodeSet::Codes(vec![39, 40, 41, 85])));
        assert_eq!("unknown".parse(), Ok(CodeSet::Unknown));
    }

    #[test]
    fn what_is_no_set_of_codes_is_refused() {
        for bad in ["", "x", "41-39", "-5", "+5", "1-", "0-99999999999", "18446744073709551616"] {
            assert!(bad.parse::<CodeSet>().is_err(), "{bad}");
        }
    }
}
