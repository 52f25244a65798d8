//! Finds mistakes in templates before they are used: bad syntax, and filters, tests and lookups that do not exist.

use super::{ENGINE, Quotes, is_template, refuse, sole_expression};
use minijinja::{Error, context};

/// Operators, calls, attributes and filters of one expression: the engine recurses into each of them.
const MAX_OPERATORS: usize = 500;

/// Kinds of lookups.
pub(super) const LOOKUPS: [&str; 5] = ["template", "file", "env", "vars", "items"];

/// Returns the message for a lookup that does not exist.
pub(super) fn unknown_lookup(kind: &str) -> String {
    format!("the built-in executor has no lookup {kind}; there are {}", LOOKUPS.join(", "))
}

/// Refuses a text in which an expression has more operators than the engine's recursion can bear.
///
/// Braces end a section here only outside of quotes, as they do for the engine.
pub(super) fn check_operators(text: &str) -> Result<(), Error> {
    let mut rest = text;
    while let Some(at) = opening(rest, &['{', '%']) {
        let (end, operators) = section(&rest[at + 2..]);
        if operators > MAX_OPERATORS {
            return Err(refuse(format!(
                "an expression has more than {MAX_OPERATORS} operators: split it into several variables"
            )));
        }
        rest = &rest[at + 2 + end..];
    }
    Ok(())
}

/// Returns where the first brace is that one of these follows.
fn opening(text: &str, seconds: &[char]) -> Option<usize> {
    text.match_indices('{').map(|(at, _)| at).find(|at| text[at + 1..].starts_with(seconds))
}

/// Returns where a section ends, and how many operators are in it.
fn section(text: &str) -> (usize, usize) {
    let (mut quotes, mut operators) = (Quotes::default(), 0);
    let mut word = 0;
    for (at, letter) in text.char_indices() {
        let is_word = letter.is_alphanumeric() || letter == '_';
        if !quotes.are_open() && !is_word {
            let name = &text[word..at];
            operators += usize::from(matches!(name, "and" | "or" | "not" | "is" | "in" | "if" | "else"));
        }
        if !is_word {
            word = at + letter.len_utf8();
        }
        match letter {
            _ if quotes.is_quoted(letter) => {}
            '}' | '%' if text[at + 1..].starts_with('}') => return (at + 2, operators),
            '(' | '[' | '{' | '.' | '|' | '+' | '-' | '*' | '/' | '%' | '~' | '<' | '>' | '=' | '!' => operators += 1,
            _ => {}
        }
    }
    (text.len(), operators)
}

/// Checks a text with expressions in it.
pub(crate) fn check_text(text: &str) -> Result<(), String> {
    if !is_template(text) {
        return Ok(());
    }
    check_operators(text).and_then(|()| ENGINE.template_from_str(text)).map_err(|error| syntax(&error))?;
    sections(text).into_iter().try_for_each(check_names)
}

/// Checks a condition, which may have braces around it.
pub(crate) fn check_expression(text: &str) -> Result<(), String> {
    let expression = sole_expression(text).unwrap_or(text);
    // An expression alone may be followed by anything.
    let template = format!("{{{{ {expression} }}}}");
    check_operators(&template).and_then(|()| ENGINE.template_from_str(&template)).map_err(|error| syntax(&error))?;
    check_names(expression)
}

fn syntax(error: &Error) -> String {
    let line = error.line().filter(|line| *line > 1).map(|line| format!(" (line {line} of it)")).unwrap_or_default();
    format!("it is no template: {}{line}", error.detail().unwrap_or("bad syntax"))
}

/// Returns what stands in braces.
fn sections(text: &str) -> Vec<&str> {
    let mut sections = Vec::new();
    let mut rest = text;
    while let Some(at) = opening(rest, &['{', '%', '#']) {
        let close = match &rest[at..at + 2] {
            "{{" => "}}",
            "{%" => "%}",
            _ => "#}",
        };
        let inner = &rest[at + 2..];
        // Where a text within the expression has such braces, too much is left out, and found out when it is evaluated.
        let end = inner.find(close).unwrap_or(inner.len());
        if close != "#}" {
            sections.push(&inner[..end]);
        }
        rest = inner.get(end + 2..).unwrap_or_default();
    }
    sections
}

/// A part of an expression, as far as names of filters need it.
#[derive(Clone, Copy, PartialEq)]
enum Token<'a> {
    Name(&'a str),
    Text(&'a str),
    Sign(char),
}

fn check_names(expression: &str) -> Result<(), String> {
    let tokens = tokens(expression);
    for (at, token) in tokens.iter().enumerate() {
        let next = |offset: usize| tokens.get(at + offset).copied();
        match (token, next(1)) {
            (Token::Sign('|'), Some(Token::Name(_))) => check_filter(&dotted(&tokens[at + 1..]))?,
            (Token::Name("is"), Some(Token::Name("not"))) => {
                check_test(&dotted(&tokens[(at + 2).min(tokens.len())..]))?
            }
            (Token::Name("is"), Some(Token::Name(_))) => check_test(&dotted(&tokens[at + 1..]))?,
            (Token::Name("lookup" | "query" | "q"), Some(Token::Sign('('))) => {
                if let Some(Token::Text(kind)) = next(2)
                    && !LOOKUPS.contains(&kind.trim_start_matches("ansible.builtin."))
                {
                    return Err(unknown_lookup(kind));
                }
            }
            _ => {}
        }
    }
    Ok(())
}

/// Joins the parts of a name such as `ansible.builtin.default`.
fn dotted(tokens: &[Token<'_>]) -> String {
    let mut name = String::new();
    for pair in tokens.chunks(2) {
        let Some(Token::Name(part)) = pair.first() else { break };
        name.push_str(part);
        match pair.get(1) {
            Some(Token::Sign('.')) => name.push('.'),
            _ => break,
        }
    }
    name
}

fn check_filter(name: &str) -> Result<(), String> {
    exists("name is filter", name)
        .then_some(())
        .ok_or_else(|| format!("the built-in executor does not support filter {name}: {REMEDY}"))
}

fn check_test(name: &str) -> Result<(), String> {
    let is_known = name.is_empty() || exists("name is test", name);
    is_known.then_some(()).ok_or_else(|| format!("the built-in executor does not support test {name}: {REMEDY}"))
}

const REMEDY: &str = "use another one, or install ansible-playbook";

fn exists(question: &str, name: &str) -> bool {
    let answer = ENGINE.compile_expression(question).and_then(|question| question.eval(context! { name }));
    answer.is_ok_and(|answer| answer.is_true())
}

fn tokens(expression: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let mut rest = expression;
    while let Some(first) = rest.chars().next() {
        let end = match first {
            '\'' | '"' => {
                let mut escaped = false;
                let close = rest.char_indices().skip(1).find(|(_, letter)| {
                    let closes = *letter == first && !escaped;
                    escaped = *letter == '\\' && !escaped;
                    closes
                });
                let end = close.map_or(rest.len(), |(at, _)| at);
                tokens.push(Token::Text(&rest[1..end]));
                (end + 1).min(rest.len())
            }
            letter if letter.is_alphabetic() || letter == '_' => {
                let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                tokens.push(Token::Name(&rest[..end]));
                end
            }
            // A number is no name, whatever letters are in it.
            letter if letter.is_ascii_digit() => {
                rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len())
            }
            letter => {
                if !letter.is_whitespace() {
                    tokens.push(Token::Sign(letter));
                }
                letter.len_utf8()
            }
        };
        rest = &rest[end..];
    }
    tokens
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_expression_with_very_many_parts_is_refused_in_place_of_a_stack_overflow() {
        let parts = ["(1)", "[0]", ".b", " | string", " + 1", " and a", " is string", " ~ \"}}\""];
        for part in parts {
            let long = format!("a{}", part.repeat(20_000));
            for text in [format!("{{{{ {long} }}}}"), format!("{{% set x = {long} %}}"), format!("{{{{ {long}")] {
                let error = check_text(&text).unwrap_err();
                assert!(error.contains("more than 500 operators"), "{part}: {error}");
            }
            assert!(check_expression(&long).unwrap_err().contains("more than 500 operators"), "{part}");
            let bearable = format!("{{{{ a{} }}}}", part.repeat(200));
            assert!(check_text(&bearable).is_ok(), "{part}: {:?}", check_text(&bearable));
        }
        let many = "{{ a.b }} (((((((((((".repeat(10_000);
        check_text(&many).unwrap();
    }
}
