//! A query with its period, and the catalog of what it may read.

use super::budget::Budget;
use super::{Definition, Error};
use std::collections::BTreeMap;
use std::fmt;

/// Values of inputs by name.
pub type Inputs = BTreeMap<String, String>;

/// A source that is not built in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The series of a Prometheus query.
    Series {
        /// Namespace of the ReportDataSource.
        namespace: String,
        /// Name of the ReportDataSource.
        name: String,
    },
    /// Another query.
    View(Definition),
}

/// Queries and sources by name, besides those that are built in.
pub trait Catalog {
    /// Returns a query.
    fn query(&self, name: &str) -> Option<Definition>;
    /// Returns a source.
    fn source(&self, name: &str) -> Option<Source>;
}

/// The catalog of built-in queries.
#[derive(Clone, Copy, Debug, Default)]
pub struct Builtins;

impl Catalog for Builtins {
    fn query(&self, name: &str) -> Option<Definition> {
        super::builtin(name)
    }

    fn source(&self, _: &str) -> Option<Source> {
        None
    }
}

/// A query with its period and inputs.
#[derive(Clone, Copy)]
pub struct Request<'r> {
    /// The query.
    pub query: &'r Definition,
    /// Begin of the period in seconds.
    pub since: i64,
    /// End of the period in seconds.
    pub until: i64,
    /// Values of inputs.
    pub inputs: &'r Inputs,
    /// Namespace of the reports that the query may read.
    pub namespace: &'r str,
    /// True if the query sees only data of that namespace.
    pub is_scoped: bool,
    /// Other queries and sources.
    pub catalog: &'r dyn Catalog,
}

impl fmt::Debug for Request<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request").field("query", &self.query.name).finish_non_exhaustive()
    }
}

/// Returns the SQL of a query: that over a report, if its input is set.
pub(super) fn selected_sql<'q>(query: &'q Definition, inputs: &Inputs) -> &'q str {
    match &query.rollup {
        Some((input, sql)) if inputs.contains_key(input) => sql,
        _ => &query.sql,
    }
}

/// Returns the error of a query that was not prepared. SQLite has not read a row, so that its message contains none.
pub(super) fn unprepared(query: &str, source: rusqlite::Error, budget: &Budget) -> Error {
    budget.error(query).unwrap_or_else(|| Error::Sql { query: query.to_owned(), source })
}
