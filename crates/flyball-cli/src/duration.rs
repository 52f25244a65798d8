//! Durations of the command line: those of Go, such as `1h30m`, and days and weeks, such as `2d` and `1w`.

use flyball_core::time::parse_unsigned_duration;
use std::time::Duration;

/// Forms of durations, for the help. Files and environment variables have those of Go.
pub(crate) const HELP: &str =
    "Durations of flags are numbers with units: 300ms, 30s, 10m, 1h30m, 2d (days of 24 hours), 1w";

/// Parses a duration that is not negative.
pub(crate) fn parse_duration(text: &str) -> Option<Duration> {
    if !text.contains(['d', 'w']) {
        return parse_unsigned_duration(text);
    }
    let (mut total, mut rest) = (Duration::ZERO, text);
    while !rest.is_empty() {
        let is_number = |c: char| c.is_ascii_digit() || c == '.';
        let unit = rest.find(|c: char| !is_number(c))?;
        let end = rest[unit..].find(is_number).map_or(rest.len(), |length| unit + length);
        let part = match &rest[unit..end] {
            "d" => parse_unsigned_duration(&format!("{}h", &rest[..unit]))?.checked_mul(24)?,
            "w" => parse_unsigned_duration(&format!("{}h", &rest[..unit]))?.checked_mul(7 * 24)?,
            _ => parse_unsigned_duration(&rest[..end])?,
        };
        (total, rest) = (total.checked_add(part)?, &rest[end..]);
    }
    Some(total)
}

/// Parses the value of a flag, which may be zero.
pub(crate) fn parse_flag(text: &str) -> Result<Duration, String> {
    parse_duration(text).ok_or_else(|| "expected a duration such as 30s, 2m or 1d".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_days_and_weeks() {
        let (hour, day) = (3600.0, 24.0 * 3600.0);
        for (text, seconds) in [
            ("0", 0.0),
            ("1h30m", 1.5 * hour),
            ("300ms", 0.3),
            ("2d", 2.0 * day),
            ("1w", 7.0 * day),
            ("1w2d3h", 9.0 * day + 3.0 * hour),
            ("0.5d", day / 2.0),
        ] {
            assert_eq!(parse_duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
        for text in ["", "d", "1", "1 d", "-1d", "1dd", "1x", "1d5", "1days", ".d", "1é", "99999999999999999999d"] {
            assert_eq!(parse_duration(text), None, "{text}");
        }
        assert!(parse_flag("1d").is_ok() && parse_flag("tomorrow").is_err());
    }
}
