//! Functions of queries. They are pure, except that `input` reads the inputs of the report.
//!
//! Messages of errors contain no arguments: these may be values of rows.

use super::budget::Budget;
use super::text;
use crate::store::usage_portion;
use parking_lot::Mutex;
use rusqlite::functions::{Aggregate, Context, FunctionFlags};
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, Error, Result, ToSql};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A value of an input, as a query gets it.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Value {
    Null,
    Integer(i64),
    Text(String),
}

impl ToSql for Value {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(match self {
            Self::Null => ToSqlOutput::Borrowed(ValueRef::Null),
            Self::Integer(number) => (*number).into(),
            Self::Text(text) => ToSqlOutput::Borrowed(text.as_str().into()),
        })
    }
}

/// The values of the inputs of a query and of those that it reads from; they are added while tables are defined.
pub(super) type SharedInputs = Arc<Mutex<BTreeMap<String, Value>>>;

/// Functions that queries may call: those of SQLite without side effects, clock, randomness and files, and our own.
pub(super) const ALLOWED: &[&str] = &[
    "abs",
    "avg",
    "ceil",
    "ceiling",
    "coalesce",
    "concat",
    "count",
    "cume_dist",
    "dense_rank",
    "exact_sum",
    "first_value",
    "floor",
    "group_concat",
    "hex",
    "ifnull",
    "iif",
    "input",
    "instr",
    "integral",
    "json_extract",
    "label",
    "lag",
    "last_value",
    "lead",
    "length",
    "like",
    "lower",
    "ltrim",
    "max",
    "min",
    "nth_value",
    "ntile",
    "nullif",
    "percent_rank",
    "portion",
    "rank",
    "replace",
    "reporting_end",
    "reporting_start",
    "rfc3339",
    "round",
    "row_number",
    "rtrim",
    "sign",
    "string_agg",
    "substr",
    "substring",
    "sum",
    "total",
    "trim",
    "typeof",
    "upper",
];

/// The name of the function that returns the namespace to which a report is limited.
pub(super) const SCOPE: &str = "flyball_scope";

/// Messages of SQLite and of functions for errors while a query runs. All others are replaced, since SQLite adds values
/// to some of them.
const PROBLEMS: &[&str] = &[
    NOT_DECLARED,
    NOT_WHOLE,
    SUM_OVERFLOW,
    "integer overflow",
    "malformed JSON",
    "bad JSON path",
    "LIKE or GLOB pattern too complex",
    text::INVALID_ESCAPE,
    "argument of ntile must be a positive integer",
    "second argument to nth_value must be a positive integer",
    "frame starting offset must be a non-negative",
    "frame ending offset must be a non-negative",
];
const NOT_DECLARED: &str = "the argument of input is not the name of an input";
const NOT_WHOLE: &str =
    "an argument of exact_sum or integral is not a whole number: use sum or total for other numbers";
const SUM_OVERFLOW: &str = "the sum exceeds 38 digits";
const OTHER_PROBLEM: &str = "an expression cannot be computed: check the types of the arguments of its functions";

/// Returns the description of an error while a query runs, without values of rows.
pub(super) fn problem(error: &Error) -> &'static str {
    let message = match error {
        Error::SqliteFailure(_, Some(message)) => message.as_str(),
        _ => "",
    };
    PROBLEMS.iter().find(|known| message.starts_with(**known)).copied().unwrap_or(OTHER_PROBLEM)
}

/// Adds the functions to a connection.
pub(super) fn register(
    connection: &Connection,
    inputs: SharedInputs,
    (since, until): (i64, i64),
    scope: Option<String>,
    budget: &Budget,
) -> Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    connection.create_aggregate_function("exact_sum", 1, pure, ExactSum)?;
    connection.create_aggregate_function("integral", 2, pure, Integral)?;
    connection.create_scalar_function("portion", 4, pure, |context| {
        let value: Option<i64> = context.get(0)?;
        let (length, from, to) = (context.get(1)?, context.get(2)?, context.get(3)?);
        Ok(value.map(|value| usage_portion(value, length, from, to)))
    })?;
    connection.create_scalar_function("reporting_start", 0, pure, move |_| Ok(since))?;
    connection.create_scalar_function("reporting_end", 0, pure, move |_| Ok(until))?;
    connection.create_scalar_function(SCOPE, 0, pure, move |_| Ok(scope.clone()))?;
    connection.create_scalar_function("rfc3339", 1, pure, |context| {
        let seconds: Option<i64> = context.get(0)?;
        let time = seconds.and_then(|seconds| flyball_core::time::Timestamp::from_second(seconds).ok());
        Ok(time.map(flyball_core::time::rfc3339))
    })?;
    connection.create_scalar_function("label", 2, pure, |context| {
        let (labels, name): (Option<String>, String) = (context.get(0)?, context.get(1)?);
        let labels: BTreeMap<String, String> =
            labels.and_then(|labels| serde_json::from_str(&labels).ok()).unwrap_or_default();
        Ok(labels.get(&name).cloned())
    })?;
    connection.create_scalar_function("input", 1, pure, move |context| {
        let name: String = context.get(0)?;
        inputs.lock().get(&name).cloned().ok_or_else(|| Error::UserFunctionError(NOT_DECLARED.into()))
    })?;
    text::register(connection, budget)
}

/// A whole number of any size: an integer if it fits, else its digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Exact(pub(super) i128);

impl ToSql for Exact {
    fn to_sql(&self) -> Result<ToSqlOutput<'_>> {
        Ok(match i64::try_from(self.0) {
            Ok(number) => number.into(),
            Err(_) => self.0.to_string().into(),
        })
    }
}

/// Reads a whole number; `None` for null.
fn exact(context: &Context<'_>, at: usize) -> Result<Option<i128>> {
    let invalid = || Error::UserFunctionError(NOT_WHOLE.into());
    match context.get_raw(at) {
        ValueRef::Null => Ok(None),
        ValueRef::Integer(number) => Ok(Some(number.into())),
        ValueRef::Text(text) => {
            let text = std::str::from_utf8(text).map_err(|_| invalid())?;
            text.parse().map(Some).map_err(|_| invalid())
        }
        ValueRef::Real(_) | ValueRef::Blob(_) => Err(invalid()),
    }
}

/// Returns the error of a sum that is too large.
pub(super) fn sum_overflow() -> Error {
    Error::UserFunctionError(SUM_OVERFLOW.into())
}

/// `exact_sum(x)`: the sum of whole numbers, without overflow; null without rows.
struct ExactSum;

impl Aggregate<Option<i128>, Option<Exact>> for ExactSum {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<i128>> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut Option<i128>) -> Result<()> {
        if let Some(number) = exact(context, 0)? {
            *sum = Some(sum.unwrap_or(0).checked_add(number).ok_or_else(sum_overflow)?);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<Option<i128>>) -> Result<Option<Exact>> {
        Ok(sum.flatten().map(Exact))
    }
}

/// `integral(value, seconds)`: the sum of the products, without overflow; null without rows.
struct Integral;

impl Aggregate<Option<i128>, Option<Exact>> for Integral {
    fn init(&self, _: &mut Context<'_>) -> Result<Option<i128>> {
        Ok(None)
    }

    fn step(&self, context: &mut Context<'_>, sum: &mut Option<i128>) -> Result<()> {
        if let (Some(value), Some(seconds)) = (exact(context, 0)?, exact(context, 1)?) {
            let product = value.checked_mul(seconds).ok_or_else(sum_overflow)?;
            *sum = Some(sum.unwrap_or(0).checked_add(product).ok_or_else(sum_overflow)?);
        }
        Ok(())
    }

    fn finalize(&self, _: &mut Context<'_>, sum: Option<Option<i128>>) -> Result<Option<Exact>> {
        Ok(sum.flatten().map(Exact))
    }
}
