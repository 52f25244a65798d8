//! Gauges: values of state in intervals `[since, until)`.

use super::series::{read_series, series_id};
use super::{Caches, Result, Series, SeriesId, Store};
use crate::meter::Meter;
use rusqlite::{OptionalExtension, Transaction, params};
use std::collections::HashMap;

/// The end of an interval that has not ended.
pub const OPEN: i64 = 1 << 40;

/// A gauge that begins at a time: a value until the next gauge of the same series and meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gauge {
    /// The series.
    pub series: Series,
    /// The meter.
    pub meter: Meter,
    /// Begin in seconds.
    pub since: i64,
    /// Value; 0 ends the previous interval without a new one.
    pub value: i64,
}

impl Store {
    /// Stores gauges in one transaction. Unchanged values are not written.
    ///
    /// A gauge that begins before the open interval of its series replaces that interval, so that no time counts twice;
    /// a gauge that begins before the end of a closed one begins at that end.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn set_gauges(&self, gauges: &[Gauge]) -> Result<()> {
        if gauges.is_empty() {
            return Ok(());
        }
        self.write(|transaction, caches| gauges.iter().try_for_each(|gauge| set(transaction, caches, gauge)))
    }

    /// Returns the series with an open interval: what existed when the store was last written.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn open_gauges(&self) -> Result<Vec<Gauge>> {
        self.read(|connection| {
            let query = "SELECT meter, series, since, value FROM flyball_gauge WHERE until = ?1 ORDER BY series, meter";
            // The key begins with the meter: one search per meter instead of a scan.
            let query = query.replace("WHERE", "WHERE meter IN (SELECT DISTINCT meter FROM flyball_gauge) AND");
            let mut statement = connection.prepare(&query)?;
            let rows = statement.query_map([OPEN], |row| {
                Ok((row.get::<_, i64>(0)?, SeriesId(row.get(1)?), row.get(2)?, row.get(3)?))
            })?;
            let mut gauges = Vec::new();
            for row in rows {
                let (meter, id, since, value) = row?;
                if let (Some(meter), Some(series)) = (Meter::of_id(meter), read_series(connection, id)?) {
                    gauges.push(Gauge { series, meter, since, value });
                }
            }
            Ok(gauges)
        })
    }

    /// Returns the ends of the pods that have ended, by UID.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn ends_of_pods(&self) -> Result<HashMap<String, i64>> {
        self.read(|connection| {
            let query = "SELECT s.uid, max(l.until) FROM flyball_gauge l JOIN flyball_series s ON s.id = l.series
                         WHERE l.meter = ?1 AND l.until < ?2 GROUP BY s.uid";
            let mut statement = connection.prepare(query)?;
            let ends =
                statement.query_map(params![Meter::PodPresence.id(), OPEN], |row| Ok((row.get(0)?, row.get(1)?)))?;
            ends.collect()
        })
    }
}

fn set(transaction: &Transaction<'_>, caches: &mut Caches<'_>, gauge: &Gauge) -> rusqlite::Result<()> {
    let SeriesId(series) = series_id(transaction, caches, &gauge.series)?;
    let meter = gauge.meter.id();
    let open = "SELECT since, value FROM flyball_gauge WHERE meter = ?1 AND until = ?2 AND series = ?3";
    let open: Option<(i64, i64)> = transaction
        .prepare_cached(open)?
        .query_row(params![meter, OPEN, series], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let mut since = gauge.since;
    match open {
        Some((_, value)) if value == gauge.value => return Ok(()),
        Some((began, value)) => {
            let delete = "DELETE FROM flyball_gauge WHERE meter = ?1 AND until = ?2 AND series = ?3 AND since = ?4";
            transaction.prepare_cached(delete)?.execute(params![meter, OPEN, series, began])?;
            if began < since {
                insert(transaction, meter, since, series, began, value)?;
            } else {
                since = since.max(began);
            }
        }
        None => {
            // Ended intervals of the series: it never counts twice.
            let last =
                "SELECT max(until) FROM flyball_gauge WHERE meter = ?1 AND until > ?2 AND until < ?3 AND series = ?4";
            let last: Option<i64> =
                transaction.prepare_cached(last)?.query_row(params![meter, since, OPEN, series], |row| row.get(0))?;
            since = last.map_or(since, |last| last.max(since));
        }
    }
    if gauge.value != 0 {
        insert(transaction, meter, OPEN, series, since, gauge.value)?;
    }
    Ok(())
}

fn insert(
    transaction: &Transaction<'_>,
    meter: i64,
    until: i64,
    series: i64,
    since: i64,
    value: i64,
) -> rusqlite::Result<()> {
    let insert =
        "INSERT OR REPLACE INTO flyball_gauge (meter, until, series, since, value) VALUES (?1, ?2, ?3, ?4, ?5)";
    transaction.prepare_cached(insert)?.execute(params![meter, until, series, since, value]).map(drop)
}
