//! Go's `time`: dates and layouts.

mod layout;

pub(crate) use layout::parse;

use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Zoned};
use std::fmt;

/// A `time.Time`; Go's zero value is the first second of the year 1.
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

    /// Go's `Format`.
    pub(crate) fn format(&self, format: &str) -> String {
        layout::format(format, &self.0)
    }

    /// The JSON encoding.
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
