//! Amounts of CPU, memory and storage: `500m`, `1Gi`, `2e3`.
//!
//! See <https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/>.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// An exact amount, and its suffix family.
///
/// Amounts compare by value, not by notation: `1` equals `1000m`.
#[derive(Clone, Copy, Debug)]
#[doc(alias = "resource.Quantity")]
pub struct Quantity {
    /// The amount in billionths, Kubernetes' smallest unit.
    nano: i128,
    format: Format,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    BinarySi,
    DecimalSi,
    DecimalExponent,
}

/// An error of parsing a quantity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not of the form number and suffix.
    #[error("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'")]
    Format,
    /// The suffix is unknown.
    #[error("unable to parse quantity's suffix")]
    Suffix,
}

const NANO: i128 = 1_000_000_000;
/// Maximum amount, 2⁶³-1 as in Kubernetes.
const MAX: i128 = i64::MAX as i128 * NANO;

impl Quantity {
    /// Zero.
    pub const ZERO: Quantity = Quantity { nano: 0, format: Format::DecimalSi };

    /// Creates a whole amount.
    pub fn from_integer(n: i64) -> Self {
        Self { nano: i128::from(n) * NANO, format: Format::DecimalSi }
    }

    /// Creates an amount in thousandths, the unit of CPUs.
    pub fn from_milli(n: i64) -> Self {
        Self { nano: i128::from(n) * 1_000_000, format: Format::DecimalSi }
    }

    /// Creates an amount in gibibytes, with the suffix `Gi`.
    ///
    /// ```
    /// # use flyball_core::Quantity;
    /// assert_eq!(Quantity::from_gibi(1).to_string(), "1Gi");
    /// ```
    pub fn from_gibi(n: u32) -> Self {
        Self { nano: i128::from(n) * (1 << 30) * NANO, format: Format::BinarySi }
    }

    /// Returns the amount, rounded up to a whole number.
    pub fn value(&self) -> i64 {
        i64::try_from(div_ceil(self.nano, NANO)).unwrap_or(if self.nano < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns the amount in thousandths, rounded up.
    pub fn milli_value(&self) -> i64 {
        i64::try_from(div_ceil(self.nano, 1_000_000)).unwrap_or(if self.nano < 0 { i64::MIN } else { i64::MAX })
    }

    /// Returns true if the amount is below zero.
    pub fn is_negative(&self) -> bool {
        self.nano < 0
    }

    /// Returns true if the amount has no fraction.
    pub fn is_whole(&self) -> bool {
        self.nano % NANO == 0
    }

    /// Adds an amount, in the notation of `self`.
    pub fn plus(&self, other: &Self) -> Self {
        let format = if self.nano == 0 { other.format } else { self.format };
        Self { nano: (self.nano + other.nano).clamp(-MAX, MAX), format }
    }

    /// Subtracts an amount, in the notation of `self`.
    pub fn minus(&self, other: &Self) -> Self {
        let format = if self.nano == 0 { other.format } else { self.format };
        Self { nano: (self.nano - other.nano).clamp(-MAX, MAX), format }
    }
}

fn div_ceil(a: i128, b: i128) -> i128 {
    a.div_euclid(b) + i128::from(a.rem_euclid(b) != 0)
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

impl FromStr for Quantity {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            Some(_) => (false, text),
            None => return Err(Error::Format),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if fraction.contains('.') || whole.is_empty() && fraction.is_empty() {
            return Err(Error::Format);
        }
        let (base, exponent, format) = scale(suffix)?;
        let nano = to_nano(whole, fraction, base, exponent);
        Ok(Self { nano: if negative { -nano } else { nano }, format })
    }
}

/// Parses a suffix as a power of 2 or of 10.
fn scale(suffix: &str) -> Result<(u32, i32, Format), Error> {
    let found = match suffix {
        "Ki" => (2, 10, Format::BinarySi),
        "Mi" => (2, 20, Format::BinarySi),
        "Gi" => (2, 30, Format::BinarySi),
        "Ti" => (2, 40, Format::BinarySi),
        "Pi" => (2, 50, Format::BinarySi),
        "Ei" => (2, 60, Format::BinarySi),
        "n" => (10, -9, Format::DecimalSi),
        "u" => (10, -6, Format::DecimalSi),
        "m" => (10, -3, Format::DecimalSi),
        "" => (10, 0, Format::DecimalSi),
        "k" => (10, 3, Format::DecimalSi),
        "M" => (10, 6, Format::DecimalSi),
        "G" => (10, 9, Format::DecimalSi),
        "T" => (10, 12, Format::DecimalSi),
        "P" => (10, 15, Format::DecimalSi),
        "E" => (10, 18, Format::DecimalSi),
        other => {
            let digits = other.strip_prefix(['e', 'E']).ok_or(if other.chars().all(|c| c.is_ascii_alphabetic()) {
                Error::Suffix
            } else {
                Error::Format
            })?;
            (10, digits.parse().map_err(|_| Error::Suffix)?, Format::DecimalExponent)
        }
    };
    Ok(found)
}

/// Converts a decimal number to billionths, rounded up and capped.
fn to_nano(whole: &str, fraction: &str, base: u32, exponent: i32) -> i128 {
    // The digits form one integer of `fraction.len()` decimal places, which the exponent shifts.
    let digits = whole.bytes().chain(fraction.bytes()).skip_while(|b| *b == b'0').take(40);
    let mut mantissa: i128 = 0;
    let mut dropped =
        (whole.len() + fraction.len()) - whole.bytes().chain(fraction.bytes()).take_while(|b| *b == b'0').count();
    for digit in digits.take(30) {
        mantissa = mantissa * 10 + i128::from(digit - b'0');
        dropped -= 1;
    }
    let (binary, decimal) = if base == 2 { (exponent, 0) } else { (0, exponent) };
    let shift = decimal + 9 - fraction.len() as i32 + dropped as i32;
    let scaled = mantissa.checked_mul(1 << binary.clamp(0, 60));
    let Some(mut nano) = scaled else { return MAX };
    for _ in 0..shift.clamp(0, 60) {
        nano = nano.saturating_mul(10);
    }
    let decimals = (-shift).clamp(0, 38) as u32;
    nano = div_ceil(nano, 10i128.pow(decimals));
    nano.min(MAX)
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        // Small or fractional amounts have no binary suffix.
        let binary = self.format == Format::BinarySi && self.nano.abs() >= 1024 * NANO && self.is_whole();
        if binary {
            let (mut n, mut power) = (self.nano / NANO, 0);
            while n % 1024 == 0 && power < 6 {
                n /= 1024;
                power += 1;
            }
            return write!(f, "{n}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut n, mut power) = (self.nano, 0);
        while n % 1000 == 0 && power < 9 {
            n /= 1000;
            power += 1;
        }
        match self.format {
            Format::DecimalExponent if power == 3 => write!(f, "{n}"),
            Format::DecimalExponent => write!(f, "{n}e{}", 3 * (power as i32 - 3)),
            Format::BinarySi | Format::DecimalSi => {
                write!(f, "{n}{}", ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"][power])
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn canonical(text: &str) -> String {
        text.parse::<Quantity>().unwrap().to_string()
    }

    #[test]
    fn quantities_print_in_canonical_form() {
        let cases = [
            ("0", "0"),
            ("1000m", "1"),
            ("0.5", "500m"),
            ("1.5Gi", "1536Mi"),
            ("1024", "1024"),
            ("1024Ki", "1Mi"),
            ("100Ki", "100Ki"),
            ("0.5Ki", "512"),
            ("1e3", "1e3"),
            ("1000e0", "1e3"),
            ("1E", "1E"),
            ("1500", "1500"),
            ("2000", "2k"),
            ("-3", "-3"),
            ("+1", "1"),
            ("1000000", "1M"),
            ("0.1n", "1n"),
            ("100m", "100m"),
            ("12e6", "12e6"),
            (".5", "500m"),
            ("5.", "5"),
            ("9223372036854775807", "9223372036854775807"),
            ("99E", "9223372036854775807"),
            ("1500Mi", "1500Mi"),
            ("0.0001Ki", "102400u"),
        ];
        for (text, printed) in cases {
            assert_eq!(canonical(text), printed, "{text}");
        }
    }

    #[test]
    fn invalid_quantities_are_rejected() {
        for text in ["", "a", "1x", "1KiB", "Gi", ".", "1..2", "1e", "- 1", "1 Gi", "0x1"] {
            assert!(text.parse::<Quantity>().is_err(), "{text}");
        }
    }

    #[test]
    fn quantities_compare_by_value() {
        let q = |t: &str| t.parse::<Quantity>().unwrap();
        assert_eq!(q("1"), q("1000m"));
        assert!(q("1Gi") > q("1G"));
        assert_eq!(q("1500m").value(), 2);
        assert_eq!(q("1").plus(&q("500m")).to_string(), "1500m");
    }

    proptest::proptest! {
        #[test]
        fn quantities_round_trip(n in -1_000_000_000_000i64..1_000_000_000_000, suffix in "(|n|u|m|k|M|Ki|Mi|Gi|e3)") {
            let q: Quantity = format!("{n}{suffix}").parse().unwrap();
            proptest::prop_assert_eq!(q.to_string().parse::<Quantity>().unwrap(), q);
            proptest::prop_assert_eq!(canonical(&q.to_string()), q.to_string());
        }
    }
}
