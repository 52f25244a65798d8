//! Case conversion, words, and line wrapping.

use super::{INT, STR, Table, cost, int, text};
use crate::context::Call;
use crate::value::Value;

pub(super) fn add(table: &mut Table) {
    // Go maps one character to one character: ß is unchanged.
    table.add("upper", cost::letters, &[STR], |_, args| {
        Ok(Value::str(text(&args[0]).chars().map(upper).collect::<String>()))
    });
    table.add("lower", cost::letters, &[STR], |_, args| {
        Ok(Value::str(text(&args[0]).chars().map(lower).collect::<String>()))
    });
    table.add("title", cost::letters, &[STR], |_, args| Ok(Value::str(title(&text(&args[0])))));
    table.add("untitle", cost::letters, &[STR], |_, args| Ok(Value::str(first_letters(&text(&args[0]), lower))));
    table.add("swapcase", cost::letters, &[STR], |_, args| {
        let swap = |c: char| if c.is_uppercase() { lower(c) } else { upper(c) };
        Ok(Value::str(text(&args[0]).chars().map(swap).collect::<String>()))
    });
    table.add("initials", cost::letters, &[STR], |_, args| {
        let mut after_space = true;
        let is_first = |c: &char| !c.is_whitespace() & std::mem::replace(&mut after_space, c.is_whitespace());
        Ok(Value::str(super::byte_chars(&args[0]).filter(is_first).collect::<String>()))
    });
    table.add("snakecase", cost::letters, &[STR], |_, args| Ok(Value::str(separated(&text(&args[0]), '_'))));
    table.add("kebabcase", cost::letters, &[STR], |_, args| Ok(Value::str(separated(&text(&args[0]), '-'))));
    table.add("camelcase", cost::letters, &[STR], |_, args| Ok(Value::str(camel(&text(&args[0])))));
    table.add("wrap", cost::letters, &[INT, STR], |call, args| wrap(call, &text(&args[1]), int(&args[0]), "\n", false));
    table.add("wrapWith", cost::letters, &[INT, STR, STR], |call, args| {
        let separator = text(&args[1]);
        let separator = if separator.is_empty() { "\n" } else { &*separator };
        wrap(call, &text(&args[2]), int(&args[0]), separator, true)
    });
}

fn only(mut mapped: impl Iterator<Item = char>, otherwise: char) -> char {
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => otherwise,
    }
}

fn upper(c: char) -> char {
    only(c.to_uppercase(), c)
}

fn lower(c: char) -> char {
    only(c.to_lowercase(), c)
}

fn title(text: &str) -> String {
    let is_word = |c: char| c.is_alphanumeric() || c == '_' || (!c.is_ascii() && !c.is_whitespace());
    let mut was_word = false;
    text.chars()
        .map(|c| {
            let mapped = if was_word { c } else { upper(c) };
            was_word = is_word(c);
            mapped
        })
        .collect()
}

/// Maps the first letter of each word.
fn first_letters(text: &str, map: fn(char) -> char) -> String {
    let mut begins = true;
    text.chars()
        .map(|c| {
            let mapped = if begins { map(c) } else { c };
            begins = c.is_whitespace();
            mapped
        })
        .collect()
}

fn is_connector(c: char) -> bool {
    c == '-' || c == '_' || c.is_whitespace()
}

fn camel(text: &str) -> String {
    let mut out = String::new();
    let mut chars = text.chars().peekable();
    // Leading separators are kept.
    while let Some(c) = chars.next_if(|c| is_connector(*c)) {
        out.push(c);
    }
    let Some(first) = chars.next() else { return out };
    let mut last = upper(first);
    // Of an acronym, only the first letter is capitalized: ID becomes Id.
    let mut in_capitals = first.is_uppercase();
    for c in chars {
        match (is_connector(last), is_connector(c)) {
            (true, true) => {
                out.push(last);
                last = c;
            }
            (true, false) => {
                in_capitals = c.is_uppercase();
                last = upper(c);
            }
            (false, _) => {
                out.push(last);
                in_capitals &= c.is_uppercase();
                last = if in_capitals { lower(c) } else { c };
            }
        }
    }
    out.push(last);
    out
}

/// Character classes of words.
#[derive(Clone, Copy, PartialEq)]
enum Sort {
    End,
    Number,
    Upper,
    Letters,
    Connector,
    Punctuation,
    Other,
}

/// Splits a name into words, as huandu/xstrings does.
struct Words {
    chars: Vec<char>,
    at: usize,
}

fn is_letter(c: char) -> bool {
    c.is_alphabetic() && !matches!(c, '\u{3400}'..='\u{9fff}' | '\u{f900}'..='\u{faff}' | '\u{20000}'..)
}

fn is_punctuation(c: char) -> bool {
    (c.is_ascii_punctuation() && !"$+<=>^`|~".contains(c))
        || matches!(c, '\u{2010}'..='\u{2027}' | '\u{3001}'..='\u{3003}')
}

impl Words {
    fn is_done(&self) -> bool {
        self.at >= self.chars.len()
    }

    fn run(&self, from: usize, is: impl Fn(char) -> bool) -> usize {
        from + self.chars[from..].iter().take_while(|c| is(**c)).count()
    }

    fn next(&mut self) -> (Sort, String) {
        let Some(c) = self.chars.get(self.at).copied() else { return (Sort::End, String::new()) };
        let start = self.at;
        let is_small = |c: char| is_letter(c) && !c.is_uppercase();
        let (sort, end) = if is_connector(c) {
            (Sort::Connector, self.run(start, is_connector))
        } else if is_punctuation(c) {
            (Sort::Punctuation, self.run(start, is_punctuation))
        } else if c.is_uppercase() {
            let uppers = self.run(start, char::is_uppercase);
            let end = match (uppers - start, self.chars.get(uppers)) {
                (1, _) => self.run(uppers, is_small),
                // The last uppercase letter starts the next word: HTTP, Server.
                (_, Some(next)) if is_letter(*next) => uppers - 1,
                _ => uppers,
            };
            (Sort::Upper, end)
        } else if is_letter(c) {
            (Sort::Letters, self.run(start, is_small))
        } else if c.is_numeric() {
            (Sort::Number, self.run(start, char::is_numeric))
        } else {
            let is_other = |c: char| {
                c == ' '
                    || !(is_connector(c) || is_letter(c) || c.is_numeric() || is_punctuation(c) || c.is_uppercase())
            };
            (Sort::Other, self.run(start, is_other).max(start + 1))
        };
        self.at = end;
        (sort, self.chars[start..end].iter().collect())
    }
}

/// Converts `HTTPServer` to `http_server` or `http-server`.
fn separated(text: &str, connector: char) -> String {
    let mut out = String::new();
    let mut words = Words { chars: text.chars().collect(), at: 0 };
    let push = |out: &mut String, sort: Sort, word: &str| match sort {
        Sort::Upper | Sort::Connector => {
            out.extend(word.chars().map(|c| if is_connector(c) { connector } else { lower(c) }));
        }
        _ => out.push_str(word),
    };
    let (mut sort, mut word) = words.next();
    while !words.is_done() {
        if sort != Sort::Connector {
            push(&mut out, sort, &word);
        }
        let (previous, last) = (sort, word);
        (sort, word) = words.next();
        match previous {
            Sort::Number => {
                while matches!(sort, Sort::Letters | Sort::Number) {
                    push(&mut out, sort, &word);
                    (sort, word) = words.next();
                }
                if !matches!(sort, Sort::End | Sort::Punctuation | Sort::Connector) {
                    out.push(connector);
                }
            }
            Sort::Connector => push(&mut out, previous, &last),
            Sort::Punctuation => {}
            _ if sort != Sort::Number => {
                if !matches!(sort, Sort::Connector | Sort::Punctuation) {
                    out.push(connector);
                }
            }
            _ if words.is_done() => {}
            _ => {
                let number = word;
                (sort, word) = words.next();
                if sort == Sort::Letters {
                    out.push(connector);
                    push(&mut out, Sort::Number, &number);
                    while matches!(sort, Sort::Letters | Sort::Number) {
                        push(&mut out, sort, &word);
                        (sort, word) = words.next();
                    }
                    if !matches!(sort, Sort::End | Sort::Connector | Sort::Punctuation) {
                        out.push(connector);
                    }
                } else {
                    push(&mut out, Sort::Number, &number);
                    if !matches!(sort, Sort::Connector | Sort::Punctuation) {
                        out.push(connector);
                    }
                }
            }
        }
    }
    push(&mut out, sort, &word);
    out
}

/// Breaks lines at spaces, and optionally within words that are too long.
fn wrap(call: &Call<'_>, text: &str, width: i64, separator: &str, breaks_words: bool) -> Result<Value, String> {
    let bytes = text.as_bytes();
    let width = usize::try_from(width).unwrap_or(0).max(1);
    // A line is shorter than the width only if the next word does not fit, so two lines together exceed the width.
    let breaks = 2 * bytes.len() / width + 1;
    let length = breaks.saturating_mul(separator.len()).saturating_add(bytes.len());
    if length > super::MAX_TEXT_BYTES {
        return Err(format!("the text is larger than {} bytes", super::MAX_TEXT_BYTES));
    }
    call.context.charge(length / 16, length * 2)?;
    let mut out = Vec::new();
    let mut at = 0;
    while bytes.len() - at > width {
        if bytes[at] == b' ' {
            at += 1;
            continue;
        }
        let end = at + width;
        let next = match bytes[at..=end].iter().rposition(|byte| *byte == b' ') {
            Some(space) => Some(at + space),
            None if breaks_words => {
                out.extend(&bytes[at..end]);
                out.extend(separator.bytes());
                at = end;
                continue;
            }
            None => bytes[end..].iter().position(|byte| *byte == b' ').map(|space| end + space),
        };
        let stop = next.unwrap_or(bytes.len());
        out.extend(&bytes[at..stop]);
        at = stop;
        if next.is_some() {
            out.extend(separator.bytes());
            at += 1;
        }
    }
    out.extend(&bytes[at..]);
    Ok(Value::str(String::from_utf8_lossy(&out).into_owned()))
}
