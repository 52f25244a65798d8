//! The times of `--since`, `--until` and `--for`.

use crate::duration::parse_duration;
use crate::error::{Error, Result};
use flyball_core::time::parse_rfc3339;
use std::time::Duration;

/// Parses a time of a flag, in seconds.
pub(super) fn time(flag: &str, text: &str) -> Result<i64> {
    parse_rfc3339(text).map(|time| time.as_second()).ok_or_else(|| invalid_time(flag, text))
}

/// Parses `--since`: a time, or a duration before the end of the period, in seconds.
pub(super) fn since(text: &str, until: i64) -> Result<i64> {
    match (parse_rfc3339(text), parse_duration(text)) {
        (Some(time), _) => Ok(time.as_second()),
        (None, Some(duration)) => Ok(until.saturating_sub(i64::try_from(duration.as_secs()).unwrap_or(i64::MAX))),
        (None, None) => Err(invalid_time("--since", text).hint("or a duration such as 24h")),
    }
}

fn invalid_time(flag: &str, text: &str) -> Error {
    Error::usage(format!("{flag} {text:?} is not a time")).hint("use a time such as 2026-07-01T00:00:00Z")
}

/// Parses the time of a watch.
pub(super) fn watch_time(text: &str) -> Result<Duration, String> {
    let time = parse_duration(text).ok_or("expected a number with a unit, such as 90s or 10m")?;
    if time < Duration::from_secs(1) { Err("must be a second or more, such as 10m".into()) } else { Ok(time) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn begin_is_a_time_or_a_duration_before_the_end() {
        assert_eq!(since("1d", 100_000).unwrap(), 100_000 - 86_400);
        assert_eq!(since("1970-01-01T00:01:00Z", 100_000).unwrap(), 60);
        let error = since("yesterday", 0).unwrap_err();
        assert!(error.to_string().contains("--since \"yesterday\"") && error.hints().len() == 2, "{error}");
        assert!(time("--until", "1d").unwrap_err().to_string().contains("--until"));
    }

    #[test]
    fn watch_time_has_a_unit() {
        assert_eq!(watch_time("90s"), Ok(Duration::from_secs(90)));
        assert!(watch_time("3").unwrap_err().contains("with a unit"));
        for text in ["0", "300ms"] {
            assert!(watch_time(text).unwrap_err().contains("a second or more"), "{text}");
        }
    }
}
