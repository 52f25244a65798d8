//! The limits of a connection that runs queries of users.

use super::functions::ALLOWED;
use super::{Error, MAX_COLUMNS, MAX_QUERY_BYTES};
use crate::store::TABLE_PREFIX;
use rusqlite::hooks::{AuthAction, AuthContext, Authorization};
use rusqlite::limits::Limit;
use rusqlite::{Connection, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// Instructions of SQLite's virtual machine that one report may use: some 10 seconds.
pub(super) const MAX_INSTRUCTIONS: u64 = 1_000_000_000;
/// Instructions between two checks of the budget.
const CHECK_INTERVAL: i32 = 10_000;
/// Longest value in bytes.
const MAX_VALUE_BYTES: i32 = 1 << 20;
/// Limit of the memory of SQLite in this process. Sorts and intermediate results are kept in memory, so that it bounds
/// them as well; temporary files would fill the disk.
const MAX_HEAP_BYTES: i64 = 512 << 20;
/// Longest SQL of a statement with all of our views.
const MAX_STATEMENT_BYTES: i32 = 256 << 10;

/// The budget of a connection.
#[derive(Clone, Debug, Default)]
pub(super) struct Budget {
    used: Arc<AtomicU64>,
    exceeded: Arc<AtomicBool>,
}

impl Budget {
    /// Returns true if a query was interrupted.
    pub(super) fn is_exceeded(&self) -> bool {
        self.exceeded.load(Ordering::Relaxed)
    }
}

/// Sets the limits of a connection that only reads.
pub(super) fn limit(connection: &Connection) -> Result<()> {
    for (limit, value) in [
        (Limit::SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES),
        (Limit::SQLITE_LIMIT_SQL_LENGTH, MAX_STATEMENT_BYTES),
        (Limit::SQLITE_LIMIT_COLUMN, i32::try_from(2 * MAX_COLUMNS).unwrap_or(i32::MAX)),
        (Limit::SQLITE_LIMIT_EXPR_DEPTH, 200),
        (Limit::SQLITE_LIMIT_COMPOUND_SELECT, 50),
        (Limit::SQLITE_LIMIT_FUNCTION_ARG, 16),
        (Limit::SQLITE_LIMIT_ATTACHED, 0),
        (Limit::SQLITE_LIMIT_LIKE_PATTERN_LENGTH, 200),
        (Limit::SQLITE_LIMIT_VARIABLE_NUMBER, 100),
        (Limit::SQLITE_LIMIT_WORKER_THREADS, 0),
    ] {
        connection.set_limit(limit, value)?;
    }
    connection.pragma_update(None, "temp_store", "MEMORY")?;
    connection.pragma_update_and_check(None, "hard_heap_limit", MAX_HEAP_BYTES, |_| Ok(()))
}

/// Restricts a connection to selects. Texts of users are parsed by a restricted connection only, since SQLite executes
/// some statements while it parses them.
pub(super) fn restrict(connection: &mut Connection) -> Result<()> {
    connection.authorizer(Some(authorize))
}

/// Starts the budget of a connection.
pub(super) fn budget(connection: &mut Connection, instructions: u64) -> Result<Budget> {
    let budget = Budget::default();
    let counted = budget.clone();
    let interrupts = move || {
        let step = u64::from(CHECK_INTERVAL.unsigned_abs());
        let is_over = counted.used.fetch_add(step, Ordering::Relaxed) + step > instructions;
        if is_over {
            counted.exceeded.store(true, Ordering::Relaxed);
        }
        is_over
    };
    connection.progress_handler(CHECK_INTERVAL, Some(interrupts))?;
    Ok(budget)
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
pub(super) fn check_text(query: &str, sql: &str) -> std::result::Result<(), Error> {
    let rejected = |problem: &str| Err(Error::Rejected { query: query.to_owned(), problem: problem.to_owned() });
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
    Ok(())
}
