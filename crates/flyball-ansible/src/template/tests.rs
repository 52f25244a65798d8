//! Ansible's tests, used with `is`.

use super::expression::Expression;
use super::filters::sorted;
use super::{items, reject};
use minijinja::value::{Kwargs, Rest, Value};
use minijinja::{Environment, Error, State};
use std::cmp::Ordering;
use std::collections::BTreeSet;

/// Tests that also have a name with the collection `ansible.builtin`.
const BUILTIN: [&str; 21] = [
    "all",
    "any",
    "change",
    "changed",
    "contains",
    "defined",
    "failed",
    "falsy",
    "mapping",
    "match",
    "regex",
    "search",
    "skip",
    "skipped",
    "string",
    "subset",
    "succeeded",
    "success",
    "superset",
    "truthy",
    "version",
];

pub(super) fn add(env: &mut Environment<'static>) {
    // Tests of registered results.
    let flag = |result: &Value, name: &str| result.get_attr(name).is_ok_and(|flag| flag.is_true());
    for name in ["failed", "failure"] {
        env.add_test(name, move |result: Value| flag(&result, "failed"));
    }
    for name in ["succeeded", "success", "successful"] {
        env.add_test(name, move |result: Value| !flag(&result, "failed"));
    }
    for name in ["changed", "change"] {
        env.add_test(name, move |result: Value| flag(&result, "changed"));
    }
    for name in ["skipped", "skip"] {
        env.add_test(name, move |result: Value| flag(&result, "skipped"));
    }
    env.add_test("match", |state: &State<'_, '_>, text: String, pattern: String| {
        Ok::<_, Error>(found_at(state, &text, &pattern)? == Some(0))
    });
    for name in ["search", "regex"] {
        env.add_test(name, |state: &State<'_, '_>, text: String, pattern: String| {
            Ok::<_, Error>(found_at(state, &text, &pattern)?.is_some())
        });
    }
    env.add_test("truthy", is_truthy);
    env.add_test("falsy", |value: Value, options: Kwargs| is_truthy(value, options).map(|truth| !truth));
    env.add_test("contains", |state: &State<'_, '_>, list: Value, item: Value| contains(state, &list, &item));
    env.add_test("subset", |state: &State<'_, '_>, list: Value, of: Value| all_in(state, &list, &of));
    env.add_test("superset", |state: &State<'_, '_>, list: Value, of: Value| all_in(state, &of, &list));
    env.add_test("any", |state: &State<'_, '_>, list: Value| {
        Ok::<_, Error>(items(state, &list)?.iter().any(Value::is_true))
    });
    env.add_test("all", |state: &State<'_, '_>, list: Value| {
        Ok::<_, Error>(items(state, &list)?.iter().all(Value::is_true))
    });
    for name in ["version", "version_compare"] {
        env.add_test(name, |version: String, other: String, operator: Option<String>| {
            compare(&version, &other, operator.as_deref().unwrap_or("=="))
        });
    }
    for name in BUILTIN {
        env.add_test(format!("ansible.builtin.{name}"), |state: &mut State<'_, '_>, arguments: Rest<Value>| {
            state.perform_test(name, &arguments)
        });
    }
}

fn is_truthy(value: Value, options: Kwargs) -> Result<bool, Error> {
    let converts = options.get::<Option<bool>>("convert_bool")?.unwrap_or(false);
    options.assert_all_used()?;
    let word = value.as_str().filter(|_| converts).and_then(|word| crate::yaml::truth(&word.into()));
    Ok(word.unwrap_or_else(|| value.is_true()))
}

fn found_at(state: &State<'_, '_>, text: &str, pattern: &str) -> Result<Option<usize>, Error> {
    let found = Expression::new(state, pattern, false, false)?.find(state, text)?;
    Ok(found.map(|found| found.get_match().start()))
}

fn contains(state: &State<'_, '_>, list: &Value, item: &Value) -> Result<bool, Error> {
    match (list.as_str(), item.as_str()) {
        (Some(text), Some(part)) => Ok(text.contains(part)),
        _ => Ok(items(state, list)?.contains(item)),
    }
}

fn all_in(state: &State<'_, '_>, list: &Value, of: &Value) -> Result<bool, Error> {
    let of = items(state, of)?.iter().map(sorted).collect::<Result<BTreeSet<_>, _>>()?;
    let list = items(state, list)?.iter().map(sorted).collect::<Result<Vec<_>, _>>()?;
    Ok(list.iter().all(|item| of.contains(item)))
}

/// Compares versions as Python's `LooseVersion` does: numbers and words, one by one. A version that continues another
/// one is newer.
fn compare(version: &str, other: &str, operator: &str) -> Result<bool, Error> {
    let order = parts(version).cmp(&parts(other));
    Ok(match operator {
        "==" | "=" | "eq" => order == Ordering::Equal,
        "!=" | "<>" | "ne" => order != Ordering::Equal,
        "<" | "lt" => order == Ordering::Less,
        "<=" | "le" => order != Ordering::Greater,
        ">" | "gt" => order == Ordering::Greater,
        ">=" | "ge" => order != Ordering::Less,
        other => return Err(reject(format!("{other} is not a comparison operator for versions"))),
    })
}

/// Returns the numbers and words of a version. Ansible rejects a comparison of a number with a word; here the word is
/// older, such as that of a release candidate.
fn parts(version: &str) -> Vec<(u64, &str)> {
    let (mut parts, mut rest) = (Vec::new(), version);
    while let Some(first) = rest.chars().next() {
        let kind = |letter: char| (letter.is_ascii_digit(), letter.is_ascii_lowercase(), letter == '.');
        let end = rest.find(|letter| kind(letter) != kind(first)).unwrap_or(rest.len());
        let part = &rest[..end];
        match part.parse::<u64>() {
            Ok(number) => parts.push((number.saturating_add(1), "")),
            Err(_) if first == '.' => {}
            Err(_) => parts.push((0, part)),
        }
        rest = &rest[end..];
    }
    parts
}
