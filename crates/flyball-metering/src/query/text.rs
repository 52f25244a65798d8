//! Functions of texts whose time is linear, instead of those of SQLite, which take the product of the lengths of their
//! arguments. They charge their work to the budget, and return what SQLite's functions return.

use super::MAX_ROW_BYTES;
use super::budget::Budget;
use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{Value, ValueRef};
use rusqlite::{Connection, Error, Result, ffi};
use std::borrow::Cow;
use std::collections::BTreeSet;

/// The message of an invalid third argument of `like`.
pub(super) const INVALID_ESCAPE: &str = "ESCAPE expression must be a single character";

/// Longest pattern of `like` in bytes.
const MAX_PATTERN_BYTES: usize = 200;

/// Replaces functions of SQLite on a connection.
pub(super) fn register(connection: &Connection, budget: &Budget) -> Result<()> {
    let pure = FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC;
    let charged = budget.clone();
    connection.create_scalar_function("instr", 2, pure, move |context| instr(context, &charged))?;
    let charged = budget.clone();
    connection.create_scalar_function("replace", 3, pure, move |context| replace(context, &charged))?;
    for count in [2, 3] {
        let charged = budget.clone();
        connection.create_scalar_function("like", count, pure, move |context| like(context, &charged))?;
    }
    for (name, at_start, at_end) in [("trim", true, true), ("ltrim", true, false), ("rtrim", false, true)] {
        for count in [1, 2] {
            let charged = budget.clone();
            connection
                .create_scalar_function(name, count, pure, move |context| trim(context, &charged, at_start, at_end))?;
        }
    }
    Ok(())
}

/// Returns an argument as text, none for null.
fn argument<'a>(context: &'a Context<'_>, at: usize) -> Option<Cow<'a, str>> {
    Some(match context.get_raw(at) {
        ValueRef::Null => return None,
        ValueRef::Integer(number) => number.to_string().into(),
        ValueRef::Real(number) => real(number).into(),
        ValueRef::Text(text) | ValueRef::Blob(text) => String::from_utf8_lossy(text),
    })
}

thread_local! {
    /// A connection without data, for conversions.
    static CONVERTER: Option<Connection> = Connection::open_in_memory().ok();
}

/// Returns the text of a number as SQLite prints it, which differs from other printers in the last of 17 digits.
fn real(number: f64) -> String {
    let convert = |connection: &Option<Connection>| -> Option<String> {
        let mut statement = connection.as_ref()?.prepare_cached("SELECT CAST(? AS TEXT)").ok()?;
        statement.query_row([number], |row| row.get(0)).ok()
    };
    CONVERTER.with(convert).unwrap_or_else(|| number.to_string())
}

fn instr(context: &Context<'_>, budget: &Budget) -> Result<Option<i64>> {
    let count = |characters: usize| Some(i64::try_from(characters).unwrap_or(i64::MAX) + 1);
    if let (ValueRef::Blob(text), ValueRef::Blob(part)) = (context.get_raw(0), context.get_raw(1)) {
        // Positions in bytes: each becomes a character.
        let [text, part] = [text, part].map(|bytes| bytes.iter().map(|byte| char::from(*byte)).collect::<String>());
        budget.charge(text.len() + part.len())?;
        return Ok(text.find(&part).map_or(Some(0), |at| count(text[..at].chars().count())));
    }
    let (Some(text), Some(part)) = (argument(context, 0), argument(context, 1)) else { return Ok(None) };
    budget.charge(text.len() + part.len())?;
    Ok(text.find(&*part).map_or(Some(0), |at| count(text[..at].chars().count())))
}

fn replace(context: &Context<'_>, budget: &Budget) -> Result<Option<Value>> {
    let (Some(text), Some(part)) = (argument(context, 0), argument(context, 1)) else { return Ok(None) };
    if part.is_empty() {
        return Ok(Some(Value::Text(text.into_owned())));
    }
    let Some(by) = argument(context, 2) else { return Ok(None) };
    budget.charge(text.len() + part.len() + by.len())?;
    let growth = text.matches(&*part).count().saturating_mul(by.len().saturating_sub(part.len()));
    if text.len().saturating_add(growth) > MAX_ROW_BYTES {
        return Err(Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_TOOBIG), None));
    }
    Ok(Some(Value::Text(text.replace(&*part, &by))))
}

fn trim(context: &Context<'_>, budget: &Budget, at_start: bool, at_end: bool) -> Result<Option<String>> {
    let Some(text) = argument(context, 0) else { return Ok(None) };
    let characters: BTreeSet<char> = match context.len() {
        1 => BTreeSet::from([' ']),
        _ => match argument(context, 1) {
            Some(characters) => {
                budget.charge(characters.len())?;
                characters.chars().collect()
            }
            None => return Ok(None),
        },
    };
    budget.charge(text.len())?;
    let mut rest = &*text;
    if at_start {
        rest = rest.trim_start_matches(|c| characters.contains(&c));
    }
    if at_end {
        rest = rest.trim_end_matches(|c| characters.contains(&c));
    }
    Ok(Some(rest.to_owned()))
}

/// `like(pattern, text [, escape])`, the function of the operator `LIKE`.
fn like(context: &Context<'_>, budget: &Budget) -> Result<Option<bool>> {
    let (Some(pattern), Some(text)) = (argument(context, 0), argument(context, 1)) else { return Ok(None) };
    if pattern.len() > MAX_PATTERN_BYTES {
        return Err(Error::UserFunctionError("LIKE or GLOB pattern too complex".into()));
    }
    let escape = match context.len() {
        2 => None,
        _ => {
            let Some(escape) = argument(context, 2) else { return Ok(None) };
            let mut characters = escape.chars();
            match (characters.next(), characters.next()) {
                (Some(escape), None) => Some(escape),
                _ => return Err(Error::UserFunctionError(INVALID_ESCAPE.into())),
            }
        }
    };
    let Some(pattern) = parts(&pattern, escape) else { return Ok(Some(false)) };
    let (is_match, steps) = matches(&pattern, &text);
    // A step costs more than a copied character.
    budget.charge(steps * 8)?;
    Ok(Some(is_match))
}

/// A part of a pattern.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    Any,
    One,
    Character(char),
}

/// Returns the parts of a pattern, none if it ends with the escape character: it matches nothing.
fn parts(pattern: &str, escape: Option<char>) -> Option<Vec<Part>> {
    let (mut parts, mut characters) = (Vec::new(), pattern.chars());
    while let Some(c) = characters.next() {
        parts.push(match c {
            _ if Some(c) == escape => Part::Character(characters.next()?.to_ascii_lowercase()),
            '%' => Part::Any,
            '_' => Part::One,
            _ => Part::Character(c.to_ascii_lowercase()),
        });
    }
    Some(parts)
}

/// Returns true if a text matches, and the number of comparisons: at most the product of the lengths.
fn matches(pattern: &[Part], text: &str) -> (bool, usize) {
    let (mut at, mut rest, mut steps) = (0, text.chars(), 0);
    // The part after the last `%`, and the text from which it was tried.
    let mut last: Option<(usize, std::str::Chars<'_>)> = None;
    loop {
        steps += 1;
        let mut following = rest.clone();
        let next = following.next();
        match (pattern.get(at), next) {
            (Some(Part::Any), _) => {
                at += 1;
                last = Some((at, rest.clone()));
            }
            (Some(Part::One), Some(_)) => (at, rest) = (at + 1, following),
            (Some(Part::Character(c)), Some(next)) if *c == next.to_ascii_lowercase() => {
                (at, rest) = (at + 1, following);
            }
            (None, None) => return (true, steps),
            _ => {
                let Some((after, mut from)) = last.take() else { return (false, steps) };
                if from.next().is_none() {
                    return (false, steps);
                }
                (at, rest) = (after, from.clone());
                last = Some((after, from));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::query::Limits;

    /// Calls that return the same with our functions as with those of SQLite.
    #[test]
    fn functions_return_what_those_of_sqlite_return() {
        let (own, sqlite) = (Connection::open_in_memory().unwrap(), Connection::open_in_memory().unwrap());
        register(&own, &Budget::new(Limits::default())).unwrap();
        let values = [
            "NULL",
            "''",
            "'a'",
            "'abc'",
            "'ABC'",
            "'aab'",
            "'äöü'",
            "'ö'",
            "'%'",
            "'a_c'",
            "'%b%'",
            "'a%'",
            "' a '",
            "1",
            "-1.5",
            "2.0",
            "0.1 + 0.2",
            "0.0",
            "1.0 / 3",
            "-0.12345678901234567",
            "1e16",
            "1e17",
            "1e15",
            "123456789012345.0",
            "1.5e-7",
            "0.0001",
            "9e999",
            "x'6162'",
            "x'62'",
        ];
        let read = |connection: &Connection, sql: &str| -> String {
            connection.query_row(&format!("SELECT coalesce(quote({sql}), '-')"), [], |row| row.get(0)).unwrap()
        };
        for one in values {
            for other in values {
                let mut calls: Vec<String> =
                    ["instr", "trim", "ltrim", "rtrim"].map(|name| format!("{name}({one}, {other})")).into();
                calls.extend([
                    format!("{one} LIKE {other}"),
                    format!("{one} LIKE {other} ESCAPE 'a'"),
                    format!("{one} LIKE {other} ESCAPE '%'"),
                    format!("replace('xabcaxb', {one}, {other})"),
                    format!("replace({one}, {other}, 'é')"),
                    format!("trim({one})"),
                ]);
                for call in calls {
                    assert_eq!(read(&own, &call), read(&sqlite, &call), "{call}");
                }
            }
        }
    }
}
