//! Decimal arithmetic, used by sprig so that 0.1 + 0.2 is 0.3.

/// A number as digits and an exponent of ten; numbers outside this range use floats.
#[derive(Clone, Copy)]
pub(super) enum Decimal {
    Exact { digits: i128, exponent: i32 },
    Rough(f64),
}

/// Digits of a quotient after the decimal point.
const PRECISION: i32 = 16;

impl From<f64> for Decimal {
    fn from(number: f64) -> Self {
        let text = format!("{number:e}");
        let (mantissa, exponent) = text.split_once('e').unwrap_or((&text, "0"));
        let fraction = mantissa.split_once('.').map_or(0, |(_, fraction)| fraction.len());
        let digits = mantissa.replace('.', "").parse();
        match (digits, exponent.parse::<i32>(), i32::try_from(fraction)) {
            (Ok(digits), Ok(exponent), Ok(fraction)) => Decimal::Exact { digits, exponent: exponent - fraction },
            _ => Decimal::Rough(number),
        }
    }
}

fn shifted(digits: i128, by: i32) -> Option<i128> {
    digits.checked_mul(10i128.checked_pow(u32::try_from(by).ok()?)?)
}

impl Decimal {
    pub(super) fn to_float(self) -> f64 {
        match self {
            Decimal::Exact { digits, exponent } => format!("{digits}e{exponent}").parse().unwrap_or(f64::NAN),
            Decimal::Rough(number) => number,
        }
    }

    fn aligned(self, other: Self, apply: fn(i128, i128) -> Option<i128>, rough: fn(f64, f64) -> f64) -> Self {
        if let (Decimal::Exact { digits: a, exponent: x }, Decimal::Exact { digits: b, exponent: y }) = (self, other) {
            let exponent = x.min(y);
            let sum = shifted(a, x - exponent).zip(shifted(b, y - exponent)).and_then(|(a, b)| apply(a, b));
            if let Some(digits) = sum {
                return Decimal::Exact { digits, exponent };
            }
        }
        Decimal::Rough(rough(self.to_float(), other.to_float()))
    }

    pub(super) fn add(self, other: Self) -> Self {
        self.aligned(other, i128::checked_add, |a, b| a + b)
    }

    pub(super) fn sub(self, other: Self) -> Self {
        self.aligned(other, i128::checked_sub, |a, b| a - b)
    }

    pub(super) fn mul(self, other: Self) -> Self {
        if let (Decimal::Exact { digits: a, exponent: x }, Decimal::Exact { digits: b, exponent: y }) = (self, other)
            && let Some(digits) = a.checked_mul(b)
        {
            return Decimal::Exact { digits, exponent: x + y };
        }
        Decimal::Rough(self.to_float() * other.to_float())
    }

    pub(super) fn div(self, other: Self) -> Self {
        if let (Decimal::Exact { digits: a, exponent: x }, Decimal::Exact { digits: b, exponent: y }) = (self, other) {
            // The quotient has sixteen digits after the decimal point, rounded half away from zero.
            let shift = x - y + PRECISION;
            let parts = if shift >= 0 { shifted(a, shift).map(|a| (a, b)) } else { shifted(b, -shift).map(|b| (a, b)) };
            if let Some((a, b)) = parts.filter(|(_, b)| *b != 0) {
                let (quotient, rest) = (a / b, a % b);
                let rounds = rest.unsigned_abs().checked_mul(2).is_some_and(|twice| twice >= b.unsigned_abs());
                let sign = if (a < 0) == (b < 0) { 1 } else { -1 };
                return Decimal::Exact { digits: quotient + if rounds { sign } else { 0 }, exponent: -PRECISION };
            }
        }
        Decimal::Rough(self.to_float() / other.to_float())
    }
}
