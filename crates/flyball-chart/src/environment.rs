//! Environment variables in strings, as in Go's `os.Expand`.

/// Replaces `$NAME` and `${NAME}` as Go's `os.Expand` does; variables that are not set are empty.
#[doc(alias = "ExpandEnv")]
pub fn expand_variables(text: &str, variable: &dyn Fn(&str) -> Option<String>) -> String {
    let (mut out, mut rest) = (String::new(), text);
    while let Some(at) = rest.find('$') {
        let (before, after) = (&rest[..at], &rest[at + 1..]);
        out.push_str(before);
        let (name, width) = name_of(after);
        match name {
            "" if width == 0 => out.push('$'),
            // An invalid `${` is removed.
            "" => {}
            name => out.push_str(&variable(name).unwrap_or_default()),
        }
        rest = &after[width..];
    }
    out + rest
}

/// Returns the name after a `$`, and its length in the text.
fn name_of(text: &str) -> (&str, usize) {
    let special = |c: char| matches!(c, '*' | '#' | '$' | '@' | '!' | '?' | '-') || c.is_ascii_digit();
    let Some(first) = text.chars().next() else { return ("", 0) };
    if first == '{' {
        return match text.find('}') {
            Some(end) => (&text[1..end], end + 1),
            None => ("", 1),
        };
    }
    if special(first) {
        return (&text[..1], 1);
    }
    let end = text.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(text.len());
    (&text[..end], end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn variables_are_expanded_as_by_go() {
        let expand = |text| expand_variables(text, &|name| Some(format!("<{name}>")));
        for (text, expected) in [
            ("$A_1.b", "<A_1>.b"),
            ("${A}b", "<A>b"),
            ("100$", "100$"),
            ("a$ b", "a$ b"),
            ("$$", "<$>"),
            ("$12", "<1>2"),
            ("${", ""),
            ("${}x", "x"),
            ("ä$ä", "ä$ä"),
        ] {
            assert_eq!(expand(text), expected, "{text}");
        }
    }
}
