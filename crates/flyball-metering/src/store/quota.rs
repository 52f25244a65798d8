//! The quota of results: what a report, a namespace and all of them may keep. The oldest periods make room.

use rusqlite::{Transaction, params};

/// Bytes that a period is charged besides its rows, so that their number is bounded as well.
pub(super) const PERIOD_BYTES: i64 = 1 << 10;
/// Bytes that a row is charged besides its cells.
pub(super) const ROW_BYTES: i64 = 32;

/// Most rows of all periods of a report.
pub const MAX_REPORT_ROWS: i64 = 1_000_000;

/// Limits of stored results. The period that was stored last always remains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Rows of a report.
    pub report_rows: i64,
    /// Bytes of a report.
    pub report_bytes: i64,
    /// Bytes of a namespace.
    pub namespace_bytes: i64,
    /// Bytes of all namespaces; the largest ones make room.
    pub total_bytes: i64,
}

impl Default for Quota {
    fn default() -> Self {
        Self { report_rows: MAX_REPORT_ROWS, report_bytes: 128 << 20, namespace_bytes: 256 << 20, total_bytes: 1 << 30 }
    }
}

/// Removes old periods until the quota holds, after a period was added to a report of a namespace.
pub(super) fn apply(
    transaction: &Transaction<'_>,
    namespace: &str,
    (report, until): (i64, i64),
    quota: &Quota,
) -> rusqlite::Result<()> {
    let added = (report, until);
    charge(transaction, Some(report))?;
    let number = |query: &str| transaction.query_row(query, [report], |row| row.get::<_, i64>(0));
    let rows = number("SELECT coalesce(sum(lines), 0) FROM flyball_period WHERE report = ?1")?;
    let bytes = number("SELECT bytes FROM flyball_report WHERE id = ?1")?;
    if rows > quota.report_rows || bytes > quota.report_bytes {
        let limit = if bytes > quota.report_bytes { below(quota.report_bytes) } else { quota.report_bytes };
        remove_oldest(transaction, "report = ?1", &report, added, (quota.report_rows, limit))?;
    }
    if bytes_of(transaction, namespace)? > quota.namespace_bytes {
        remove_from(transaction, namespace, added, below(quota.namespace_bytes))?;
    }
    loop {
        let totals = "SELECT namespace, sum(bytes), sum(sum(bytes)) OVER () FROM flyball_report
                      GROUP BY namespace ORDER BY 2 DESC, 1 LIMIT 1";
        let (largest, bytes, total): (String, i64, i64) =
            transaction.query_row(totals, [], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?)))?;
        if total <= quota.total_bytes {
            return Ok(());
        }
        // At most a half at a time: others may be the largest then.
        let limit = (bytes - (total - below(quota.total_bytes))).max(bytes / 2);
        remove_from(transaction, &largest, added, limit)?;
        if bytes_of(transaction, &largest)? == bytes {
            return Ok(());
        }
    }
}

/// Returns the size after a removal: below the limit, so that not every period needs one.
fn below(limit: i64) -> i64 {
    limit - limit / 16
}

fn bytes_of(transaction: &Transaction<'_>, namespace: &str) -> rusqlite::Result<i64> {
    let query = "SELECT coalesce(sum(bytes), 0) FROM flyball_report WHERE namespace = ?1";
    transaction.query_row(query, [namespace], |row| row.get(0))
}

fn remove_from(transaction: &Transaction<'_>, namespace: &str, added: (i64, i64), bytes: i64) -> rusqlite::Result<()> {
    let reports = "report IN (SELECT id FROM flyball_report WHERE namespace = ?1)";
    remove_oldest(transaction, reports, &namespace, added, (i64::MAX, bytes))
}

/// Removes the oldest of the periods that meet a condition, until the others are within the limits of rows and bytes.
fn remove_oldest(
    transaction: &Transaction<'_>,
    condition: &str,
    parameter: &dyn rusqlite::ToSql,
    (report, until): (i64, i64),
    (rows, bytes): (i64, i64),
) -> rusqlite::Result<()> {
    let query = format!(
        "SELECT report, until FROM (
           SELECT report, until, report = ?2 AND until = ?3 AS is_added,
                  sum(lines) OVER newest AS lines, sum(bytes) OVER newest AS bytes
           FROM flyball_period WHERE {condition}
           WINDOW newest AS (ORDER BY report = ?2 AND until = ?3 DESC, until DESC, report)
         ) WHERE NOT is_added AND (lines > ?4 OR bytes > ?5)"
    );
    let oldest: Vec<(i64, i64)> = transaction
        .prepare(&query)?
        .query_map(params![parameter, report, until, rows, bytes], |row| Ok((row.get(0)?, row.get(1)?)))?
        .collect::<rusqlite::Result<_>>()?;
    for table in ["flyball_result", "flyball_period"] {
        let mut delete = transaction.prepare(&format!("DELETE FROM {table} WHERE report = ?1 AND until = ?2"))?;
        for (report, until) in &oldest {
            delete.execute(params![report, until])?;
        }
    }
    let mut changed: Vec<i64> = oldest.into_iter().map(|(report, _)| report).collect();
    changed.sort_unstable();
    changed.dedup();
    changed.into_iter().try_for_each(|report| charge(transaction, Some(report)))
}

/// Updates the bytes that a report is charged, or all of them.
pub(super) fn charge(transaction: &Transaction<'_>, report: Option<i64>) -> rusqlite::Result<()> {
    let update = "UPDATE flyball_report
                  SET bytes = (SELECT coalesce(sum(p.bytes), 0) FROM flyball_period p WHERE p.report = id)
                  WHERE ?1 IS NULL OR id = ?1";
    transaction.execute(update, [report]).map(drop)
}
