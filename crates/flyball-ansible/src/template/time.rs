//! The time in UTC, in the formats of Python's `strftime` and the program `date`.

use super::lookups::{date_format, unknown_lookup};
use super::output::check_size;
use super::{Scope, reject};
use flyball_core::time::Timestamp;
use jiff::tz::TimeZone;
use minijinja::value::{Kwargs, Value};
use minijinja::{Error, State};

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

fn formatted(format: &str, time: Timestamp) -> Result<String, Error> {
    check_size("strftime", format.len().saturating_mul(MAX_DIRECTIVE))?;
    let time = time.to_zoned(TimeZone::UTC);
    jiff::fmt::strtime::format(format, &time).map_err(|error| reject(format!("{format}: {error}")))
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
