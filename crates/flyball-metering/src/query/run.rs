//! Runs a query for a period.

use super::budget::{Budget, Limits};
use super::functions::{SharedInputs, register};
use super::period::Period;
use super::request::{Request, selected_sql, unprepared};
use super::sandbox;
use super::tables::Tables;
use super::{Column, Definition, Error, MAX_RESULT_BYTES, MAX_ROW_BYTES, MAX_ROWS, views};
use crate::store::{Cell, FINE_SINCE, STATE, Store, USAGE_SINCE, USAGE_UNTIL};
use rusqlite::types::ValueRef;
use rusqlite::{ErrorCode, Statement};
use std::collections::BTreeMap;

/// The result of a query.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// Columns.
    pub columns: Vec<Column>,
    /// Rows of cells in the order of the columns.
    pub rows: Vec<Vec<Cell>>,
}

/// Runs a query within the default limits.
///
/// # Errors
///
/// If the query is rejected, exceeds a limit, or the store fails.
pub fn run(store: &Store, request: &Request<'_>) -> Result<Results, Error> {
    run_within(store, request, Limits::default())
}

/// Runs a query within limits.
///
/// # Errors
///
/// If the query is rejected, exceeds a limit, or the store fails.
pub fn run_within(store: &Store, request: &Request<'_>, limits: Limits) -> Result<Results, Error> {
    let query = request.query;
    prepared(store, request, limits, true, |statement, order, inputs, budget| {
        let failed = |source| explain(&query.name, source, budget);
        for at in 1..=statement.parameter_count() {
            let name = parameter(statement, at).unwrap_or_default();
            let value = inputs.lock().get(&name).cloned();
            let value = value.ok_or_else(|| Error::UnknownInput { query: query.name.clone(), name })?;
            statement.raw_bind_parameter(at, value).map_err(failed)?;
        }
        let rows = collect(&query.name, statement, order, &failed)?;
        Ok(Results { columns: query.columns.clone(), rows })
    })
}

/// Checks that a query can run, without reading data.
///
/// # Errors
///
/// If the query is rejected, exceeds a limit, or the store fails.
pub fn check(store: &Store, request: &Request<'_>, limits: Limits) -> Result<(), Error> {
    prepared(store, request, limits, false, |statement, _, inputs, _| {
        let mut names = (1..=statement.parameter_count()).map(|at| parameter(statement, at).unwrap_or_default());
        let unknown = names.find(|name| !inputs.lock().contains_key(name));
        match unknown {
            Some(name) => Err(Error::UnknownInput { query: request.query.name.clone(), name }),
            None => Ok(()),
        }
    })
}

/// Prepares a query on a connection of its own, and uses the statement, with the positions of the declared columns.
/// Without `reads_data`, the query may not run.
fn prepared<T>(
    store: &Store,
    request: &Request<'_>,
    limits: Limits,
    reads_data: bool,
    use_statement: impl FnOnce(&mut Statement<'_>, &[usize], &SharedInputs, &Budget) -> Result<T, Error>,
) -> Result<T, Error> {
    let query = request.query;
    for name in request.inputs.keys() {
        if query.inputs.iter().all(|input| input.name != *name) {
            return Err(Error::UnknownInput { query: query.name.clone(), name: name.clone() });
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
    let budget = Budget::new(limits);
    let failed = |source| unprepared(&query.name, source, &budget);
    sandbox::limit(&connection).map_err(failed)?;
    let sizes = views::create(&connection, &period, request.is_scoped).map_err(failed)?;
    let (inputs, scope) = (SharedInputs::default(), request.is_scoped.then(|| request.namespace.to_owned()));
    register(&connection, inputs.clone(), (request.since, request.until), scope, &budget).map_err(failed)?;
    sandbox::restrict(&mut connection).map_err(failed)?;
    // Before the first text of a user: queries that read others take long to prepare.
    budget.attach(&mut connection).map_err(failed)?;
    let mut tables = Tables {
        store,
        request,
        connection: &mut connection,
        targets: BTreeMap::new(),
        sizes,
        inputs: inputs.clone(),
        budget: &budget,
        period: &period,
        reads_data,
        has_totals: false,
    };
    tables.define(query, 0)?;
    let sql = selected_sql(query, request.inputs);
    tables.check(query, sql)?;
    let mut statement = connection.prepare(sql).map_err(failed)?;
    let order = column_order(query, &statement)?;
    use_statement(&mut statement, &order, &inputs, &budget)
}

/// Returns the name of a parameter, none for one without a name.
fn parameter(statement: &Statement<'_>, at: usize) -> Option<String> {
    let name = statement.parameter_name(at)?.trim_start_matches([':', '@', '$']);
    (!name.starts_with('?')).then(|| name.to_owned())
}

/// Returns the error of a query that ran.
fn explain(query: &str, source: rusqlite::Error, budget: &Budget) -> Error {
    if let Some(error) = budget.error(query) {
        return error;
    }
    let problem = super::functions::problem(&source);
    let query = query.to_owned();
    match source.sqlite_error_code() {
        Some(ErrorCode::TooBig) => Error::TooLarge { query, limit: "64 KiB in a value or row" },
        Some(
            ErrorCode::DatabaseBusy
            | ErrorCode::DatabaseCorrupt
            | ErrorCode::DiskFull
            | ErrorCode::OutOfMemory
            | ErrorCode::SystemIoFailure,
        ) => Error::Sql { query, source },
        _ => Error::Expression { query, problem },
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
        let (mut cells, mut row_bytes) = (Vec::with_capacity(order.len()), 0);
        for at in order {
            let cell = match row.get_ref(*at).map_err(failed)? {
                ValueRef::Null => Cell::Null,
                ValueRef::Integer(number) => Cell::Integer(number),
                ValueRef::Real(number) => Cell::Real(number),
                ValueRef::Text(text) | ValueRef::Blob(text) => Cell::Text(String::from_utf8_lossy(text).into_owned()),
            };
            row_bytes += cell.bytes();
            cells.push(cell);
        }
        bytes += row_bytes;
        if row_bytes > MAX_ROW_BYTES {
            return too_large("64 KiB in a row");
        }
        if bytes > MAX_RESULT_BYTES {
            return too_large("128 MiB");
        }
        collected.push(cells);
    }
    Ok(collected)
}
