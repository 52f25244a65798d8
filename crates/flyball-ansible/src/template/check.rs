//! Finds errors in templates at load time: invalid syntax, and [unsupported names](super::missing).

use super::lookups::short;
use super::missing::{check_names, check_names_in_text};
use super::prepared::prepared;
use super::syntax::{INCLUDES, Token, compile, first_name, sections, statements, tokens};
use super::{ENGINE, is_template, literal_backslashes, sole_expression};
use minijinja::Error;

/// Validates a string of a role or playbook with expressions.
pub(crate) fn check_text(text: &str) -> Result<(), String> {
    let text = literal_backslashes(text);
    let includes = |tokens: &Vec<Token<'_>>| first_name(tokens).is_some_and(|name| INCLUDES.contains(&name));
    match statements(&text).find(includes) {
        Some(_) => Err("the built-in executor supports include and import only in template files".to_owned()),
        None => check_file(&text),
    }
}

/// Validates the text of a template file.
pub(crate) fn check_file(text: &str) -> Result<(), String> {
    if !is_template(text) {
        return Ok(());
    }
    check_compiles(text)?;
    check_names_in_text(text)?;
    let is_block = |tokens: &Vec<Token<'_>>| matches!(first_name(tokens), Some("extends" | "block"));
    match statements(text).find(is_block) {
        Some(_) => Err("the built-in executor does not support template inheritance: use include or import".to_owned()),
        None => Ok(()),
    }
}

/// Validates only the syntax of a string with expressions, or of a condition.
pub(crate) fn check_syntax(text: &str, is_condition: bool) -> Result<(), String> {
    let text = match is_condition {
        true => format!("{{{{ {} }}}}", sole_expression(text).unwrap_or(text)).into(),
        false => literal_backslashes(text),
    };
    match is_template(&text) {
        true => check_compiles(&text),
        false => Ok(()),
    }
}

/// Validates a condition, optionally in braces.
pub(crate) fn check_expression(text: &str) -> Result<(), String> {
    let expression = sole_expression(text).unwrap_or(text);
    // An incomplete expression alone could be completed by the text after it.
    check_compiles(&format!("{{{{ {expression} }}}}"))?;
    check_names(expression)
}

fn check_compiles(text: &str) -> Result<(), String> {
    let text = prepared(text).map_err(|error| syntax(&error))?;
    compile(&ENGINE, "<string>", &text).map(drop).map_err(|error| syntax(&error))
}

fn syntax(error: &Error) -> String {
    let line = error.line().filter(|line| *line > 1).map(|line| format!(" (line {line} of it)")).unwrap_or_default();
    format!("invalid template: {}{line}", error.detail().unwrap_or("bad syntax"))
}

/// Templates and files that a text names literally in lookups; true for templates.
pub(crate) fn literal_files(text: &str) -> Vec<(bool, String)> {
    let sections = if is_template(text) { sections(text) } else { vec![(0, text)] };
    let of = |(_, section): (usize, &str)| -> Vec<(bool, String)> {
        let tokens = tokens(section);
        let named = |tokens: &[Token<'_>]| match tokens {
            [
                Token::Name("lookup" | "query" | "q"),
                Token::Sign('('),
                Token::Text(kind),
                Token::Sign(','),
                Token::Text(name),
                end,
            ] if matches!(short(kind), "template" | "file") && matches!(end, Token::Sign(')' | ',')) => {
                Some((short(kind) == "template", (*name).to_owned()))
            }
            _ => None,
        };
        tokens.windows(6).filter_map(named).collect()
    };
    sections.into_iter().flat_map(of).collect()
}

/// Kinds that a text names literally in the lookup `k8s`.
pub(crate) fn queried_kinds(text: &str) -> Vec<QueriedKind> {
    let sections = if is_template(text) { sections(text) } else { vec![(0, text)] };
    sections.into_iter().flat_map(|(_, section)| queried_in(&tokens(section))).collect()
}

/// A kind in the lookup `k8s`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct QueriedKind {
    pub(crate) api_version: Option<String>,
    pub(crate) kind: String,
    /// True if the lookup has neither a namespace nor a name.
    pub(crate) is_everywhere: bool,
}

fn queried_in(tokens: &[Token<'_>]) -> Vec<QueriedKind> {
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let [Token::Name("lookup" | "query" | "q"), Token::Sign('('), Token::Text(lookup), arguments @ ..] =
            &tokens[at..]
        else {
            continue;
        };
        if short(lookup) != "k8s" {
            continue;
        }
        let mut queried = QueriedKind { is_everywhere: true, ..QueriedKind::default() };
        let mut depth = 1;
        for at in 0..arguments.len() {
            match &arguments[at..] {
                [Token::Sign('(' | '[' | '{'), ..] => depth += 1,
                [Token::Sign(')' | ']' | '}'), ..] => depth -= 1,
                [Token::Name("kind"), Token::Sign('='), Token::Text(kind), ..] if depth == 1 => {
                    queried.kind = (*kind).to_owned();
                }
                [Token::Name("api_version"), Token::Sign('='), Token::Text(version), ..] if depth == 1 => {
                    queried.api_version = Some((*version).to_owned());
                }
                [Token::Name("namespace" | "resource_name"), Token::Sign('='), ..] if depth == 1 => {
                    queried.is_everywhere = false;
                }
                _ => {}
            }
            if depth == 0 {
                break;
            }
        }
        found.extend(Some(queried).filter(|queried| !queried.kind.is_empty()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn literal_kinds_of_lookups_are_found() {
        let check = |text: &str, expected: &[(&str, Option<&str>, bool)]| {
            let found = queried_kinds(text);
            let found: Vec<_> =
                found.iter().map(|one| (&*one.kind, one.api_version.as_deref(), one.is_everywhere)).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("{{ lookup('k8s', kind='Secret', namespace=x, resource_name='a') }}", &[("Secret", None, false)]);
        check(
            "query('kubernetes.core.k8s', api_version='a.io/v1', kind='A') | length > 0",
            &[("A", Some("a.io/v1"), true)],
        );
        check(
            "{{ q('k8s', kind=f(kind='B')) }} {{ lookup('k8s', kind=x) }} {{ lookup('k8s', cluster_info='version') }}",
            &[],
        );
        check("{{ lookup('file', kind='A') }} kind='B'", &[]);
    }

    #[test]
    fn very_long_expression_is_rejected_without_stack_overflow() {
        let parts = ["(1)", "[0]", ".b", " | string", " + 1", " and a", " is string", " ~ \"}}\""];
        for part in parts {
            let long = format!("range{}", part.repeat(20_000));
            for text in [format!("{{{{ {long} }}}}"), format!("{{% set x = {long} %}}"), format!("{{{{ {long}")] {
                let error = check_text(&text).unwrap_err();
                assert!(error.contains("more than 500 operators"), "{part}: {error}");
            }
            assert!(check_expression(&long).unwrap_err().contains("more than 500 operators"), "{part}");
            let bearable = format!("{{{{ range{} }}}}", part.repeat(200));
            assert!(check_text(&bearable).is_ok(), "{part}: {:?}", check_text(&bearable));
        }
        let many = "{{ a.b }} (((((((((((".repeat(10_000);
        check_text(&many).unwrap();
    }
}
