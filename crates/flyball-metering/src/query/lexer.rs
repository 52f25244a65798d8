//! The tokens of SQL, as SQLite separates them.

/// A token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A name, keyword or number.
    Word(String),
    /// A name in double quotes, brackets or backticks.
    Quoted(String),
    /// A text in single quotes.
    Text(String),
    /// Any other character.
    Symbol(char),
}

/// Returns the argument of each call of a function: its text if it is one literal text.
pub(super) fn arguments(sql: &str, function: &str) -> Vec<Option<String>> {
    let tokens = tokens(sql);
    let calls = tokens.windows(2).enumerate().filter(|(_, pair)| match pair {
        [Token::Word(name) | Token::Quoted(name), Token::Symbol('(')] => name.eq_ignore_ascii_case(function),
        _ => false,
    });
    let argument = |at: usize| match &tokens[at + 2..] {
        [Token::Text(text), Token::Symbol(')'), ..] => Some(text.clone()),
        _ => None,
    };
    calls.map(|(at, _)| argument(at)).collect()
}

/// Returns the tokens of a text, without comments and parameters.
pub(super) fn tokens(sql: &str) -> Vec<Token> {
    let (mut rest, mut tokens) = (sql, Vec::new());
    while let Some(first) = rest.chars().next() {
        let length = match first {
            _ if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            _ if rest.starts_with("/*") => rest[2..].find("*/").map_or(rest.len(), |end| end + 4),
            '\'' | '"' | '`' | '[' => {
                let (text, length) = quoted(rest, first);
                tokens.push(if first == '\'' { Token::Text(text) } else { Token::Quoted(text) });
                length
            }
            // A mark of the byte order is a space.
            '\u{feff}' => first.len_utf8(),
            ':' | '@' | '#' | '$' => parameter(rest),
            _ if is_part_of_name(first) => {
                let length = rest.find(|c| !is_part_of_name(c)).unwrap_or(rest.len());
                tokens.push(Token::Word(rest[..length].to_owned()));
                length
            }
            _ => {
                if !first.is_ascii_whitespace() {
                    tokens.push(Token::Symbol(first));
                }
                first.len_utf8()
            }
        };
        rest = &rest[length..];
    }
    tokens
}

/// Returns the length of a parameter. It may have a suffix in parentheses, as variables of Tcl.
fn parameter(sql: &str) -> usize {
    let mut at = 1;
    loop {
        at += sql[at..].find(|c| !is_part_of_name(c)).unwrap_or(sql.len() - at);
        if !sql[at..].starts_with("::") {
            break;
        }
        at += 2;
    }
    if at > 1 && sql[at..].starts_with('(') {
        let end = sql[at..].find(|c: char| c == ')' || c.is_ascii_whitespace()).unwrap_or(sql.len() - at);
        at += end + usize::from(sql[at + end..].starts_with(')'));
    }
    at
}

fn is_part_of_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == '$' || !c.is_ascii()
}

/// Returns the content of a quoted text, in which the quote is doubled, and its length with quotes.
fn quoted(sql: &str, quote: char) -> (String, usize) {
    let end = if quote == '[' { ']' } else { quote };
    let (mut text, mut at) = (String::new(), 1);
    while let Some(length) = sql[at..].find(end) {
        text.push_str(&sql[at..at + length]);
        at += length + 1;
        if quote == '[' || !sql[at..].starts_with(end) {
            return (text, at);
        }
        text.push(end);
        at += 1;
    }
    (text + &sql[at..], sql.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_of_calls_are_literal_texts_or_none() {
        let name = |text: &str| Some(text.to_owned());
        for (sql, expected) in [
            ("SELECT input('A'), INPUT ( 'it''s' )", vec![name("A"), name("it's")]),
            ("SELECT \"input\"('A'), [Input](x), `input`/* '( */('B')", vec![name("A"), None, name("B")]),
            ("SELECT input('A' || uid), input(-- comment\n\"A\")", vec![None, None]),
            ("SELECT 'input(x)', inputs('A'), input -- input(x)", vec![]),
            ("SELECT input(", vec![None]),
            ("SELECT :x(') || input(x), $a::b('), '", vec![None]),
            ("SELECT \u{feff}input(x)", vec![None]),
            ("SELECT 'open input(x)", vec![]),
            ("SELECT \"ü\" /* open input('A')", vec![]),
        ] {
            assert_eq!(arguments(sql, "input"), expected, "{sql}");
        }
    }
}
