//! The limits of a connection that runs queries of users.

use super::functions::ALLOWED;
use super::{Definition, Error, MAX_COLUMNS, MAX_QUERY_BYTES, MAX_ROW_BYTES, lexer};
use crate::store::TABLE_PREFIX;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, Result};

/// Longest SQL of a statement with all of our views.
const MAX_STATEMENT_BYTES: i32 = 256 << 10;
/// Most instructions of a compiled query.
const MAX_PROGRAM_INSTRUCTIONS: i32 = 250_000;
/// Memory of a query for pages of the database, in KiB.
const CACHE_KIB: i32 = 16 << 10;

/// Sets the limits of a connection that only reads.
///
/// The length of values bounds the time of an instruction, and what is stored between two checks of the budget.
pub(super) fn limit(connection: &Connection) -> Result<()> {
    let whole = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, whole(MAX_ROW_BYTES)),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_STATEMENT_BYTES),
        (Limit::SQLITE_LIMIT_COLUMN, whole(2 * MAX_COLUMNS)),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (Limit::SQLITE_LIMIT_FUNCTION_ARG, 16),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
        (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 100),
        (Limit::SQLITE_LIMIT_VDBE_OP, MAX_PROGRAM_INSTRUCTIONS),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, value)?;
    }
    // Sorts and intermediate results are kept in memory, where the budget bounds them: files would fill the disk.
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)
}

/// Restricts a connection to selects. Texts of users are parsed by a restricted connection only, since SQLite executes
/// some statements while it parses them.
pub(super) fn restrict(connection: &mut Connection) -> Result<()> {
    connection.authorizer(Some(authorize))
}

/// Removes the restrictions, for a statement of this program.
pub(super) fn open(connection: &mut Connection) -> Result<()> {
    connection.authorizer(None::<fn(AuthContext<'_>) -> Authorization>)
}

fn authorize(context: AuthContext<'_>) -> Authorization {
    let is_allowed = match context.action {
        AuthAction::Select | AuthAction::Recursive => true,
        AuthAction::Read { table_name, .. } => !is_internal(&table_name.to_ascii_lowercase()),
        AuthAction::Function { function_name } => {
            let name = function_name.to_ascii_lowercase();
            ALLOWED.contains(&name.as_str()) || name == super::functions::SCOPE
        }
        _ => false,
    };
    if is_allowed { Authorization::Allow } else { Authorization::Deny }
}

/// Returns true for tables of SQLite about itself.
fn is_internal(table: &str) -> bool {
    ["sqlite_", "pragma_"].iter().any(|prefix| table.starts_with(prefix))
        || ["dbstat", "bytecode", "tables_used"].contains(&table)
}

/// Checks the text of a user's query before SQLite parses it.
pub(super) fn check_text(query: &Definition, sql: &str) -> std::result::Result<(), Error> {
    let rejected = |problem: &str| Err(Error::Rejected { query: query.name.clone(), problem: problem.to_owned() });
    if sql.len() > MAX_QUERY_BYTES {
        return rejected("its SQL is longer than 32 KiB");
    }
    if sql.contains('\0') {
        return rejected("its SQL contains a null character");
    }
    // There are no escapes in identifiers and no SQL from data: a name that is not in the text cannot be used.
    if sql.to_ascii_lowercase().contains(TABLE_PREFIX) {
        return rejected("its SQL contains \"flyball_\": read the sources that docs/metering.md lists");
    }
    for argument in lexer::arguments(sql, "input") {
        let Some(name) = argument else { return rejected("input() takes the name of an input in single quotes") };
        if query.inputs.iter().all(|input| input.name != name) {
            return Err(Error::UnknownInput { query: query.name.clone(), name });
        }
    }
    Ok(())
}
