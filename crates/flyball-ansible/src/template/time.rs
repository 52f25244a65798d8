//! The time in UTC, in the formats of Python's `strftime` and the program `date`.

use super::lookups::{date_format, unknown_lookup};
use super::output::check_size;
use super::{Scope, reject};
use flyball_core::time::Timestamp;
use jiff::tz::TimeZone;
use minijinja::value::{Kwargs, Object, ObjectRepr, Value};
use minijinja::{Error, State};
use std::fmt;
use std::sync::Arc;

/// Limit of the characters of one directive.
const MAX_DIRECTIVE: usize = 256;

/// Returns the output of the program `date`, which is not run.
pub(super) fn date(scope: &Scope, command: &str) -> Result<String, Error> {
    let format = date_format(command).ok_or_else(|| reject(unknown_lookup("pipe")))?;
    formatted(&format, now(scope)?)
}

/// The filter `strftime`.
pub(super) fn strftime(
    state: &State<'_, '_>,
    format: String,
    second: Option<Value>,
    options: Kwargs,
) -> Result<String, Error> {
    let second = second.or(options.get("second")?).filter(|second| !second.is_none() && !second.is_undefined());
    let _: Option<bool> = options.get("utc")?;
    options.assert_all_used()?;
    let time = match second {
        None => now(&*Scope::of(state)?)?,
        Some(second) => {
            let second = second.as_str().map_or_else(|| f64::try_from(second.clone()).ok(), |text| text.parse().ok());
            let time = second.and_then(|second| Timestamp::from_second(second.floor() as i64).ok());
            time.ok_or_else(|| reject("Invalid value for epoch value"))?
        }
    };
    formatted(&format, time)
}

fn now(scope: &Scope) -> Result<Timestamp, Error> {
    scope.sources().now().ok_or_else(|| reject("the time is only available in tasks"))
}

/// The function `now`: the time of the task, as a string if it has a format.
pub(super) fn now_function(
    state: &State<'_, '_>,
    utc: Option<Value>,
    format: Option<String>,
    options: Kwargs,
) -> Result<Value, Error> {
    // All times are in UTC.
    let _: (Option<Value>, Option<Value>) = (utc, options.get("utc")?);
    let format = format.or(options.get("fmt")?);
    options.assert_all_used()?;
    let time = now(&*Scope::of(state)?)?;
    match format {
        Some(format) => formatted(&format, time).map(Value::from),
        None => Ok(Value::from_object(DateTime(time))),
    }
}

/// A time, as Python's `datetime`.
#[derive(Debug)]
struct DateTime(Timestamp);

impl DateTime {
    /// Formats date and time with a separator; without microseconds if there are none.
    fn text(&self, separator: char) -> String {
        let time = self.0.to_zoned(TimeZone::UTC);
        let micros = match time.subsec_nanosecond() / 1000 {
            0 => String::new(),
            micros => format!(".{micros:06}"),
        };
        format!("{}{separator}{:02}:{:02}:{:02}{micros}", time.date(), time.hour(), time.minute(), time.second())
    }
}

impl Object for DateTime {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Plain
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let time = self.0.to_zoned(TimeZone::UTC);
        Some(match key.as_str()? {
            "year" => time.year().into(),
            "month" => time.month().into(),
            "day" => time.day().into(),
            "hour" => time.hour().into(),
            "minute" => time.minute().into(),
            "second" => time.second().into(),
            "microsecond" => (time.subsec_nanosecond() / 1000).into(),
            _ => return None,
        })
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text(' '))
    }
}

/// Returns true if a value is a time.
pub(super) fn is_time(value: &Value) -> bool {
    value.downcast_object_ref::<DateTime>().is_some()
}

/// Calls a method of a time; `None` if the value is none.
pub(super) fn method(value: &Value, method: &str, arguments: &[Value]) -> Option<Result<Value, Error>> {
    let time = value.downcast_object_ref::<DateTime>()?;
    Some(match (method, arguments) {
        ("strftime", [format]) => match format.as_str() {
            Some(format) => formatted(format, time.0).map(Value::from),
            None => Err(reject("strftime requires a format string")),
        },
        ("isoformat", []) => Ok(time.text('T').into()),
        ("timestamp", []) => Ok((time.0.as_microsecond() as f64 / 1e6).into()),
        _ => Err(reject(format!("the built-in executor does not support method {method} of a time"))),
    })
}

/// Returns a format with Python's meaning of `%f`, which are six digits.
fn with_micros(format: &str) -> String {
    let (mut out, mut rest) = (String::new(), format);
    while let Some(at) = rest.find('%') {
        out.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        if rest.starts_with('f') {
            out.push('6');
        }
        // A percent sign follows as it is.
        let length = rest.chars().next().map_or(0, char::len_utf8);
        out.push_str(&rest[..length]);
        rest = &rest[length..];
    }
    out + rest
}

fn formatted(format: &str, time: Timestamp) -> Result<String, Error> {
    check_size("strftime", format.len().saturating_mul(MAX_DIRECTIVE))?;
    let time = time.to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(with_micros(format), &time).map_err(|error| reject(format!("{format}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_those_of_date() {
        // 2026-11-06 at 07:08:09, with the output of `TZ=UTC date`.
        let time = Timestamp::from_second(1_793_948_889).unwrap();
        for (command, expected) in [
            ("date", "Fri Nov  6 07:08:09 UTC 2026"),
            ("date -u +%FT%TZ", "2026-11-06T07:08:09Z"),
            ("date +%s", "1793948889"),
            ("date --iso-8601=seconds", "2026-11-06T07:08:09+00:00"),
            ("date '+%Y %m'", "2026 11"),
            ("date +\"%H %M\" -u", "07 08"),
            ("date -R", "Fri, 06 Nov 2026 07:08:09 +0000"),
        ] {
            let format = date_format(command).unwrap_or_else(|| panic!("{command}"));
            assert_eq!(formatted(&format, time).unwrap(), expected, "{command}");
        }
        for command in
            ["dates", "date; ls", "date +%F $(ls)", "date -d yesterday", "date '+%F", "ls", "date -f/etc/passwd"]
        {
            assert_eq!(date_format(command), None, "{command}");
        }
        assert!(formatted(&"%Y".repeat(10_000), time).is_err());
    }
}
