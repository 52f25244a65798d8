//! Periods of reports.

use crate::api::{Report, ReportPeriod, ReportSchedule};
use flyball_core::cron::Schedule;
use flyball_core::time::{Timestamp, parse_rfc3339, rfc3339};

/// The reason why a report has no period.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A time is not RFC 3339.
    #[error("{field}: {value:?} is not a time such as 2026-07-01T00:00:00Z")]
    Time {
        /// The field.
        field: &'static str,
        /// The value.
        value: String,
    },
    /// The schedule is invalid.
    #[error("spec.schedule: {problem}")]
    Schedule {
        /// The problem.
        problem: String,
    },
    /// There is neither a schedule nor a period.
    #[error("spec: a report without schedule needs reportingStart and reportingEnd")]
    Incomplete,
}

/// Start and end of a period of a report, in Unix seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Period {
    /// Begin.
    pub since: i64,
    /// End.
    pub until: i64,
}

/// The boundaries of the periods of a schedule.
#[derive(Clone, Debug)]
struct Boundaries {
    schedule: Schedule,
    second: i64,
}

impl Boundaries {
    fn new(schedule: &ReportSchedule) -> Result<Self, Error> {
        let (text, second) = match schedule.period {
            ReportPeriod::Hourly => {
                let at = schedule.hourly.unwrap_or_default();
                (format!("{} * * * *", at.minute), at.second)
            }
            ReportPeriod::Daily => {
                let at = schedule.daily.unwrap_or_default();
                (format!("{} {} * * *", at.minute, at.hour), at.second)
            }
            ReportPeriod::Weekly => {
                let at = schedule.weekly.clone().unwrap_or_default();
                let day = if at.day_of_week.is_empty() { "monday" } else { &at.day_of_week };
                let day = day.get(..3).unwrap_or(day).to_ascii_lowercase();
                (format!("{} {} * * {day}", at.minute, at.hour), at.second)
            }
            ReportPeriod::Monthly => {
                let at = schedule.monthly.unwrap_or_default();
                (format!("{} {} {} * *", at.minute, at.hour, at.day_of_month.max(1)), at.second)
            }
            ReportPeriod::Cron => (schedule.cron.clone().unwrap_or_default().expression, 0),
        };
        let invalid = |problem: String| Error::Schedule { problem };
        if !(0..60).contains(&second) {
            return Err(invalid(format!("second: {second} is not from 0 to 59")));
        }
        Ok(Self { schedule: Schedule::parse(&text).map_err(invalid)?, second })
    }

    /// Returns the first boundary after a time.
    fn next(&self, after: i64) -> Result<i64, Error> {
        let after = Timestamp::from_second(after - self.second).ok();
        let next = after.and_then(|after| self.schedule.next(after));
        let next = next.ok_or_else(|| Error::Schedule { problem: "it has no further time".into() })?;
        Ok(next.as_second() + self.second)
    }
}

/// Returns the next period of a report, none if it is finished.
///
/// The first period of a schedule begins at `reportingStart`, or at the first boundary after the creation of the
/// report. The last one ends at `reportingEnd`.
///
/// # Errors
///
/// If the schedule or a time is invalid.
pub fn next_period(report: &Report, created: i64) -> Result<Option<Period>, Error> {
    let spec = &report.spec;
    let start = parse("spec.reportingStart", spec.reporting_start.as_deref())?;
    let end = parse("spec.reportingEnd", spec.reporting_end.as_deref())?;
    let last = report.status.as_ref().and_then(|status| status.last_report_time.as_deref());
    let last = parse("status.lastReportTime", last)?;
    let Some(schedule) = &spec.schedule else {
        let (Some(since), Some(until)) = (start, end) else { return Err(Error::Incomplete) };
        return Ok(last.is_none().then_some(Period { since, until }));
    };
    if let (true, Some(since), Some(until)) = (spec.run_immediately, start, end) {
        return Ok(last.is_none().then_some(Period { since, until }));
    }
    let boundaries = Boundaries::new(schedule)?;
    let since = match last.or(start) {
        Some(since) => since,
        None => boundaries.next(created - 1)?,
    };
    if end.is_some_and(|end| since >= end) {
        return Ok(None);
    }
    let until = boundaries.next(since)?;
    Ok(Some(Period { since, until: end.map_or(until, |end| until.min(end)) }))
}

/// Returns the number of periods without results that end until a time, at most `limit`.
///
/// # Errors
///
/// If the schedule or a time is invalid.
pub fn missed_periods(report: &Report, created: i64, until: i64, limit: usize) -> Result<usize, Error> {
    let (mut ahead, mut count) = (report.clone(), 0);
    while count < limit
        && let Some(period) = next_period(&ahead, created)?.filter(|period| period.until <= until)
    {
        count += 1;
        let end = Timestamp::from_second(period.until).ok().map(rfc3339);
        ahead.status.get_or_insert_default().last_report_time = end;
    }
    Ok(count)
}

fn parse(field: &'static str, text: Option<&str>) -> Result<Option<i64>, Error> {
    let parse = |text: &str| {
        let time = parse_rfc3339(text).map(|time| time.as_second());
        time.ok_or_else(|| Error::Time { field, value: text.to_owned() })
    };
    text.map(parse).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn periods(spec: Value, created: &str, count: usize) -> Vec<String> {
        let object = json!({"metadata": {"name": "r"}, "spec": spec});
        let mut report: Report = serde_json::from_value(object).unwrap();
        let created = parse_rfc3339(created).unwrap().as_second();
        let mut found = Vec::new();
        while let Some(period) = next_period(&report, created).unwrap().filter(|_| found.len() < count) {
            let text = |time| Timestamp::from_second(time).unwrap().to_string();
            found.push(format!("{} {}", text(period.since), text(period.until)));
            report.status.get_or_insert_default().last_report_time = Some(text(period.until));
        }
        found
    }

    #[test]
    fn periods_follow_the_schedule() {
        let created = "2026-01-31T10:20:30Z";
        let check = |spec: Value, expected: &[&str]| assert_eq!(periods(spec, created, 2), expected);
        check(
            json!({"query": "q", "schedule": {"period": "hourly"}}),
            &["2026-01-31T11:00:00Z 2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z 2026-01-31T13:00:00Z"],
        );
        check(
            json!({"query": "q", "schedule": {"period": "hourly", "hourly": {"minute": 20, "second": 30}}}),
            &["2026-01-31T10:20:30Z 2026-01-31T11:20:30Z", "2026-01-31T11:20:30Z 2026-01-31T12:20:30Z"],
        );
        check(
            json!({"query": "q", "schedule": {"period": "daily", "daily": {"hour": 6}},
                "reportingStart": "2026-01-01T00:00:00Z"}),
            &["2026-01-01T00:00:00Z 2026-01-01T06:00:00Z", "2026-01-01T06:00:00Z 2026-01-02T06:00:00Z"],
        );
        check(
            json!({"query": "q", "schedule": {"period": "weekly", "weekly": {"dayOfWeek": "Wednesday", "hour": 13}}}),
            &["2026-02-04T13:00:00Z 2026-02-11T13:00:00Z", "2026-02-11T13:00:00Z 2026-02-18T13:00:00Z"],
        );
        check(
            json!({"query": "q", "schedule": {"period": "monthly"}}),
            &["2026-02-01T00:00:00Z 2026-03-01T00:00:00Z", "2026-03-01T00:00:00Z 2026-04-01T00:00:00Z"],
        );
        check(
            json!({"query": "q", "schedule": {"period": "cron", "cron": {"expression": "*/5 * * * *"}}}),
            &["2026-01-31T10:25:00Z 2026-01-31T10:30:00Z", "2026-01-31T10:30:00Z 2026-01-31T10:35:00Z"],
        );
    }

    #[test]
    fn last_period_ends_at_the_reporting_end() {
        let spec = json!({"query": "q", "schedule": {"period": "weekly"}, "reportingStart": "2026-07-01T00:00:00Z",
            "reportingEnd": "2026-07-08T00:00:00Z"});
        let expected = ["2026-07-01T00:00:00Z 2026-07-06T00:00:00Z", "2026-07-06T00:00:00Z 2026-07-08T00:00:00Z"];
        assert_eq!(periods(spec, "2026-01-01T00:00:00Z", 9), expected);
        let once = json!({"query": "q", "reportingStart": "2026-07-01T00:00:00Z",
            "reportingEnd": "2026-07-08T00:00:00Z"});
        assert_eq!(periods(once, "2026-01-01T00:00:00Z", 9), ["2026-07-01T00:00:00Z 2026-07-08T00:00:00Z"]);
    }

    #[test]
    fn missed_periods_are_counted_up_to_the_limit() {
        let count = |spec: Value, until: &str| {
            let report: Report = serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap();
            missed_periods(&report, 0, parse_rfc3339(until).unwrap().as_second(), 100).unwrap()
        };
        let hourly = |end: &str| {
            json!({"query": "q", "schedule": {"period": "hourly"}, "reportingStart": "2026-07-01T00:00:00Z",
                "reportingEnd": end})
        };
        assert_eq!(count(hourly("2027-01-01T00:00:00Z"), "2026-07-01T00:59:59Z"), 0);
        assert_eq!(count(hourly("2027-01-01T00:00:00Z"), "2026-07-01T10:59:59Z"), 10);
        assert_eq!(count(hourly("2026-07-01T04:30:00Z"), "2026-07-01T10:59:59Z"), 5);
        assert_eq!(count(hourly("2027-01-01T00:00:00Z"), "2026-12-01T00:00:00Z"), 100);
        let once = json!({"query": "q", "reportingStart": "2026-07-01T00:00:00Z",
            "reportingEnd": "2026-07-02T00:00:00Z"});
        assert_eq!(count(once, "2026-12-01T00:00:00Z"), 1);
    }

    #[test]
    fn invalid_schedules_name_the_field() {
        let report = |spec: Value| -> Report { serde_json::from_value(json!({"metadata": {}, "spec": spec})).unwrap() };
        let cron = json!({"query": "q", "schedule": {"period": "cron", "cron": {"expression": "61 * * * *"}}});
        assert!(next_period(&report(cron), 0).unwrap_err().to_string().starts_with("spec.schedule: "));
        assert_eq!(next_period(&report(json!({"query": "q"})), 0), Err(Error::Incomplete));
    }
}
