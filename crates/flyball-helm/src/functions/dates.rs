//! Dates: sprig's functions over Go's layouts, such as `2006-01-02T15:04:05Z07:00`.
//!
//! The local zone is UTC, so that what a chart renders to does not depend on where.

mod layout;

use super::{ANY, STR, TIME, Table, cost, text};
use crate::template::number::parse_int;
use crate::template::object::{Method, MethodBody, Object};
use crate::template::value::{IntKind, Type, Value};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp, Zoned};
use std::fmt;

/// A `time.Time`; Go's zero is the first second of the year 1.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Moment(pub(crate) Zoned);

pub(super) fn add(table: &mut Table) {
    table.add("now", cost::letters, &[], |call, _| Ok(value(Moment(call.world.clock.now().to_zoned(TimeZone::UTC)))));
    table.add("date", cost::letters, &[STR, ANY], |call, args| {
        in_zone(&text(&args[0]), &args[1], "UTC", call.world.clock.now())
    });
    for name in ["dateInZone", "date_in_zone"] {
        table.add(name, cost::letters, &[STR, ANY, STR], |call, args| {
            in_zone(&text(&args[0]), &args[1], &text(&args[2]), call.world.clock.now())
        });
    }
    table.add("htmlDate", cost::letters, &[ANY], |call, args| {
        in_zone("2006-01-02", &args[0], "UTC", call.world.clock.now())
    });
    table.add("htmlDateInZone", cost::letters, &[ANY, STR], |call, args| {
        in_zone("2006-01-02", &args[0], &text(&args[1]), call.world.clock.now())
    });
    for name in ["dateModify", "date_modify"] {
        table.add(name, cost::letters, &[STR, TIME], |_, args| match parse_duration(&text(&args[0])) {
            Ok(nanos) => Ok(value(moment(&args[1]).plus(nanos))),
            Err(_) => Ok(args[1].clone()),
        });
    }
    for name in ["mustDateModify", "must_date_modify"] {
        table.add(name, cost::letters, &[STR, TIME], |_, args| {
            Ok(value(moment(&args[1]).plus(parse_duration(&text(&args[0]))?)))
        });
    }
    table.add("toDate", cost::letters, &[STR, STR], |_, args| {
        Ok(value(layout::parse(&text(&args[0]), &text(&args[1])).unwrap_or_else(|_| Moment::zero())))
    });
    table.add("mustToDate", cost::letters, &[STR, STR], |_, args| {
        layout::parse(&text(&args[0]), &text(&args[1])).map(value)
    });
    table.add("unixEpoch", cost::letters, &[TIME], |_, args| {
        Ok(Value::str(moment(&args[0]).0.timestamp().as_second().to_string()))
    });
    table.add("ago", cost::letters, &[ANY], |call, args| {
        let now = call.world.clock.now();
        let age = now.duration_since(given(&args[0], now).0.timestamp());
        Ok(Value::str(format_duration(age.as_secs().saturating_mul(1_000_000_000))))
    });
    table.add("duration", cost::letters, &[ANY], |_, args| {
        let seconds = match &args[0] {
            Value::Str(_) => parse_int(&text(&args[0]), 10).unwrap_or(0),
            Value::Int(IntKind::Int64, seconds) => *seconds,
            _ => 0,
        };
        Ok(Value::str(format_duration(seconds.wrapping_mul(1_000_000_000))))
    });
    table.add("durationRound", cost::letters, &[ANY], |call, args| {
        let nanos = match &args[0] {
            Value::Str(_) => parse_duration(&text(&args[0])).unwrap_or(0),
            Value::Int(IntKind::Int64, nanos) => *nanos,
            Value::Object(object) => match object.as_ref() {
                Object::Moment(moment) => {
                    let age = call.world.clock.now().duration_since(moment.0.timestamp());
                    i64::try_from(age.as_nanos()).unwrap_or(i64::MAX)
                }
                _ => 0,
            },
            _ => 0,
        };
        Ok(Value::str(rounded(nanos.unsigned_abs())))
    });
}

fn value(moment: Moment) -> Value {
    Value::object(Object::Moment(moment))
}

fn moment(value: &Value) -> Moment {
    match value {
        Value::Object(object) => match object.as_ref() {
            Object::Moment(moment) => moment.clone(),
            _ => Moment::zero(),
        },
        _ => Moment::zero(),
    }
}

/// The date of an argument: a date, or seconds; anything else is now.
fn given(argument: &Value, now: Timestamp) -> Moment {
    match argument {
        Value::Object(object) => match object.as_ref() {
            Object::Moment(moment) => moment.clone(),
            _ => Moment(now.to_zoned(TimeZone::UTC)),
        },
        Value::Int(IntKind::Int | IntKind::Int64, seconds) => {
            Moment(Timestamp::from_second(*seconds).unwrap_or(now).to_zoned(TimeZone::UTC))
        }
        _ => Moment(now.to_zoned(TimeZone::UTC)),
    }
}

fn in_zone(format: &str, argument: &Value, zone: &str, now: Timestamp) -> Result<Value, String> {
    let zone = match zone {
        "" | "UTC" | "Local" => TimeZone::UTC,
        name => TimeZone::get(name).unwrap_or(TimeZone::UTC),
    };
    Ok(Value::str(given(argument, now).in_zone(zone).format(format)))
}

impl Moment {
    fn zero() -> Moment {
        Moment(civil(1, 1, 1).to_zoned(TimeZone::UTC).expect("the year 1 is within jiff's years"))
    }

    fn is_zero(&self) -> bool {
        self.0.timestamp() == Moment::zero().0.timestamp()
    }

    fn plus(&self, nanos: i64) -> Moment {
        Moment(self.0.checked_add(SignedDuration::from_nanos(nanos)).unwrap_or_else(|_| self.0.clone()))
    }

    fn in_zone(&self, zone: TimeZone) -> Moment {
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

    pub(crate) fn method(name: &str) -> Option<Method> {
        fn this(object: &Object) -> &Moment {
            match object {
                Object::Moment(moment) => moment,
                _ => unreachable!("the method was found on a date"),
            }
        }
        fn other(args: &[Value]) -> Moment {
            args.first().map_or_else(Moment::zero, moment)
        }
        const NONE: &[Type] = &[];
        const WORD: &[Type] = &[STR];
        const NUMBERS: &[Type] = &[super::INT, super::INT, super::INT];
        let (params, call): (_, MethodBody) = match name {
            "Year" => (NONE, |object, _| Ok(Value::int(this(object).0.year().into()))),
            "Month" => (NONE, |object, _| {
                let month = u8::try_from(this(object).0.month()).unwrap_or(1);
                Ok(Value::object(Object::Month(month)))
            }),
            "Day" => (NONE, |object, _| Ok(Value::int(this(object).0.day().into()))),
            "Hour" => (NONE, |object, _| Ok(Value::int(this(object).0.hour().into()))),
            "Minute" => (NONE, |object, _| Ok(Value::int(this(object).0.minute().into()))),
            "Second" => (NONE, |object, _| Ok(Value::int(this(object).0.second().into()))),
            "Nanosecond" => (NONE, |object, _| Ok(Value::int(this(object).0.subsec_nanosecond().into()))),
            "YearDay" => (NONE, |object, _| Ok(Value::int(this(object).0.day_of_year().into()))),
            "Weekday" => (NONE, |object, _| {
                let day = this(object).0.weekday().to_sunday_zero_offset();
                Ok(Value::object(Object::Weekday(u8::try_from(day).unwrap_or(0))))
            }),
            "Unix" => (NONE, |object, _| Ok(Value::int64(this(object).0.timestamp().as_second()))),
            "UnixMilli" => (NONE, |object, _| Ok(Value::int64(this(object).0.timestamp().as_millisecond()))),
            "UnixNano" => (NONE, |object, _| {
                Ok(Value::int64(i64::try_from(this(object).0.timestamp().as_nanosecond()).unwrap_or(i64::MAX)))
            }),
            "IsZero" => (NONE, |object, _| Ok(Value::Bool(this(object).is_zero()))),
            "UTC" | "Local" => (NONE, |object, _| Ok(value(this(object).in_zone(TimeZone::UTC)))),
            "Format" => (WORD, |object, args| Ok(Value::str(this(object).format(&text(&args[0]))))),
            "AddDate" => (NUMBERS, |object, args| {
                let number = |at: usize| super::int(&args[at]);
                let span = jiff::Span::new()
                    .try_years(number(0))
                    .and_then(|span| span.try_months(number(1)))
                    .and_then(|span| span.try_days(number(2)))
                    .map_err(|error| error.to_string())?;
                let moved = this(object).0.checked_add(span).map_err(|error| error.to_string())?;
                Ok(value(Moment(moved)))
            }),
            "Before" => (&[TIME], |object, args| Ok(Value::Bool(this(object).0 < other(args).0))),
            "After" => (&[TIME], |object, args| Ok(Value::Bool(this(object).0 > other(args).0))),
            "Equal" => (&[TIME], |object, args| Ok(Value::Bool(this(object).0 == other(args).0))),
            "Sub" => (&[TIME], |object, args| {
                let span = this(object).0.timestamp().duration_since(other(args).0.timestamp());
                Ok(Value::object(Object::Duration(i64::try_from(span.as_nanos()).unwrap_or(i64::MAX))))
            }),
            _ => return None,
        };
        Some(Method { params, call })
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
fn parse_duration(text: &str) -> Result<i64, String> {
    let quoted = crate::template::format::quote(text.as_bytes());
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
                let unit = crate::template::format::quote(other.as_bytes());
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

/// The largest unit of which there is more than one.
fn rounded(nanos: u64) -> String {
    const HOUR: u64 = 3_600_000_000_000;
    let units = [
        (HOUR * 24 * 365, "y"),
        (HOUR * 24 * 30, "mo"),
        (HOUR * 24, "d"),
        (HOUR, "h"),
        (HOUR / 60, "m"),
        (HOUR / 3600, "s"),
    ];
    match units.iter().find(|(unit, _)| nanos > *unit) {
        Some((unit, name)) => format!("{}{name}", nanos / unit),
        None => "0s".to_owned(),
    }
}
