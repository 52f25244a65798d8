//! Cron schedules, with the names, time zones and intervals of a
//! [`CronJob`](https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/#schedule-syntax) .

use crate::field::go_quote;
use crate::time::{SignedDuration, Timestamp, parse_duration};
use jiff::civil::Weekday;
use jiff::tz::TimeZone;
use jiff::{ToSpan, Zoned};

const MONTHS: &[&str] = &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const DAYS: &[&str] = &["sun", "mon", "tue", "wed", "thu", "fri", "sat"];
/// Number of years in which the next time of a schedule is searched.
const YEARS: i16 = 5;

/// Bounds of one field of a schedule: minimum, maximum, and names of the numbers starting at the minimum.
struct Bounds {
    low: u64,
    high: u64,
    names: &'static [&'static str],
}

const FIELDS: [Bounds; 5] = [
    Bounds { low: 0, high: 59, names: &[] },
    Bounds { low: 0, high: 23, names: &[] },
    Bounds { low: 1, high: 31, names: &[] },
    Bounds { low: 1, high: 12, names: MONTHS },
    Bounds { low: 0, high: 6, names: DAYS },
];

const DESCRIPTORS: &[(&str, &str)] = &[
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

/// A recurring schedule.
///
/// ```
/// use flyball_core::cron::Schedule;
///
/// let schedule = Schedule::parse("TZ=Europe/Berlin 30 8-18/2 * * mon-fri").unwrap();
/// let friday = "2026-01-02T17:30:00Z".parse().unwrap();
/// assert_eq!(schedule.next(friday).unwrap().to_string(), "2026-01-05T07:30:00Z");
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Schedule(Rule);

#[derive(Clone, Debug, PartialEq)]
enum Rule {
    Every(SignedDuration),
    Fields { fields: [Field; 5], zone: TimeZone },
}

/// The numbers that one field of a schedule matches.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Field {
    bits: u64,
    /// The field is a star, which matches all numbers.
    is_star: bool,
}

impl Field {
    fn holds(self, number: i8) -> bool {
        u32::try_from(number).is_ok_and(|number| self.bits >> number & 1 == 1)
    }
}

impl Schedule {
    /// Parses a schedule: five fields or one of the `@` forms, optionally after `TZ=` or `CRON_TZ=` and the name of a
    /// time zone. The default is UTC.
    ///
    /// # Errors
    ///
    /// Returns the error message of the API server if the schedule is invalid.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Err("empty spec string".into());
        }
        let (zone, rest) = match text.strip_prefix("TZ=").or_else(|| text.strip_prefix("CRON_TZ=")) {
            Some(zoned) => {
                let (name, rest) = zoned.split_once(' ').unwrap_or((zoned, ""));
                let found = zone(name).ok_or_else(|| format!("provided bad location {name}: unknown time zone {name}"));
                (found?, rest.trim())
            }
            None => (TimeZone::UTC, text),
        };
        let rest = match DESCRIPTORS.iter().find(|(name, _)| *name == rest) {
            Some((_, fields)) => fields,
            None if rest.starts_with('@') => return interval(rest),
            None => rest,
        };
        let texts: Vec<&str> = rest.split_whitespace().collect();
        if texts.len() != FIELDS.len() {
            return Err(format!("expected exactly 5 fields, found {}: [{}]", texts.len(), texts.join(" ")));
        }
        let mut fields = [Field::default(); 5];
        for ((field, text), bounds) in fields.iter_mut().zip(texts).zip(&FIELDS) {
            for part in text.split(',').filter(|part| !part.is_empty()) {
                let part = range(part, bounds)?;
                *field = Field { bits: field.bits | part.bits, is_star: field.is_star | part.is_star };
            }
        }
        Ok(Self(Rule::Fields { fields, zone }))
    }

    /// Returns the first time after this one; `None` if there is none in the next years, as for the 30th of February.
    pub fn next(&self, after: Timestamp) -> Option<Timestamp> {
        match &self.0 {
            Rule::Every(interval) => Timestamp::from_second(after.as_second()).ok()?.checked_add(*interval).ok(),
            Rule::Fields { fields, zone } => next(fields, zone, after),
        }
    }
}

fn zone(name: &str) -> Option<TimeZone> {
    if name.is_empty() || name == "UTC" { Some(TimeZone::UTC) } else { TimeZone::get(name).ok() }
}

fn interval(text: &str) -> Result<Schedule, String> {
    let Some(duration) = text.strip_prefix("@every ") else { return Err(format!("unrecognized descriptor: {text}")) };
    let nanoseconds = parse_duration(duration).map_err(|error| format!("failed to parse duration {text}: {error}"))?;
    Ok(Schedule(Rule::Every(SignedDuration::from_secs((nanoseconds / 1_000_000_000).max(1)))))
}

/// Advances the time, from the largest field to the smallest, until all fields match; a field that wraps starts over.
fn next(fields: &[Field; 5], zone: &TimeZone, after: Timestamp) -> Option<Timestamp> {
    let [minutes, hours, days, months, weekdays] = fields;
    // Either the day or the weekday must match; if one of them is a star, the other must.
    let is_day = |at: &Zoned| {
        let weekday = weekdays.holds(at.weekday().since(Weekday::Sunday));
        let day = days.holds(at.day());
        if days.is_star || weekdays.is_star { day && weekday } else { day || weekday }
    };
    let first = after.as_second().checked_sub(after.as_second().rem_euclid(60))?.checked_add(60)?;
    let mut at = Timestamp::from_second(first).ok()?.to_zoned(zone.clone());
    let last = at.year().saturating_add(YEARS);
    while at.year() <= last {
        at = if !months.holds(at.month()) {
            at.first_of_month().ok()?.checked_add(1.month()).ok()?.start_of_day().ok()?
        } else if !is_day(&at) {
            at.tomorrow().ok()?.start_of_day().ok()?
        } else if !hours.holds(at.hour()) {
            at.checked_add(1.hour()).ok()?.with().minute(0).build().ok()?
        } else if !minutes.holds(at.minute()) {
            at.checked_add(1.minute()).ok()?
        } else {
            return Some(at.timestamp());
        };
    }
    None
}

fn range(expression: &str, bounds: &Bounds) -> Result<Field, String> {
    let steps: Vec<&str> = expression.split('/').collect();
    let ends: Vec<&str> = steps[0].split('-').collect();
    let is_any = matches!(ends[0], "*" | "?");
    let (start, mut end) = if is_any {
        (bounds.low, bounds.high)
    } else {
        let start = number_or_name(ends[0], bounds)?;
        match ends.as_slice() {
            [_] => (start, start),
            [_, end] => (start, number_or_name(end, bounds)?),
            _ => return Err(format!("too many hyphens: {expression}")),
        }
    };
    let step = match steps.as_slice() {
        [_] => 1,
        [_, step] => {
            if ends.len() == 1 {
                end = bounds.high;
            }
            number(step)?
        }
        _ => return Err(format!("too many slashes: {expression}")),
    };
    if start < bounds.low {
        return Err(format!("beginning of range ({start}) below minimum ({}): {expression}", bounds.low));
    }
    if end > bounds.high {
        return Err(format!("end of range ({end}) above maximum ({}): {expression}", bounds.high));
    }
    if start > end {
        return Err(format!("beginning of range ({start}) beyond end of range ({end}): {expression}"));
    }
    if step == 0 {
        return Err(format!("step of range should be a positive number: {expression}"));
    }
    let numbers = (start..=end).step_by(usize::try_from(step).unwrap_or(usize::MAX));
    Ok(Field { bits: numbers.fold(0, |bits, number| bits | 1 << number), is_star: is_any && step == 1 })
}

fn number_or_name(text: &str, bounds: &Bounds) -> Result<u64, String> {
    match bounds.names.iter().position(|name| *name == text.to_lowercase()) {
        Some(index) => Ok(bounds.low + index as u64),
        None => number(text),
    }
}

fn number(text: &str) -> Result<u64, String> {
    let bare = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = !bare.is_empty() && bare.bytes().all(|b| b.is_ascii_digit());
    let quoted = go_quote(text);
    if !digits {
        return Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: invalid syntax"));
    }
    match text.parse::<i64>() {
        Err(_) => Err(format!("failed to parse int from {text}: strconv.Atoi: parsing {quoted}: value out of range")),
        Ok(number) if number < 0 => Err(format!("negative number ({number}) not allowed: {text}")),
        Ok(number) => Ok(number.unsigned_abs()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_schedules_are_rejected() {
        for good in
            ["* * * * *", "*/5 0-6 1,15 jan-mar MON", "@hourly", "@every 1h30m", "0 0 1 1 ?", "TZ=UTC 0 0 * * *"]
        {
            assert!(Schedule::parse(good).is_ok(), "{good}");
        }
        for (bad, reason) in [
            ("x", "expected exactly 5 fields, found 1: [x]"),
            ("60 * * * *", "end of range (60) above maximum (59): 60"),
            ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
            ("5-1 * * * *", "beginning of range (5) beyond end of range (1): 5-1"),
            ("*/0 * * * *", "step of range should be a positive number: */0"),
            ("a * * * *", "failed to parse int from a: strconv.Atoi: parsing \"a\": invalid syntax"),
            ("@often", "unrecognized descriptor: @often"),
            ("TZ=Nowhere 0 0 * * *", "provided bad location Nowhere: unknown time zone Nowhere"),
        ] {
            assert_eq!(Schedule::parse(bad), Err(reason.to_owned()), "{bad}");
        }
    }

    #[test]
    fn next_time_follows_the_schedule() {
        let check = |schedule: &str, after: &str, expect: Option<&str>| {
            let next = Schedule::parse(schedule).expect(schedule).next(after.parse().expect(after));
            assert_eq!(next.map(|at| at.to_string()).as_deref(), expect, "{schedule} after {after}");
        };
        let day = |time: &'static str| format!("2012-07-09T{time}Z");
        check("0/15 * * * *", &day("14:45:00"), Some("2012-07-09T15:00:00Z"));
        check("0/15 * * * *", &day("14:59:59.9"), Some("2012-07-09T15:00:00Z"));
        check("20-35/15 * * * *", &day("14:46:00"), Some("2012-07-09T15:20:00Z"));
        check("0/15 14,18 * * *", &day("14:45:00"), Some("2012-07-09T18:00:00Z"));
        check("0 0 * Feb Mon", &day("23:35:00"), Some("2013-02-04T00:00:00Z"));
        check("0 0 29 2 ?", &day("23:35:00"), Some("2016-02-29T00:00:00Z"));
        check("0 0 30 Feb *", &day("23:35:00"), None);
        // Day and weekday are set: either may match.
        check("0 0 13 * fri", &day("00:00:00"), Some("2012-07-13T00:00:00Z"));
        check("0 0 14 * fri", "2012-07-13T00:00:00Z", Some("2012-07-14T00:00:00Z"));
        // A star with a step counts as set.
        check("0 0 */10 * tue", &day("00:00:00"), Some("2012-07-10T00:00:00Z"));
        check("@weekly", &day("00:00:00"), Some("2012-07-15T00:00:00Z"));
        check("@every 90s", &day("00:00:00.5"), Some("2012-07-09T00:01:30Z"));
        // The hour that is skipped in spring, and the one that repeats in autumn.
        check("TZ=America/New_York 30 2 * * *", "2012-03-11T06:00:00Z", Some("2012-03-12T06:30:00Z"));
        check("TZ=America/New_York 0 * * * *", "2012-03-11T06:00:00Z", Some("2012-03-11T07:00:00Z"));
        check("TZ=America/New_York 0 * * * *", "2012-11-04T05:00:00Z", Some("2012-11-04T06:00:00Z"));
        check("TZ=Asia/Kolkata 30 9 * * *", &day("00:00:00"), Some("2012-07-09T04:00:00Z"));
    }
}
