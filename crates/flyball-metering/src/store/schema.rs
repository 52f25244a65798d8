//! The tables of a store, and the changes from one version of them to the next.
//!
//! Invariant: the version of a database identifies its tables. A change of [`TABLES`], also of a name, needs a new
//! version and a step in [`upgrade`].

use super::TABLE_PREFIX;
use rusqlite::{Connection, OptionalExtension, Transaction, TransactionBehavior};

/// Version of the tables.
pub(super) const VERSION: i64 = 3;

const TABLES: &str = "
CREATE TABLE flyball_owner (
    id INTEGER PRIMARY KEY, api_group TEXT NOT NULL, kind TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    uid TEXT NOT NULL
) STRICT;
CREATE INDEX flyball_owner_uid ON flyball_owner (uid);
CREATE TABLE flyball_consumer (
    id INTEGER PRIMARY KEY, owner INTEGER, namespace TEXT NOT NULL, operator TEXT NOT NULL, tenant TEXT NOT NULL
) STRICT;
CREATE INDEX flyball_consumer_key ON flyball_consumer (owner, namespace, operator, tenant);
CREATE TABLE flyball_series (
    id INTEGER PRIMARY KEY, subject INTEGER NOT NULL, uid TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
    node TEXT NOT NULL, detail TEXT NOT NULL, consumer INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX flyball_series_uid ON flyball_series (uid, subject);
CREATE TABLE flyball_gauge (
    meter INTEGER NOT NULL, until INTEGER NOT NULL, series INTEGER NOT NULL, since INTEGER NOT NULL,
    value INTEGER NOT NULL, PRIMARY KEY (meter, until, series, since)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_usage_300 (
    meter INTEGER NOT NULL, bucket INTEGER NOT NULL, series INTEGER NOT NULL, amount INTEGER NOT NULL,
    seconds INTEGER NOT NULL, PRIMARY KEY (meter, bucket, series)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_usage_3600 (
    meter INTEGER NOT NULL, bucket INTEGER NOT NULL, series INTEGER NOT NULL, amount INTEGER NOT NULL,
    seconds INTEGER NOT NULL, PRIMARY KEY (meter, bucket, series)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_usage_86400 (
    meter INTEGER NOT NULL, bucket INTEGER NOT NULL, series INTEGER NOT NULL, amount INTEGER NOT NULL,
    seconds INTEGER NOT NULL, PRIMARY KEY (meter, bucket, series)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_complete (
    series INTEGER NOT NULL, meter INTEGER NOT NULL, through INTEGER NOT NULL, PRIMARY KEY (series, meter)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_progress (source TEXT PRIMARY KEY, through INTEGER NOT NULL) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_report (
    id INTEGER PRIMARY KEY, uid TEXT NOT NULL UNIQUE, namespace TEXT NOT NULL, name TEXT NOT NULL,
    columns TEXT NOT NULL, bytes INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE flyball_period (
    report INTEGER NOT NULL, since INTEGER NOT NULL, until INTEGER NOT NULL, lines INTEGER NOT NULL,
    bytes INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (report, until)
) WITHOUT ROWID, STRICT;
CREATE TABLE flyball_result (
    report INTEGER NOT NULL, until INTEGER NOT NULL, line INTEGER NOT NULL, cells TEXT NOT NULL,
    PRIMARY KEY (report, until, line)
) WITHOUT ROWID, STRICT;
";

/// Adds the sizes of results to tables of version 1.
const SIZES_OF_RESULTS: &str = "
ALTER TABLE flyball_report ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE flyball_period ADD COLUMN bytes INTEGER NOT NULL DEFAULT 0;
UPDATE flyball_period SET bytes = 1024 + (
    SELECT coalesce(sum(length(cells) + 32), 0) FROM flyball_result r
    WHERE r.report = flyball_period.report AND r.until = flyball_period.until
);
UPDATE flyball_report SET bytes = (
    SELECT coalesce(sum(p.bytes), 0) FROM flyball_period p WHERE p.report = flyball_report.id
);
";

/// The name that gauges have in early databases of versions 1 and 2.
const OLD_GAUGES: &str = "flyball_level";
const RENAME_GAUGES: &str = "ALTER TABLE flyball_level RENAME TO flyball_gauge;";

/// Separates the consumers from the series of version 2.
const CONSUMERS: &str = "
CREATE TABLE flyball_consumer (
    id INTEGER PRIMARY KEY, owner INTEGER, namespace TEXT NOT NULL, operator TEXT NOT NULL, tenant TEXT NOT NULL
) STRICT;
INSERT INTO flyball_consumer (owner, namespace, operator, tenant)
    SELECT DISTINCT owner, namespace, operator, tenant FROM flyball_series;
CREATE INDEX flyball_consumer_key ON flyball_consumer (owner, namespace, operator, tenant);
ALTER TABLE flyball_series ADD COLUMN consumer INTEGER NOT NULL DEFAULT 0;
UPDATE flyball_series SET consumer = (
    SELECT c.id FROM flyball_consumer c WHERE c.owner IS flyball_series.owner
    AND c.namespace = flyball_series.namespace AND c.operator = flyball_series.operator
    AND c.tenant = flyball_series.tenant
);
ALTER TABLE flyball_series DROP COLUMN owner;
ALTER TABLE flyball_series DROP COLUMN operator;
ALTER TABLE flyball_series DROP COLUMN tenant;
";

/// Creates the tables of a new database, or brings those of an older version to that of this program, and returns the
/// version. A newer database remains as it is.
pub(super) fn migrate(connection: &mut Connection) -> rusqlite::Result<i64> {
    let version = |connection: &Connection| connection.pragma_query_value(None, "user_version", |row| row.get(0));
    if version(connection)? >= VERSION {
        return version(connection);
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it meanwhile.
    match version(&transaction)? {
        0 => transaction.execute_batch(TABLES)?,
        found => (found..VERSION).try_for_each(|from| upgrade(&transaction, from))?,
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()?;
    Ok(VERSION)
}

/// Brings tables of one version to the next one.
fn upgrade(transaction: &Transaction<'_>, from: i64) -> rusqlite::Result<()> {
    match from {
        1 => transaction.execute_batch(SIZES_OF_RESULTS),
        2 => {
            if has_table(transaction, OLD_GAUGES)? {
                transaction.execute_batch(RENAME_GAUGES)?;
            }
            transaction.execute_batch(CONSUMERS)
        }
        _ => Ok(()),
    }
}

/// Returns a table that the database lacks.
pub(super) fn missing_table(connection: &Connection) -> rusqlite::Result<Option<&'static str>> {
    for table in table_names() {
        if !has_table(connection, table)? {
            return Ok(Some(table));
        }
    }
    Ok(None)
}

fn table_names() -> impl Iterator<Item = &'static str> {
    let names = TABLES.lines().filter_map(|line| line.strip_prefix("CREATE TABLE "));
    names.map(|rest| rest.split(' ').next().unwrap_or_default()).filter(|name| name.starts_with(TABLE_PREFIX))
}

fn has_table(connection: &Connection, table: &str) -> rusqlite::Result<bool> {
    let query = "SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = ?1";
    connection.query_row(query, [table], |_| Ok(())).optional().map(|found| found.is_some())
}

#[cfg(test)]
mod tests;
