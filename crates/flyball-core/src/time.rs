//! A clock that simulations can control, and time formats of Kubernetes.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use jiff::{SignedDuration, Timestamp};

/// A source of wall-clock time.
///
/// All components take the time from an injected `Clock`, so that a simulation can replace it.
#[derive(Clone)]
#[doc(alias = "FakeClock")]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Creates a clock that reads the system time.
    #[expect(clippy::disallowed_methods, reason = "the only place that reads the wall clock")]
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// Creates a clock that calls `now` each time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// Returns the time in the format of `metadata.creationTimestamp`: RFC 3339 in UTC, whole seconds.
    pub fn now_rfc3339(&self) -> String {
        rfc3339(self.now())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

/// Adds a duration to a time. The result saturates, because objects may contain times up to the end of the year 9999
/// and durations of any length.
pub fn saturating_add(time: Timestamp, duration: SignedDuration) -> Timestamp {
    let limit = if duration.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    time.checked_add(duration).unwrap_or(limit)
}

/// Formats a time like Kubernetes' `Time`: `2026-11-21T08:00:00Z`.
pub fn rfc3339(time: Timestamp) -> String {
    format!("{:.0}", Timestamp::from_second(time.as_second()).expect("a second of a timestamp is in range"))
}

/// Formats a time like Kubernetes' `MicroTime`: always with six digits.
pub fn rfc3339_micro(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Returns true if a time zone of this name exists.
pub fn is_time_zone(name: &str) -> bool {
    jiff::tz::db().get(name).is_ok()
}

/// Formats a time as RFC 3339 with whole seconds in a time zone, or in UTC if there is no zone of this name.
pub fn rfc3339_in(time: Timestamp, zone: &str) -> String {
    let zoned = jiff::tz::db().get(zone).ok().map(|zone| time.to_zoned(zone));
    match zoned.filter(|zoned| !zoned.offset().is_zero()) {
        Some(zoned) => zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        None => rfc3339(time),
    }
}

/// Parses an RFC 3339 time with any offset; `None` if Go's `time.RFC3339` layout rejects it.
pub fn parse_rfc3339(text: &str) -> Option<Timestamp> {
    let bytes = text.as_bytes();
    let digits = |range: std::ops::Range<usize>| bytes.get(range).is_some_and(|b| b.iter().all(u8::is_ascii_digit));
    let shape = digits(0..4)
        && digits(5..7)
        && digits(8..10)
        && bytes.get(10) == Some(&b'T')
        && digits(11..13)
        && digits(14..16)
        && digits(17..19);
    if !shape || bytes[4] != b'-' || bytes[7] != b'-' || bytes[13] != b':' || bytes[16] != b':' {
        return None;
    }
    let zone = text[19..].trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
    let known = zone == "Z"
        || zone.len() == 6 && (zone.starts_with('+') || zone.starts_with('-')) && zone.as_bytes()[3] == b':';
    if !known || &text[17..19] == "60" { None } else { text.parse().ok() }
}

/// Formats an age like tables of kubectl: `5s`, `3m20s`, `4h`, `2d3h`, `1y20d`.
pub fn human_duration(age: SignedDuration) -> String {
    let seconds = age.as_secs();
    if seconds < -1 {
        return "<invalid>".into();
    }
    if seconds < 0 {
        return "0s".into();
    }
    let (minutes, hours) = (seconds / 60, seconds / 3600);
    let (days, years) = (hours / 24, hours / 24 / 365);
    let pair = |whole: i64, unit: char, rest: i64, small: char| {
        if rest == 0 { format!("{whole}{unit}") } else { format!("{whole}{unit}{rest}{small}") }
    };
    match () {
        () if seconds < 120 => format!("{seconds}s"),
        () if minutes < 10 => pair(minutes, 'm', seconds % 60, 's'),
        () if minutes < 180 => format!("{minutes}m"),
        () if hours < 8 => pair(hours, 'h', minutes % 60, 'm'),
        () if hours < 48 => format!("{hours}h"),
        () if hours < 192 => pair(days, 'd', hours % 24, 'h'),
        () if years < 2 => format!("{days}d"),
        () if years < 8 => pair(years, 'y', days % 365, 'd'),
        () => format!("{years}y"),
    }
}

/// An error of parsing a duration, with Go's messages.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// The duration is malformed, or does not fit into 64 bits.
    #[error("time: invalid duration {}", go_quote(.text))]
    Invalid {
        /// The duration.
        text: String,
    },
    /// A number has no unit.
    #[error("time: missing unit in duration {}", go_quote(.text))]
    MissingUnit {
        /// The duration.
        text: String,
    },
    /// A unit is unknown.
    #[error("time: unknown unit {} in duration {}", go_quote(.unit), go_quote(.text))]
    UnknownUnit {
        /// The unit.
        unit: String,
        /// The duration.
        text: String,
    },
}

/// Quotes a string like Go's `time` package, byte by byte.
fn go_quote(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for byte in text.bytes() {
        match byte {
            b'"' | b'\\' => quoted.extend(['\\', char::from(byte)]),
            b' '..0x80 => quoted.push(char::from(byte)),
            _ => quoted += &format!("\\x{byte:02x}"),
        }
    }
    quoted.push('"');
    quoted
}

/// Parses a duration such as `1h30m` into nanoseconds, like Go's `time.ParseDuration`.
///
/// # Errors
///
/// Fails if Go rejects it.
pub fn parse_duration(text: &str) -> Result<i64, DurationError> {
    let invalid = || DurationError::Invalid { text: text.to_owned() };
    let (is_negative, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Ok(0);
    }
    if rest.is_empty() {
        return Err(invalid());
    }
    let mut total: u64 = 0;
    while !rest.is_empty() {
        let (whole, after) = digits(rest);
        let (fraction, after) = after.strip_prefix('.').map_or(("", after), digits);
        if whole.is_empty() && fraction.is_empty() {
            return Err(invalid());
        }
        let (unit, next) = after.split_at(after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len()));
        let scale: u64 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            "" => return Err(DurationError::MissingUnit { text: text.to_owned() }),
            unit => return Err(DurationError::UnknownUnit { unit: unit.to_owned(), text: text.to_owned() }),
        };
        let whole: u64 = if whole.is_empty() { 0 } else { whole.parse().map_err(|_| invalid())? };
        let (numerator, denominator) = fraction_of(fraction);
        let part = (numerator as f64 * (scale as f64 / denominator)) as u64;
        let nanos = whole.checked_mul(scale).and_then(|nanos| nanos.checked_add(part)?.checked_add(total));
        total = nanos.filter(|nanos| *nanos <= 1 << 63).ok_or_else(invalid)?;
        rest = next;
    }
    match is_negative {
        true => Ok(0i64.wrapping_sub_unsigned(total)),
        false => i64::try_from(total).map_err(|_| invalid()),
    }
}

/// Splits off the digits at the beginning of a string.
fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len()))
}

/// Parses the digits after a decimal point into a numerator and a denominator; excess digits are dropped.
fn fraction_of(digits: &str) -> (u64, f64) {
    let (mut numerator, mut denominator) = (0, 1.0);
    for digit in digits.bytes() {
        let longer = (numerator <= i64::MAX as u64 / 10).then(|| numerator * 10 + u64::from(digit - b'0'));
        let Some(longer) = longer.filter(|longer| *longer <= 1 << 63) else { break };
        (numerator, denominator) = (longer, denominator * 10.0);
    }
    (numerator, denominator)
}

/// Parses a nonnegative duration, like [`parse_duration`].
pub fn parse_unsigned_duration(text: &str) -> Option<Duration> {
    parse_duration(text).ok().and_then(|nanos| u64::try_from(nanos).ok()).map(Duration::from_nanos)
}

/// Formats nanoseconds like a duration in Go: `1h30m0s`, `1.5s`, `100ms`.
pub fn format_duration(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let n = nanos.unsigned_abs();
    let decimal = |whole: u64, unit: u64| {
        let fraction = whole % unit;
        if fraction == 0 {
            return (whole / unit).to_string();
        }
        let digits = format!("{fraction:0width$}", width = unit.ilog10() as usize);
        format!("{}.{}", whole / unit, digits.trim_end_matches('0'))
    };
    let text = match n {
        0 => "0s".into(),
        n if n < 1_000 => format!("{n}ns"),
        n if n < 1_000_000 => format!("{}µs", decimal(n, 1_000)),
        n if n < 1_000_000_000 => format!("{}ms", decimal(n, 1_000_000)),
        n => {
            let (minutes, seconds) = (n / 60_000_000_000, decimal(n % 60_000_000_000, 1_000_000_000));
            match (minutes / 60, minutes % 60) {
                (0, 0) => format!("{seconds}s"),
                (0, m) => format!("{m}m{seconds}s"),
                (h, m) => format!("{h}h{m}m{seconds}s"),
            }
        }
    };
    format!("{sign}{text}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_print_as_kubernetes_prints_them() {
        let time: Timestamp = "2026-11-21T08:00:01.987654321Z".parse().unwrap();
        assert_eq!(rfc3339(time), "2026-11-21T08:00:01Z");
        assert_eq!(rfc3339_micro(time), "2026-11-21T08:00:01.987654Z");
    }

    #[test]
    fn only_times_valid_in_go_are_parsed() {
        assert_eq!(rfc3339(parse_rfc3339("2026-01-01T02:00:00+02:00").unwrap()), "2026-01-01T00:00:00Z");
        for bad in [
            "2026-01-01",
            "2026-01-01T00:00:00",
            "2026-01-01 00:00:00Z",
            "2026-13-01T00:00:00Z",
            "x",
            "2026-01-01T00:00:00+0200",
        ] {
            assert_eq!(parse_rfc3339(bad), None, "{bad}");
        }
    }

    #[test]
    fn ages_print_as_kubectl_prints_them() {
        let cases = [
            (-5, "<invalid>"),
            (0, "0s"),
            (119, "119s"),
            (120, "2m"),
            (200, "3m20s"),
            (600, "10m"),
            (10_799, "179m"),
            (10_800, "3h"),
            (14_460, "4h1m"),
            (30_000, "8h"),
            (172_800, "2d"),
            (180_000, "2d2h"),
            (691_200, "8d"),
            (63_072_000, "2y"),
            (64_800_000, "2y20d"),
            (252_288_000, "8y"),
        ];
        for (seconds, text) in cases {
            assert_eq!(human_duration(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn durations_parse_and_print_as_in_go() {
        for (text, nanos, printed) in [
            ("0", 0, "0s"),
            ("+90s", 90_000_000_000, "1m30s"),
            ("1.5h", 5_400_000_000_000, "1h30m0s"),
            ("100ms", 100_000_000, "100ms"),
            ("1500us", 1_500_000, "1.5ms"),
            (".5µs", 500, "500ns"),
            ("1.s", 1_000_000_000, "1s"),
            ("-5m", -300_000_000_000, "-5m0s"),
            ("1h1ns", 3_600_000_000_001, "1h0m0.000000001s"),
            ("0.3333333333333333333h", 1_200_000_000_000, "20m0s"),
            ("0.100000000000000000000h", 360_000_000_000, "6m0s"),
            ("9223372036854775807ns", i64::MAX, "2562047h47m16.854775807s"),
            ("-9223372036854775808ns", i64::MIN, "-2562047h47m16.854775808s"),
        ] {
            assert_eq!(parse_duration(text), Ok(nanos), "{text}");
            assert_eq!(format_duration(nanos), printed, "{text}");
        }
        for (text, error) in [
            ("", r#"time: invalid duration """#),
            (".s", r#"time: invalid duration ".s""#),
            ("--1s", r#"time: invalid duration "--1s""#),
            ("s", r#"time: invalid duration "s""#),
            ("9223372036854775808ns", r#"time: invalid duration "9223372036854775808ns""#),
            ("99999999999999999999h", r#"time: invalid duration "99999999999999999999h""#),
            ("3000000h", r#"time: invalid duration "3000000h""#),
            ("5", r#"time: missing unit in duration "5""#),
            ("1h5", r#"time: missing unit in duration "1h5""#),
            ("1.2.3s", r#"time: missing unit in duration "1.2.3s""#),
            ("1 s", r#"time: unknown unit " s" in duration "1 s""#),
            ("1d\né\"", r#"time: unknown unit "d\x0a\xc3\xa9\"" in duration "1d\x0a\xc3\xa9\"""#),
        ] {
            assert_eq!(parse_duration(text).unwrap_err().to_string(), error);
        }
        assert_eq!(parse_unsigned_duration("1m"), Some(Duration::from_secs(60)));
        assert_eq!(parse_unsigned_duration("-1m"), None);
    }
}
