//! The syntax of templates: sections in braces, their tokens, and their compilation on any thread.

use super::{Quotes, reject};
use minijinja::{Environment, Error, Expression, Template};

/// The stack size for the parser, with memory allocated on demand: sufficient for its recursion limit, and for two
/// filters at each operator, in a program without optimization.
const PARSER_STACK_BYTES: usize = 16 << 20;

/// The statements that include or import another template.
pub(super) const INCLUDES: [&str; 3] = ["include", "import", "from"];

/// Words of expressions and statements that are no names: an operand may follow them.
pub(super) const OPERATOR_WORDS: [&str; 19] = [
    "and",
    "or",
    "not",
    "in",
    "is",
    "if",
    "elif",
    "else",
    "for",
    "set",
    "macro",
    "call",
    "do",
    "recursive",
    "filter",
    "with",
    "import",
    "include",
    "from",
];

/// Limit of operators, calls, attributes and filters in one expression: the engine recurses into each of them.
const MAX_OPERATORS: usize = 500;

/// Runs the parser on a sufficient stack.
pub(super) fn with_parser_stack<T>(parse: impl FnOnce() -> T) -> T {
    stacker::maybe_grow(PARSER_STACK_BYTES, PARSER_STACK_BYTES, parse)
}

/// Compiles a [prepared](super::prepared) template of any nesting on any thread.
pub(super) fn compile<'e>(
    engine: &'e Environment<'static>,
    name: &'e str,
    text: &'e str,
) -> Result<Template<'e, 'e>, Error> {
    with_parser_stack(|| engine.template_from_named_str(name, text))
}

/// Compiles a [prepared](super::prepared) expression of any nesting on any thread.
pub(super) fn compile_expression<'e>(
    engine: &'e Environment<'static>,
    expression: &'e str,
) -> Result<Expression<'e, 'e>, Error> {
    with_parser_stack(|| engine.compile_expression(expression))
}

/// Rejects a text with an expression that would exceed the engine's recursion limit.
///
/// As in the engine, braces end a section only outside of quotes.
pub(super) fn check_operators(text: &str) -> Result<(), Error> {
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
pub(super) fn opening(text: &str, seconds: &[char]) -> Option<usize> {
    text.match_indices('{').map(|(at, _)| at).find(|at| text[at + 1..].starts_with(seconds))
}

/// Returns the end of a section, and the number of its operators.
pub(super) fn section(text: &str) -> (usize, usize) {
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

/// Returns the tokens of the statements in a text.
pub(super) fn statements(text: &str) -> impl Iterator<Item = Vec<Token<'_>>> {
    sections(text).into_iter().filter(|(at, _)| text[..*at].ends_with('%')).map(|(_, section)| tokens(section))
}

pub(super) fn first_name<'t>(tokens: &[Token<'t>]) -> Option<&'t str> {
    tokens.iter().find_map(|token| if let Token::Name(name) = token { Some(*name) } else { None })
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
