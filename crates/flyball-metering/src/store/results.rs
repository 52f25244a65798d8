//! Results of reports, which further reports may read.
//!
//! A result is written in several transactions, so that the writer is free for others in between. The last one adds its
//! period: rows without a period are not part of a result.

use super::quota::{self, Quota, ROW_BYTES};
use super::{Result, Store};
use rusqlite::{OptionalExtension, params};
use serde::{Deserialize, Serialize};

/// Longest row of a result in bytes of JSON.
pub const MAX_ROW_BYTES: usize = 64 << 10;
/// Bytes of rows that are written in one transaction.
const MAX_BATCH_BYTES: usize = 2 << 20;

/// A cell of a result.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Cell {
    /// No value.
    Null,
    /// A whole number.
    Integer(i64),
    /// A number.
    Real(f64),
    /// A text, or a whole number with more digits than an [`Integer`](Self::Integer) has.
    Text(String),
}

impl Cell {
    /// Returns an upper limit of its length in a row of JSON, and of its memory without the allocator's share.
    pub(crate) fn bytes(&self) -> usize {
        const OTHER: usize = 32;
        let escaped = |byte: u8| -> usize {
            match byte {
                0..0x20 => 6,
                b'"' | b'\\' => 2,
                _ => 1,
            }
        };
        OTHER + if let Self::Text(text) = self { text.bytes().map(escaped).sum::<usize>() } else { 0 }
    }
}

/// The result of a report for one period.
#[derive(Clone, Debug, PartialEq)]
pub struct PeriodResult {
    /// Begin of the period in seconds.
    pub since: i64,
    /// End of the period in seconds.
    pub until: i64,
    /// Rows of cells in the order of the columns.
    pub rows: Vec<Vec<Cell>>,
}

/// A report whose results are stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredReport {
    /// Its number.
    pub id: i64,
    /// Names of its columns.
    pub columns: Vec<String>,
}

impl Store {
    /// Stores the result of a period, instead of an earlier result of a period with the same end. With `overwrite`, it
    /// replaces all earlier periods. Older periods make room for it within the quota.
    ///
    /// # Errors
    ///
    /// If the database fails; the result is stored in whole or not at all.
    pub fn put_result(
        &self,
        (uid, namespace, name): (&str, &str, &str),
        columns: &[String],
        result: &PeriodResult,
        overwrite: bool,
        quota: &Quota,
    ) -> Result<()> {
        let columns = serde_json::json!(columns).to_string();
        let report = self.write(|transaction, _| {
            let insert = "INSERT INTO flyball_report (uid, namespace, name, columns) VALUES (?1, ?2, ?3, ?4)
                          ON CONFLICT (uid) DO UPDATE SET columns = excluded.columns RETURNING id";
            transaction.query_row(insert, params![uid, namespace, name, columns], |row| row.get::<_, i64>(0))
        })?;
        self.remove_period(report, result.until)?;
        let put = self.put_rows(report, result).and_then(|bytes| {
            let lines = i64::try_from(result.rows.len()).unwrap_or(i64::MAX);
            self.write(|transaction, _| {
                if overwrite {
                    for table in ["flyball_result", "flyball_period"] {
                        let delete = format!("DELETE FROM {table} WHERE report = ?1 AND until <> ?2");
                        transaction.execute(&delete, params![report, result.until])?;
                    }
                }
                let insert =
                    "INSERT INTO flyball_period (report, since, until, lines, bytes) VALUES (?1, ?2, ?3, ?4, ?5)";
                transaction.execute(insert, params![report, result.since, result.until, lines, bytes])?;
                quota::apply(transaction, namespace, (report, result.until), quota)
            })
        });
        if put.is_err() {
            self.remove_period(report, result.until)?;
        }
        put
    }

    /// Removes a period with its rows, also rows without a period, as a crash leaves them.
    fn remove_period(&self, report: i64, until: i64) -> Result<()> {
        self.write(|transaction, _| {
            for table in ["flyball_result", "flyball_period"] {
                let delete = format!("DELETE FROM {table} WHERE report = ?1 AND until = ?2");
                transaction.execute(&delete, params![report, until])?;
            }
            Ok(())
        })
    }

    /// Stores the rows of a period, and returns the bytes that it is charged.
    fn put_rows(&self, report: i64, result: &PeriodResult) -> Result<i64> {
        let (mut charged, mut size, mut batch) = (quota::PERIOD_BYTES, 0, Vec::new());
        let mut rows = (0_i64..).zip(&result.rows).peekable();
        while let Some((line, row)) = rows.next() {
            let cells = serde_json::json!(row).to_string();
            charged += i64::try_from(cells.len()).unwrap_or(i64::MAX) + ROW_BYTES;
            size += cells.len();
            batch.push((line, cells));
            if size < MAX_BATCH_BYTES && rows.peek().is_some() {
                continue;
            }
            self.write(|transaction, _| {
                let mut insert = transaction.prepare_cached("INSERT INTO flyball_result VALUES (?1, ?2, ?3, ?4)")?;
                for (line, cells) in batch.drain(..) {
                    insert.execute(params![report, result.until, line, cells])?;
                }
                Ok(())
            })?;
            size = 0;
        }
        Ok(charged)
    }

    /// Returns the report with results of this name, the newest if there were several.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn report(&self, namespace: &str, name: &str) -> Result<Option<StoredReport>> {
        self.read(|connection| {
            let query = "SELECT id, columns FROM flyball_report WHERE namespace = ?1 AND name = ?2 ORDER BY id DESC";
            let read = |row: &rusqlite::Row<'_>| {
                let columns: String = row.get(1)?;
                Ok(StoredReport { id: row.get(0)?, columns: serde_json::from_str(&columns).unwrap_or_default() })
            };
            connection.query_row(query, [namespace, name], read).optional()
        })
    }

    /// Returns the results of the periods of a report that lie in an interval, oldest first.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn results(&self, report: &StoredReport, since: i64, until: i64) -> Result<Vec<PeriodResult>> {
        let (mut pages, mut results) = (self.pages(report, since, until)?, Vec::<PeriodResult>::new());
        while let Some(page) = pages.next_page()? {
            for mut part in page {
                match results.last_mut().filter(|last| last.until == part.until) {
                    Some(last) => last.rows.append(&mut part.rows),
                    None => results.push(part),
                }
            }
        }
        Ok(results)
    }

    /// Returns the UIDs of all reports with results.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn report_uids(&self) -> Result<Vec<String>> {
        self.read(|connection| {
            let mut statement = connection.prepare("SELECT uid FROM flyball_report ORDER BY uid")?;
            statement.query_map([], |row| row.get(0))?.collect()
        })
    }

    /// Removes the results of a report that was deleted.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn remove_report(&self, uid: &str) -> Result<()> {
        self.write(|transaction, _| {
            for table in ["flyball_result", "flyball_period"] {
                let delete =
                    format!("DELETE FROM {table} WHERE report IN (SELECT id FROM flyball_report WHERE uid = ?1)");
                transaction.execute(&delete, [uid])?;
            }
            transaction.execute("DELETE FROM flyball_report WHERE uid = ?1", [uid]).map(drop)
        })
    }
}
