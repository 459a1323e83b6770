//! Quantities of capacity, as Kubernetes writes them (`40Gi`, `500m`, `1e3`), exact from a nano unit up to some 10^29 units.
//!
//! The rules are those of apimachinery's `resource.Quantity`: what is finer than a nano unit is rounded away from zero, and two
//! texts are equal when they mean the same amount (`1Gi` and `1073741824`). A text beyond the range is refused here, where
//! apimachinery would cap some of them.

use std::fmt;
use std::str::FromStr;

/// Nano units in one unit, as a power of ten.
const NANO_DIGITS: i64 = 9;
/// Nano units in one unit.
const NANOS: i128 = 1_000_000_000;
/// A text longer than this is not a quantity that anybody means.
const MAX_LEN: usize = 64;

/// An amount, in nano units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

/// Why a text is not a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QuantityError {
    /// The text does not have the form `<number>[suffix]`.
    #[error(
        "{0:?} is not a quantity: write a number and one of n u m k M G T P E Ki Mi Gi Ti Pi Ei, or e and an exponent"
    )]
    Form(String),
    /// The amount is larger than this type holds.
    #[error("the quantity {0:?} is too large")]
    TooLarge(String),
}

impl Quantity {
    /// A whole number of units.
    #[must_use]
    pub fn from_units(units: i64) -> Self {
        Self(i128::from(units) * NANOS)
    }

    /// The amount in whole units, when it is whole and fits.
    #[must_use]
    pub fn units(self) -> Option<i64> {
        if self.0 % NANOS == 0 { i64::try_from(self.0 / NANOS).ok() } else { None }
    }

    /// The amount as a floating-point number, which may round.
    #[must_use]
    pub fn to_f64(self) -> f64 {
        self.0 as f64 / NANOS as f64
    }

    /// -1, 0 or 1.
    #[must_use]
    pub const fn sign(self) -> i64 {
        match self.0 {
            0 => 0,
            nanos if nanos < 0 => -1,
            _ => 1,
        }
    }

    /// The sum, or nothing when it is out of range.
    #[must_use]
    pub fn checked_add(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }

    /// The difference, or nothing when it is out of range.
    #[must_use]
    pub fn checked_sub(self, other: Self) -> Option<Self> {
        self.0.checked_sub(other.0).map(Self)
    }
}

/// What a suffix multiplies by: a power of two (in units of 1024) or a power of ten.
enum Scale {
    Binary(u32),
    Decimal(i64),
}

impl FromStr for Quantity {
    type Err = QuantityError;

    fn from_str(text: &str) -> Result<Self, QuantityError> {
        let form = || QuantityError::Form(shorten(text));
        if text.len() > MAX_LEN {
            return Err(form());
        }
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (digits, fraction_len) = digits(number).ok_or_else(form)?;
        let scale = scale(suffix).ok_or_else(form)?;
        let nanos = nanos(&digits, fraction_len, &scale).ok_or_else(|| QuantityError::TooLarge(shorten(text)))?;
        Ok(Self(if negative { -nanos } else { nanos }))
    }
}

impl fmt::Display for Quantity {
    /// In units, with as many decimals as needed: `1.5`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, nanos) = (if self.0 < 0 { "-" } else { "" }, self.0.unsigned_abs());
        let (units, rest) = (nanos / NANOS.unsigned_abs(), nanos % NANOS.unsigned_abs());
        if rest == 0 {
            return write!(f, "{sign}{units}");
        }
        write!(f, "{sign}{units}.{}", format!("{rest:09}").trim_end_matches('0'))
    }
}

/// An error repeats at most a line of what it was given.
fn shorten(text: &str) -> String {
    text.chars().take(MAX_LEN).collect()
}

/// The digits without the point, and how many of them stood after it.
fn digits(number: &str) -> Option<(String, i64)> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if fraction.contains('.') || (whole.is_empty() && fraction.is_empty()) {
        return None;
    }
    let digits = format!("{whole}{fraction}");
    let significant = digits.trim_start_matches('0').to_owned();
    Some((significant, i64::try_from(fraction.len()).ok()?))
}

fn scale(suffix: &str) -> Option<Scale> {
    const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    const DECIMAL: [(&str, i64); 10] =
        [("n", -9), ("u", -6), ("m", -3), ("", 0), ("k", 3), ("M", 6), ("G", 9), ("T", 12), ("P", 15), ("E", 18)];
    if let Some(index) = BINARY.iter().position(|known| *known == suffix) {
        return u32::try_from(index + 1).ok().map(Scale::Binary);
    }
    if let Some((_, power)) = DECIMAL.iter().find(|(known, _)| *known == suffix) {
        return Some(Scale::Decimal(*power));
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let power: i32 = exponent.parse().ok()?;
    Some(Scale::Decimal(i64::from(power)))
}

/// The amount in nano units, rounded away from zero; nothing when it is out of range.
fn nanos(digits: &str, fraction_len: i64, scale: &Scale) -> Option<i128> {
    if digits.is_empty() {
        return Some(0);
    }
    let mantissa: i128 = digits.parse().ok()?;
    let (mantissa, power) = match scale {
        Scale::Binary(power) => (mantissa.checked_mul(1024_i128.checked_pow(*power)?)?, 0),
        Scale::Decimal(power) => (mantissa, *power),
    };
    let power = NANO_DIGITS + power - fraction_len;
    if power >= 0 {
        return mantissa.checked_mul(10_i128.checked_pow(u32::try_from(power).ok()?)?);
    }
    let Some(divisor) = u32::try_from(-power).ok().and_then(|power| 10_i128.checked_pow(power)) else {
        return Some(1);
    };
    Some(mantissa / divisor + i128::from(mantissa % divisor != 0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn quantity(text: &str) -> Quantity {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn texts_of_the_same_amount_are_equal() {
        for (left, right) in [
            ("1Gi", "1073741824"),
            ("1", "1000m"),
            ("1k", "1e3"),
            ("1E3", "1000"),
            ("1E", "1e18"),
            ("0.5Ki", "512"),
            (".5", "500m"),
            ("5.", "5"),
            ("+7", "7"),
            ("-0", "0"),
            ("007", "7"),
            ("1u", "1000n"),
            ("1e-9", "1n"),
            ("100E", "1e20"),
        ] {
            assert_eq!(quantity(left), quantity(right), "{left} and {right}");
        }
    }

    #[test]
    fn what_is_finer_than_a_nano_rounds_away_from_zero() {
        assert_eq!(quantity("0.1n"), quantity("1n"));
        assert_eq!(quantity("-0.1n"), quantity("-1n"));
        assert_eq!(quantity("1e-60"), quantity("1n"));
        assert_eq!(quantity("0e-60"), quantity("0"));
    }

    #[test]
    fn other_texts_are_refused() {
        for text in
            ["", ".", "-", "Gi", "1.2.3", "1ki", "1KI", "1 Gi", "1e", "1e1.5", "0x10", "1Gib", "NaN", "٣", "--1"]
        {
            assert!(matches!(text.parse::<Quantity>(), Err(QuantityError::Form(_))), "{text:?}");
        }
        let long = "1".repeat(65);
        assert!(matches!(long.parse::<Quantity>(), Err(QuantityError::Form(_))));
        for text in ["1e30", "999999999999E", "1e2000000000", "9".repeat(60).as_str()] {
            assert!(matches!(text.parse::<Quantity>(), Err(QuantityError::TooLarge(_))), "{text:?}");
        }
    }

    #[test]
    fn units_are_whole_and_in_range() {
        assert_eq!(quantity("40Gi").units(), Some(42_949_672_960));
        assert_eq!(quantity("1500m").units(), None);
        assert_eq!(quantity("100E").units(), None, "beyond 64 bits");
    }

    proptest! {
        #[test]
        fn whole_numbers_keep_their_order_and_sum(a in any::<i64>(), b in any::<i64>()) {
            let (left, right) = (quantity(&a.to_string()), quantity(&b.to_string()));
            prop_assert_eq!(left, Quantity::from_units(a));
            prop_assert_eq!(left.cmp(&right), a.cmp(&b));
            let sum = left.checked_add(right).expect("two 64-bit numbers");
            prop_assert_eq!(sum.checked_sub(right), Some(left));
            prop_assert_eq!(sum.units().map(i128::from).unwrap_or(i128::from(a) + i128::from(b)), i128::from(a) + i128::from(b));
        }

        #[test]
        fn a_binary_suffix_is_a_power_of_1024(n in -4096_i64..4096, power in 0_usize..5) {
            let suffix = ["Ki", "Mi", "Gi", "Ti", "Pi"][power];
            let factor = 1024_i64.pow(u32::try_from(power + 1).expect("small"));
            prop_assert_eq!(quantity(&format!("{n}{suffix}")), Quantity::from_units(n * factor));
        }

        #[test]
        fn what_is_shown_reads_back_the_same(nanos in -10_i128.pow(27)..10_i128.pow(27)) {
            let amount = Quantity(nanos);
            prop_assert_eq!(quantity(&amount.to_string()), amount);
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,70}") {
            let known = text.parse::<Quantity>().is_ok();
            prop_assert!(!known || text.chars().any(|c| c.is_ascii_digit()));
        }
    }
}
