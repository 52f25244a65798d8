//! Go's `time`: dates, layouts and durations.

mod layout;

pub(crate) use layout::parse;

use crate::quote::quote;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Zoned};
use std::fmt;

/// A `time.Time`; Go's zero is the first second of the year 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moment(pub(crate) Zoned);

impl Moment {
    pub(crate) fn zero() -> Moment {
        Moment(civil(1, 1, 1).to_zoned(TimeZone::UTC).expect("the year 1 is within jiff's years"))
    }

    pub(crate) fn is_zero(&self) -> bool {
        self.0.timestamp() == Moment::zero().0.timestamp()
    }

    pub(crate) fn plus(&self, nanos: i64) -> Moment {
        Moment(self.0.checked_add(SignedDuration::from_nanos(nanos)).unwrap_or_else(|_| self.0.clone()))
    }

    pub(crate) fn in_zone(&self, zone: TimeZone) -> Moment {
        Moment(self.0.with_time_zone(zone))
    }

    /// As Go's `Format`.
    pub(crate) fn format(&self, format: &str) -> String {
        layout::format(format, &self.0)
    }

    /// As JSON has it.
    pub(crate) fn rfc3339_nano(&self) -> String {
        self.format("2006-01-02T15:04:05.999999999Z07:00")
    }
}

fn civil(year: i16, month: i8, day: i8) -> DateTime {
    DateTime::constant(year, month, day, 0, 0, 0, 0)
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.format("2006-01-02 15:04:05.999999999 -0700 MST"))
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const DAYS: [&str; 7] = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"];

pub(crate) fn month_name(number: u8) -> &'static str {
    MONTHS.get(usize::from(number).wrapping_sub(1)).copied().unwrap_or("%!Month(0)")
}

pub(crate) fn weekday_name(number: u8) -> &'static str {
    DAYS.get(usize::from(number)).copied().unwrap_or("%!Weekday(7)")
}

/// `1h1m1s`, and fractions of what is shorter than a second.
pub(crate) fn format_duration(nanos: i64) -> String {
    let size = nanos.unsigned_abs();
    let sign = if nanos < 0 { "-" } else { "" };
    let decimal = |size: u64, unit: u64| {
        let fraction = format!("{:0width$}", size % unit, width = unit.ilog10() as usize);
        let fraction = fraction.trim_end_matches('0');
        let point = if fraction.is_empty() { "" } else { "." };
        format!("{}{point}{fraction}", size / unit)
    };
    match size {
        0 => "0s".to_owned(),
        1..1_000 => format!("{sign}{size}ns"),
        1_000..1_000_000 => format!("{sign}{}µs", decimal(size, 1_000)),
        1_000_000..1_000_000_000 => format!("{sign}{}ms", decimal(size, 1_000_000)),
        _ => {
            let minutes = size / 60_000_000_000;
            let seconds = decimal(size % 60_000_000_000, 1_000_000_000);
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{sign}{seconds}s"),
                (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
                (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
            }
        }
    }
}

/// Go's `time.ParseDuration`, in nanoseconds.
pub(crate) fn parse_duration(text: &str) -> Result<i64, String> {
    let quoted = quote(text.as_bytes());
    let invalid = || format!("time: invalid duration {quoted}");
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut nanos: i128 = 0;
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, tail) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
            return Err(invalid());
        }
        let unit_end = tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len());
        let (unit, next) = tail.split_at(unit_end);
        let size: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(format!("time: missing unit in duration {quoted}")),
            other => {
                let unit = quote(other.as_bytes());
                return Err(format!("time: unknown unit {unit} in duration {quoted}"));
            }
        };
        let whole: i128 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        nanos = nanos.checked_add(whole.checked_mul(size).ok_or_else(invalid)?).ok_or_else(invalid)?;
        let fraction = &fraction[..fraction.len().min(18)];
        if !fraction.is_empty() {
            let scale = 10i128.pow(u32::try_from(fraction.len()).unwrap_or(18));
            nanos += fraction.parse::<i128>().map_err(|_| invalid())? * size / scale;
        }
        rest = next;
    }
    i64::try_from(sign * nanos).map_err(|_| invalid())
}
