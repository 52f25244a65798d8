//! Filters with regular expressions.

use super::super::expression::Expression;
use super::super::output::check_size;
use super::super::reject;
use minijinja::value::{Kwargs, Rest, Tuple, Value};
use minijinja::{Environment, Error, State};
use regex::Captures;

pub(super) fn add(env: &mut Environment<'static>) {
    env.add_filter("regex_replace", regex_replace);
    env.add_filter(
        "regex_search",
        |state: &State<'_, '_>, text: String, pattern: String, groups: Rest<Value>, options: Kwargs| {
            let mut expression = regex_of(state, &pattern, &options)?;
            options.assert_all_used()?;
            let Some(found) = expression.find(state, &text)? else { return Ok(Value::from(())) };
            match groups.as_slice() {
                [] => Ok(found[0].into()),
                groups => {
                    groups.iter().map(|group| group_of(&found, group)).collect::<Result<Vec<_>, _>>().map(Value::from)
                }
            }
        },
    );
    env.add_filter("regex_findall", |state: &State<'_, '_>, text: String, pattern: String, options: Kwargs| {
        let mut expression = regex_of(state, &pattern, &options)?;
        options.assert_all_used()?;
        let one = |found: &Captures<'_>| -> Value {
            let text = |at: usize| found.get(at).map_or("", |part| part.as_str());
            match found.len() {
                1 | 2 => text(found.len() - 1).into(),
                several => Tuple::from((1..several).map(text).map(Value::from).collect::<Vec<_>>()).into(),
            }
        };
        let mut all = Vec::new();
        expression.for_each(state, &text, usize::MAX, |found| {
            all.push(one(found));
            Ok(())
        })?;
        Ok::<_, Error>(all)
    });
    env.add_filter("regex_escape", |text: String, _: Kwargs| regex::escape(&text));
}

fn regex_of(state: &State<'_, '_>, pattern: &str, options: &Kwargs) -> Result<Expression, Error> {
    let flag = |name: &str| options.get::<Option<bool>>(name).map(|flag| flag.unwrap_or(false));
    Expression::new(state, pattern, flag("ignorecase")?, flag("multiline")?)
}

/// The filter `regex_replace`. The size of the result is checked in advance: a replacement may repeat the whole text.
fn regex_replace(
    state: &State<'_, '_>,
    text: String,
    pattern: String,
    with: Option<String>,
    options: Kwargs,
) -> Result<String, Error> {
    let mut expression = regex_of(state, &pattern, &options)?;
    let count = options.get::<Option<usize>>("count")?.filter(|count| *count > 0).unwrap_or(usize::MAX);
    options.assert_all_used()?;
    let with = replacement(&with.unwrap_or_default());
    let references = with.matches('$').count();
    let (mut out, mut from) = (String::new(), 0);
    expression.for_each(state, &text, count, |found| {
        let whole = found.get_match();
        out.push_str(&text[from..whole.start()]);
        from = whole.end();
        // A group is part of the match.
        check_size("regex_replace", out.len() + with.len() + references.saturating_mul(whole.len()))?;
        found.expand(&with, &mut out);
        Ok(())
    })?;
    out.push_str(&text[from..]);
    Ok(out)
}

/// Converts Python's `\1` and `\g<name>` to `${1}` and `${name}`.
fn replacement(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['\\', '$']) {
        out.push_str(&rest[..at]);
        let after = &rest[at + 1..];
        if rest[at..].starts_with('$') {
            out.push_str("$$");
            rest = after;
        } else if let Some((name, remaining)) = after.strip_prefix("g<").and_then(|after| after.split_once('>')) {
            out.push_str(&format!("${{{name}}}"));
            rest = remaining;
        } else if let Some(digit) = after.chars().next().filter(char::is_ascii_digit) {
            out.push_str(&format!("${{{digit}}}"));
            rest = &after[1..];
        } else {
            let letter = after.chars().next();
            out.push_str(match letter {
                Some('n') => "\n",
                Some('t') => "\t",
                Some('\\') => "\\",
                _ => "\\",
            });
            let known = letter.is_some_and(|letter| matches!(letter, 'n' | 't' | '\\'));
            rest = if known { &after[1..] } else { after };
        }
    }
    out + rest
}

fn group_of(found: &Captures<'_>, group: &Value) -> Result<Value, Error> {
    let name = group.as_str().unwrap_or_default();
    let name =
        name.strip_prefix("\\g<").and_then(|name| name.strip_suffix('>')).unwrap_or(name.trim_start_matches('\\'));
    let part = match name.parse::<usize>() {
        Ok(number) => found.get(number),
        Err(_) => found.name(name),
    };
    part.map(|part| part.as_str().into()).ok_or_else(|| reject(format!("the expression has no group {name}")))
}
