//! Storage of intervals, samples and results in SQLite.
//!
//! State (requests, limits, capacities) is stored as gauges: a value in an interval `[since, until)`, written only when
//! it changes. Usage is stored as amounts per bucket of 5 minutes, an hour and a day. A report over a month reads day
//! buckets and, at its ends, smaller ones. All amounts are integers.
//!
//! One [`Store`] writes, whose operator holds a [`DirectoryLock`]. Reports read through another connection that cannot
//! write.
//!
//! Invariant: an amount is counted once. Samples of a series count only after the time up to which it is complete,
//! and that time is stored in the same transaction.

mod gauges;
mod lock;
mod pages;
mod private;
mod quota;
mod results;
mod retention;
mod schema;
mod series;
mod usage;

pub use gauges::{Gauge, OPEN};
pub use lock::DirectoryLock;
pub use pages::ResultPages;
pub use quota::{MAX_REPORT_ROWS, Quota};
pub use results::{Cell, MAX_ROW_BYTES, PeriodResult, StoredReport};
pub(crate) use retention::FINE_SINCE;
pub use retention::{Retention, Sizes};
pub use series::{OwnerRecord, Series, SeriesId};
pub(crate) use usage::portion as usage_portion;
pub use usage::{Imported, MAX_SAMPLE_SECONDS, RESOLUTIONS, Sample};

use parking_lot::Mutex;
use rusqlite::{Connection, OpenFlags, OptionalExtension, Transaction, params};
use schema::VERSION;
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Name of the progress since which usage was collected; absent if it is not known.
pub const USAGE_SINCE: &str = "usage-since";
/// Name of the progress up to which usage was collected; absent if it is not known.
pub const USAGE_UNTIL: &str = "usage-until";
/// Name of the progress up to which state is known: gauges of all subjects.
pub const STATE: &str = "state";
/// Name of the database in the data directory.
const FILE: &str = "metering.sqlite";
/// Time for which a connection waits for a lock.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Names of all tables begin with this prefix, which queries of users must not contain.
pub(crate) const TABLE_PREFIX: &str = "flyball_";

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// SQLite failed.
    #[error("the database of {} failed", .path.display())]
    Sqlite {
        /// The data directory.
        path: PathBuf,
        /// The cause.
        source: rusqlite::Error,
    },
    /// The directory or its files cannot be created or restricted to their owner.
    #[error("cannot create the data directory {} with files that only their owner can read", .path.display())]
    Directory {
        /// The data directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The directory cannot be locked.
    #[error("cannot lock the data directory {}", .path.display())]
    Lock {
        /// The data directory.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// Another operator collects into the directory.
    #[error(
        "the data directory {} is in use by another metering operator{}: stop it, or use another directory with --data",
        .path.display(), .holder.map(|process| format!(" (process {process})")).unwrap_or_default()
    )]
    InUse {
        /// The data directory.
        path: PathBuf,
        /// The process of that operator, if it is known.
        holder: Option<u32>,
    },
    /// A newer program wrote the database.
    #[error(
        "the database of {} has version {found}, this program supports version {VERSION}: use the newer program, or \
         another data directory", .path.display()
    )]
    Version {
        /// The data directory.
        path: PathBuf,
        /// The version of the database.
        found: i64,
    },
    /// The database is not one of a store, or is damaged.
    #[error(
        "the database of {} has no table {table}: restore a backup, or move the directory away to start without \
         history", .path.display()
    )]
    Table {
        /// The data directory.
        path: PathBuf,
        /// The table.
        table: &'static str,
    },
}

/// The result of an operation of the store.
pub type Result<T> = std::result::Result<T, Error>;

/// The writer of a data directory.
pub struct Store {
    directory: PathBuf,
    state: Mutex<State>,
}

/// The connection that writes, and caches of what it wrote.
struct State {
    connection: Connection,
    series: HashMap<Series, SeriesId>,
    owners: HashMap<OwnerRecord, i64>,
    complete: HashMap<(SeriesId, i64), i64>,
}

/// Entries of each cache; a full cache is emptied and filled again from the tables.
const MAX_CACHED: usize = 200_000;

impl Store {
    /// Opens the store in a directory, which is created if necessary.
    ///
    /// # Errors
    ///
    /// If the directory cannot be created, or contains a database of a newer version or of another program.
    pub fn open(directory: &Path) -> Result<Self> {
        let path = || directory.to_owned();
        private::create(directory, FILE).map_err(|source| Error::Directory { path: path(), source })?;
        let sqlite = |source| Error::Sqlite { path: path(), source };
        let mut connection = Connection::open(directory.join(FILE)).map_err(sqlite)?;
        configure(&connection).map_err(sqlite)?;
        let version = schema::migrate(&mut connection).map_err(sqlite)?;
        if version != VERSION {
            return Err(Error::Version { path: path(), found: version });
        }
        if let Some(table) = schema::missing_table(&connection).map_err(sqlite)? {
            return Err(Error::Table { path: path(), table });
        }
        let state = State { connection, series: HashMap::new(), owners: HashMap::new(), complete: HashMap::new() };
        Ok(Self { directory: path(), state: Mutex::new(state) })
    }

    /// Opens a further connection that reads only.
    ///
    /// # Errors
    ///
    /// If the database cannot be opened.
    pub(crate) fn reader(&self) -> Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let open = || {
            let connection = Connection::open_with_flags(self.directory.join(FILE), flags)?;
            connection.busy_timeout(BUSY_TIMEOUT)?;
            connection.pragma_update(None, "mmap_size", 1_i64 << 30)?;
            Ok(connection)
        };
        open().map_err(|source| self.failed(source))
    }

    /// Returns the time up to which a source is complete, in seconds.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn progress(&self, source: &str) -> Result<Option<i64>> {
        self.read(|connection| {
            let query = "SELECT through FROM flyball_progress WHERE source = ?1";
            connection.query_row(query, [source], |row| row.get(0)).optional()
        })
    }

    /// Stores the time up to which a source is complete. It never decreases, even if a clock is set back.
    ///
    /// # Errors
    ///
    /// If the database fails.
    pub fn set_progress(&self, source: &str, through: i64) -> Result<()> {
        self.write(|transaction, _| {
            let update = "INSERT INTO flyball_progress VALUES (?1, ?2)
                          ON CONFLICT (source) DO UPDATE SET through = max(through, excluded.through)";
            transaction.execute(update, params![source, through]).map(drop)
        })
    }

    /// Reads with the connection of the writer.
    fn read<T>(&self, work: impl FnOnce(&Connection) -> rusqlite::Result<T>) -> Result<T> {
        work(&self.state.lock().connection).map_err(|source| self.failed(source))
    }

    /// Writes in one transaction. If it fails, the caches are emptied, since they may contain what was not written.
    fn write<T>(&self, work: impl FnOnce(&Transaction<'_>, &mut Caches<'_>) -> rusqlite::Result<T>) -> Result<T> {
        let mut state = self.state.lock();
        let State { connection, series, owners, complete } = &mut *state;
        let run = || {
            let transaction = connection.transaction()?;
            let mut caches = Caches { series, owners, complete };
            caches.shrink();
            let done = work(&transaction, &mut caches)?;
            transaction.commit()?;
            Ok(done)
        };
        let done = run();
        if done.is_err() {
            state.series.clear();
            state.owners.clear();
            state.complete.clear();
        }
        done.map_err(|source| self.failed(source))
    }

    fn failed(&self, source: rusqlite::Error) -> Error {
        Error::Sqlite { path: self.directory.clone(), source }
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store").field("directory", &self.directory).finish_non_exhaustive()
    }
}

/// The caches during a transaction.
struct Caches<'s> {
    series: &'s mut HashMap<Series, SeriesId>,
    owners: &'s mut HashMap<OwnerRecord, i64>,
    complete: &'s mut HashMap<(SeriesId, i64), i64>,
}

impl Caches<'_> {
    fn shrink(&mut self) {
        if self.series.len() > MAX_CACHED {
            self.series.clear();
        }
        if self.owners.len() > MAX_CACHED {
            self.owners.clear();
        }
        if self.complete.len() > MAX_CACHED {
            self.complete.clear();
        }
    }
}

/// Configures the connection of the writer.
fn configure(connection: &Connection) -> rusqlite::Result<()> {
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "auto_vacuum", "INCREMENTAL")?;
    connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
    connection.pragma_update(None, "synchronous", "NORMAL")?;
    connection.pragma_update(None, "cache_size", -65_536)?;
    connection.pragma_update(None, "journal_size_limit", 64_i64 << 20)
}
