//! Syntax errors of brackets in YAML, with the messages of Go's parser.

/// Returns the error of the brackets of a string, if they are unbalanced.
///
/// Lines count from 0, as that parser's do, and the end is on a line of its own. Line 0 is omitted from messages.
pub(super) fn mistake(text: &str) -> Option<String> {
    let mut open: Vec<(char, usize)> = Vec::new();
    let mut line = 0;
    // The line on which the preceding value began, if there is one.
    let mut value: Option<usize> = None;
    let mut chars = text.char_indices().peekable();
    let mut before = '\n';
    while let Some((_, c)) = chars.next() {
        let next = chars.peek().map(|(_, c)| *c);
        let apart = next.is_none_or(|next| next.is_whitespace() || matches!(next, ',' | '[' | ']' | '{' | '}'));
        match c {
            '\n' => {
                line += 1;
                if open.is_empty() {
                    value = None;
                }
            }
            '#' if before.is_whitespace() => while chars.next_if(|(_, c)| *c != '\n').is_some() {},
            '"' | '\'' if value.is_none() => {
                value = Some(line);
                while let Some((_, inner)) = chars.next() {
                    match inner {
                        '\n' => line += 1,
                        '\\' if c == '"' => drop(chars.next()),
                        end if end == c => break,
                        _ => {}
                    }
                }
            }
            '[' | '{' if !open.is_empty() || value.is_none() => {
                open.push((c, line));
                value = None;
            }
            ']' | '}' if !open.is_empty() => {
                open.pop();
                value = Some(line);
            }
            ',' if !open.is_empty() => value = None,
            ':' if apart => {
                let torn = value.is_some_and(|start| start < line);
                if torn && let Some((bracket @ '[', opened)) = open.last().copied() {
                    return Some(unfinished(bracket, opened, line));
                }
                value = None;
            }
            '-' if open.is_empty() && apart => value = None,
            c if c.is_whitespace() => {}
            _ => {
                value.get_or_insert(line);
            }
        }
        before = c;
    }
    let (bracket, opened) = open.last().copied()?;
    let end = line + usize::from(!text.ends_with('\n') && !text.is_empty());
    Some(match value {
        Some(_) => unfinished(bracket, opened, end),
        None => at(end, "did not find expected node content"),
    })
}

fn unfinished(bracket: char, opened: usize, found: usize) -> String {
    let close = if bracket == '[' { ']' } else { '}' };
    at(if opened == 0 { found } else { opened }, &format!("did not find expected ',' or '{close}'"))
}

fn at(line: usize, what: &str) -> String {
    if line == 0 { what.to_owned() } else { format!("line {line}: {what}") }
}

#[cfg(test)]
mod tests {
    use super::mistake;

    #[test]
    fn unclosed_brackets_are_reported() {
        let cases = [
            ("a: [", Some("line 1: did not find expected node content")),
            ("a: [b", Some("line 1: did not find expected ',' or ']'")),
            ("a: [b\nc: d", Some("line 1: did not find expected ',' or ']'")),
            ("{", Some("line 1: did not find expected node content")),
            ("{\"a\": 1", Some("line 1: did not find expected ',' or '}'")),
            ("a:\n  b: {c: d", Some("line 1: did not find expected ',' or '}'")),
            ("a: [b, '[', \"{\"] # [\nc: x[0]\nd: {e: f}\n", None),
            ("a: it's [not] a list\n", None),
        ];
        for (text, expected) in cases {
            assert_eq!(mistake(text).as_deref(), expected, "{text}");
        }
    }
}
