//! Usage: amounts of samples, added up per bucket.

use super::series::series_id;
use super::{Caches, Result, Series, SeriesId, Store};
use crate::meter::Meter;
use rusqlite::{OptionalExtension, Transaction, params};

/// Lengths of buckets in seconds, each a multiple of the previous one.
pub const RESOLUTIONS: [i64; 3] = [300, 3600, 86_400];
/// Longest sample; a source that does not answer longer leaves a gap.
pub const MAX_SAMPLE_SECONDS: i64 = 3600;

/// An amount that was measured in the interval `[since, until)`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sample {
    /// The series.
    pub series: Series,
    /// The meter.
    pub meter: Meter,
    /// Begin in seconds.
    pub since: i64,
    /// End in seconds.
    pub until: i64,
    /// Amount of the whole interval.
    pub amount: i64,
}

impl Sample {
    /// Returns the part after a time, with its portion of the amount; `None` if there is none.
    pub fn after(self, time: i64) -> Option<Self> {
        let length = self.until - self.since;
        match time {
            time if time <= self.since => Some(self),
            time if time < self.until => {
                let amount = portion(self.amount, length, time - self.since, length);
                Some(Self { since: time, amount, ..self })
            }
            _ => None,
        }
    }
}

/// The result of an import.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Imported {
    /// Samples that were stored, possibly in part.
    pub stored: u64,
    /// Samples that lie before the end of the previous sample of their series, and were not stored.
    pub late: u64,
    /// Samples without a length, or longer than [`MAX_SAMPLE_SECONDS`].
    pub invalid: u64,
}

/// A part of a sample in a bucket: meter, bucket, series, amount, seconds.
type Part = (i64, i64, i64, i64, i64);

impl Store {
    /// Stores samples in one transaction.
    ///
    /// A sample that overlaps the previous one of its series and meter counts only after its end; a repeated import
    /// changes nothing.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn import(&self, samples: &[Sample]) -> Result<Imported> {
        if samples.is_empty() {
            return Ok(Imported::default());
        }
        self.write(|transaction, caches| {
            let (mut imported, mut parts, mut changed) = (Imported::default(), Vec::new(), Vec::new());
            for sample in samples {
                split(transaction, caches, sample, &mut imported, &mut parts, &mut changed)?;
            }
            add_parts(transaction, parts)?;
            changed.sort_unstable();
            changed.dedup();
            let update = "INSERT INTO flyball_complete VALUES (?1, ?2, ?3)
                          ON CONFLICT (series, meter) DO UPDATE SET through = excluded.through";
            let mut update = transaction.prepare_cached(update)?;
            for (series, meter) in changed {
                if let Some(through) = caches.complete.get(&(series, meter)) {
                    update.execute(params![series.0, meter, through])?;
                }
            }
            Ok(imported)
        })
    }

    /// Returns the time up to which the usage of a series is complete.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn complete_through(&self, series: &Series, meter: Meter) -> Result<Option<i64>> {
        self.write(|transaction, caches| {
            let id = series_id(transaction, caches, series)?;
            Ok(Some(through(transaction, caches, id, meter.id())?).filter(|through| *through > i64::MIN))
        })
    }
}

/// Returns the time up to which a series is complete, `i64::MIN` if it has no sample.
fn through(
    transaction: &Transaction<'_>,
    caches: &mut Caches<'_>,
    series: SeriesId,
    meter: i64,
) -> rusqlite::Result<i64> {
    if let Some(through) = caches.complete.get(&(series, meter)) {
        return Ok(*through);
    }
    let query = "SELECT through FROM flyball_complete WHERE series = ?1 AND meter = ?2";
    let found = transaction.prepare_cached(query)?.query_row(params![series.0, meter], |row| row.get(0)).optional()?;
    let found = found.unwrap_or(i64::MIN);
    caches.complete.insert((series, meter), found);
    Ok(found)
}

/// Splits a sample into its parts per smallest bucket.
fn split(
    transaction: &Transaction<'_>,
    caches: &mut Caches<'_>,
    sample: &Sample,
    imported: &mut Imported,
    parts: &mut Vec<Part>,
    changed: &mut Vec<(SeriesId, i64)>,
) -> rusqlite::Result<()> {
    let (since, until) = (sample.since, sample.until);
    if since < 0 || until <= since || until - since > MAX_SAMPLE_SECONDS || sample.amount < 0 {
        imported.invalid += 1;
        return Ok(());
    }
    let series = series_id(transaction, caches, &sample.series)?;
    let meter = sample.meter.id();
    let through = through(transaction, caches, series, meter)?;
    if until <= through {
        imported.late += 1;
        return Ok(());
    }
    imported.stored += 1;
    let begin = since.max(through);
    let [length, ..] = RESOLUTIONS;
    let mut bucket = begin.div_euclid(length);
    while bucket * length < until {
        let (from, to) = (begin.max(bucket * length), until.min((bucket + 1) * length));
        let amount = portion(sample.amount, until - since, from - since, to - since);
        parts.push((meter, bucket, series.0, amount, to - from));
        bucket += 1;
    }
    caches.complete.insert((series, meter), until);
    changed.push((series, meter));
    Ok(())
}

/// Returns the amount of a part of an interval. The portions of consecutive parts add up to the whole amount.
pub(crate) fn portion(amount: i64, length: i64, from: i64, to: i64) -> i64 {
    let up_to = |time: i64| i128::from(amount) * i128::from(time) / i128::from(length.max(1));
    i64::try_from(up_to(to) - up_to(from)).unwrap_or(i64::MAX)
}

/// Adds the parts to the buckets of all lengths.
fn add_parts(transaction: &Transaction<'_>, mut parts: Vec<Part>) -> rusqlite::Result<()> {
    let mut length = RESOLUTIONS[0];
    for resolution in RESOLUTIONS {
        for part in &mut parts {
            part.1 = part.1.div_euclid(resolution / length);
        }
        length = resolution;
        parts.sort_unstable();
        parts.dedup_by(|next, sum| {
            let is_same = (next.0, next.1, next.2) == (sum.0, sum.1, sum.2);
            if is_same {
                sum.3 = sum.3.saturating_add(next.3);
                sum.4 += next.4;
            }
            is_same
        });
        let update = format!(
            "INSERT INTO flyball_usage_{resolution} VALUES (?1, ?2, ?3, ?4, ?5)
             ON CONFLICT (meter, bucket, series)
             DO UPDATE SET amount = amount + excluded.amount, seconds = seconds + excluded.seconds"
        );
        let mut update = transaction.prepare_cached(&update)?;
        for (meter, bucket, series, amount, seconds) in &parts {
            update.execute(params![meter, bucket, series, amount, seconds])?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn portions_add_up_to_the_amount() {
        for amount in [0, 1, 7, 1_000_003, i64::MAX] {
            let parts: i64 = (0..299).map(|at| portion(amount, 299, at, at + 1)).sum();
            assert_eq!(parts, amount);
        }
    }
}
