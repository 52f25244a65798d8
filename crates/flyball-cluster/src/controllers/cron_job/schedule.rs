//! Due time of a schedule, and number of missed times before it.

use flyball_core::cron::Schedule;
use flyball_core::time::{SignedDuration, Timestamp};
use k8s_openapi::api::batch::v1::CronJob;

/// Number of missed times above which a warning is reported.
pub(super) const MANY: i64 = 100;

/// Times at which a schedule is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DueTimes {
    /// Start of the search.
    since: Timestamp,
    /// The last due time since then.
    pub(super) last: Option<Timestamp>,
    /// Approximate number of missed times, without the one that is due now.
    pub(super) missed: i64,
}

impl DueTimes {
    /// Finds the times between the last job, or the creation of the cron job, and `now`. Times before the deadline are
    /// skipped.
    ///
    /// # Errors
    ///
    /// If the schedule has no times, or none after some point in time.
    pub(super) fn find(
        cron_job: &CronJob,
        schedule: &Schedule,
        now: Timestamp,
        deadline: Option<i64>,
    ) -> Result<Self, &'static str> {
        let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
        let began = last.or(cron_job.metadata.creation_timestamp.as_ref()).map_or(now, |time| time.0);
        let cut = deadline.and_then(|seconds| now.checked_sub(SignedDuration::from_secs(seconds)).ok());
        let since = cut.map_or(began, |cut| cut.max(began));
        let none = "time difference between two schedules is less than 1 second";
        let first = schedule.next(since).ok_or(none)?;
        if now < first {
            return Ok(Self { since, last: None, missed: 0 });
        }
        let second = schedule.next(first).ok_or(none)?;
        if now < second {
            return Ok(Self { since, last: Some(first), missed: 0 });
        }
        // Iterating over all of them could take too long: all except the last two are skipped by arithmetic.
        let interval = second.duration_since(first).as_secs();
        if interval < 1 {
            return Err(none);
        }
        let missed = now.duration_since(first).as_secs() / interval + 1;
        let skipped = SignedDuration::from_secs((missed - 2).saturating_mul(interval));
        let mut last = None;
        let mut at = first.checked_add(skipped).ok().and_then(|near| schedule.next(near));
        while let Some(time) = at.filter(|time| *time <= now) {
            (last, at) = (Some(time), schedule.next(time));
        }
        Ok(Self { since, last, missed })
    }
}

/// Returns the next time of a schedule.
pub(super) fn next(cron_job: &CronJob, schedule: &Schedule, now: Timestamp) -> Option<Timestamp> {
    let from = match DueTimes::find(cron_job, schedule, now, None) {
        Ok(DueTimes { last: Some(last), .. }) => last,
        Ok(DueTimes { since, missed: 0, .. }) => since,
        Ok(_) | Err(_) => now,
    };
    schedule.next(from)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn due_time_is_found() {
        let check = |schedule: &str, now: &str, deadline: Option<i64>, expect: Option<&str>, missed: i64| {
            let object = json!({"metadata": {"creationTimestamp": "2026-01-01T00:00:30Z"}});
            let cron_job: CronJob = serde_json::from_value(object).unwrap();
            let schedule = Schedule::parse(schedule).unwrap();
            let due = DueTimes::find(&cron_job, &schedule, now.parse().unwrap(), deadline).unwrap();
            let last = due.last.map(|at| at.to_string());
            assert_eq!((last.as_deref(), due.missed), (expect, missed), "{now}");
        };
        check("* * * * *", "2026-01-01T00:00:59Z", None, None, 0);
        check("* * * * *", "2026-01-01T00:01:00Z", None, Some("2026-01-01T00:01:00Z"), 0);
        check("* * * * *", "2026-01-01T00:05:10Z", None, Some("2026-01-01T00:05:00Z"), 5);
        check("* * * * *", "2026-01-01T00:05:10Z", Some(20), Some("2026-01-01T00:05:00Z"), 0);
        check("* * * * *", "2026-01-01T00:05:40Z", Some(20), None, 0);
        check("* * * * *", "2026-01-01T02:00:00Z", None, Some("2026-01-01T02:00:00Z"), 120);
        // For uneven schedules, the count is an estimate, and times before a long pause are skipped, as upstream.
        check("30 6-16/4 * * 1-5", "2026-01-05T16:00:00Z", None, Some("2026-01-05T14:30:00Z"), 27);
        check("30 6-16/4 * * 1-5", "2026-01-06T00:00:00Z", None, None, 29);
        let never = Schedule::parse("59 23 31 2 *").unwrap();
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        assert!(DueTimes::find(&CronJob::default(), &never, now, None).is_err());
    }
}
