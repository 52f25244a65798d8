//! Removal of old data.

use super::{Result, Store};
use crate::meter::METERS;
use rusqlite::{OptionalExtension, Transaction, params};
use std::time::Duration;

/// Times for which data is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retention {
    /// Buckets of 5 minutes.
    pub fine: Duration,
    /// All other data, and the results of reports.
    pub history: Duration,
}

impl Default for Retention {
    fn default() -> Self {
        Self { fine: Duration::from_secs(2 * 86_400), history: Duration::from_secs(90 * 86_400) }
    }
}

/// The size of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of the database, without its log.
    pub bytes: u64,
    /// Series.
    pub series: u64,
    /// Intervals.
    pub gauges: u64,
    /// Buckets of all lengths.
    pub buckets: u64,
}

/// Free pages that are returned to the file system at a time, so that a reader does not wait long.
const MAX_FREED_PAGES: i64 = 10_000;

impl Store {
    /// Removes data that is older than its retention, and returns unused pages to the file system.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn prune(&self, now: i64, retention: Retention) -> Result<()> {
        let before = |kept: Duration| now.saturating_sub(i64::try_from(kept.as_secs()).unwrap_or(i64::MAX));
        let (fine, history) = (before(retention.fine), before(retention.history));
        self.write(|transaction, caches| {
            // The key begins with the meter.
            let meters = METERS.map(|meter| meter.id().to_string()).join(", ");
            for (length, limit) in [(300, fine), (3600, history), (86_400, history)] {
                // A bucket is removed when its end is too old.
                let delete = format!("DELETE FROM flyball_usage_{length} WHERE meter IN ({meters}) AND bucket < ?1");
                transaction.execute(&delete, [limit.div_euclid(length)])?;
            }
            transaction.execute("DELETE FROM flyball_gauge WHERE until <= ?1", [history])?;
            transaction.execute("DELETE FROM flyball_result WHERE until <= ?1", [history])?;
            transaction.execute("DELETE FROM flyball_period WHERE until <= ?1", [history])?;
            super::quota::charge(transaction, None)?;
            transaction.execute("DELETE FROM flyball_complete WHERE through <= ?1", [history])?;
            let query = "SELECT through FROM flyball_progress WHERE source = ?1";
            let last: Option<i64> = transaction.query_row(query, [SERIES_PRUNED], |row| row.get(0)).optional()?;
            if last.is_none_or(|last| now - last >= SERIES_INTERVAL) {
                remove_unused(transaction, now)?;
            }
            caches.series.clear();
            caches.owners.clear();
            caches.complete.clear();
            let set = "INSERT INTO flyball_progress VALUES (?1, ?2)
                       ON CONFLICT (source) DO UPDATE SET through = max(through, excluded.through)";
            transaction.execute(set, params![FINE_SINCE, fine.div_euclid(300) * 300]).map(drop)
        })?;
        self.read(|connection| {
            let mut vacuum = connection.prepare(&format!("PRAGMA incremental_vacuum({MAX_FREED_PAGES})"))?;
            let mut rows = vacuum.query([])?;
            while rows.next()?.is_some() {}
            Ok(())
        })
    }

    /// Returns the size of the store.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn sizes(&self) -> Result<Sizes> {
        self.read(|connection| {
            let number = |query: &str| connection.query_row(query, [], |row| row.get::<_, i64>(0));
            let count = |table: &str| number(&format!("SELECT count(*) FROM flyball_{table}"));
            let bytes = number("PRAGMA page_count")? * number("PRAGMA page_size")?;
            let buckets = count("usage_300")? + count("usage_3600")? + count("usage_86400")?;
            Ok(Sizes {
                bytes: bytes.unsigned_abs(),
                series: count("series")?.unsigned_abs(),
                gauges: count("gauge")?.unsigned_abs(),
                buckets: buckets.unsigned_abs(),
            })
        })
    }
}

/// Removes the series, consumers and owners that nothing refers to.
fn remove_unused(transaction: &Transaction<'_>, now: i64) -> rusqlite::Result<()> {
    let series = "DELETE FROM flyball_series WHERE id NOT IN (SELECT series FROM flyball_gauge)
                  AND id NOT IN (SELECT series FROM flyball_complete)";
    transaction.execute(series, [])?;
    transaction.execute("DELETE FROM flyball_consumer WHERE id NOT IN (SELECT consumer FROM flyball_series)", [])?;
    let owners = "DELETE FROM flyball_owner WHERE id NOT IN
                  (SELECT owner FROM flyball_consumer WHERE owner IS NOT NULL)";
    transaction.execute(owners, [])?;
    let set = "INSERT OR REPLACE INTO flyball_progress VALUES (?1, ?2)";
    transaction.execute(set, params![SERIES_PRUNED, now]).map(drop)
}

/// Name of the progress that is the time of the last removal of series.
const SERIES_PRUNED: &str = "series-pruned";
/// Seconds between removals of series, which read all gauges.
const SERIES_INTERVAL: i64 = 86_400;

/// Name of the progress from which buckets of 5 minutes are complete.
pub(crate) const FINE_SINCE: &str = "fine-since";
