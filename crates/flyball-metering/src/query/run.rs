//! Runs a query for a period.

use super::functions::{SharedInputs, Value, register};
use super::period::Period;
use super::sandbox::{self, Budget, MAX_INSTRUCTIONS, check_text};
use super::{Column, Definition, Error, InputDefinition, InputKind, MAX_DEPTH, MAX_RESULT_BYTES, MAX_ROWS, views};
use crate::store::{Cell, FINE_SINCE, STATE, Store, USAGE_SINCE, USAGE_UNTIL};
use flyball_core::time::parse_rfc3339;
use rusqlite::types::ValueRef;
use rusqlite::{Connection, ErrorCode, Statement};
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

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows of cells in the order of the columns.
    pub rows: Vec<Vec<Cell>>,
}

/// Runs a query.
///
/// # Errors
///
/// If the query is rejected, exceeds a limit, or the store fails.
pub fn run(store: &Store, request: &Request<'_>) -> Result<Results, Error> {
    run_within(store, request, MAX_INSTRUCTIONS)
}

/// Runs a query with a budget of instructions.
pub(crate) fn run_within(store: &Store, request: &Request<'_>, instructions: u64) -> Result<Results, Error> {
    for name in request.inputs.keys() {
        if request.query.inputs.iter().all(|input| input.name != *name) {
            return Err(Error::UnknownInput { query: request.query.name.clone(), name: name.clone() });
        }
    }
    let period = Period {
        since: request.since,
        until: request.until,
        state_until: store.progress(STATE)?.unwrap_or(request.since),
        fine_since: store.progress(FINE_SINCE)?.unwrap_or(0),
        usage_since: store.progress(USAGE_SINCE)?.unwrap_or(0),
        usage_until: store.progress(USAGE_UNTIL)?.unwrap_or(i64::MAX),
    };
    let mut connection = store.reader()?;
    let failed = |source| Error::Sql { query: request.query.name.clone(), source };
    sandbox::limit(&connection).map_err(failed)?;
    views::create(&connection, &period, request.is_scoped).map_err(failed)?;
    let (inputs, scope) = (SharedInputs::default(), request.is_scoped.then(|| request.namespace.to_owned()));
    register(&connection, inputs.clone(), (request.since, request.until), scope).map_err(failed)?;
    sandbox::restrict(&mut connection).map_err(failed)?;
    Tables { store, request, connection: &mut connection, targets: BTreeMap::new(), inputs: inputs.clone() }
        .define(request.query, 0)?;
    let budget = sandbox::budget(&mut connection, instructions).map_err(failed)?;
    let sql = selected_sql(request.query, request.inputs);
    check_text(&request.query.name, sql)?;
    let failed = |source| explain(&request.query.name, source, &budget, instructions);
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let order = column_order(request.query, &statement)?;
    for at in 1..=statement.parameter_count() {
        let name = statement.parameter_name(at).map(|name| name.trim_start_matches([':', '@', '$']).to_owned());
        let name = name.filter(|name| !name.starts_with('?')).unwrap_or_default();
        let value = inputs.lock().get(&name).cloned();
        let value = value.ok_or_else(|| Error::UnknownInput { query: request.query.name.clone(), name })?;
        statement.raw_bind_parameter(at, value).map_err(failed)?;
    }
    let rows = collect(&request.query.name, &mut statement, &order, &failed)?;
    Ok(Results { columns: request.query.columns.clone(), rows })
}

/// Returns the SQL of a query: that over a report, if its input is set.
fn selected_sql<'q>(query: &'q Definition, inputs: &Inputs) -> &'q str {
    match &query.rollup {
        Some((input, sql)) if inputs.contains_key(input) => sql,
        _ => &query.sql,
    }
}

fn explain(query: &str, source: rusqlite::Error, budget: &Budget, limit: u64) -> Error {
    let query = query.to_owned();
    match source.sqlite_error_code() {
        _ if budget.is_exceeded() => Error::Budget { query, limit },
        Some(ErrorCode::OutOfMemory) => Error::TooLarge { query, limit: "512 MiB of intermediate results" },
        _ => Error::Sql { query, source },
    }
}

/// Returns the position of each declared column in the rows of a statement.
fn column_order(query: &Definition, statement: &Statement<'_>) -> Result<Vec<usize>, Error> {
    let rejected = |problem: String| Error::Rejected { query: query.name.clone(), problem };
    if !statement.readonly() || statement.column_count() == 0 {
        return Err(rejected("its SQL is not one SELECT".into()));
    }
    let names: Vec<&str> = statement.column_names().collect();
    let position = |column: &Column| {
        names.iter().position(|name| *name == column.name).ok_or_else(|| {
            rejected(format!(
                "its SQL does not return the declared column {:?}; it returns {}",
                column.name,
                names.join(", ")
            ))
        })
    };
    query.columns.iter().map(position).collect()
}

fn collect(
    query: &str,
    statement: &mut Statement<'_>,
    order: &[usize],
    failed: &dyn Fn(rusqlite::Error) -> Error,
) -> Result<Vec<Vec<Cell>>, Error> {
    let too_large = |limit| Err(Error::TooLarge { query: query.to_owned(), limit });
    let (mut bytes, mut collected) = (0, Vec::new());
    let mut rows = statement.raw_query();
    while let Some(row) = rows.next().map_err(failed)? {
        if collected.len() >= MAX_ROWS {
            return too_large("400,000 rows");
        }
        let mut cells = Vec::with_capacity(order.len());
        for at in order {
            let cell = match row.get_ref(*at).map_err(failed)? {
                ValueRef::Null => Cell::Null,
                ValueRef::Integer(number) => Cell::Integer(number),
                ValueRef::Real(number) => Cell::Real(number),
                ValueRef::Text(text) | ValueRef::Blob(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
            };
            bytes += if let Cell::Text(text) = &cell { text.len() + 32 } else { 32 };
            cells.push(cell);
        }
        if bytes > MAX_RESULT_BYTES {
            return too_large("128 MiB");
        }
        collected.push(cells);
    }
    Ok(collected)
}

/// The tables of inputs, while they are defined.
struct Tables<'t> {
    store: &'t Store,
    request: &'t Request<'t>,
    connection: &'t mut Connection,
    /// The definition of each table, to find contradictions.
    targets: BTreeMap<String, String>,
    inputs: SharedInputs,
}

impl Tables<'_> {
    /// Defines the inputs of a query: values, and tables of reports, sources and other queries.
    fn define(&mut self, query: &Definition, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            let problem = format!("it reads from more than {MAX_DEPTH} queries in a row: remove the cycle");
            return Err(Error::Rejected { query: query.name.clone(), problem });
        }
        for input in &query.inputs {
            check_name(&input.name)?;
            let set = self.request.inputs.get(&input.name).or(input.default.as_ref()).cloned();
            let implicit = match input.name.as_str() {
                "ReportingStart" => Some(Value::Integer(self.request.since)),
                "ReportingEnd" => Some(Value::Integer(self.request.until)),
                _ => None,
            };
            match (set, implicit) {
                (Some(value), _) => self.define_input(input, value, depth)?,
                (None, Some(value)) => drop(self.inputs.lock().insert(input.name.clone(), value)),
                (None, None) if input.required => {
                    return Err(Error::MissingInput { query: query.name.clone(), name: input.name.clone() });
                }
                (None, None) => drop(self.inputs.lock().entry(input.name.clone()).or_insert(Value::Null)),
            }
        }
        Ok(())
    }

    fn define_input(&mut self, input: &InputDefinition, value: String, depth: usize) -> Result<(), Error> {
        let invalid = |expected| Error::InvalidInput { name: input.name.clone(), value: value.clone(), expected };
        let parsed = match input.kind {
            InputKind::Time => {
                let time = parse_rfc3339(&value).ok_or_else(|| invalid("a time such as 2026-07-01T00:00:00Z"))?;
                Value::Integer(time.as_second())
            }
            InputKind::Integer => Value::Integer(value.parse().map_err(|_| invalid("a whole number"))?),
            InputKind::Text => Value::Text(value),
            InputKind::Report => return self.define_report(&input.name, &value),
            InputKind::DataSource => return self.define_source(&input.name, &value, depth),
            InputKind::Query => {
                let query = self.request.catalog.query(&value).or_else(|| super::builtin(&value));
                let query = query.ok_or_else(|| Error::UnknownQuery { name: value.clone() })?;
                return self.define_query(&input.name, &query, depth);
            }
        };
        self.inputs.lock().insert(input.name.clone(), parsed);
        Ok(())
    }

    fn define_report(&mut self, input: &str, name: &str) -> Result<(), Error> {
        let found = self.store.report(self.request.namespace, name)?;
        let report = found.ok_or_else(|| Error::UnknownReport { input: input.to_owned(), name: name.to_owned() })?;
        let mut columns = Vec::new();
        for (at, column) in report.columns.iter().enumerate() {
            check_name(column)?;
            columns.push(format!("json_extract(cells, '$[{at}]') AS \"{column}\""));
        }
        let columns = columns.join(", ");
        // Only periods that lie in that of this report: a roll-up never counts a part of a period.
        let (id, since, until) = (report.id, self.request.since, self.request.until);
        let select = format!(
            "SELECT {columns} FROM flyball_result r JOIN flyball_period p ON p.report = r.report AND p.until = r.until
             WHERE r.report = {id} AND p.since >= {since} AND p.until <= {until}"
        );
        self.create(input, &format!("report {name}"), &select)
    }

    fn define_source(&mut self, input: &str, name: &str, depth: usize) -> Result<(), Error> {
        check_name(name)?;
        match self.request.catalog.source(name) {
            Some(Source::Series { namespace, name }) => {
                check_name(&namespace)?;
                check_name(&name)?;
                let select = format!(
                    "SELECT * FROM \"datasource-raw\" WHERE datasource = '{name}' AND namespace = '{namespace}'"
                );
                self.create(input, &format!("source {name}"), &select)
            }
            Some(Source::View(query)) => self.define_query(input, &query, depth),
            None => self.create(input, &format!("source {name}"), &format!("SELECT * FROM \"{name}\"")),
        }
    }

    fn define_query(&mut self, input: &str, query: &Definition, depth: usize) -> Result<(), Error> {
        self.define(query, depth + 1)?;
        let sql = selected_sql(query, self.request.inputs);
        check_text(&query.name, sql)?;
        // It is a single statement, so that nothing follows the view that it becomes.
        let failed = |source| Error::Sql { query: query.name.clone(), source };
        let select = format!("SELECT * FROM (\n{}\n)", sql.trim_end().trim_end_matches(';'));
        drop(self.connection.prepare(&select).map_err(failed)?);
        self.create(input, &format!("query {}", query.name), &select)
    }

    fn create(&mut self, name: &str, target: &str, select: &str) -> Result<(), Error> {
        match self.targets.get(name) {
            Some(known) if known == target => return Ok(()),
            Some(known) => {
                let problem = format!("input {name:?} means both {known} and {target}: rename one of them");
                return Err(Error::Rejected { query: self.request.query.name.clone(), problem });
            }
            None => drop(self.targets.insert(name.to_owned(), target.to_owned())),
        }
        let failed = |source| Error::Sql { query: self.request.query.name.clone(), source };
        sandbox::open(self.connection).map_err(failed)?;
        // Only text that the restricted connection has parsed as one statement.
        let created = self.connection.execute(&format!("CREATE TEMP VIEW \"{name}\" AS {select}"), []);
        sandbox::restrict(self.connection).map_err(failed)?;
        created.map(drop).map_err(failed)
    }
}

/// Checks a name that becomes that of a table or column.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let is_valid = (1..=63).contains(&name.len())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'))
        && name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_' || c.is_ascii_digit())
        && !name.to_ascii_lowercase().starts_with("sqlite_")
        && !name.to_ascii_lowercase().contains(crate::store::TABLE_PREFIX);
    if is_valid { Ok(()) } else { Err(Error::InvalidName { name: name.to_owned() }) }
}
