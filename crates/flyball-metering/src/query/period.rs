//! The SQL that adds up gauges and usage over a period.
//!
//! Whole days are read from day buckets, the hours before and after them from hour buckets, and the rest from buckets
//! of 5 minutes as long as they exist. A bucket that lies in the period in part counts in proportion: to the part of it
//! in which usage was collected, if that is known, otherwise to all of it.

use crate::meter::Meter;
use crate::store::OPEN;

/// A period of a report, and the completeness of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Period {
    /// Begin in seconds.
    pub(super) since: i64,
    /// End in seconds.
    pub(super) until: i64,
    /// Time up to which state is known; open intervals end there.
    pub(super) state_until: i64,
    /// Time since which buckets of 5 minutes exist.
    pub(super) fine_since: i64,
    /// Time since which usage was collected, 0 if it is not known.
    pub(super) usage_since: i64,
    /// Time up to which usage was collected, the maximum if it is not known.
    pub(super) usage_until: i64,
}

impl Period {
    /// Returns a query for series, amount and seconds of a gauge.
    pub(super) fn gauge(&self, meter: Meter) -> String {
        let parts = self.gauge_parts(meter);
        format!(
            "SELECT series, integral(value, seconds) AS amount, sum(seconds) AS seconds FROM ({parts}) GROUP BY series"
        )
    }

    /// Returns a query for series, value and seconds of the intervals of a gauge.
    pub(super) fn gauge_parts(&self, meter: Meter) -> String {
        let (since, until) = (self.since, self.until.min(self.state_until).max(self.since));
        let (meter, open) = (meter.id(), OPEN);
        format!(
            "SELECT series, value, min(until, {until}) - max(since, {since}) AS seconds FROM flyball_gauge
             WHERE meter = {meter} AND until > {since} AND until <= {open} AND since < {until}"
        )
    }

    /// Returns a query for series, value and factor of a meter: their products add up to the amount.
    pub(super) fn rows(&self, meter: Meter) -> String {
        match meter.is_gauge() {
            true => format!("SELECT series, value, seconds AS factor FROM ({})", self.gauge_parts(meter)),
            false => format!("SELECT series, amount AS value, 1 AS factor FROM ({})", self.usage_parts(meter)),
        }
    }

    /// Returns a query for series, amount and seconds of usage.
    pub(super) fn usage(&self, meter: Meter) -> String {
        let parts = self.usage_parts(meter);
        format!("SELECT series, exact_sum(amount) AS amount, sum(seconds) AS seconds FROM ({parts}) GROUP BY series")
    }

    /// Returns a query for series, bucket, amount and seconds.
    pub(super) fn usage_parts(&self, meter: Meter) -> String {
        let parts: Vec<String> = self.segments().into_iter().map(|segment| segment.sql(meter, self)).collect();
        match parts.is_empty() {
            true => Segment { length: 300, since: self.since, until: self.since }.sql(meter, self),
            false => parts.join(" UNION ALL "),
        }
    }

    /// Cuts the period into segments of equal bucket length.
    fn segments(&self) -> Vec<Segment> {
        const HOUR: i64 = 3600;
        const DAY: i64 = 86_400;
        let up = |time: i64, length: i64| -(-time).div_euclid(length) * length;
        let down = |time: i64, length: i64| time.div_euclid(length) * length;
        let (first_hour, last_hour) = (up(self.since, HOUR), down(self.until, HOUR));
        let fine = |since: i64, until: i64| {
            let length = if down(since, HOUR) >= self.fine_since { 300 } else { HOUR };
            Segment { length, since, until }
        };
        let segments = if first_hour >= last_hour {
            let middle = first_hour.clamp(self.since, self.until);
            vec![fine(self.since, middle), fine(middle, self.until)]
        } else {
            let (first_day, last_day) = (up(first_hour, DAY), down(last_hour, DAY));
            let mut segments = vec![fine(self.since, first_hour)];
            if first_day < last_day {
                segments.push(Segment { length: HOUR, since: first_hour, until: first_day });
                segments.push(Segment { length: DAY, since: first_day, until: last_day });
                segments.push(Segment { length: HOUR, since: last_day, until: last_hour });
            } else {
                segments.push(Segment { length: HOUR, since: first_hour, until: last_hour });
            }
            segments.push(fine(last_hour, self.until));
            segments
        };
        segments.into_iter().filter(|segment| segment.since < segment.until).collect()
    }
}

/// A part of a period that is read from buckets of one length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Segment {
    length: i64,
    since: i64,
    until: i64,
}

impl Segment {
    fn sql(&self, meter: Meter, period: &Period) -> String {
        let (length, since, until, meter) = (self.length, self.since, self.until, meter.id());
        let (first, last) = (since.div_euclid(length), -(-until).div_euclid(length));
        let range =
            format!("FROM flyball_usage_{length} WHERE meter = {meter} AND bucket >= {first} AND bucket < {last}");
        if since % length == 0 && until % length == 0 {
            return format!("SELECT series, bucket * {length} AS bucket, {length} AS length, amount, seconds {range}");
        }
        // The part of the bucket in which usage was collected, and the part of that in the period.
        let begin = format!("max(bucket * {length}, {})", period.usage_since);
        let end = format!("min(bucket * {length} + {length}, {})", period.usage_until);
        let from = format!("max({since} - {begin}, 0)");
        let to = format!("max(min({until}, {end}) - {begin}, {from})");
        let part = |column: &str| format!("portion({column}, {end} - {begin}, {from}, {to}) AS {column}");
        let (amount, seconds) = (part("amount"), part("seconds"));
        format!("SELECT series, bucket * {length} AS bucket, {length} AS length, {amount}, {seconds} {range}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(since: i64, until: i64, fine_since: i64, expected: &[(i64, i64, i64)]) {
        let segments = Period { since, until, state_until: until, fine_since, usage_since: 0, usage_until: i64::MAX };
        let segments = segments.segments();
        let segments: Vec<_> = segments.iter().map(|part| (part.length, part.since, part.until)).collect();
        assert_eq!(segments, expected);
    }

    #[test]
    fn segments_cover_a_period_without_overlap() {
        check(0, 86_400, 0, &[(86_400, 0, 86_400)]);
        check(3600, 7200, 0, &[(3600, 3600, 7200)]);
        check(300, 600, 0, &[(300, 300, 600)]);
        check(300, 600, 3600, &[(3600, 300, 600)]);
        check(3000, 4000, 0, &[(300, 3000, 3600), (300, 3600, 4000)]);
        check(
            82_000,
            3 * 86_400 + 4000,
            0,
            &[
                (300, 82_000, 82_800),
                (3600, 82_800, 86_400),
                (86_400, 86_400, 259_200),
                (3600, 259_200, 262_800),
                (300, 262_800, 263_200),
            ],
        );
    }
}
