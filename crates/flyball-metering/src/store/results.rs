//! Results of reports, which further reports may read.

use super::{Result, Store};
use rusqlite::{OptionalExtension, Transaction, params};
use serde::{Deserialize, Serialize};

/// Most rows of all periods of a report; the oldest periods are removed.
pub const MAX_REPORT_ROWS: i64 = 1_000_000;

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
    /// replaces all earlier periods.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn put_result(
        &self,
        (uid, namespace, name): (&str, &str, &str),
        columns: &[String],
        result: &PeriodResult,
        overwrite: bool,
    ) -> Result<()> {
        let columns = serde_json::json!(columns).to_string();
        self.write(|transaction, _| {
            let insert = "INSERT INTO flyball_report (uid, namespace, name, columns) VALUES (?1, ?2, ?3, ?4)
                          ON CONFLICT (uid) DO UPDATE SET columns = excluded.columns RETURNING id";
            let report: i64 =
                transaction.query_row(insert, params![uid, namespace, name, columns], |row| row.get(0))?;
            for table in ["flyball_result", "flyball_period"] {
                let delete = format!("DELETE FROM {table} WHERE report = ?1 AND (?2 OR until = ?3)");
                transaction.execute(&delete, params![report, overwrite, result.until])?;
            }
            let lines = i64::try_from(result.rows.len()).unwrap_or(i64::MAX);
            let insert = "INSERT INTO flyball_period VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(insert, params![report, result.since, result.until, lines])?;
            remove_oldest(transaction, report)?;
            let mut insert = transaction.prepare("INSERT INTO flyball_result VALUES (?1, ?2, ?3, ?4)")?;
            for (line, row) in (0_i64..).zip(&result.rows) {
                insert.execute(params![report, result.until, line, serde_json::json!(row).to_string()])?;
            }
            Ok(())
        })
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
        self.read(|connection| {
            let query = "SELECT since, until FROM flyball_period
                         WHERE report = ?1 AND since >= ?2 AND until <= ?3 ORDER BY until";
            let mut periods = connection.prepare(query)?;
            let mut rows = connection
                .prepare("SELECT cells FROM flyball_result WHERE report = ?1 AND until = ?2 ORDER BY line")?;
            let periods = periods.query_map(params![report.id, since, until], |row| Ok((row.get(0)?, row.get(1)?)))?;
            let mut results = Vec::new();
            for period in periods {
                let (since, until) = period?;
                let read = |row: &rusqlite::Row<'_>| row.get::<_, String>(0);
                let cells: rusqlite::Result<Vec<String>> = rows.query_map(params![report.id, until], read)?.collect();
                let rows = cells?.iter().map(|cells| serde_json::from_str(cells).unwrap_or_default()).collect();
                results.push(PeriodResult { since, until, rows });
            }
            Ok(results)
        })
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

/// Removes the oldest periods of a report with too many rows.
fn remove_oldest(transaction: &Transaction<'_>, report: i64) -> rusqlite::Result<()> {
    let limit = "SELECT max(until) FROM (
                   SELECT until, sum(lines) OVER (ORDER BY until DESC) AS total FROM flyball_period WHERE report = ?1
                 ) WHERE total > ?2";
    let limit: Option<i64> = transaction.query_row(limit, params![report, MAX_REPORT_ROWS], |row| row.get(0))?;
    for table in ["flyball_result", "flyball_period"] {
        let delete = format!("DELETE FROM {table} WHERE report = ?1 AND until <= ?2");
        transaction.execute(&delete, params![report, limit.unwrap_or(i64::MIN)])?;
    }
    Ok(())
}
