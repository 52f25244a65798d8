//! Results in pages of bounded size, on a connection of their own. Between two pages, the database is free.

use super::{Cell, PeriodResult, Result, Store, StoredReport};
use rusqlite::{Connection, OptionalExtension, params};

/// Most rows and periods of a page.
const MAX_PAGE_ROWS: usize = 1000;
/// Bytes of rows after which a page ends.
const MAX_PAGE_BYTES: usize = 256 << 10;
/// Memory for pages of the database, in KiB.
const CACHE_KIB: i32 = 1 << 10;

/// The results of a report in an interval, oldest first, as pages.
pub struct ResultPages {
    connection: Connection,
    directory: std::path::PathBuf,
    report: i64,
    since: i64,
    until: i64,
    /// The period that is read, and its next line.
    current: Option<(i64, i64, i64)>,
    /// End of the last period that was read.
    after: i64,
}

impl std::fmt::Debug for ResultPages {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ResultPages").field("report", &self.report).finish_non_exhaustive()
    }
}

impl Store {
    /// Returns the pages of the results of a report in an interval.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn pages(&self, report: &StoredReport, since: i64, until: i64) -> Result<ResultPages> {
        let connection = self.reader()?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB).map_err(|source| self.failed(source))?;
        let directory = self.directory.clone();
        Ok(ResultPages { connection, directory, report: report.id, since, until, current: None, after: i64::MIN })
    }
}

impl ResultPages {
    /// Returns the next page, none after the last one. A period may continue on the following page.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn next_page(&mut self) -> Result<Option<Vec<PeriodResult>>> {
        let path = self.directory.clone();
        self.read_page().map_err(|source| super::Error::Sqlite { path, source })
    }

    fn read_page(&mut self) -> rusqlite::Result<Option<Vec<PeriodResult>>> {
        let (mut page, mut rows, mut bytes) = (Vec::new(), 0, 0);
        while rows + page.len() < MAX_PAGE_ROWS && bytes < MAX_PAGE_BYTES {
            let Some((since, until, line)) = self.next_part()? else { break };
            let mut part = PeriodResult { since, until, rows: Vec::new() };
            let query = "SELECT line, cells FROM flyball_result
                         WHERE report = ?1 AND until = ?2 AND line >= ?3 ORDER BY line";
            let mut statement = self.connection.prepare_cached(query)?;
            let mut cells = statement.query(params![self.report, until, line])?;
            self.after = until;
            while let Some(row) = cells.next()? {
                let (line, text): (i64, String) = (row.get(0)?, row.get(1)?);
                if rows + page.len() >= MAX_PAGE_ROWS || bytes >= MAX_PAGE_BYTES {
                    self.current = Some((since, until, line));
                    break;
                }
                (rows, bytes) = (rows + 1, bytes + text.len());
                part.rows.push(serde_json::from_str::<Vec<Cell>>(&text).unwrap_or_default());
            }
            page.push(part);
        }
        Ok((!page.is_empty()).then_some(page))
    }

    /// Returns the period to read, and its first line.
    fn next_part(&mut self) -> rusqlite::Result<Option<(i64, i64, i64)>> {
        if let Some(current) = self.current.take() {
            return Ok(Some(current));
        }
        let query = "SELECT since, until, 0 FROM flyball_period
                     WHERE report = ?1 AND until > ?4 AND until <= ?2 AND since >= ?3 ORDER BY until LIMIT 1";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?));
        let parameters = params![self.report, self.until, self.since, self.after];
        self.connection.prepare_cached(query)?.query_row(parameters, read).optional()
    }
}
