//! Finds errors in templates at load time: invalid syntax, and unsupported filters, tests and lookups.

use super::lookups::{LOOKUPS, NO_FILE, date_format, short, unknown_lookup};
use super::{ENGINE, Quotes, is_template, literal_backslashes, reject, sole_expression};
use minijinja::{Environment, Error, Expression, Template, context};

/// The stack size for the parser, with memory allocated on demand: sufficient for its recursion limit in a program
/// without optimization.
const PARSER_STACK_BYTES: usize = 8 << 20;

/// The statements that include or import another template.
pub(super) const INCLUDES: [&str; 3] = ["include", "import", "from"];

/// Limit of operators, calls, attributes and filters in one expression: the engine recurses into each of them.
const MAX_OPERATORS: usize = 500;

/// Runs the parser on a sufficient stack.
pub(super) fn with_parser_stack<T>(parse: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(PARSER_STACK_BYTES, PARSER_STACK_BYTES, parse)
}

/// Compiles a template of any nesting on any thread.
pub(super) fn compile<'e>(
    engine: &'e Environment<'static>,
    name: &'e str,
    text: &'e str,
) -> Result<Template<'e, 'e>, Error> {
    check_operators(text)?;
    with_parser_stack(|| engine.template_from_named_str(name, text))
}

/// Compiles an expression of any nesting on any thread.
pub(super) fn compile_expression<'e>(
    engine: &'e Environment<'static>,
    expression: &'e str,
) -> Result<Expression<'e, 'e>, Error> {
    check_operators(&format!("{{{{{expression}"))?;
    with_parser_stack(|| engine.compile_expression(expression))
}

/// Rejects a text with an expression that would exceed the engine's recursion limit.
///
/// As in the engine, braces end a section only outside of quotes.
fn check_operators(text: &str) -> Result<(), Error> {
    let mut rest = text;
    while let Some(at) = opening(rest, &['{', '%']) {
        let (end, operators) = section(&rest[at + 2..]);
        if operators > MAX_OPERATORS {
            return Err(reject(format!(
                "an expression has more than {MAX_OPERATORS} operators: split it into several variables"
            )));
        }
        rest = &rest[at + 2 + end..];
    }
    Ok(())
}

/// Returns the position of the first brace that is followed by one of these characters.
fn opening(text: &str, seconds: &[char]) -> Option<usize> {
    text.match_indices('{').map(|(at, _)| at).find(|at| text[at + 1..].starts_with(seconds))
}

/// Returns the end of a section, and the number of its operators.
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
    compile(&ENGINE, "<string>", text).map_err(|error| syntax(&error))?;
    sections(text).into_iter().try_for_each(|(_, section)| check_names(section))?;
    let is_block = |tokens: &Vec<Token<'_>>| matches!(first_name(tokens), Some("extends" | "block"));
    match statements(text).find(is_block) {
        Some(_) => Err("the built-in executor does not support template inheritance: use include or import".to_owned()),
        None => Ok(()),
    }
}

/// Returns the tokens of the statements in a text.
pub(super) fn statements(text: &str) -> impl Iterator<Item = Vec<Token<'_>>> {
    sections(text).into_iter().filter(|(at, _)| text[..*at].ends_with('%')).map(|(_, section)| tokens(section))
}

pub(super) fn first_name<'t>(tokens: &[Token<'t>]) -> Option<&'t str> {
    tokens.iter().find_map(|token| if let Token::Name(name) = token { Some(*name) } else { None })
}

/// Returns the unsupported names in a text with expressions, each with its position.
pub(crate) fn missing_in_text(text: &str) -> Vec<(usize, MissingFunction)> {
    let of = |(at, section): (usize, &str)| missing_names(section).into_iter().map(move |name| (at, name)).collect();
    sections(text).into_iter().flat_map::<Vec<_>, _>(of).collect()
}

/// Returns the unsupported names in a condition.
pub(crate) fn missing_in_expression(text: &str) -> Vec<MissingFunction> {
    missing_names(sole_expression(text).unwrap_or(text))
}

/// Validates a condition, optionally in braces.
pub(crate) fn check_expression(text: &str) -> Result<(), String> {
    let expression = sole_expression(text).unwrap_or(text);
    // An incomplete expression alone could be completed by the text after it.
    let template = format!("{{{{ {expression} }}}}");
    compile(&ENGINE, "<string>", &template).map_err(|error| syntax(&error))?;
    check_names(expression)
}

fn syntax(error: &Error) -> String {
    let line = error.line().filter(|line| *line > 1).map(|line| format!(" (line {line} of it)")).unwrap_or_default();
    format!("invalid template: {}{line}", error.detail().unwrap_or("bad syntax"))
}

/// Returns the content of braces, with its position.
pub(super) fn sections(text: &str) -> Vec<(usize, &str)> {
    let mut sections = Vec::new();
    let mut rest = text;
    while let Some(at) = opening(rest, &['{', '%', '#']) {
        let close = match &rest[at..at + 2] {
            "{{" => "}}",
            "{%" => "%}",
            _ => "#}",
        };
        let inner = &rest[at + 2..];
        // If a string within the expression contains such braces, the result is incomplete, and errors are found at
        // evaluation.
        let end = inner.find(close).unwrap_or(inner.len());
        if close != "#}" {
            sections.push((text.len() - inner.len(), &inner[..end]));
        }
        rest = inner.get(end + 2..).unwrap_or_default();
    }
    sections
}

/// A token of an expression, as far as needed to find filter names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Token<'a> {
    Name(&'a str),
    Text(&'a str),
    Sign(char),
}

/// A filter, test or lookup that the built-in executor does not support.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MissingFunction {
    Filter(String),
    Test(String),
    Lookup(String),
}

fn check_names(expression: &str) -> Result<(), String> {
    match missing_names(expression).into_iter().next() {
        None => Ok(()),
        Some(MissingFunction::Filter(name)) => {
            Err(format!("the built-in executor does not support filter {name}: {REMEDY}"))
        }
        Some(MissingFunction::Test(name)) => {
            Err(format!("the built-in executor does not support test {name}: {REMEDY}"))
        }
        Some(MissingFunction::Lookup(kind)) => Err(unknown_lookup(&kind)),
    }
}

fn missing_names(expression: &str) -> Vec<MissingFunction> {
    let tokens = tokens(expression);
    let used = tokens.iter().enumerate().filter_map(|(at, token)| {
        let next = |offset: usize| tokens.get(at + offset).copied();
        match (token, next(1)) {
            (Token::Sign('|'), Some(Token::Name(_))) => Some(MissingFunction::Filter(dotted(&tokens[at + 1..]))),
            (Token::Name("is"), Some(Token::Name("not"))) => {
                Some(MissingFunction::Test(dotted(&tokens[(at + 2).min(tokens.len())..])))
            }
            (Token::Name("is"), Some(Token::Name(_))) => Some(MissingFunction::Test(dotted(&tokens[at + 1..]))),
            (Token::Name("lookup" | "query" | "q"), Some(Token::Sign('('))) => match next(2) {
                Some(Token::Text(kind)) => {
                    let term = next(4).filter(|_| next(3) == Some(Token::Sign(',')));
                    let is_supported = match (short(kind), term) {
                        ("pipe", Some(Token::Text(command))) => date_format(command).is_some(),
                        ("pipe", _) => false,
                        ("password", Some(Token::Text(path))) => path.starts_with(NO_FILE),
                        (kind, _) => LOOKUPS.contains(&kind),
                    };
                    (!is_supported).then(|| MissingFunction::Lookup(short(kind).to_owned()))
                }
                _ => None,
            },
            _ => None,
        }
    });
    used.filter(|name| !is_known(name)).collect()
}

fn is_known(name: &MissingFunction) -> bool {
    match name {
        MissingFunction::Filter(name) => exists("name is filter", name),
        MissingFunction::Test(name) => name.is_empty() || exists("name is test", name),
        // Lookups were checked with their terms.
        MissingFunction::Lookup(_) => false,
    }
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

const REMEDY: &str = "use another one, or install ansible-playbook";

fn exists(question: &str, name: &str) -> bool {
    let response = compile_expression(&ENGINE, question).and_then(|question| question.eval(context! { name }));
    response.is_ok_and(|response| response.is_true())
}

pub(super) fn tokens(expression: &str) -> Vec<Token<'_>> {
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
            // A number is not a name, even if it contains letters.
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
