//! Dates: sprig's functions over Go's layouts, such as `2006-01-02T15:04:05Z07:00`.
//!
//! The local time zone is UTC, so that the output of a chart does not depend on the machine.

use super::{ANY, STR, TIME, Table, cost, text};
use crate::dates::{self, Moment};
use crate::number::parse_int;
use crate::value::object::{Object, moment};
use crate::value::{IntKind, Value};
use flyball_core::time::{format_duration, parse_duration};
use jiff::Timestamp;
use jiff::tz::TimeZone;

pub(super) fn add(table: &mut Table) {
    table.add("now", cost::letters, &[], |call, _| Ok(value(Moment(call.context.clock.now().to_zoned(TimeZone::UTC)))));
    table.add("date", cost::letters, &[STR, ANY], |call, args| {
        in_zone(&text(&args[0]), &args[1], "UTC", call.context.clock.now())
    });
    for name in ["dateInZone", "date_in_zone"] {
        table.add(name, cost::letters, &[STR, ANY, STR], |call, args| {
            in_zone(&text(&args[0]), &args[1], &text(&args[2]), call.context.clock.now())
        });
    }
    table.add("htmlDate", cost::letters, &[ANY], |call, args| {
        in_zone("2006-01-02", &args[0], "UTC", call.context.clock.now())
    });
    table.add("htmlDateInZone", cost::letters, &[ANY, STR], |call, args| {
        in_zone("2006-01-02", &args[0], &text(&args[1]), call.context.clock.now())
    });
    for name in ["dateModify", "date_modify"] {
        table.add(name, cost::letters, &[STR, TIME], |_, args| match parse_duration(&text(&args[0])) {
            Ok(nanos) => Ok(value(moment(&args[1]).plus(nanos))),
            Err(_) => Ok(args[1].clone()),
        });
    }
    for name in ["mustDateModify", "must_date_modify"] {
        table.add(name, cost::letters, &[STR, TIME], |_, args| {
            Ok(value(moment(&args[1]).plus(parse_duration(&text(&args[0])).map_err(|error| error.to_string())?)))
        });
    }
    table.add("toDate", cost::letters, &[STR, STR], |_, args| {
        Ok(value(dates::parse(&text(&args[0]), &text(&args[1])).unwrap_or_else(|_| Moment::zero())))
    });
    table.add("mustToDate", cost::letters, &[STR, STR], |_, args| {
        dates::parse(&text(&args[0]), &text(&args[1])).map(value)
    });
    table.add("unixEpoch", cost::letters, &[TIME], |_, args| {
        Ok(Value::str(moment(&args[0]).0.timestamp().as_second().to_string()))
    });
    table.add("ago", cost::letters, &[ANY], |call, args| {
        let now = call.context.clock.now();
        let age = now.duration_since(date_of(&args[0], now).0.timestamp());
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
                    let age = call.context.clock.now().duration_since(moment.0.timestamp());
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

/// Returns the date of an argument: a date, or seconds; other values mean the current time.
fn date_of(argument: &Value, now: Timestamp) -> Moment {
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
    Ok(Value::str(date_of(argument, now).in_zone(zone).format(format)))
}

/// Returns the largest unit with a count above one.
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
