//! Queries of reports: SQL of people with fewer rights than the store.
//!
//! Three walls protect the store. The connection is opened for reading only. An authorizer allows selects from tables
//! of this module, and pure functions of a list. The text of a query may not contain the prefix of the store's tables,
//! so that it reaches them through views only, which apply the period and the namespace of the report before an
//! expression of the query is evaluated. A [budget](Limits) and limits of values, rows and results bound time and
//! memory. Messages of errors contain names from the text of the query, and no values of rows.
//!
//! Values reach a query as the result of `input('Name')` or as parameters `:Name`, never as part of its text.

mod budget;
mod builtin;
mod functions;
mod growth;
mod lexer;
mod period;
mod request;
mod run;
mod sandbox;
mod tables;
mod text;
mod totals;
mod views;

pub use budget::Limits;
pub use builtin::{builtin, builtin_names};
pub use request::{Builtins, Catalog, Inputs, Request, Source};
pub use run::{Results, check, run, run_within};

pub use crate::store::MAX_ROW_BYTES;

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Longest query in bytes.
pub const MAX_QUERY_BYTES: usize = 32 << 10;
/// Most columns of a query.
pub const MAX_COLUMNS: usize = 64;
/// Most rows of a result.
pub const MAX_ROWS: usize = 400_000;
/// Most bytes of a result.
pub const MAX_RESULT_BYTES: usize = 128 << 20;
/// Most queries that a query reads from, directly and indirectly.
pub const MAX_DEPTH: usize = 8;

/// A column of a query.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Column {
    /// Name.
    pub name: String,
    /// Type: `timestamp`, `varchar`, `double` or `bigint`.
    pub kind: String,
    /// Unit, for people.
    pub unit: String,
    /// True for a column that tables omit.
    pub hidden: bool,
}

/// The type of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputKind {
    /// A time, as RFC 3339; a query gets seconds.
    Time,
    /// A text.
    Text,
    /// A whole number.
    Integer,
    /// A report, whose results the query reads from a table of the name of the input.
    Report,
    /// A source, which the query reads from a table of the name of the input.
    DataSource,
    /// Another query, which the query reads from a table of the name of the input.
    Query,
}

/// The declaration of an input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InputDefinition {
    /// Name.
    pub name: String,
    /// Type.
    pub kind: InputKind,
    /// True if a report must set it.
    pub required: bool,
    /// Value if a report does not set it.
    pub default: Option<String>,
}

/// A ReportQuery: its SQL, inputs and columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Name.
    pub name: String,
    /// Columns.
    pub columns: Vec<Column>,
    /// Inputs.
    pub inputs: Vec<InputDefinition>,
    /// SQL over sources.
    pub sql: String,
    /// The input with a report, and the SQL over that report which then replaces `sql`.
    pub rollup: Option<(String, String)>,
}

/// The reason why a query is rejected or fails.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No query has this name.
    #[error("there is no ReportQuery {name:?}")]
    UnknownQuery {
        /// The name.
        name: String,
    },
    /// No report of this name has results.
    #[error("input {input:?}: the Report {name:?} has no results")]
    UnknownReport {
        /// The input.
        input: String,
        /// The name of the report.
        name: String,
    },
    /// The query declares no such input.
    #[error("input {name:?} is not declared by ReportQuery {query:?}")]
    UnknownInput {
        /// The query.
        query: String,
        /// The input.
        name: String,
    },
    /// A required input is not set.
    #[error("input {name:?} of ReportQuery {query:?} is required")]
    MissingInput {
        /// The query.
        query: String,
        /// The input.
        name: String,
    },
    /// The value of an input is not of its type.
    #[error("input {name:?}: {value:?} is not {expected}")]
    InvalidInput {
        /// The input.
        name: String,
        /// The value.
        value: String,
        /// Description of its type.
        expected: &'static str,
    },
    /// A name cannot be that of a column, input or table.
    #[error("{name:?} is not a valid name: use letters, digits, _ and -, up to 63 characters")]
    InvalidName {
        /// The name.
        name: String,
    },
    /// The text of a query is not allowed.
    #[error("ReportQuery {query:?}: {problem}")]
    Rejected {
        /// The query.
        query: String,
        /// The problem.
        problem: String,
    },
    /// SQLite cannot prepare the query.
    #[error("ReportQuery {query:?} failed")]
    Sql {
        /// The query.
        query: String,
        /// The cause.
        source: rusqlite::Error,
    },
    /// An expression failed while the query ran.
    #[error("ReportQuery {query:?} failed: {problem}")]
    Expression {
        /// The query.
        query: String,
        /// The problem, without values of rows.
        problem: &'static str,
    },
    /// The query ran too long.
    #[error("ReportQuery {query:?} exceeds the limit of {limit} instructions: reduce its period or its joins")]
    Budget {
        /// The query.
        query: String,
        /// The limit.
        limit: u64,
    },
    /// The query took too long.
    #[error("ReportQuery {query:?} exceeds the limit of {} seconds: reduce its period or its joins", .limit.as_secs())]
    Time {
        /// The query.
        query: String,
        /// The limit.
        limit: Duration,
    },
    /// The memory of this process grew too much while the query ran.
    #[error("ReportQuery {query:?} exceeds the limit of {limit} MiB of memory: aggregate before sorts and joins")]
    Memory {
        /// The query.
        query: String,
        /// The limit in MiB.
        limit: u64,
    },
    /// The result is too large.
    #[error("the result of ReportQuery {query:?} exceeds {limit}: aggregate more, or reduce its period")]
    TooLarge {
        /// The query.
        query: String,
        /// The limit.
        limit: &'static str,
    },
    /// The store failed.
    #[error(transparent)]
    Store(#[from] crate::store::Error),
}

/// The result of a query.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Returns true if the same query fails again until it, its report or its inputs change.
    pub fn is_permanent(&self) -> bool {
        match self {
            // Memory and time depend on the load.
            Self::Store(_) | Self::UnknownReport { .. } | Self::Memory { .. } | Self::Time { .. } => false,
            Self::Sql { source, .. } => !matches!(
                source.sqlite_error_code(),
                Some(
                    rusqlite::ErrorCode::DatabaseBusy
                        | rusqlite::ErrorCode::OutOfMemory
                        | rusqlite::ErrorCode::SystemIoFailure
                )
            ),
            _ => true,
        }
    }
}
