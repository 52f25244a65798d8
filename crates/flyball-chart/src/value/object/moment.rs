//! Methods of dates.

use super::{Method, MethodBody, Object, moment};
use crate::dates::Moment;
use crate::value::{IntKind, Type, Value};
use jiff::tz::TimeZone;

const STR: Type = Type::Str;
const INT: Type = Type::Int(IntKind::Int);
const TIME: Type = Type::Object("time.Time");

fn value(moment: Moment) -> Value {
    Value::object(Object::Moment(moment))
}

fn text(argument: &Value) -> String {
    argument.text().unwrap_or_default().into_owned()
}

fn int(argument: &Value) -> i64 {
    match argument {
        Value::Int(_, number) => *number,
        _ => 0,
    }
}

/// Finds a method of a date.
pub(super) fn method(name: &str) -> Option<Method> {
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
    const NUMBERS: &[Type] = &[INT, INT, INT];
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
            let number = |at: usize| int(&args[at]);
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
