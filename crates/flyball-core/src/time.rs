//! Time that a simulation can hold still, and how Kubernetes writes it.

use std::fmt;
use std::sync::Arc;

pub use jiff::{SignedDuration, Timestamp};

/// Tells the time of day.
///
/// Every part takes its time from a `Clock` that it was given, so that a simulation can put its own in place.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> Timestamp + Send + Sync>);

impl Clock {
    /// Reads the machine's clock.
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
    pub fn system() -> Self {
        Self(Arc::new(Timestamp::now))
    }

    /// Asks `now` each time.
    pub fn new(now: impl Fn() -> Timestamp + Send + Sync + 'static) -> Self {
        Self(Arc::new(now))
    }

    /// Returns the time.
    pub fn now(&self) -> Timestamp {
        (self.0)()
    }

    /// Returns the time as `metadata.creationTimestamp` holds it: RFC 3339 in UTC, whole seconds.
    pub fn now_rfc3339(&self) -> String {
        rfc3339(self.now())
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Clock({})", self.now())
    }
}

/// Adds a duration to a time. The sum stays within the range of times: objects hold times up to the end of the year 9999, and
/// durations of any length.
pub fn saturating_add(time: Timestamp, duration: SignedDuration) -> Timestamp {
    let limit = if duration.is_negative() { Timestamp::MIN } else { Timestamp::MAX };
    time.checked_add(duration).unwrap_or(limit)
}

/// Writes a time as Kubernetes' `Time` does: `2026-11-21T08:00:00Z`.
pub fn rfc3339(time: Timestamp) -> String {
    format!("{:.0}", Timestamp::from_second(time.as_second()).expect("a second of a timestamp is in range"))
}

/// Writes a time as Kubernetes' `MicroTime` does: always six digits.
pub fn rfc3339_micro(time: Timestamp) -> String {
    format!("{time:.6}")
}

/// Tells whether a name is one of the time zones that there are.
pub fn is_time_zone(name: &str) -> bool {
    jiff::tz::db().get(name).is_ok()
}

/// Writes a time as RFC 3339 in a time zone, in UTC if there is no zone of this name; whole seconds.
pub fn rfc3339_in(time: Timestamp, zone: &str) -> String {
    let zoned = jiff::tz::db().get(zone).ok().map(|zone| time.to_zoned(zone));
    match zoned.filter(|zoned| !zoned.offset().is_zero()) {
        Some(zoned) => zoned.strftime("%Y-%m-%dT%H:%M:%S%:z").to_string(),
        None => rfc3339(time),
    }
}

/// Reads an RFC 3339 time with any offset; `None` where Go's `time.RFC3339` layout would refuse it.
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

/// Writes an age as kubectl's tables do: `5s`, `3m20s`, `4h`, `2d3h`, `1y20d`.
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

/// Reads a duration such as `1h30m` into nanoseconds, as Go's `time.ParseDuration` does.
pub fn parse_duration(text: &str) -> Option<i64> {
    let (sign, mut rest) = match text.as_bytes().first()? {
        b'-' => (-1, &text[1..]),
        b'+' => (1, &text[1..]),
        _ => (1, text),
    };
    if rest == "0" {
        return Some(0);
    }
    let mut total: f64 = 0.0;
    let mut exact: i128 = 0;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at(end);
        let unit_end = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, next) = after.split_at(unit_end);
        let scale: i128 = match unit {
            "ns" => 1,
            "us" | "µs" | "μs" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        match number.parse::<i64>() {
            Ok(whole) => exact += i128::from(whole) * scale,
            Err(_) => total += number.parse::<f64>().ok()? * scale as f64,
        }
        rest = next;
    }
    i64::try_from(exact + total as i128).ok().map(|nanos| sign * nanos)
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
    fn only_what_go_reads_is_read() {
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
}
